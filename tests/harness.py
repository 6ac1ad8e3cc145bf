"""A private rumbod for tests that drive it from outside, over HTTP and the command line. Standard library only."""
import asyncio
import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
BIN = pathlib.Path(os.environ.get("RUMBO_BIN_DIR", ROOT / "build/release/bin"))
MODELS = pathlib.Path(os.environ.get("RUMBO_TEST_MODELS", "/nonexistent"))
SKIP = 77  # ctest's SKIP_RETURN_CODE


def alive(pid):
    with contextlib.suppress(OSError):
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0]
        return state != "Z"
    return False


def wait_until(what, seconds, step=0.005):
    """True once what() holds, False after `seconds`."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if what():
            return True
        time.sleep(step)
    return what()


class Daemon:
    def __init__(self, directory=None, http=True, extra=()):
        self.own = directory is None
        self.dir = pathlib.Path(directory or tempfile.mkdtemp(prefix="rumbo-test-"))
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("RUMBO_")} | {"RUMBO_SOCKET": str(self.dir / "s")}
        self.http, self.extra = http, list(extra)
        self.start()

    def start(self):
        self.port = 0
        if self.http:
            with socket.socket() as s:
                s.bind(("127.0.0.1", 0))
                self.port = s.getsockname()[1]
        self.log = open(self.dir / "log", "ab")
        self.process = subprocess.Popen(
            [BIN / "rumbod", "--socket", self.dir / "s", "--http", f"127.0.0.1:{self.port}" if self.http else "off",
             "--state-dir", self.dir / "state", "--cache-dir", self.dir / "cache", *self.extra],
            stdout=self.log, stderr=self.log, env=self.env)

        def up():
            if self.process.poll() is not None:
                raise RuntimeError("rumbod ended: " + (self.dir / "log").read_text(errors="replace")[-600:])
            return self.cli("status", check=False).returncode == 0

        if not wait_until(up, 20):
            raise RuntimeError("rumbod does not answer")

    def cli(self, *args, check=True, timeout=120):
        r = subprocess.run([BIN / "rumbo", *map(str, args)], env=self.env, capture_output=True, text=True, timeout=timeout)
        if check and r.returncode:
            raise RuntimeError(f"rumbo {' '.join(map(str, args))}: exit {r.returncode}: {r.stderr.strip()}")
        return r

    def json(self, *args):
        return json.loads(self.cli(*args, "--json").stdout)

    def instances(self):
        return self.json("ps")["instances"]

    def worker_pid(self, model):
        for i in self.instances():
            if i["model"] == model and i["state"] == "ready":
                return i["pid"]
        return None

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def close(self):
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(20)
        self.log.close()
        if self.own:
            shutil.rmtree(self.dir, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


async def complete(port, body, stop_after=None):
    """Streams /v1/completions. Returns (text, finish_reason, error): exactly one of the last two is set where it ended.

    stop_after: closes the connection after so many events.
    """
    data = json.dumps(body | {"stream": True}).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
    text, finish, error, done = "", None, None, False
    try:
        writer.write((f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
                      f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n").encode() + data)
        await writer.drain()
        status = int((await reader.readline()).split()[1])
        while (await reader.readline()).strip():
            pass
        if status != 200:
            return text, None, f"{status} {(await reader.read(2000)).decode(errors='replace')}"
        events = 0
        while line := await reader.readline():
            if not line.startswith(b"data:"):
                continue
            payload = line[5:].strip()
            if payload == b"[DONE]":
                done = True
                continue
            if done:
                raise AssertionError("an event after [DONE]")
            event = json.loads(payload)
            if "error" in event:
                if error or finish:
                    raise AssertionError(f"two ends: {finish!r}, {error!r} and {event!r}")
                error = json.dumps(event["error"])
                continue
            for choice in event.get("choices", []):
                text += choice.get("text") or ""
                if choice.get("finish_reason"):
                    if error or finish:
                        raise AssertionError(f"two ends: {finish!r}, {error!r} and {event!r}")
                    finish = choice["finish_reason"]
            events += 1
            if stop_after is not None and events >= stop_after:
                return text, None, None
        return text, finish, error
    finally:
        writer.close()
