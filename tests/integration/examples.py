#!/usr/bin/env python3
"""The SDKs' examples on a real model through a real daemon, each as its author's reader runs it."""
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import harness  # noqa: E402

PYTHON = pathlib.Path(os.environ.get("RUMBO_DEPS", pathlib.Path.home() / ".cache/rumbo-dev")) / "python-sdk/bin/python"
BUILD = harness.BIN.parent
EXAMPLES = harness.ROOT / "sdk/python/examples"
MODEL = harness.MODELS / "smollm2.gguf"
if not PYTHON.exists() or not MODEL.exists():
    print("needs the Python SDK's environment and SmolLM2")
    sys.exit(harness.SKIP)

with harness.Daemon() as daemon:
    daemon.cli("import", MODEL, "--name", "smollm2")
    env = daemon.env | {"PYTHONPATH": str(BUILD / "python")}

    def run(*args, stdin=""):
        r = subprocess.run([str(a) for a in args], env=env, input=stdin, capture_output=True, text=True, timeout=240)
        if r.returncode:
            sys.exit(f"FAIL  {args[1] if args[0] == PYTHON else args[0]}: exit {r.returncode}: {r.stderr[-800:]}")
        return r.stdout

    said = run(PYTHON, EXAMPLES / "chat.py", "smollm2", "What is the capital of France?")
    assert "tokens/s" in said and len(said) > 20, said
    print("ok    chat.py")
    said = run(BUILD / "bin/example_chat", "smollm2", "What is the capital of France?")
    assert "tokens/s" in said, said
    print("ok    chat.cpp")
    app = BUILD / "typescript/app"
    if (app / "examples/chat.mjs").exists():
        said = run("node", "--preserve-symlinks", "--preserve-symlinks-main", app / "examples/chat.mjs", "smollm2", "What is the capital of France?")
        assert "tokens/s" in said, said
        print("ok    chat.mjs")
    said = run(PYTHON, EXAMPLES / "classify.py", "smollm2", "fruit", "metal", stdin="apple\niron\n\nbanana\n")
    lines = [line.split("\t") for line in said.splitlines()]
    assert [line[1] for line in lines] == ["apple", "iron", "banana"] and all(line[0] in ("fruit", "metal") for line in lines), said
    print("ok    classify.py:", [line[0] for line in lines])
    story = daemon.dir / "story.txt"
    story.write_text("The harbour town woke before the sun. Boats left for the open sea, and gulls followed them. " * 60)
    said = run(PYTHON, EXAMPLES / "summarise.py", "smollm2", story)
    assert len(said.split()) >= 5, said
    print("ok    summarise.py")
    # SmolLM2's template knows no tools: the daemon must say so rather than drop them.
    r = subprocess.run([PYTHON, EXAMPLES / "agent.py", "smollm2", "Add 2 and 3."], env=env, capture_output=True, text=True, timeout=240)
    assert r.returncode == 0 or "CAPABILITY_MISSING" in r.stderr or "tool" in r.stderr.lower(), r.stderr[-800:]
    print("ok    agent.py:", "answered" if r.returncode == 0 else "the model's lack of tools is said")
