"""A hostile web page in a real browser against the daemon: it must read nothing and change nothing.

The same page against a server without any check (attacks.mjs starts one) must succeed: where it does not, the test
proves nothing and fails. 77: no Chromium, no Node.js.
"""
import json
import os
import pathlib
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "http_clients"))
from harness import BIN, SKIP, Daemon  # noqa: E402
from node import modules, run_node  # noqa: E402

TOKEN = "hostile-page-test-token-0123456789"


def counters(page):
    """What a successful attack would have moved: answers of the inference routes, and anything but refusals."""
    out = {}
    for line in page.splitlines():
        if line.startswith("rumbo_http_answers_total{"):
            key, value = line.rsplit(" ", 1)
            out[key] = float(value)
    return out


def main():
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not chromium or not (BIN / "rumbod").exists():
        print("no Chromium or no daemon: ./dev setup, ./dev build")
        return SKIP
    modules()
    with Daemon() as daemon:
        tokens = daemon.dir / "state" / "tokens"
        tokens.touch(mode=0o600)
        tokens.write_text(f"admin admin {TOKEN}\n")
        daemon.cli("load", "victim", "--engine", "fake", "--sessions", "2")
        before = daemon.json("status")
        code = run_node(pathlib.Path(__file__).with_name("attacks.mjs"),
                        {"RUMBO_PORT": str(daemon.port), "CHROMIUM": chromium})
        if code:
            return code
        after = daemon.json("status")
        for key in ("finished_requests", "running_requests", "queued_requests", "instances"):
            if before[key] != after[key]:
                print(f"{key} was {before[key]} and is {after[key]}: the page got something done")
                return 1
        if [i["model"] for i in daemon.instances()] != ["victim"]:
            print("the page ended the instance")
            return 1
        audit = daemon.dir / "state" / "audit.log"
        allowed = [e for e in map(json.loads, audit.read_text().splitlines() if audit.exists() else [])
                   if e["status"] < 400]
        if allowed:
            print(f"the page changed something: {allowed}")
            return 1
    print("the page read nothing and changed nothing; without checks the same page did both")
    return 0


if __name__ == "__main__":
    os.environ.setdefault("HOME", "/tmp")
    sys.exit(main())
