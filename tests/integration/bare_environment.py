#!/usr/bin/env python3
"""A daemon started as services and containers start programs: next to no environment, low limits, hostile variables.

In each of them it answers with a real model, or does not start and names the one thing that is missing.
"""
import contextlib
import os
import pathlib
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import harness  # noqa: E402

MODEL = harness.MODELS / "smollm2.gguf"
if not MODEL.exists():
    print("needs SmolLM2")
    sys.exit(harness.SKIP)
BARE = {"PATH": "/usr/bin:/bin"}
DEAD_PROXY = {name: "http://127.0.0.1:9" for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")}


def limit(what, value):
    return lambda: resource.setrlimit(what, (value, value))


def gone_folder():
    folder = tempfile.mkdtemp()
    os.chdir(folder)
    os.rmdir(folder)


# name: variables, what the child does before exec, idle clients, further arguments of subprocess
def cases(work):
    home = {"HOME": str(work)}
    locked = work / "locked"
    locked.mkdir(mode=0o500)
    return {
        "nothing but PATH": (BARE, None, 0),
        "HOME in a folder of its own": (BARE | home, None, 0),
        "HOME that is not there": (BARE | {"HOME": "/nonexistent"}, None, 0),
        "XDG_RUNTIME_DIR that is not there": (BARE | home | {"XDG_RUNTIME_DIR": "/nonexistent"}, None, 0),
        "XDG_RUNTIME_DIR of somebody else": (BARE | home | {"XDG_RUNTIME_DIR": "/proc"}, None, 0),
        "little locked memory": (BARE | home, limit(resource.RLIMIT_MEMLOCK, 64 << 10), 0),
        "256 descriptors and 200 idle clients": (BARE | home, limit(resource.RLIMIT_NOFILE, 256), 200),
        "umask 077": (BARE | home, lambda: os.umask(0o077), 0),
        "standard input closed": (BARE | home, lambda: os.close(0), 0),
        "a working folder that was removed": (BARE | home, gone_folder, 0),
        "a dead proxy": (BARE | home | DEAD_PROXY, None, 0),
        "a dead proxy, NO_PROXY=localhost": (BARE | home | DEAD_PROXY | {"NO_PROXY": "localhost", "no_proxy": "localhost"}, None, 0),
        "nonsense for libraries and engines": (BARE | home | {
            "LD_LIBRARY_PATH": "/nonexistent", "LLAMA_ARG_THREADS": "banana", "LLAMA_ARG_CTX_SIZE": "-7", "GGML_VK_VISIBLE_DEVICES": "99",
            "OMP_NUM_THREADS": "0", "PYTHONHOME": "/nonexistent", "LC_ALL": "tlh_KL.UTF-8"}, None, 0),
    }


def run(name, env, prepare, idle, work):
    """Starts the daemon as `name` says; True where it answered with a real model."""
    case = pathlib.Path(tempfile.mkdtemp(dir=work))
    port = None
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    args = [harness.BIN / "rumbod", "--socket", case / "s", "--state-dir", case / "state", "--cache-dir", case / "cache",
            "--http", f"127.0.0.1:{port}"]
    log = open(case / "log", "ab")
    process = subprocess.Popen([str(a) for a in args], env=env, preexec_fn=prepare, stdout=log, stderr=log,
                               stdin=subprocess.DEVNULL)
    # The clients live in the same environment, but for limits.
    client_env = env | {"RUMBO_SOCKET": str(case / "s")}

    def cli(*words, timeout=120):
        return subprocess.run([str(harness.BIN / "rumbo"), *map(str, words)], env=client_env, capture_output=True, text=True, timeout=timeout)

    connections = []
    try:
        if not harness.wait_until(lambda: process.poll() is not None or cli("status").returncode == 0, 30):
            sys.exit(f"FAIL  {name}: neither answers nor ends: {(case / 'log').read_text()[-500:]}")
        if process.poll() is not None:
            sys.exit(f"FAIL  {name}: did not start: {(case / 'log').read_text()[-500:]}")
        for _ in range(idle):
            connections.append(socket.create_connection(("127.0.0.1", port)))
        for words in (("import", MODEL, "--name", "m"), ("run", "m", "Hello", "--max-tokens", "4", "--temperature", "0")):
            r = cli(*words)
            if r.returncode:
                sys.exit(f"FAIL  {name}: rumbo {words[0]}: {r.stderr.strip()} {(case / 'log').read_text()[-500:]}")
        assert r.stdout.strip(), name
        print(f"ok    {name}")
    finally:
        for c in connections:
            c.close()
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
        if process.poll() is None:
            process.kill()
            sys.exit(f"FAIL  {name}: does not end")
        log.close()
        shutil.rmtree(case, ignore_errors=True)


def default_places(work):
    """Without any option: where the socket and the state go, and that a client finds them by the same rule."""
    home = work / "home"
    home.mkdir()
    for name, env in {"no XDG_RUNTIME_DIR": {}, "an unusable one": {"XDG_RUNTIME_DIR": "/nonexistent"}}.items():
        env = BARE | {"HOME": str(home), "RUMBO_HTTP": "off"} | env
        process = subprocess.Popen([str(harness.BIN / "rumbod")], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        fallback = pathlib.Path(f"/tmp/rumbo-{os.getuid()}")
        try:
            ok = harness.wait_until(lambda: subprocess.run([str(harness.BIN / "rumbo"), "status"], env=env, capture_output=True).returncode == 0, 20)
            assert ok, f"{name}: no daemon at the fallback"
            assert (fallback / "rumbo.sock").exists() and oct(fallback.stat().st_mode)[-3:] == "700", name
        finally:
            process.terminate()
            process.wait(20)
        print(f"ok    default places with {name}")


with tempfile.TemporaryDirectory(prefix="rumbo-bare-") as folder:
    work = pathlib.Path(folder)
    if not pathlib.Path(f"/tmp/rumbo-{os.getuid()}/rumbo.sock").exists():
        default_places(work)
    for name, (env, prepare, idle) in cases(work).items():
        run(name, env, prepare, idle, work)
