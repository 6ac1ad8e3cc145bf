#!/usr/bin/env python3
"""rumbo-fetch against a hub that lies, cuts, stalls and redirects; and killed again and again."""
import hashlib
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from fake_hub import Hub, git_sha1  # noqa: E402

BIN = pathlib.Path(os.environ.get("RUMBO_BIN_DIR", HERE.parents[1] / "build/release/bin"))
KILLS = int(os.environ.get("RUMBO_KILLS", "15"))


def sha(data):
    return hashlib.sha256(data).hexdigest()


class FetchTest(unittest.TestCase):
    def setUp(self):
        self.hub = Hub()
        self.addCleanup(self.hub.close)
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="rumbo-fetch-"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        self.out = self.dir / "blob"
        self.data = random.Random(7).randbytes(40 << 20)
        self.hub.files["/m"] = self.data

    def request(self, **more):
        return {"op": "blob", "urls": [f"{self.hub.endpoint}/m"], "out": str(self.out), "folder": str(self.dir), "bytes": len(self.data),
                "sha256": sha(self.data), "named": self.hub.hosts.split(","), "retry_ms": 5, "stall_s": 30, "sync_ms": 50, "attempts": 4} | more

    def start(self, request, env=None):
        p = subprocess.Popen([BIN / "rumbo-fetch"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        p.stdin.write(json.dumps(request) + "\n")
        p.stdin.flush()
        self.addCleanup(p.stdout.close)
        self.addCleanup(p.stdin.close)
        return p

    def fetch(self, request=None, env=None, **more):
        p = self.start(request or self.request(**more), env)
        events = [json.loads(line) for line in p.stdout]
        p.wait(60)
        self.assertIn(events[-1]["event"], ("done", "error"))
        return events[-1]

    def good(self, answer):
        self.assertEqual(answer.get("event"), "done", answer)
        self.assertEqual(answer["sha256"], sha(self.data))
        self.assertEqual(self.out.read_bytes(), self.data)

    def bad(self, answer, reason, kept=None):
        self.assertEqual(answer.get("event"), "error", answer)
        self.assertEqual(answer["reason"], reason, answer)
        self.assertTrue(answer["message"])
        if kept is not None:
            self.assertEqual(self.out.exists(), kept)

    def test_whole_file_in_parallel_ranges(self):
        self.good(self.fetch())
        ranges = {r[3].get("Range") for r in self.hub.asked("/m")}
        self.assertGreaterEqual(len(ranges), 3)
        self.assertNotIn(None, ranges)

    def test_length_unknown_before(self):
        self.good(self.fetch(bytes=None, sha256=""))

    def test_server_without_ranges(self):
        self.hub.fail("no_range")
        self.good(self.fetch())

    def test_server_without_length(self):
        self.hub.fail("no_range", times=0)
        self.hub.fail("no_length")
        self.good(self.fetch())

    def test_cut_connections_are_gone_on_with(self):
        self.hub.fail("cut", at=1_000_000, times=6)
        self.good(self.fetch())

    def test_stall_is_broken_off(self):
        self.hub.fail("stall", at=1_000_000, times=1)
        self.good(self.fetch(stall_s=2, attempts=20))

    def test_clean_close_before_the_end(self):
        self.hub.fail("short", times=2)
        self.good(self.fetch())

    def test_server_errors_are_tried_again(self):
        self.hub.fail("status", at=503, times=2)
        self.good(self.fetch())

    def test_wrong_range_is_refused(self):
        self.hub.fail("wrong_range")
        self.bad(self.fetch(), "BACKEND_UNAVAILABLE")

    def test_wrong_length_is_refused(self):
        self.bad(self.fetch(bytes=len(self.data) + 1), "BACKEND_UNAVAILABLE")
        self.hub.fail("other_total")
        self.out.unlink(missing_ok=True)
        self.bad(self.fetch(), "BACKEND_UNAVAILABLE")

    def test_more_than_announced_is_not_taken(self):
        self.hub.fail("long")
        self.good(self.fetch())

    def test_flipped_byte_is_found_and_nothing_kept(self):
        self.hub.fail("flip", at=33_000_000)
        self.bad(self.fetch(), "HASH_MISMATCH", kept=False)
        self.assertFalse(pathlib.Path(str(self.out) + ".journal").exists())
        self.hub.faults.clear()
        self.good(self.fetch())

    def test_small_files_are_checked_by_their_object_name(self):
        self.hub.files["/m"] = self.data = b"{}" * 100
        self.good(self.fetch(sha256="", git_sha1=git_sha1(self.data)))
        self.out.unlink()
        self.bad(self.fetch(sha256="", git_sha1="0" * 40), "HASH_MISMATCH", kept=False)

    def test_empty_file(self):
        self.hub.files["/m"] = self.data = b""
        self.good(self.fetch())

    def half(self, **more):
        """A download that was stopped somewhere in the middle."""
        p = self.start(self.request(rate=6 << 20, connections=2, **more))
        for line in p.stdout:
            event = json.loads(line)
            if event["event"] == "progress" and event["done"] > 3 << 20:
                break
        p.stdin.write("stop\n")
        p.stdin.flush()
        last = [json.loads(line) for line in p.stdout][-1]
        p.wait(20)
        self.bad(last, "CANCELLED", kept=True)

    def test_stop_keeps_what_came(self):
        self.half()
        before = len(self.hub.asked("/m"))
        answer = self.fetch()
        self.good(answer)
        self.assertGreater(answer["resumed"], 2 << 20)
        asked = self.hub.asked("/m")[before:]
        self.assertTrue(all(r[3].get("If-Range") for r in asked), asked)

    def test_changed_content_is_never_appended_to(self):
        self.half(sha256="")
        self.hub.files["/m"] = self.data = random.Random(8).randbytes(40 << 20)
        answer = self.fetch(sha256="")
        self.good(answer)
        self.assertEqual(answer["resumed"], 0)

    def test_shrunk_file_after_a_break(self):
        self.half(sha256="", bytes=None)
        self.hub.files["/m"] = self.data = random.Random(9).randbytes(1 << 20)
        self.good(self.fetch(sha256="", bytes=None))

    def test_resume_with_416(self):
        self.half(sha256="", bytes=None)
        self.hub.fail("416", times=1)
        self.good(self.fetch(sha256="", bytes=None))

    def test_input_ending_stops_it(self):
        p = self.start(self.request(rate=4 << 20))
        p.stdin.close()
        self.assertEqual([json.loads(line) for line in p.stdout][-1]["reason"], "CANCELLED")
        p.wait(10)

    def test_killed_anywhere_it_goes_on(self):
        """SIGKILL at random moments: each time the next run goes on, and the end is right."""
        random.seed(1)
        kills = resumed = 0
        while kills < KILLS:
            self.out.unlink(missing_ok=True)
            pathlib.Path(str(self.out) + ".journal").unlink(missing_ok=True)
            for _ in range(random.randint(1, 4)):
                p = self.start(self.request(rate=40 << 20))
                at, seen = random.randint(0, len(self.data)), 0
                delay = random.random() * 0.6
                if random.random() < 0.5:
                    time.sleep(delay)
                else:
                    for line in p.stdout:
                        event = json.loads(line)
                        seen = event.get("done", 0)
                        if event["event"] != "progress" or seen >= at:
                            break
                p.send_signal(signal.SIGKILL)
                p.wait()
                kills += 1
            answer = self.fetch()
            self.good(answer)
            resumed += answer["resumed"] > 0
        self.assertGreater(resumed, 0)
        print(f"\n{kills} kills, {resumed} ends that went on from an earlier run", file=sys.stderr)

    def test_mirror_takes_over(self):
        self.hub.files["/mirror"] = self.data
        self.hub.fail("status", path="/m", at=404, times=1)
        self.good(self.fetch(urls=[f"{self.hub.endpoint}/m", f"{self.hub.endpoint}/mirror"]))

    def test_redirect_to_an_unnamed_inner_address_is_refused(self):
        for to in (f"http://127.0.0.1:{self.hub.blob_port}/m", f"https://127.0.0.1:{self.hub.blob_port}/m", "https://169.254.169.254/latest",
                   "https://[::1]/m", "https://[::ffff:127.0.0.1]/m", "https://0.0.0.0/m", "file:///etc/passwd", "https://127.1/m",
                   "https://2130706433/m", "http://example.org/m", "gopher://x/"):
            self.hub.faults.clear()
            self.hub.fail("redirect", to=to)
            self.bad(self.fetch(), "NOT_ALLOWED_BY_POLICY")
        self.assertFalse(self.hub.asked("/", role="blobs"))

    def test_a_name_that_resolves_to_loopback_is_refused(self):
        # "localhost" is refused by its name; this machine's own name is one that only the resolver knows as 127.x.
        import socket
        name = socket.gethostname().lower()
        try:
            inner = socket.gethostbyname(name)
        except OSError:
            self.skipTest("this machine's name resolves to nothing")
        self.bad(self.fetch(urls=[f"https://{name}:{self.hub.port}/m"], named=[]), "NOT_ALLOWED_BY_POLICY")
        del inner

    def test_loops_end(self):
        self.hub.fail("loop")
        self.bad(self.fetch(), "BACKEND_UNAVAILABLE")

    def test_redirect_to_a_named_host_is_followed_without_the_token(self):
        self.hub.files["/blob/x"] = self.data
        self.hub.fail("redirect", path="/m", to=f"{self.hub.blob_endpoint}/blob/x")
        self.good(self.fetch(token="CANARY", token_origin=self.hub.endpoint))
        self.assertTrue(self.hub.asked("/m", "front"))
        self.assertTrue(all(r[3]["Authorization"] == "Bearer CANARY" for r in self.hub.asked("/m", "front")))
        blobs = self.hub.asked("/blob/x", "blobs")
        self.assertTrue(blobs)
        self.assertFalse([r for r in blobs if "Authorization" in r[3]])

    def test_proxy_of_the_environment_is_not_for_loopback(self):
        env = os.environ | {k: "http://127.0.0.1:9" for k in ("http_proxy", "https_proxy", "ALL_PROXY")}
        self.good(self.fetch(env=env))

    def test_a_proxy_is_used_for_everything_else(self):
        answer = self.fetch(urls=["http://mirror.example/m"], named=["mirror.example"], proxy=self.hub.endpoint, attempts=1)
        self.assertEqual(answer["event"], "error")
        self.assertTrue([r for r in self.hub.requests if "mirror.example" in r[2]])

    def test_rate_limit(self):
        self.hub.files["/m"] = self.data = self.data[:6 << 20]
        start = time.monotonic()
        self.good(self.fetch(rate=4 << 20))
        self.assertGreater(time.monotonic() - start, 1.2)

    def test_full_disk_is_said_and_goes_on_later(self):
        if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "none", self.dir]).returncode:
            self.skipTest("cannot mount here")
        self.addCleanup(subprocess.run, ["umount", self.dir])
        self.bad(self.fetch(), "DISK_FULL", kept=True)
        subprocess.run(["mount", "-o", "remount,size=100m", self.dir], check=True)
        answer = self.fetch()
        self.good(answer)
        self.assertGreater(answer["resumed"], 0)

    def test_full_disk_at_each_write(self):
        if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8k", "none", self.dir]).returncode:
            self.skipTest("cannot mount here")
        self.addCleanup(subprocess.run, ["umount", self.dir])
        self.hub.files["/m"] = self.data = self.data[:300_000]
        for size in range(8, 400, 24):
            subprocess.run(["mount", "-o", f"remount,size={size}k", self.dir], check=True)
            answer = self.fetch()
            if answer["event"] == "done":
                break
            self.bad(answer, "DISK_FULL")
        self.good(answer)

    def test_confined(self):
        """It can write below its folder only."""
        outside = pathlib.Path(tempfile.mkdtemp(prefix="rumbo-outside-"))
        self.addCleanup(shutil.rmtree, outside)
        answer = self.fetch(out=str(outside / "x"))
        self.assertEqual(answer["event"], "error", answer)
        self.assertFalse(list(outside.iterdir()))

    def test_a_link_in_the_way_is_not_followed(self):
        victim = self.dir / "victim"
        victim.write_text("mine")
        self.out.symlink_to(victim)
        self.assertEqual(self.fetch()["event"], "error")
        self.assertEqual(victim.read_text(), "mine")

    def test_hub_listing(self):
        self.hub.add_repo("org/model", {"m-Q8_0.gguf": self.data, "config.json": b"{}"})
        answer = self.fetch({"op": "hub", "endpoint": self.hub.endpoint, "repository": "org/model", "revision": "main", "named": self.hub.hosts.split(",")})
        self.assertEqual(answer["event"], "done", answer)
        files = {f["path"]: f for f in answer["model"]["files"]}
        self.assertEqual(files["m-Q8_0.gguf"]["sha256"], sha(self.data))
        self.assertEqual(files["config.json"]["git_sha1"], git_sha1(b"{}"))
        self.assertEqual(answer["model"]["licence"], "apache-2.0")
        none = self.fetch({"op": "hub", "endpoint": self.hub.endpoint, "repository": "org/none", "revision": "main", "named": self.hub.hosts.split(",")})
        self.bad(none, "MODEL_NOT_FOUND")

    def test_registry_with_a_token_for_everybody(self):
        self.hub.add_registry("library/tiny", "latest", self.data, [("template", b"{{ .Prompt }}"), ("license", b"MIT")])
        self.hub.registry_token = "anonymous-1"
        request = {"op": "registry", "endpoint": self.hub.endpoint, "repository": "library/tiny", "tag": "latest", "named": self.hub.hosts.split(","),
                   "token": "CANARY", "token_origin": "https://huggingface.co:443"}
        answer = self.fetch(request)
        self.assertEqual(answer["event"], "done", answer)
        self.assertEqual([f["path"] for f in answer["model"]["files"]], ["model", "template", "license"])
        self.assertEqual(answer["bearer"], "anonymous-1")
        self.assertFalse([r for r in self.hub.requests if "CANARY" in str(r[3])])
        self.hub.realm = "http://169.254.169.254/token"
        self.assertEqual(self.fetch(request)["event"], "error")


if __name__ == "__main__":
    unittest.main()
