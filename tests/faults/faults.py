#!/usr/bin/env python3
"""What engines, disks, clocks and clients may do to the daemon, each with a pass figure. Prints what it counted.

stopped    a worker that is stopped (SIGSTOP) in the middle of answers: each ends once, and the model serves again.
garbage    a worker that breaks its protocol, answers a request nobody sent, or floods its log: one request pays.
memory     a worker that the kernel ends for want of memory: a typed error, and the daemon lives.
disk       a state folder that is full at every point: typed errors, nothing half done, and all is well with more room.
files      no file descriptors left: clients wait, nobody is dropped, and all is well afterwards.
clock      a wall clock that jumps by hours while answers stream: nobody notices.
slow       clients that read a byte a second: bounded memory, and others are as fast as ever.
config     a configuration that is cut, binary, or gone while the daemon runs.
orphans    workers that outlive a killed daemon, beside other daemons' and a process that has a recorded number now.
second     a second daemon on the same socket, port or state folder.
stray      a start that is refused leaves nothing behind.
"""
import asyncio
import contextlib
import ctypes
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from harness import BIN, MODELS, SKIP, Daemon, alive, complete, wait_until  # noqa: E402

FULL = os.environ.get("RUMBO_FAULTS") == "full"
FAKE = ("load", "fake", "--engine", "fake", "--sessions", 8)


def serves(daemon, tokens=20):
    text, finish, error = asyncio.run(complete(daemon.port, {"model": "fake", "prompt": "again", "max_tokens": tokens}))
    assert finish and len(text.split()) == tokens, (text, finish, error)


def reason(error):
    with contextlib.suppress(ValueError, TypeError):
        return json.loads(error[error.index("{"):]).get("code") or error
    return error


def rss_mb(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) // 1024
    return 0


# ---- Engines ----

def stopped():
    with Daemon() as d:
        d.cli(*FAKE)
        pid = d.worker_pid("fake")

        async def run():
            body = {"model": "fake", "prompt": "<<token_us=20000>>", "max_tokens": 5000}
            calls = [asyncio.create_task(complete(d.port, body)) for _ in range(6)]
            await asyncio.sleep(0.5)
            os.kill(pid, signal.SIGSTOP)
            begun = time.monotonic()
            answers = await asyncio.wait_for(asyncio.gather(*calls), 90)
            return answers, time.monotonic() - begun

        answers, waited = asyncio.run(run())
        for text, finish, error in answers:
            assert error and not finish, (finish, error)
            numbers = [int(n) for n in text.split()][:-1]
            assert numbers == list(range(1, len(numbers) + 1))
        assert wait_until(lambda: not alive(pid), 2), "the stopped worker lives"
        d.cli(*FAKE)
        serves(d)
        print(f"stopped worker: 6 answers ended once each, {waited:.0f} s after it stopped; serves again")


def garbage():
    with Daemon() as d:
        d.cli(*FAKE)
        for kind in ("wire", "order", "no_finish", "stream", "utf8", "stderr"):
            text, finish, error = asyncio.run(complete(
                d.port, {"model": "fake", "prompt": f"<<garbage={kind}>> x", "max_tokens": 10}))
            assert bool(finish) != bool(error), f"{kind}: not exactly one end: {finish!r} {error!r}"
            if kind == "stderr":
                assert finish, error
            serves(d)
            assert d.process.poll() is None, f"the daemon died of {kind}"
        log = (d.dir / "log").stat().st_size
        assert log < 4 << 20, f"the log has {log} bytes"
        assert rss_mb(d.process.pid) < 200
        print(f"garbage: 6 kinds, one request each paid; the log has {log >> 10} KiB after 200,000 lines")


def memory():
    base = pathlib.Path("/sys/fs/cgroup/memory")
    group = base / f"rumbo-test-{os.getpid()}"
    model = MODELS / "smollm2.gguf"
    if not model.exists() or not os.access(base, os.W_OK) or not (base / "memory.limit_in_bytes").exists():
        print("needs a writable memory controller and a model")
        sys.exit(SKIP)
    if not list((BIN / "engines").glob("llamacpp-*/rumbo-llamacpp")):
        print("needs the llama.cpp worker")
        sys.exit(SKIP)
    group.mkdir()
    d = Daemon()
    try:
        d.cli("import", model, "--name", "m")
        (group / "cgroup.procs").write_text(str(d.process.pid))
        (group / "memory.limit_in_bytes").write_text(str(260 << 20))
        load = d.cli("load", "m", "--context", 32768, "--sessions", 4, "--force", check=False, timeout=240)
        assert load.returncode not in (0, 5), (load.returncode, load.stderr)
        assert d.process.poll() is None, "the kernel ended the daemon"
        assert "memory" in load.stderr.lower() or "signal 9" in load.stderr, load.stderr
        d.cli(*FAKE)
        serves(d)
        print("out of memory:", load.stderr.strip().splitlines()[0][:160])
    finally:
        d.close()
        wait_until(lambda: not (group / "cgroup.procs").read_text(), 5)
        group.rmdir()


def orphans():
    """C23. Workers are marked by their environment; none may be left after 2 s, and nobody else's may be hit."""
    a, b = Daemon(), Daemon()
    by_hand = subprocess.Popen(["sleep", "600"])
    neighbour = subprocess.Popen(["sleep", "600"])
    try:
        a.cli(*FAKE)
        b.cli(*FAKE)
        worker_a, worker_b = a.worker_pid("fake"), b.worker_pid("fake")
        a.kill()
        assert wait_until(lambda: not alive(worker_a), 2), "the worker outlives its daemon"
        # A worker whose parent-death signal did not work: a process that the record names in full.
        fields = pathlib.Path(f"/proc/{by_hand.pid}/stat").read_text().rsplit(") ", 1)[1].split()
        exe = os.stat(f"/proc/{by_hand.pid}/exe")
        (a.dir / "state" / "workers").write_text(
            f"{by_hand.pid} {fields[19]} {exe.st_dev}:{exe.st_ino}\n"  # it, and a number that passed to another
            f"{neighbour.pid} 1 {exe.st_dev}:{exe.st_ino}\n")
        a.start()
        assert by_hand.wait(5) == -signal.SIGKILL, "the recorded worker lives on"
        assert neighbour.poll() is None, "the reaper hit a neighbour"
        assert alive(worker_b) and b.worker_pid("fake") == worker_b, "the reaper hit another daemon's worker"
        serves(b)
        print("orphans: killed daemon's worker gone, recorded one reaped, neighbours untouched")
    finally:
        for p in (by_hand, neighbour):
            p.kill()
            p.wait()
        a.close()
        b.close()


# ---- The machine ----

def disk():
    libc = ctypes.CDLL(None, use_errno=True)
    place = pathlib.Path(tempfile.mkdtemp(prefix="rumbo-disk-"))
    if libc.mount(b"none", str(place).encode(), b"tmpfs", 0, b"size=64k") != 0:
        print("needs to mount a tmpfs")
        sys.exit(SKIP)
    source = pathlib.Path(tempfile.mkdtemp(prefix="rumbo-model-"))
    model = source / "m.gguf"
    model.write_bytes(tiny_gguf())
    counts = {"refused at start": 0, "refused later": 0, "fine": 0}
    try:
        sizes = range(4, 1200, 12 if FULL else 96)
        for kib in sizes:
            libc.umount2(str(place).encode(), 2)
            assert libc.mount(b"none", str(place).encode(), b"tmpfs", 0, f"size={kib}k,mode=700".encode()) == 0
            try:
                d = Daemon(directory=place)
            except RuntimeError as e:
                text = str(e)
                assert "rumbod does not answer" not in text, f"{kib} KiB: {text}"
                counts["refused at start"] += 1
                continue
            with d:
                steps = [("import", model, "--name", "m"), ("pin", "m"), ("pin", "m", "--off"), FAKE, ("rm", "m")]
                failed = False
                for step in steps:
                    r = d.cli(*step, check=False)
                    if r.returncode:
                        failed = True
                        assert r.returncode != 5, f"{kib} KiB: {step}: {r.stderr}"
                        assert r.stderr.strip(), step
                    assert d.process.poll() is None, f"{kib} KiB: the daemon died of {step}"
                listed = d.cli("models", "--json", check=False)
                assert listed.returncode == 0 or (failed and listed.returncode != 5), f"{kib} KiB: {listed.stderr}"
                if listed.returncode:  # no room even for the index: typed, and the daemon lives
                    counts["refused later"] += 1
                    continue
                models = json.loads(listed.stdout)["models"]
                assert all(v["state"] == "complete" for m in models for v in m["variants"]), models
                counts["refused later" if failed else "fine"] += 1
                # With more room everything works, without a restart.
                assert libc.mount(b"none", str(place).encode(), b"tmpfs", 32, b"size=64m,mode=700") == 0, ctypes.get_errno()
                if models:
                    d.cli("rm", "m")
                d.cli("import", model, "--name", "m")
                left = [p.name for p in (place / "state").rglob("*") if p.is_file() and ("tmp" in p.name or "partial" in p.name)]
                assert not left, left
        assert counts["fine"] and (counts["refused later"] or counts["refused at start"]), counts
        print("full disk:", counts)
    finally:
        libc.umount2(str(place).encode(), 2)
        shutil.rmtree(place, ignore_errors=True)
        shutil.rmtree(source, ignore_errors=True)


def tiny_gguf():
    """A header of an architecture that nothing runs: enough to be taken into the store."""
    import struct

    def text(s):
        return struct.pack("<Q", len(s)) + s.encode()

    def number(key, value):
        return text(key) + struct.pack("<II", 4, value)

    meta = [text("general.architecture") + struct.pack("<I", 8) + text("llama"),
            text("general.name") + struct.pack("<I", 8) + text("tiny")]
    for key, value in (("block_count", 1), ("context_length", 128), ("embedding_length", 32), ("feed_forward_length", 32),
                       ("attention.head_count", 2), ("attention.head_count_kv", 2), ("rope.dimension_count", 16)):
        meta.append(number("llama." + key, value))
    tensor = text("token_embd.weight") + struct.pack("<I", 2) + struct.pack("<QQ", 32, 32) + struct.pack("<IQ", 0, 0)
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, len(meta)) + b"".join(meta) + tensor
    head += b"\0" * (-len(head) % 32)
    return head + b"\0" * (32 * 32 * 4) + b"\0" * 65536


def files():
    with Daemon() as d:
        d.cli(*FAKE)
        used = len(os.listdir(f"/proc/{d.process.pid}/fd"))
        hard = resource.prlimit(d.process.pid, resource.RLIMIT_NOFILE)[1]
        resource.prlimit(d.process.pid, resource.RLIMIT_NOFILE, (used + 8, hard))
        sockets = []
        try:
            for _ in range(100):
                s = socket.socket()
                s.connect(("127.0.0.1", d.port))
                sockets.append(s)
            time.sleep(0.3)
            assert d.process.poll() is None
            load = d.cli("load", "other", "--engine", "fake", check=False, timeout=60)  # needs descriptors of its own
            assert load.returncode != 0 and load.stderr.strip()
        finally:
            for s in sockets:
                s.close()
        resource.prlimit(d.process.pid, resource.RLIMIT_NOFILE, (hard, hard))
        assert wait_until(lambda: d.cli("status", check=False).returncode == 0, 5)
        serves(d)
        d.cli("load", "other", "--engine", "fake")
        print(f"descriptors: {used} in use, 8 left, 100 clients: refused or made wait, then served")


def clock():
    shim = pathlib.Path(os.environ.get("RUMBO_CLOCK_SHIM", BIN.parent / "tests" / "libclock_shim.so"))
    if not shim.exists():
        print("no clock shim")
        sys.exit(SKIP)
    offset = pathlib.Path(tempfile.mkdtemp(prefix="rumbo-clock-")) / "offset"
    offset.write_bytes((0).to_bytes(8, "little", signed=True))
    os.environ["LD_PRELOAD"], os.environ["CLOCK_SHIM_FILE"] = str(shim), str(offset)
    try:
        d = Daemon()
    finally:
        del os.environ["LD_PRELOAD"]
    d.env.pop("LD_PRELOAD", None)
    jumps = [3600, -7200, 86400, -86400, 1, -1, 0] * (5 if FULL else 1)
    with d:
        d.cli(*FAKE)

        async def run():
            body = {"model": "fake", "prompt": "<<token_us=2000>>", "max_tokens": 200}
            done = 0
            for jump in jumps:
                calls = [asyncio.create_task(complete(d.port, body)) for _ in range(4)]
                await asyncio.sleep(0.1)
                with open(offset, "r+b") as f:  # never shorter: it is mapped
                    f.write(jump.to_bytes(8, "little", signed=True))
                for text, finish, error in await asyncio.wait_for(asyncio.gather(*calls), 30):
                    assert finish == "length" and len(text.split()) == 200, (jump, finish, error, text[-50:])
                    done += 1
            return done

        done = asyncio.run(run())
        assert len(d.instances()) == 1, "a jump unloaded the model"
        print(f"clock: {len(jumps)} jumps by up to a day, {done} answers whole")
    shutil.rmtree(offset.parent)


# ---- Clients ----

def slow():
    count = 2000 if FULL else 400
    with Daemon() as d:
        d.cli("load", "fake", "--engine", "fake", "--sessions", count + 8)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, count + 500), hard))

        async def run():
            body = json.dumps({"model": "fake", "prompt": "x", "max_tokens": 16000, "stream": True}).encode()
            head = (f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:{d.port}\r\nContent-Type: application/json\r\n"
                    f"Content-Length: {len(body)}\r\n\r\n").encode()
            loop = asyncio.get_running_loop()
            socks = []
            for _ in range(count):
                s = socket.socket()
                s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
                s.setblocking(False)
                await loop.sock_connect(s, ("127.0.0.1", d.port))
                await loop.sock_sendall(s, head + body)
                socks.append(s)
            read, times = 0, []
            for _ in range(10):
                for s in socks:
                    with contextlib.suppress(BlockingIOError):
                        read += len(s.recv(1))
                begun = time.monotonic()
                text, finish, error = await complete(d.port, {"model": "fake", "prompt": "fast", "max_tokens": 50})
                assert finish and len(text.split()) == 50, error
                times.append(time.monotonic() - begun)
                await asyncio.sleep(1)
            peak = rss_mb(d.process.pid)
            for s in socks:
                s.close()
            return read, sorted(times)[len(times) // 2], peak

        read, median, peak = asyncio.run(run())
        assert read >= count * 8, f"{read} bytes"
        assert peak < 100 + count * 0.2, f"{peak} MB"
        free = lambda: all(i["running"] <= 0 and i["queue"] == 0 for i in d.instances())  # noqa: E731
        assert wait_until(free, 3), d.instances()
        print(f"slow readers: {count}, daemon at {peak} MB, another client's 50 tokens took {median * 1000:.0f} ms (median)")


def config():
    place = pathlib.Path(tempfile.mkdtemp(prefix="rumbo-config-"))
    file = place / "config.yaml"
    file.write_text("keep-alive: 100\nlog-level: info\n")
    with Daemon(extra=("--config", str(file))) as d:
        d.cli(*FAKE)
        pid = d.worker_pid("fake")
        rng = random.Random(7)
        bad = [b"keep-alive: [", b"\x7fELF\0\0\x01\x02" + bytes(range(256)), b"keep-alive: many\n", b"kep-alive: 5\n",
               b"- a\n- b\n", bytes(rng.randrange(256) for _ in range(5000)), b"a: " * 100000]
        for content in bad:
            file.write_bytes(content)
            r = d.cli("reload", check=False)
            assert r.returncode in (1, 2), (content[:40], r.returncode, r.stdout)
            assert r.stderr.strip()
            d.process.send_signal(signal.SIGHUP)
        file.unlink()
        assert d.cli("reload", check=False).returncode != 0, "the named file is gone"
        file.write_text("keep-alive: 200\nlog-level: info\nload-silence: 30\n")
        report = d.json("reload")
        assert report == {"changed": ["keep-alive"], "needs_restart": ["load-silence"]}, report
        assert d.json("reload")["changed"] == []
        assert d.worker_pid("fake") == pid, "a reload stopped an instance"
        serves(d)
        print(f"config: {len(bad) + 1} broken files refused, a good one taken, the instance stayed")
    shutil.rmtree(place)


def second():
    """C25."""
    with Daemon() as d:
        d.cli(*FAKE)
        other = pathlib.Path(tempfile.mkdtemp(prefix="rumbo-second-"))

        def start(socket_path, port, state):
            return subprocess.run([BIN / "rumbod", "--socket", socket_path, "--http", f"127.0.0.1:{port}", "--state-dir", state,
                                   "--cache-dir", other / "cache"], env=d.env, capture_output=True, text=True, timeout=20)

        for what in ((d.dir / "s", 0, other / "x"), (other / "s", d.port, other / "y"), (other / "s", 0, d.dir / "state")):
            r = start(*what)
            assert r.returncode == 1 and "another" in r.stderr or "in use" in r.stderr, (what, r.returncode, r.stderr)
        for _ in range(50):
            serves(d, 3)
            assert d.cli("status", check=False).returncode == 0
        shutil.rmtree(other)
        print("second daemon: refused on socket, port and state folder; 50 gRPC and 50 HTTP calls after reached the first")


def stray():
    place = pathlib.Path(tempfile.mkdtemp(prefix="rumbo-stray-"))
    with Daemon() as d:
        for args in (("--http", "nonsense"), ("--http", f"127.0.0.1:{d.port}"), ("--socket", d.dir / "s")):
            given = dict(zip(args[::2], args[1::2]))
            options = {"--socket": place / "s", "--http": "off", "--state-dir": place / "state", "--cache-dir": place / "cache"} | given
            r = subprocess.run([BIN / "rumbod", *[str(x) for kv in options.items() for x in kv]], env=d.env,
                               capture_output=True, text=True, timeout=20)
            assert r.returncode in (1, 2), r
            left = sorted(p.relative_to(place).as_posix() for p in place.rglob("*"))
            assert not left, f"{args}: left {left}"
    shutil.rmtree(place)
    print("refused starts: nothing left behind")


if __name__ == "__main__":
    globals()[sys.argv[1]]()
