#!/usr/bin/env python3
"""What README.md and docs/ tell people to type, typed: programs shown are the examples that other tests run, commands run here."""
import os
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import harness  # noqa: E402

ROOT = harness.ROOT
MODEL = harness.MODELS / "smollm2.gguf"


def blocks(page):
    return re.findall(r"^```(\w*)\n(.*?)^```$", (ROOT / page).read_text(), re.S | re.M)


# Programs in docs/sdk.md are files of the tree, word for word.
shown = {language: code for language, code in blocks("docs/sdk.md")}
for language, path in (("cpp", "sdk/cpp/examples/chat.cpp"), ("python", "sdk/python/examples/chat.py"), ("js", "sdk/typescript/examples/chat.mjs")):
    if shown[language].strip() != (ROOT / path).read_text().strip():
        sys.exit(f"FAIL  docs/sdk.md does not show {path} as it is")
    print(f"ok    docs/sdk.md shows {path}")
# Its CMake lines are those of the app that the package's test builds.
consumer = (ROOT / "tests/packaging/consumer/CMakeLists.txt").read_text()
for line in shown["cmake"].strip().splitlines():
    if line.replace("(app ", "(consumer ") not in consumer:
        sys.exit(f"FAIL  docs/sdk.md: {line}")
print("ok    docs/sdk.md shows the CMake lines that a test builds")
if not MODEL.exists():
    print("the commands need SmolLM2")
    sys.exit(harness.SKIP)

commands = next(code for _, code in blocks("README.md") if "rumbo import" in code)
with harness.Daemon() as daemon:
    script = commands.replace("FILE.gguf", str(MODEL)).replace("NAME", "smollm2").replace("11711", str(daemon.port)).replace("curl ", "curl -sSf ")
    r = subprocess.run(["bash", "-euo", "pipefail", "-c", script], env=daemon.env | {"PATH": f"{harness.BIN}:{os.environ['PATH']}"},
                       capture_output=True, text=True, timeout=240)
    if r.returncode or '"choices"' not in r.stdout:
        sys.exit(f"FAIL  README.md: exit {r.returncode}: {r.stdout[-500:]} {r.stderr[-800:]}")
    print("ok    README.md: import, run, curl")
    engines = {e["name"]: e for e in daemon.json("engines")["engines"]}
    here = sorted(p.name.removeprefix("llamacpp-") for p in (harness.BIN / "engines").glob("llamacpp-*"))
    if sorted(b["build"] for b in engines["llamacpp"]["builds"]) != here or engines["vllm"]["builds"] or not engines["vllm"]["next_step"]:
        sys.exit(f"FAIL  rumbo engines: {engines['llamacpp']['builds']} for {here}")
    if daemon.cli("engines", "nope", check=False).returncode != 3:
        sys.exit("FAIL  rumbo engines nope: another exit code than 3")
    print("ok    rumbo engines: what is installed is what is there")
    # Whatever the pages call a command or an option of `rumbo` is one.
    known = {c: subprocess.run([harness.BIN / "rumbo", c, "--help"], capture_output=True, text=True).stdout
             for c in re.findall(r"^  ([a-z]+) ", subprocess.run([harness.BIN / "rumbo", "--help"], capture_output=True, text=True).stdout, re.M)}
    wrong = []
    for page in ["README.md", *sorted(p.relative_to(ROOT) for p in (ROOT / "docs").glob("*.md"))]:
        for command, rest in re.findall(r"`rumbo ([a-z]+)\b([^`\n]*)`", (ROOT / page).read_text()):
            if command not in known:
                wrong.append(f"{page}: rumbo {command}")
            wrong += [f"{page}: rumbo {command} {option}" for option in re.findall(r"(--[a-z][a-z-]*)", rest)
                      if command in known and option not in known[command]]
    if wrong:
        sys.exit("FAIL  not known to the command line: " + "; ".join(wrong))
    print(f"ok    {len(known)} commands; every one that the pages name is there")
