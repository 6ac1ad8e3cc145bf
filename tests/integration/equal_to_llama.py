#!/usr/bin/env python3
"""Greedy answers through the daemon equal, byte for byte, those of llama.cpp's own server on the same build and model."""
import asyncio
import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from harness import MODELS, SKIP, Daemon, complete, wait_until  # noqa: E402

PROMPTS = ["The capital of France is", "Once upon a time, in a village by the sea,", "def fibonacci(n):", "1 2 3 4 5 6",
           "El mar es", "Q: What is water made of?\nA:", "The three laws of thermodynamics state that", "Dear Sir or Madam,"]


def llama_text(port, prompt):
    body = json.dumps({"prompt": prompt, "max_tokens": 48, "temperature": 0, "seed": 1, "cache_prompt": False}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as r:
        return json.loads(r.read())["choices"][0]["text"]


def main():
    model = MODELS / "smollm2.gguf"
    server = pathlib.Path(os.environ.get("RUMBO_PACKS_DIR", "/nonexistent")) / "native/bin/llama-server"
    if not model.exists() or not server.exists():
        print("no demo model or no native pack: set RUMBO_TEST_MODELS and RUMBO_PACKS_DIR")
        return SKIP
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    theirs = subprocess.Popen([server, "-m", model, "--host", "127.0.0.1", "--port", str(port), "-c", "2048", "-np", "1", "-t", "2"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with Daemon() as d:
            d.cli("import", model, "--name", "m")
            d.cli("load", "m", "--context", 2048, "--sessions", 1, "--threads", 2)

            def up():
                with contextlib.suppress(OSError):
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1)
                    return True
                return False

            assert wait_until(up, 60, 0.1), "llama-server does not start"
            for prompt in PROMPTS:
                ours, finish, error = asyncio.run(complete(d.port, {"model": "m", "prompt": prompt, "max_tokens": 48, "temperature": 0, "seed": 1}))
                assert not error, error
                want = llama_text(port, prompt)
                assert ours == want, f"{prompt!r}:\n rumbo: {ours!r}\n llama: {want!r}"
    finally:
        theirs.terminate()
        theirs.wait(20)
    print(len(PROMPTS), "answers equal")
    return 0


if __name__ == "__main__":
    sys.exit(main())
