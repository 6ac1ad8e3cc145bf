"""The pinned npm packages of the tests (deploy/setup/node-clients), installed once per lock file."""
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from harness import ROOT, SKIP  # noqa: E402


def modules():
    """The folder that holds node_modules; ends the program with 77 where there is no Node.js or no registry."""
    if not shutil.which("node") or not shutil.which("npm"):
        print("no Node.js here")
        sys.exit(SKIP)
    setup = ROOT / "deploy/setup/node-clients"
    deps = pathlib.Path(os.environ.get("RUMBO_DEPS") or
                        pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "rumbo-dev")
    target = deps / "node-clients"
    stamp = hashlib.sha256((setup / "package-lock.json").read_bytes()).hexdigest()
    if (target / "stamp").exists() and (target / "stamp").read_text() == stamp:
        return target
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(setup / name, target)
    r = subprocess.run(["npm", "ci", "--ignore-scripts", "--omit=optional", "--omit=peer", "--no-audit", "--no-fund"],
                       cwd=target, capture_output=True, text=True)
    if r.returncode:
        print("the packages cannot be installed:\n" + r.stderr[-2000:])
        sys.exit(SKIP)
    (target / "stamp").write_text(stamp)
    return target


def run_node(script, env):
    """Runs a .mjs file with the packages beside it; returns its exit code."""
    target = modules()
    copy = target / pathlib.Path(script).name
    shutil.copy(script, copy)
    return subprocess.run(["node", copy], env=os.environ | env, timeout=300).returncode
