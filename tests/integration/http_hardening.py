"""Hostile callers against a real daemon with the fake engine: what docs/http.md promises, measured from outside.

RUMBO_HARDENING=full takes the sizes of the security record (10,000 connections, 10,000 schemas); the default is smaller.
Standard library only.
"""
import gzip
import http.client
import json
import os
import pathlib
import resource
import socket
import stat
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from harness import BIN, SKIP, Daemon, wait_until  # noqa: E402

D = None
FULL = os.environ.get("RUMBO_HARDENING") == "full"
MANY = 10_000 if FULL else 1_000
TOKEN = "hardening-canary-token-3f786850e387550f"
MB = 1 << 20


def rss(pid=None):
    return int(pathlib.Path(f"/proc/{pid or D.process.pid}/statm").read_text().split()[1]) * resource.getpagesize()


def connect(port=None):
    s = socket.create_connection(("127.0.0.1", port or D.port), timeout=60)
    return s


def read_all(s, limit=1 << 20):
    out = b""
    try:
        while len(out) < limit:
            piece = s.recv(65536)
            if not piece:
                break
            out += piece
    except OSError:
        pass
    s.close()
    return out


def raw(data, port=None):
    """Sends bytes on a connection of its own; the status of the answer (0: none) and whether the server then closed it."""
    s = connect(port)
    try:
        s.sendall(data)
    except OSError:
        pass
    out = read_all(s)
    return (int(out.split(b" ", 2)[1]) if out.startswith(b"HTTP/1.") else 0), out


def head(method="POST", path="/v1/completions", *lines):
    return (f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{D.port}\r\n" + "".join(line + "\r\n" for line in lines)).encode()


def ask(path, body, headers=None, port=None, method="POST"):
    connection = http.client.HTTPConnection("127.0.0.1", port or D.port, timeout=60)
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    connection.request(method, path, data, {"Content-Type": "application/json"} | (headers or {}))
    response = connection.getresponse()
    text = response.read()
    connection.close()
    return response.status, dict(response.getheaders()), text


def prompt(**more):
    return {"model": "fake", "prompt": "one two", "max_tokens": 3} | more


def latency(count=100):
    """p99 of GET /live in ms, each on a connection of its own."""
    out = []
    for _ in range(count):
        begin = time.perf_counter()
        status, _ = raw(head("GET", "/live", "Connection: close") + b"\r\n")
        assert status == 200, status
        out.append((time.perf_counter() - begin) * 1e3)
    return sorted(out)[int(count * 0.99) - 1]


class Bytes(unittest.TestCase):
    """T21, T23: bytes that no client sends."""

    def test_t21_endless_header_is_cut_off(self):
        before = rss()
        s = connect()
        sent = 0
        try:
            s.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nX: ")
            for _ in range(1024):  # up to 1 GiB
                s.sendall(b"a" * MB)
                sent += MB
        except OSError:
            pass
        out = read_all(s)
        self.assertLess(sent, 64 * MB)
        self.assertTrue(out == b"" or out.startswith(b"HTTP/1.1 431"), out[:60])
        self.assertLess(rss() - before, 64 * MB)

    def test_t21_malformed_bodies_are_4xx(self):
        before = rss()
        json_type = "Content-Type: application/json"
        bomb = gzip.compress(b"a" * (64 * MB))
        deep = b'{"model":"fake","prompt":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
        for data, want in ((head("POST", "/v1/completions", json_type, "Transfer-Encoding: chunked") + b"\r\n-2\r\nab\r\n", {400}),
                           (head("POST", "/v1/completions", json_type, "Transfer-Encoding: chunked") +
                            b"\r\nffffffffffffffffff\r\n", {400}),
                           (head("POST", "/v1/completions", json_type, "Content-Encoding: gzip", f"Content-Length: {len(bomb)}") +
                            b"\r\n" + bomb, {415}),
                           (head("POST", "/v1/completions", json_type, f"Content-Length: {len(deep)}") + b"\r\n" + deep, {400}),
                           (head("POST", "/v1/completions", json_type, "Content-Length: 99999999999") + b"\r\n", {413}),
                           (head("POST", "/v1/completions", json_type, "Content-Length: -1") + b"\r\n", {400}),
                           (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 64, {400})):
            status, out = raw(data)
            self.assertIn(status, want, data[:120])
        self.assertLess(rss() - before, 64 * MB)
        self.assertEqual(ask("/v1/completions", prompt())[0], 200)

    def test_t23_ambiguous_lengths_are_refused_and_the_connection_ends(self):
        smuggled = b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n"
        for lines in (("Content-Length: 4", "Transfer-Encoding: chunked"), ("Content-Length: 4", "Content-Length: 5"),
                      ("Transfer-Encoding: chunked", "Transfer-Encoding: identity"), ("Transfer-Encoding: xchunked",),
                      ("Transfer-Encoding : chunked",), ("Content-Length: 4, 4",), ("Content-Length: +4",)):
            status, out = raw(head("POST", "/v1/completions", "Content-Type: application/json", *lines) +
                              b"\r\n0\r\n\r\n" + smuggled)
            self.assertEqual(status, 400, lines)
            self.assertEqual(out.count(b"HTTP/1."), 1, lines)


class Quotas(unittest.TestCase):
    def test_t24_exactly_the_budget_is_admitted(self):
        with Daemon(extra=["--http-at-once", "10"]) as daemon:
            daemon.cli("load", "fake", "--engine", "fake", "--sessions", "16")
            slow = {"model": "fake", "prompt": "x", "max_tokens": 100000, "stream": True}
            sockets = [connect(daemon.port) for _ in range(100)]
            data = json.dumps(slow).encode()
            request = (f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:{daemon.port}\r\nContent-Type: application/json\r\n"
                       f"Content-Length: {len(data)}\r\n\r\n").encode() + data
            for s in sockets:
                s.sendall(request)
            heads = [s.recv(600) for s in sockets]
            for s in sockets:
                s.close()
            statuses = [int(h.split()[1]) for h in heads]
            self.assertEqual(statuses.count(200), 10)
            self.assertEqual(statuses.count(429), 90)
            self.assertTrue(all(b"retry-after: 1\r\n" in h for h in heads if h.split()[1] == b"429"))


class Secrets(unittest.TestCase):
    """T25, T26: what is never written down, and how the rest is."""

    def test_t25_t26_logs_hold_no_secret_and_one_line_per_record(self):
        with tempfile.TemporaryDirectory() as folder:
            for log_format in ("text", "json"):
                home = pathlib.Path(folder) / log_format
                (home / "state").mkdir(parents=True, mode=0o700)
                home.chmod(0o700)
                tokens = home / "state/tokens"
                tokens.touch(mode=0o600)
                tokens.write_text(f"ci models {TOKEN}\n")
                with Daemon(home, extra=["--log-level", "debug", "--log-format", log_format]) as daemon:
                    port = daemon.port
                    canary = "prompt-canary-9ac0"
                    for headers in ({"Authorization": f"Bearer {TOKEN}"}, {"x-api-key": TOKEN}, {"x-api-key": TOKEN + "x"},
                                    {"Authorization": f"Basic {TOKEN}"}):
                        ask("/api/delete", {"model": "evil\u001b[31m\r\nforged level=info \u2028 \ud7ff"}, headers, port, "DELETE")
                        ask("/v1/completions", {"model": "absent", "prompt": canary}, headers, port)
                        ask(f"/v1/models/{TOKEN}", None, headers, port, "GET")
                        ask(f"/v1/models?key={TOKEN}", None, headers, port, "GET")
                    raw(f"GET /v1/models/%ff%fe%0d%0aforged HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n".encode(), port)
                    metrics = ask("/metrics", None, None, port, "GET")[2].decode()
                    daemon.process.terminate()
                    daemon.process.wait(20)
                    texts = {"metrics": metrics, "log": (home / "log").read_text(errors="strict"),
                             "audit": (home / "state/audit.log").read_text(errors="strict")}
                for name, text in texts.items():
                    self.assertNotIn(TOKEN, text, name)
                    self.assertNotIn(canary, text, name)
                    self.assertNotIn("\x1b", text, name)
                    self.assertFalse([line for line in text.split("\n") if line.startswith("forged")], name)
                for line in texts["audit"].rstrip("\n").split("\n"):
                    json.loads(line)
                if log_format == "json":
                    records = [json.loads(line) for line in texts["log"].rstrip("\n").split("\n")]
                    self.assertTrue(any("http id=req-" in r["message"] for r in records))


class Files(unittest.TestCase):
    """T27: whatever the umask and whoever came first."""

    def test_t27_umask_does_not_open_anything(self):
        old = os.umask(0)
        try:
            with Daemon() as daemon:
                daemon.cli("load", "fake", "--engine", "fake")
                for path in [daemon.dir / "s", *(daemon.dir / "state").rglob("*"), daemon.dir / "state"]:
                    mode = path.lstat().st_mode
                    if not stat.S_ISLNK(mode):
                        self.assertEqual(mode & 0o077, 0, path)
        finally:
            os.umask(old)

    def test_t27_folders_of_others_refuse_the_start(self):
        with tempfile.TemporaryDirectory() as folder:
            def start(state, sock):
                return subprocess.run([BIN / "rumbod", "--state-dir", state, "--cache-dir", f"{folder}/cache", "--http", "off",
                                       "--socket", sock], capture_output=True, text=True, timeout=20)
            open_state = pathlib.Path(folder) / "open"
            open_state.mkdir()
            open_state.chmod(0o777)
            r = start(open_state, f"{folder}/s")
            self.assertEqual(r.returncode, 1)
            self.assertIn("can be written by others", r.stderr)
            r = start(f"{folder}/state", f"{open_state}/s")
            self.assertEqual(r.returncode, 1)
            state = pathlib.Path(folder) / "state2"
            state.mkdir(mode=0o700)
            (state / "tokens").write_text(f"a admin {TOKEN}\n")
            (state / "tokens").chmod(0o644)
            r = subprocess.run([BIN / "rumbod", "--state-dir", state, "--cache-dir", f"{folder}/cache", "--http", "127.0.0.1:0",
                                "--socket", f"{folder}/s2"], capture_output=True, text=True, timeout=20)
            self.assertEqual(r.returncode, 1)
            self.assertNotIn(TOKEN, r.stderr)
            if os.geteuid() == 0:
                foreign = pathlib.Path(folder) / "foreign"
                foreign.mkdir(mode=0o700)
                os.chown(foreign, 65534, 65534)
                self.assertEqual(start(foreign, f"{folder}/s").returncode, 1)


class Worker(unittest.TestCase):
    def test_t20_workers_listen_nowhere(self):
        """Of the daemon and all its children only the daemon's own port listens."""
        def inodes(pid):
            out = set()
            for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
                try:
                    target = os.readlink(fd)
                except OSError:
                    continue
                if target.startswith("socket:["):
                    out.add(target[8:-1])
            return out

        worker = D.worker_pid("fake")
        listening = {}
        for pid in (D.process.pid, worker):
            for table in ("tcp", "tcp6", "udp", "udp6"):
                file = pathlib.Path(f"/proc/{pid}/net/{table}")
                for line in file.read_text().splitlines()[1:] if file.exists() else []:
                    fields = line.split()
                    if fields[3] in ("0A", "07") and fields[9] in inodes(pid):
                        listening.setdefault(pid, set()).add((table, int(fields[1].split(":")[1], 16)))
        self.assertEqual(listening, {D.process.pid: {("tcp", D.port)}})


class Numbers(unittest.TestCase):
    def test_t19_every_number_is_in_range_or_400(self):
        before = rss()
        for field in ("max_tokens", "temperature", "top_p", "top_k", "min_p", "frequency_penalty", "presence_penalty",
                      "repeat_penalty", "n", "best_of", "logprobs", "seed", "repeat_last_n"):
            for value in (-1, 0, 2**31, 10**18, 1e308, -1e308, "NaN", None, [], {}):
                status = ask("/v1/completions", prompt(**{field: value, "stream": False}) | (
                    {} if field == "max_tokens" else {"max_tokens": 2}))[0]
                self.assertIn(status, (200, 400), (field, value))
            self.assertEqual(raw(head("POST", "/v1/completions", "Content-Type: application/json", "Connection: close",
                                      "Content-Length: 40") +
                                 b'\r\n{"model":"fake","prompt":"x","n": NaN   }')[0], 400)
        self.assertLess(rss() - before, 32 * MB)


class Crowds(unittest.TestCase):
    """T35, T37, T38."""

    def test_t35_out_of_descriptors_sheds_and_recovers(self):
        code = ("import resource,os,sys; resource.setrlimit(resource.RLIMIT_NOFILE,(96,96)); "
                "os.execv(sys.argv[1], sys.argv[1:])")
        with tempfile.TemporaryDirectory() as folder:
            with socket.socket() as s:
                s.bind(("127.0.0.1", 0))
                port = s.getsockname()[1]
            p = subprocess.Popen([sys.executable, "-c", code, BIN / "rumbod", "--socket", f"{folder}/s", "--http",
                                  f"127.0.0.1:{port}", "--state-dir", f"{folder}/state", "--cache-dir", f"{folder}/cache"],
                                 stderr=subprocess.DEVNULL)
            try:
                self.assertTrue(wait_until(lambda: subprocess.run(
                    [BIN / "rumbo", "status"], env=os.environ | {"RUMBO_SOCKET": f"{folder}/s"},
                    capture_output=True).returncode == 0, 20, 0.1))
                sockets = []
                for _ in range(400):
                    s = socket.socket()
                    s.settimeout(5)
                    try:
                        s.connect(("127.0.0.1", port))
                    except OSError:
                        pass
                    sockets.append(s)
                self.assertIsNone(p.poll())
                for s in sockets:
                    s.close()
                begin = time.monotonic()

                def served():
                    try:
                        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
                        connection.request("GET", "/live", headers={"Connection": "close"})
                        response = connection.getresponse()
                        response.read()
                        return response.status == 200
                    except (OSError, http.client.HTTPException):
                        return False

                self.assertTrue(wait_until(served, 20, 0.05))
                self.assertLess(time.monotonic() - begin, 5)
            finally:
                p.terminate()
                p.wait(20)

    def test_t37_disconnects_at_any_point_free_everything(self):
        body = json.dumps(prompt(max_tokens=100000, stream=True, ignore_eos=True)).encode()
        request = head("POST", "/v1/completions", "Content-Type: application/json", f"Content-Length: {len(body)}") + b"\r\n" + body
        rounds = 1000 if FULL else 100
        for i in range(rounds):
            s = connect()
            cut = (i * 37) % (len(request) + 200)
            s.sendall(request[:cut])
            if cut >= len(request):
                s.recv((i * 101) % 4000 + 1)
            s.close()
        begin = time.monotonic()

        def idle():
            page = ask("/metrics", None, None, None, "GET")[2].decode()
            return "rumbo_requests_running 0\n" in page and "rumbo_requests_queued 0\n" in page

        self.assertTrue(wait_until(idle, 20))
        self.assertLess(time.monotonic() - begin, 2.0)

    def test_t38_slow_clients_cost_little_and_others_do_not_wait(self):
        before, fast = rss(), latency()
        body = json.dumps(prompt()).encode()
        request = head("POST", "/v1/completions", "Content-Type: application/json", f"Content-Length: {len(body)}") + b"\r\n" + body
        sockets = []
        for i in range(MANY):
            s = connect()
            s.sendall(request[: 20 + i % 50])  # a byte a second from here on: the head never ends within its 10 s
            sockets.append(s)
        stop = threading.Event()

        def drip():
            at = 80
            while not stop.is_set():
                for s in sockets:
                    try:
                        s.send(b"x")
                    except OSError:
                        pass
                at += 1
                stop.wait(1)

        thread = threading.Thread(target=drip)
        thread.start()
        try:
            slow = latency()
            grown = rss() - before
        finally:
            stop.set()
            thread.join()
        for s in sockets:
            s.close()
        print(f"{MANY} slow clients: +{grown / MB:.1f} MB; another client's p99 {fast:.2f} -> {slow:.2f} ms", flush=True)
        self.assertLess(grown, (20_000 * MANY) + 8 * MB)
        self.assertLess(slow, max(2 * fast, fast + 30))


class Schemas(unittest.TestCase):
    def test_t18_unique_schemas_leave_nothing_behind(self):
        worker = D.worker_pid("fake")
        connection = http.client.HTTPConnection("127.0.0.1", D.port, timeout=60)
        count = 10_000 if FULL else 1_200
        for i in range(count):
            if i == 200:  # caches and pools have their size
                before, before_worker = rss(), rss(worker)
            schema = {"type": "object", "properties": {f"field{i}": {"type": "string", "maxLength": i + 1}}}
            connection.request("POST", "/v1/completions", json.dumps(prompt(max_tokens=1, json_schema=schema)),
                               {"Content-Type": "application/json"})
            response = connection.getresponse()
            response.read()
            self.assertIn(response.status, (200, 400, 501))
        connection.close()
        # Once each request left 18 kB behind.
        self.assertLess(rss() - before, 8 * MB)
        self.assertLess(rss(worker) - before_worker, 8 * MB)
        size = sum(f.stat().st_size for f in (D.dir / "cache").rglob("*") if f.is_file())
        self.assertLess(size, 4 * MB)


class Http2(unittest.TestCase):
    """T22: floods on the gRPC socket."""

    PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

    @staticmethod
    def frame(kind, flags, stream, payload=b""):
        return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload

    def headers(self):
        def literal(name, value):
            return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value
        return b"".join(literal(n, v) for n, v in ((b":method", b"POST"), (b":scheme", b"http"), (b":authority", b"x"),
                                                   (b":path", b"/rumbo.v1.AdminService/GetStatus"), (b"te", b"trailers"),
                                                   (b"content-type", b"application/grpc")))

    def flood(self, frames):
        """Sends until the server hangs up or everything is sent; reads nothing back but what fits."""
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(10)
        s.connect(str(D.dir / "s"))
        sent = 0
        try:
            s.sendall(self.PREFACE + self.frame(4, 0, 0))
            s.setblocking(False)
            end = time.monotonic() + 3
            for piece in frames:
                view = memoryview(piece)
                while view and time.monotonic() < end:
                    try:
                        n = s.send(view)
                        view = view[n:]
                        sent += n
                    except BlockingIOError:
                        try:
                            while s.recv(65536):
                                pass
                        except BlockingIOError:
                            time.sleep(0.001)
                if time.monotonic() >= end:
                    break
        except OSError:
            pass
        s.close()
        return sent

    def status_ms(self):
        out = []
        for _ in range(20):
            begin = time.perf_counter()
            self.assertEqual(D.cli("status").returncode, 0)
            out.append((time.perf_counter() - begin) * 1e3)
        return statistics.median(out)

    def test_t22_floods_leave_the_daemon_small_and_answering(self):
        quiet = self.status_ms()
        block = self.headers()
        floods = {
            "pings": (self.frame(6, 0, 0, b"12345678") * 100 for _ in range(2_000)),
            "settings": (self.frame(4, 0, 0, b"\0\x04\0\0\xff\xff") * 100 for _ in range(2_000)),
            "continuations": [self.frame(1, 0, 1, block)] + [self.frame(9, 0, 1, b"\x00\x01a\x01b" * 1000)] * 2_000,
            "one byte at a time": [self.frame(1, 4, 1, block)] + [self.frame(0, 0, 1, b"\0") * 100] * 2_000,
            "rapid reset": (self.frame(1, 5, 2 * i + 1, block) + self.frame(3, 0, 2 * i + 1, b"\0\0\0\x08") for i in range(50_000 if FULL else 10_000)),
        }
        grown = {}
        for name, frames in floods.items():
            before = rss()
            self.flood(frames)
            self.assertIsNone(D.process.poll(), name)
            self.assertEqual(D.cli("status").returncode, 0, name)
            grown[name] = (rss() - before) / MB
        after = self.status_ms()
        print(f"rumbo status: {quiet:.1f} ms before the floods, {after:.1f} ms after; RSS, MB: "
              + ", ".join(f"{name} {mb:+.1f}" for name, mb in grown.items()), flush=True)
        # How far it grows is printed, not bounded: gRPC queues what a flood asks for (docs/http.md). It lives and answers.
        self.assertLess(after, 2 * quiet + 20)


def main():
    global D
    if not (BIN / "rumbod").exists():
        print("no daemon: ./dev build")
        return SKIP
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536), hard))
    with Daemon() as D:
        D.cli("load", "fake", "--engine", "fake", "--sessions", "8")
        result = unittest.main(argv=[sys.argv[0], *sys.argv[1:]], exit=False, verbosity=2).result
        return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
