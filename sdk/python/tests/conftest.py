"""A daemon with canned answers (sdk/cpp/testing/fake_daemon.h says which) for every test."""
import os
import pathlib
import signal
import subprocess
import tempfile
import time

import pytest

FAKE = os.environ["RUMBO_FAKE_RUMBOD"]


class FakeDaemon:
    def __init__(self, folder: pathlib.Path) -> None:
        self.socket = str(folder / "s.sock")
        self.program = FAKE
        self.process = None

    def start(self) -> None:
        self.process = subprocess.Popen([FAKE, "--socket", self.socket], stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 10
        from rumbo import _connect
        while _connect.probe(self.socket, False) is not None:
            assert self.process.poll() is None and time.monotonic() < deadline, "the fake daemon did not start"
            time.sleep(0.002)

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


@pytest.fixture
def folder(monkeypatch):
    # Socket paths are short; pytest's own folders are not.
    with tempfile.TemporaryDirectory(prefix="rumbo-py-") as name:
        monkeypatch.setenv("RUMBO_STATE_DIR", name + "/state")
        monkeypatch.delenv("FAKE_RUMBOD", raising=False)
        yield pathlib.Path(name)


@pytest.fixture
def stopped(folder):
    fake = FakeDaemon(folder)
    yield fake
    fake.stop()
    log = folder / "state" / "rumbod.log"
    if log.exists():
        for line in log.read_text().splitlines():
            if line.startswith("pid "):
                os.kill(int(line[4:]), signal.SIGTERM)


@pytest.fixture
def daemon(stopped):
    stopped.start()
    return stopped
