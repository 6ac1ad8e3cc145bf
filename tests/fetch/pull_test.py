#!/usr/bin/env python3
"""`rumbo pull` through a real daemon and a fake hub: watchers, joins, kills, incomplete models, splits, caches, checks."""
import hashlib
import json
import os
import pathlib
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
from fake_hub import Hub  # noqa: E402
from harness import BIN, Daemon, wait_until  # noqa: E402


def gguf(name="tiny", layers=2, width=64, split=None, quant=0, template="{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}",
         pad=0):
    """A small model that rumbo-inspect takes: a llama with random F32 tensors. split: (index, count) of a split set."""
    def text(s):
        b = s.encode()
        return struct.pack("<Q", len(b)) + b

    def kv(key, kind, value):
        return text(key) + struct.pack("<I", kind) + value

    u32 = lambda k, v: kv(k, 4, struct.pack("<I", v))  # noqa: E731
    vocab = [f"t{i}" for i in range(32)]
    meta = []
    if split is None or split[0] == 0:
        meta = [kv("general.architecture", 8, text("llama")), kv("general.name", 8, text(name)), kv("general.license", 8, text("mit")),
                u32("llama.block_count", layers), u32("llama.context_length", 512), u32("llama.embedding_length", width),
                u32("llama.feed_forward_length", width * 2), u32("llama.attention.head_count", 4),
                kv("llama.attention.layer_norm_rms_epsilon", 6, struct.pack("<f", 1e-5)),
                kv("tokenizer.ggml.model", 8, text("llama")),
                kv("tokenizer.ggml.tokens", 9, struct.pack("<IQ", 8, len(vocab)) + b"".join(map(text, vocab))),
                kv("tokenizer.ggml.scores", 9, struct.pack("<IQ", 6, len(vocab)) + struct.pack(f"<{len(vocab)}f", *range(len(vocab)))),
                kv("tokenizer.ggml.token_type", 9, struct.pack("<IQ", 5, len(vocab)) + struct.pack(f"<{len(vocab)}i", *[1] * len(vocab)))]
        if template:
            meta.append(kv("tokenizer.chat_template", 8, text(template)))
    tensors = [("token_embd.weight", [width, len(vocab)]), ("output_norm.weight", [width]), ("output.weight", [width, len(vocab)])]
    for i in range(layers):
        b = f"blk.{i}."
        tensors += [(b + "attn_norm.weight", [width]), (b + "ffn_norm.weight", [width])]
        tensors += [(b + f"attn_{x}.weight", [width, width]) for x in ("q", "k", "v", "output")]
        tensors += [(b + "ffn_gate.weight", [width, 2 * width]), (b + "ffn_up.weight", [width, 2 * width]), (b + "ffn_down.weight", [2 * width, width])]
    total = len(tensors)
    if split is not None:
        meta += [kv("split.no", 2, struct.pack("<H", split[0])), kv("split.count", 2, struct.pack("<H", split[1])),
                 kv("split.tensors.count", 5, struct.pack("<i", total))]
        tensors = tensors[split[0]::split[1]]
    if pad:
        meta.append(kv("test.pad", 8, text("x" * pad)))
    rng = random.Random(name)
    infos, data = [], b""
    for tensor, shape in tensors:
        n = 4
        for d in shape:
            n *= d
        infos.append(text(tensor) + struct.pack("<I", len(shape)) + b"".join(struct.pack("<Q", d) for d in shape) + struct.pack("<IQ", 0, len(data)))
        data += rng.randbytes(n // 4 * 3) + bytes(n - n // 4 * 3)
        data += bytes(-len(data) % 32)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(meta)) + b"".join(meta) + b"".join(infos)
    return head + bytes(-len(head) % 32) + data


def sha(data):
    return hashlib.sha256(data).hexdigest()


class PullTest(unittest.TestCase):
    def setUp(self):
        self.hub = Hub()
        self.addCleanup(self.hub.close)
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="rumbo-pull-"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        self.daemon = None

    def run_daemon(self, *extra):
        self.daemon = Daemon(self.dir, http=False, extra=[
            "--hub", self.hub.endpoint, "--registry", self.hub.endpoint, "--fetch-hosts", self.hub.hosts,
            "--model-caches", f"huggingface:{self.dir}/hf,ollama:{self.dir}/ollama,lmstudio:{self.dir}/lm", *extra])
        self.addCleanup(lambda d=self.daemon: d.close())
        return self.daemon

    def models(self):
        return {m["name"]: m["variants"][0] for m in self.daemon.json("models")["models"]}

    def blobs(self):
        return sorted(p.name for p in (self.dir / "state/blobs").iterdir())

    def pull(self, *args, code=0):
        r = self.daemon.cli("pull", *args, check=False)
        self.assertEqual(r.returncode, code, r.stderr + r.stdout)
        return r

    def test_hub_model_is_pulled_and_listed(self):
        data = gguf()
        self.hub.add_repo("org/Tiny-GGUF", {"Tiny-Q8_0.gguf": data, "README.md": b"#"})
        self.run_daemon()
        self.pull("hf:org/Tiny-GGUF")
        model = self.models()["Tiny-GGUF"]
        self.assertEqual(model["state"], "complete")
        self.assertEqual(model["sha256"], sha(data))
        self.assertEqual(model["source"], "hf:org/Tiny-GGUF")
        self.assertEqual(self.blobs(), ["sha256-" + sha(data)])
        self.assertFalse(list((self.dir / "state/partial").iterdir()))
        # Again: nothing is fetched, the stored content is verified.
        asked = len(self.hub.asked("/blob/"))
        self.pull("hf:org/Tiny-GGUF")
        self.assertEqual(len(self.hub.asked("/blob/")), asked)
        # A damaged blob is found by the same pull, and mended.
        blob = self.dir / "state/blobs" / ("sha256-" + sha(data))
        blob.chmod(0o600)
        blob.write_bytes(bytes(len(data)))
        self.pull("hf:org/Tiny-GGUF")
        self.assertEqual(blob.read_bytes(), data)
        self.assertEqual(self.daemon.json("models", "verify")["models"][0]["state"], "ok")

    def test_registry_model_is_pulled(self):
        data = gguf("reg")
        self.hub.add_registry("library/tiny", "135m", data, [("template", b"{{ .Prompt }}"), ("license", b"MIT")])
        self.hub.registry_token = "for-everybody"
        self.run_daemon()
        self.pull("ollama:tiny:135m")
        self.assertEqual(self.models()["tiny:135m"]["sha256"], sha(data))

    def test_plain_address_with_its_hash(self):
        data = gguf("plain")
        self.hub.files["/x/plain.gguf"] = data
        self.run_daemon()
        url = f"{self.hub.endpoint}/x/plain.gguf"
        self.pull(f"{url}#sha256={'0' * 64}", code=1)
        self.assertEqual(self.blobs(), [])
        self.pull(f"{url}#sha256={sha(data)}")
        self.assertEqual(self.models()["plain"]["sha256"], sha(data))

    def test_what_is_no_model_is_refused_and_gone(self):
        self.hub.add_repo("org/Bad-GGUF", {"bad.gguf": b"GGUF" + b"\xff" * 5000})
        self.run_daemon()
        r = self.pull("hf:org/Bad-GGUF", code=1)
        self.assertIn("rumbo:", r.stderr)
        self.assertNotIn("Bad-GGUF", self.models())
        self.daemon.cli("models", "gc")
        self.assertEqual(self.blobs(), [])

    def test_names_that_are_not_there(self):
        self.run_daemon()
        self.pull("hf:org/none", code=3)
        self.pull("ollama:none", code=3)
        self.pull("no-such-short-name", code=3)
        for bad in ("hf:../x/y", "hf:org/CON", "http://example.org/x.gguf", "hf:a/b:../../etc/passwd", "ollama:a/b/c/d"):
            self.pull(bad, code=2)

    def test_offline_fetches_nothing(self):
        self.hub.add_repo("org/Tiny-GGUF", {"Tiny-Q8_0.gguf": gguf()})
        self.run_daemon("--offline", "on")
        r = self.pull("hf:org/Tiny-GGUF", code=4)
        self.assertIn("offline", r.stderr)
        self.assertEqual(self.hub.requests, [])

    def test_several_watch_one_download_and_it_ends_with_the_last(self):
        data = gguf("big", layers=8, width=512)
        self.hub.add_repo("org/Big-GGUF", {"Big-Q8_0.gguf": data})
        self.hub.fail("slow", path="/blob/", at=len(data) // 3)
        self.run_daemon("--fetch-connections", "1")
        first, second = (subprocess.Popen([BIN / "rumbo", "pull", "hf:org/Big-GGUF"], env=self.daemon.env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
                         for _ in range(2))
        self.assertTrue(wait_until(lambda: self.hub.asked("/blob/"), 30))
        first.send_signal(signal.SIGINT)
        self.assertEqual(first.wait(30), 130)
        self.assertEqual(second.wait(60), 0, second.stderr.read())
        self.assertEqual(len(self.hub.asked("/api/models/org/Big-GGUF")), 1)
        first.stderr.close()
        second.stderr.close()
        self.assertEqual(self.models()["Big-GGUF"]["state"], "complete")

    def test_interrupted_pull_is_listed_refused_and_gone_on_with(self):
        data = gguf("big", layers=8, width=512)
        self.hub.add_repo("org/Big-GGUF", {"Big-Q8_0.gguf": data})
        self.hub.fail("slow", path="/blob/", at=len(data) // 4)
        d = self.run_daemon("--fetch-connections", "1")
        puller = subprocess.Popen([BIN / "rumbo", "pull", "hf:org/Big-GGUF"], env=d.env, stderr=subprocess.DEVNULL)
        done = lambda: int((self.models().get("Big-GGUF") or {}).get("done_bytes") or 0)  # noqa: E731
        journal = self.dir / "state/partial" / f"c-{sha(data)}.journal"
        self.assertTrue(wait_until(lambda: journal.exists() and journal.stat().st_size > 150, 30, 0.05))
        d.kill()
        puller.wait(20)
        d.start()
        model = self.models()["Big-GGUF"]
        self.assertEqual(model["state"], "incomplete")
        self.assertGreater(done(), 0)
        self.assertLess(done(), len(data))
        r = d.cli("load", "Big-GGUF", check=False)
        self.assertNotEqual(r.returncode, 0)
        self.assertIn("not downloaded to its end", r.stderr)
        self.hub.faults.clear()
        before = len(self.hub.asked("/blob/"))
        self.pull("hf:org/Big-GGUF")
        first = self.hub.asked("/blob/")[before][3]["Range"]
        self.assertFalse(first.startswith("bytes=0-"), first)
        self.assertEqual(self.models()["Big-GGUF"]["state"], "complete")
        self.assertFalse(list((self.dir / "state/partial").iterdir()))

    def test_two_models_of_one_content_are_one_download(self):
        data = gguf("shared", layers=4, width=512)
        self.hub.add_repo("a/One-GGUF", {"One-Q8_0.gguf": data})
        self.hub.add_repo("b/Two-GGUF", {"Two-Q8_0.gguf": data})
        self.hub.fail("slow", path="/blob/", at=len(data) // 2)
        d = self.run_daemon("--fetch-connections", "1")
        pulls = [subprocess.Popen([BIN / "rumbo", "pull", f"hf:{r}"], env=d.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for r in ("a/One-GGUF", "b/Two-GGUF")]
        self.assertEqual([p.wait(90) for p in pulls], [0, 0])
        ranges = [r[3].get("Range") for r in self.hub.asked("/blob/")]
        self.assertEqual(len(ranges), len(set(ranges)), "bytes were asked for twice")
        self.assertEqual(len(self.blobs()), 1)
        freed = d.json("rm", "One-GGUF")["freed_bytes"]
        self.assertEqual(int(freed), 0)
        self.assertEqual(len(self.blobs()), 1)
        self.assertEqual(int(d.json("rm", "Two-GGUF")["freed_bytes"]), len(data))
        self.assertEqual(self.blobs(), [])

    def test_split_set_is_one_model(self):
        parts = {f"q8/Split-Q8_0-0000{i + 1}-of-00003.gguf": gguf("split", layers=3, split=(i, 3)) for i in range(3)}
        self.hub.add_repo("org/Split-GGUF", parts | {"best-of-breed.gguf": gguf("decoy")})
        d = self.run_daemon()
        self.pull("hf:org/Split-GGUF:Q8_0")
        model = self.models()["Split-GGUF:q8_0"]
        self.assertEqual(int(model["size_bytes"]), sum(map(len, parts.values())))
        self.assertEqual(len(self.blobs()), 3)
        out = self.dir / "out"
        out.mkdir()
        d.cli("models", "export", "Split-GGUF:q8_0", out)
        self.assertEqual({p.name: p.read_bytes() for p in out.iterdir()}, {k[3:]: v for k, v in parts.items()})
        # The same from disk; part 2 and a missing part are refused by name.
        d.cli("import", out / "Split-Q8_0-00001-of-00003.gguf", "--name", "again")
        self.assertEqual(len(self.blobs()), 3)
        r = d.cli("import", out / "Split-Q8_0-00002-of-00003.gguf", "--name", "two", check=False)
        self.assertIn("part 1", r.stderr)
        (out / "Split-Q8_0-00003-of-00003.gguf").unlink()
        r = d.cli("import", out / "Split-Q8_0-00001-of-00003.gguf", "--name", "three", check=False)
        self.assertIn("part 3 of 3 is missing", r.stderr)
        self.assertGreater(int(d.json("rm", "Split-GGUF:q8_0").get("freed_bytes") or 0) + 1, 0)
        d.cli("rm", "again")
        self.assertEqual(self.blobs(), [])
        self.assertFalse(list((self.dir / "state/sets").iterdir()))
        self.hub.add_repo("org/Cut-GGUF", {k: v for k, v in parts.items() if "00002" not in k})
        r = self.pull("hf:org/Cut-GGUF:Q8_0", code=1)
        self.assertIn("part 2 of 3 is missing", r.stderr)
        self.assertFalse([r for r in self.hub.asked("org/Cut-GGUF/resolve")])

    def test_plan_says_what_fits_before_anything_is_fetched(self):
        small, large = gguf("small"), gguf("large", layers=6, width=256)
        self.hub.add_repo("org/Pick-GGUF", {"Pick-Q4_K_M.gguf": small, "Pick-Q8_0.gguf": large})
        d = self.run_daemon()
        plan = d.json("pull", "hf:org/Pick-GGUF", "--plan")
        self.assertEqual({c["id"] for c in plan["candidates"]}, {"q4_k_m", "q8_0"})
        chosen = [c for c in plan["candidates"] if c.get("chosen")]
        self.assertEqual([c["id"] for c in chosen], ["q8_0"], plan)
        self.assertEqual(chosen[0]["fit"], "fits")
        self.assertGreater(chosen[0]["decode_tok_s"], 0)
        self.assertEqual(self.blobs(), [])
        self.assertFalse(list((self.dir / "state/partial").iterdir()))
        self.pull("hf:org/Pick-GGUF")
        self.assertEqual(self.models()["Pick-GGUF"]["sha256"], sha(large))

    def test_quota_and_disk_are_checked_before(self):
        data = gguf("q", layers=6, width=512)
        self.hub.add_repo("org/Q-GGUF", {"Q-Q8_0.gguf": data})
        if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", self.dir]).returncode:
            self.skipTest("cannot mount here")
        self.addCleanup(subprocess.run, ["umount", self.dir])
        d = self.run_daemon()
        self.addCleanup(d.close)
        r = self.pull("hf:org/Q-GGUF", code=1)
        self.assertIn("disk has", r.stderr)
        self.assertFalse(self.hub.asked("/blob/"))
        subprocess.run(["mount", "-o", "remount,size=200m", self.dir], check=True)
        self.pull("hf:org/Q-GGUF")

    def test_garbage_is_shown_then_removed(self):
        self.hub.add_repo("org/Tiny-GGUF", {"Tiny-Q8_0.gguf": gguf()})
        d = self.run_daemon()
        self.pull("hf:org/Tiny-GGUF")
        stray = self.dir / "state/blobs" / ("sha256-" + "0" * 64)
        stray.write_bytes(b"x" * 10000)
        (self.dir / "state/partial/u-00").write_bytes(b"y")
        items = d.json("models", "gc", "--dry-run")["items"]
        self.assertEqual(len(items), 2, items)
        self.assertTrue(stray.exists())
        d.cli("models", "gc")
        self.assertFalse(stray.exists())
        self.assertEqual(d.json("models", "gc").get("items", []), [])
        self.assertEqual(self.models()["Tiny-GGUF"]["state"], "complete")

    def test_verify_finds_flipped_and_zeroed_and_missing_blobs(self):
        self.run_daemon()
        for name in ("flip", "zero", "gone", "good"):
            (self.dir / f"{name}.gguf").write_bytes(gguf(name))
            self.daemon.cli("import", self.dir / f"{name}.gguf", "--name", name)
        paths = {n: self.dir / "state/blobs" / ("sha256-" + self.models()[n]["sha256"]) for n in ("flip", "zero", "gone")}
        for p in paths.values():
            p.chmod(0o600)
        with open(paths["flip"], "r+b") as f:
            f.seek(3000)
            f.write(b"\x77")
        paths["zero"].write_bytes(bytes(paths["zero"].stat().st_size))
        paths["gone"].unlink()
        r = self.daemon.cli("models", "verify", "--json", check=False)
        self.assertEqual(r.returncode, 1)
        self.assertEqual({m["name"]: m["state"] for m in json.loads(r.stdout)["models"]},
                         {"flip": "damaged", "zero": "damaged", "gone": "missing", "good": "ok"})
        # And after a restart the list says so by itself, and a load is refused.
        self.daemon.kill()
        self.daemon.start()
        self.assertEqual({n: self.models()[n]["state"] for n in ("flip", "zero", "gone", "good")},
                         {"flip": "damaged", "zero": "damaged", "gone": "damaged", "good": "complete"})
        r = self.daemon.cli("load", "flip", check=False)
        self.assertNotEqual(r.returncode, 0)
        self.assertIn("damaged", r.stderr)

    def test_other_programs_caches_are_adopted_without_copying(self):
        data, other = gguf("hf"), gguf("ollama")
        repo = self.dir / "hf/models--org--Tiny-GGUF"
        for sub in ("blobs", "refs", "snapshots/c0ffee"):
            (repo / sub).mkdir(parents=True)
        (repo / "blobs" / sha(data)).write_bytes(data)
        (repo / "refs/main").write_text("c0ffee")
        (repo / "snapshots/c0ffee/Tiny-Q8_0.gguf").symlink_to(f"../../blobs/{sha(data)}")
        blobs = self.dir / "ollama/blobs"
        blobs.mkdir(parents=True)
        (blobs / f"sha256-{sha(other)}").write_bytes(other)
        (blobs / f"sha256-{sha(b'bad')}").write_bytes(gguf("bad"))
        tags = self.dir / "ollama/manifests/registry.ollama.ai/library"
        for name, digest, size in (("smol", sha(other), len(other)), ("rotten", sha(b"bad"), len(gguf("bad")))):
            (tags / name).mkdir(parents=True)
            (tags / name / "latest").write_text(json.dumps({"schemaVersion": 2, "layers": [
                {"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{digest}", "size": size}]}))
        d = self.run_daemon()
        found = {m["name"]: m["state"] for m in d.json("models", "adopt", "--dry-run")["models"]}
        self.assertEqual(found, {"tiny-gguf": "found", "smol:latest": "found", "rotten:latest": "found"})
        self.assertEqual(self.models(), {})
        states = {m["name"]: m["state"] for m in d.json("models", "adopt")["models"]}
        self.assertEqual(states, {"tiny-gguf": "adopted", "smol:latest": "adopted", "rotten:latest": "refused"})
        self.assertEqual(self.blobs(), [])
        self.assertEqual(self.models()["tiny-gguf"]["sha256"], sha(data))
        self.assertEqual({m["name"]: m["state"] for m in d.json("models", "adopt")["models"]}["tiny-gguf"], "known")
        self.assertEqual(int(d.json("rm", "tiny-gguf").get("freed_bytes") or 0), 0)
        self.assertTrue((repo / "blobs" / sha(data)).exists())
        (blobs / f"sha256-{sha(other)}").unlink()
        d.kill()
        d.start()
        self.assertEqual(self.models()["smol:latest"]["state"], "damaged")

    def folder(self, name, tensors, config, extra=()):
        path = self.dir / name
        path.mkdir()
        head, data = {}, b""
        for tensor, dtype, shape in tensors:
            n = {"BF16": 2, "F32": 4, "U8": 1}[dtype]
            for s in shape:
                n *= s
            head[tensor] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + n]}
            data += bytes(n)
        text = json.dumps(head).encode()
        (path / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
        (path / "config.json").write_text(json.dumps(config))
        (path / "tokenizer.json").write_text("{}")
        for file, content in extra:
            (path / file).write_bytes(content)
        return path

    def test_quark_draft_that_is_not_excluded_is_found_and_mended(self):
        tensors = [("model.embed_tokens.weight", "BF16", [32, 64]), ("lm_head.weight", "BF16", [32, 64])]
        for i in range(2):
            for p in ("q_proj", "k_proj", "v_proj", "o_proj"):
                tensors += [(f"model.layers.{i}.self_attn.{p}.weight", "U8", [64, 32]), (f"model.layers.{i}.self_attn.{p}.weight_scale", "U8", [64, 2])]
        tensors += [("model.layers.2.eh_proj.weight", "BF16", [64, 128])]
        tensors += [(f"model.layers.2.self_attn.{p}.weight", "BF16", [64, 64]) for p in ("q_proj", "k_proj", "v_proj", "o_proj")]
        config = {"model_type": "glm4_moe", "architectures": ["Glm4MoeForCausalLM"], "num_hidden_layers": 2, "hidden_size": 64,
                  "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 32, "max_position_embeddings": 512, "num_nextn_predict_layers": 1,
                  "quantization_config": {"quant_method": "quark", "exclude": ["lm_head"]}}
        path = self.folder("quark", tensors, config)
        d = self.run_daemon()
        r = d.cli("check", path, "--engine", "vllm", "--write", self.dir, "--json", check=False)
        self.assertEqual(r.returncode, 1, r.stderr)
        found = {c["code"]: c for c in json.loads(r.stdout)["results"]}
        self.assertEqual(found["mtp.excluded_names"]["severity"], "broken", found)
        self.assertIn("known.vllm-quark-mtp-undeclared", found)
        override = json.loads((self.dir / "rumbo-hf-overrides.json").read_text())
        (path / "config.json").write_text(json.dumps(config | override))
        r = d.cli("check", path, "--json", check=False)
        found = {c["code"]: c for c in json.loads(r.stdout)["results"]}
        self.assertEqual(found["mtp.excluded_names"]["severity"], "ok", found)
        d.cli("import", path, "--name", "quark")
        self.assertEqual(self.models()["quark"]["format"], "safetensors")
        r = d.cli("check", "quark", "--json", check=False)
        self.assertEqual({c["code"]: c for c in json.loads(r.stdout)["results"]}["mtp.excluded_names"]["severity"], "ok")

    def test_pickles_are_refused(self):
        d = self.run_daemon()
        path = self.dir / "pickle"
        path.mkdir()
        (path / "pytorch_model.bin").write_bytes(b"\x80\x04")
        (path / "config.json").write_text("{}")
        for subject in (path, path / "pytorch_model.bin"):
            r = d.cli("import", subject, "--name", "p", check=False)
            self.assertNotEqual(r.returncode, 0)
            self.assertIn("pickle", r.stderr)

    def test_hostile_templates_end_within_a_second(self):
        d = self.run_daemon()
        if not (BIN / "rumbo-template").exists():
            self.skipTest("rumbo-template is not built")
        loops = ("{% for i in range(1000000000) %}x{% endfor %}{{ messages[0].content }}",
                 "{% for a in range(10000) %}{% for b in range(10000) %}{% for c in range(10000) %}x{% endfor %}{% endfor %}{% endfor %}",
                 "{% set ns = namespace(s='xxxxxxxxxxxxxxxx') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s }}",
                 "{{ ''.__class__.__mro__ }}", "{% if %}", "{{ raise_exception('no') }}")
        for i, template in enumerate(loops):
            file = self.dir / f"t{i}.gguf"
            file.write_bytes(gguf(f"t{i}", template=template))
            start = time.monotonic()
            r = d.cli("check", file, "--json", check=False)
            took = time.monotonic() - start
            results = json.loads(r.stdout)["results"]
            self.assertTrue([c for c in results if c["code"].startswith("template.") and c["severity"] == "broken"], (template, results))
            self.assertLess(took, 10)
        good = self.dir / "good.gguf"
        good.write_bytes(gguf("good"))
        r = d.cli("check", good, "--json")
        codes = {c["code"]: c["severity"] for c in json.loads(r.stdout)["results"]}
        self.assertEqual(codes.get("template"), "ok", codes)

    def test_search_asks_the_hub_only_when_told(self):
        self.hub.add_repo("org/qwen3-something-GGUF", {"x.gguf": gguf()})
        d = self.run_daemon()
        hits = d.json("models", "search", "qwen3")["hits"]
        self.assertTrue(all(h["origin"] == "list" for h in hits))
        self.assertFalse(self.hub.requests)
        hits = d.json("models", "search", "qwen3", "--hub")["hits"]
        self.assertIn("hf:org/qwen3-something-GGUF", [h["reference"] for h in hits])


if __name__ == "__main__":
    unittest.main()
