#!/usr/bin/env python3
"""What people and attackers send: each gets a typed error with a next step, quickly, and the daemon serves on.

Drives the real rumbo and rumbod with the real demo model ($RUMBO_TEST_MODELS/smollm2.gguf).
"""
import asyncio
import json
import os
import pathlib
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from harness import BIN, MODELS, SKIP, Daemon, complete  # noqa: E402

CHECKS = 0


def refused(daemon, args, codes, *words, seconds=2.0):
    """The command fails with one of `codes`, says something with a next step, and all of `words`."""
    global CHECKS
    begin = time.perf_counter()
    r = daemon.cli(*args, check=False)
    took = time.perf_counter() - begin
    text = r.stderr
    assert r.returncode in codes, f"{args}: exit {r.returncode}, wanted {codes}: {text}"
    assert took < seconds, f"{args}: {took:.1f} s"
    lines = [line for line in text.splitlines() if line.strip()]
    assert lines and lines[0].startswith("rumbo: "), f"{args}: {text!r}"
    assert len(lines) >= 2, f"{args}: no next step: {text!r}"
    for word in words:
        assert word.lower() in text.lower(), f"{args}: no {word!r} in {text!r}"
    CHECKS += 1


def http(daemon, path, body, headers=None):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{daemon.port}{path}", data, {"Content-Type": "application/json", **(headers or {})})
    try:
        with urllib.request.urlopen(request, timeout=30) as r:
            return r.status, json.loads(r.read())
    except urllib.error.HTTPError as e:
        return e.code, json.loads(e.read())


def bad_request(daemon, path, body, status=400, headers=None):
    global CHECKS
    got, answer = http(daemon, path, body, headers)
    assert got == status and answer.get("error"), f"{path} {str(body)[:100]}: {got} {answer}"
    CHECKS += 1


def models(d, lab, good):
    whole = good.read_bytes()[: 1 << 20]
    files = {
        "empty": b"", "magic": b"NOPE" + whole[4:4096], "cut": whole[:100000], "zeros": bytes(4096), "text": b"version https://git-lfs\n" * 9,
        "counts": whole[:8] + b"\xff" * 16, "string": b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 0xFFFFFFFFFFFF),
        "array": b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"k" + struct.pack("<IIQ", 9, 0, 1 << 61)}
    for name, data in files.items():
        path = lab / f"{name}.gguf"
        path.write_bytes(data)
        refused(d, ["import", path, "--name", "bad-" + name], {1, 2})
        refused(d, ["plan", path], {1, 2})
    sparse = lab / "sparse.gguf"
    with open(sparse, "wb") as f:
        f.truncate(1 << 40)
    refused(d, ["import", sparse, "--name", "sparse"], {1, 2})
    refused(d, ["import", lab, "--name", "folder"], {1, 2})
    refused(d, ["import", "/no/such", "--name", "x"], {3})
    refused(d, ["import", good, "--name", "../evil"], {2})
    os.mkfifo(lab / "fifo")
    refused(d, ["import", lab / "fifo", "--name", "fifo"], {1, 2})
    assert d.json("models")["models"] == []
    for command in (["run", "nonesuch", "x"], ["load", "nonesuch"], ["plan", "nonesuch"], ["show", "nonesuch"], ["rm", "nonesuch"]):
        refused(d, command, {3}, "nonesuch")


def parameters(d, good):
    d.cli("import", good, "--name", "m")
    refused(d, ["run", "n", "x"], {3}, "did you mean m")
    refused(d, ["import", good.parent / "gemma.gguf", "--name", "m"], {1}, "another", seconds=20)
    refused(d, ["load", "m", "--context", "99999999"], {2, 4}, "context")
    refused(d, ["load", "m", "--sessions", "0"], {2}, "sessions")
    refused(d, ["load", "m", "--kv", "q17"], {2})
    refused(d, ["load", "m", "--device", "gpu-nowhere"], {2, 3, 4})
    refused(d, ["load", "m", "--contxt", "5"], {2}, "--context")
    refused(d, ["lod", "m"], {2}, "load")
    refused(d, ["plan", "m", "--hardware", "r9701"], {3}, "r9700")
    d.cli("load", "m", "--context", 1024, "--sessions", 4)
    base = {"model": "m", "prompt": "hello", "max_tokens": 4}
    for change in ({"temperature": -1}, {"temperature": 1e9}, {"top_p": 1.5}, {"top_p": -0.1}, {"max_tokens": 0}, {"max_tokens": -5},
                   {"max_tokens": 1e18}, {"n": 3}, {"logprobs": 99}, {"stop": [""]}, {"prompt": ""}, {"prompt": 5}, {"temperature": "hot"},
                   {"logit_bias": {"5": 1000}}, {"seed": "x"}, {"prompt": "w " * 20000}):
        bad_request(d, "/v1/completions", base | change)
    for text in (b"{", b"[]", b'{"model": "m", "prompt": "\xff\xfe"}', b'{"model": "m", "prompt": "\\ud83d"}', b"[" * 5000,
                 b'{"model": "m", "prompt": "x", "temperature": NaN}'):
        bad_request(d, "/v1/completions", text)
    bad_request(d, "/v1/completions", base | {"model": "nonesuch"}, 404)
    for headers in ({"Host": "evil.example"}, {"Origin": "https://evil.example"}, {"Origin": "null"}):
        bad_request(d, "/v1/completions", base, 403, headers)
    bad_request(d, "/v1/chat/completions", {"model": "m", "messages": [{"role": "wizard", "content": "x"}]})
    bad_request(d, "/v1/chat/completions", {"model": "m", "messages": []})


def context_is_shared_fairly(d):
    """Four long answers on a context that holds them only by turns: each gets its share or a clean end, none hurts another."""
    global CHECKS
    prompt = " ".join(f"n{i}" for i in range(60))

    async def four():
        return await asyncio.gather(*[complete(d.port, {"model": "m", "prompt": prompt, "max_tokens": 500, "temperature": 0, "ignore_eos": True})
                                      for _ in range(4)])

    for text, finish, error in asyncio.run(four()):
        assert finish == "length" and not error and text, (finish, error)
    CHECKS += 1


def second_daemons(d):
    global CHECKS

    def fails(*args):
        r = subprocess.run([BIN / "rumbod", *map(str, args)], env=d.env, capture_output=True, text=True, timeout=10)
        assert r.returncode in (1, 2) and r.stderr.count("\n") >= 2, f"{args}: {r.returncode} {r.stderr}"
        return r.stderr

    other = pathlib.Path(tempfile.mkdtemp(prefix="rumbo-test-"))
    dirs = ["--state-dir", other / "state", "--cache-dir", other / "cache"]
    assert "another daemon" in fails("--socket", d.dir / "s", "--http", "off", *dirs)
    assert "another daemon" in fails("--socket", other / "s", "--http", "off", "--state-dir", d.dir / "state", "--cache-dir", other / "cache")
    fails("--socket", other / "s", "--http", f"127.0.0.1:{d.port}", *dirs)
    fails("--socket", other / "s", "--http", "0.0.0.0:0", *dirs)
    (other / "file").write_text("x")
    assert "no socket" in fails("--socket", other / "file", "--http", "off", *dirs)
    assert "socket" in fails("--sokcet", "x")
    fails("--config", other / "file", "--socket", other / "s", "--http", "off", *dirs)
    fails("--socket", "/" + "x" * 200, "--http", "off", *dirs)
    assert (other / "file").read_text() == "x"
    CHECKS += 8


def main():
    good = MODELS / "smollm2.gguf"
    if not good.exists():
        print("no demo model: set RUMBO_TEST_MODELS")
        return SKIP
    with Daemon() as d, tempfile.TemporaryDirectory() as lab:
        models(d, pathlib.Path(lab), good)
        parameters(d, good)
        context_is_shared_fairly(d)
        second_daemons(d)
        assert d.process.poll() is None, "the daemon died"
        answer = d.cli("run", "m", "Say hello.", "--max-tokens", 8).stdout
        assert answer.strip(), "no answer after all that"
        # Nothing of a prompt in the log.
        assert "Say hello" not in (d.dir / "log").read_text(errors="replace")
    print(CHECKS, "refused well")
    return 0


if __name__ == "__main__":
    sys.exit(main())
