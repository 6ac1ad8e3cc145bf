#!/usr/bin/env python3
"""./dev bench sdk: what each SDK costs its app per token, to connect, to import; fake engine, medians of five processes."""
import json
import os
import pathlib
import statistics
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
import harness  # noqa: E402

HERE = pathlib.Path(__file__).parent
BUILD = harness.BIN.parent
PYTHON = pathlib.Path(os.environ.get("RUMBO_DEPS", pathlib.Path.home() / ".cache/rumbo-dev")) / "python-sdk/bin/python"
TOKENS = 15000
MUST = {"C++": {"cpu_us_per_token": 20, "warm_ms": 5, "cold_ms": 10},
        "Python": {"cpu_us_per_token": 100, "async_cpu_us_per_token": 100, "warm_ms": 5, "cold_ms": 15, "import_ms": 150},
        "TypeScript": {"cpu_us_per_token": 100, "warm_ms": 5, "cold_ms": 30}}
WORDS = {"cpu_us_per_token": "CPU of the app per token, us", "async_cpu_us_per_token": "the same with asyncio, us",
         "warm_ms": "connect and first call, warmed process, ms", "cold_ms": "connect and first call, cold, ms",
         "import_ms": "import, ms"}

for test, made in (("typescript", BUILD / "typescript/app"), ("python", PYTHON)):
    if not made.exists():
        subprocess.run([harness.ROOT / f"sdk/{test}/test.sh", BUILD], check=True, stdout=subprocess.DEVNULL)
app = BUILD / "typescript/app"
(app / "bench.mjs").write_text((HERE / "node.mjs").read_text())
with harness.Daemon(http=False) as daemon:
    daemon.cli("load", "m", "--engine", "fake", "--context", "65536")
    args = [str(daemon.dir / "s"), "m", str(TOKENS)]
    programs = {"C++": [BUILD / "bin/bench-sdk-cpp", *args], "Python": [PYTHON, HERE / "python.py", *args],
                "TypeScript": ["node", "--preserve-symlinks", "--preserve-symlinks-main", app / "bench.mjs", *args]}
    env = os.environ | {"PYTHONPATH": str(BUILD / "python")}
    runs = {name: [] for name in programs}
    for _ in range(5):
        for name, program in programs.items():
            out = subprocess.run([str(p) for p in program], env=env, capture_output=True, text=True, check=True).stdout
            runs[name].append(json.loads(out))
            assert runs[name][-1]["tokens"] == TOKENS, runs[name][-1]
print("| SDK | what | measured | must |\n|---|---|---|---|")
missed = 0
for name, limits in MUST.items():
    for key, limit in limits.items():
        value = statistics.median(run[key] for run in runs[name])
        missed += value > limit
        print(f"| {name} | {WORDS[key]} | {value:.1f}{'' if value <= limit else ' **missed**'} | <= {limit} |")
sys.exit(missed > 0)
