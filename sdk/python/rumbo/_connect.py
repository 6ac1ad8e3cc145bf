"""Finds the daemon's socket, says truthfully why nobody answers, and starts a daemon where asked to."""
from __future__ import annotations

import errno
import fcntl
import os
import shutil
import socket as sockets
import stat
import subprocess
import time
from typing import Optional

from .errors import DaemonUnreachable, InvalidArgument, PermissionDenied, RumboError

_START = "Start the daemon with `rumbod`, or connect with start_daemon=True."
_SYSTEM_SOCKET = "/run/rumbo/rumbo.sock"
# Daemons that this process started; kept so that Python does not complain about children that live on.
_started: list[subprocess.Popen[bytes]] = []


def default_socket() -> str:
    """$RUMBO_SOCKET; else $XDG_RUNTIME_DIR/rumbo/rumbo.sock where that folder is ours; else one in /tmp. Where
    nothing stands there, the system service's."""
    if path := os.environ.get("RUMBO_SOCKET"):
        return os.path.abspath(path)
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    own = f"/tmp/rumbo-{os.getuid()}/rumbo.sock"
    if runtime.startswith("/") and os.path.isdir(runtime) and os.stat(runtime).st_uid == os.getuid():
        own = f"{runtime}/rumbo/rumbo.sock"
    if not os.path.exists(own) and os.path.exists(_SYSTEM_SOCKET) and os.access(_SYSTEM_SOCKET, os.W_OK):
        return _SYSTEM_SOCKET
    return own


def _state_dir() -> str:
    if path := os.environ.get("RUMBO_STATE_DIR"):
        return os.path.abspath(path)
    data = os.environ.get("XDG_DATA_HOME", "")
    return (data if data.startswith("/") else os.path.expanduser("~/.local/share")) + "/rumbo"


def probe(path: str, must_be_ours: bool) -> Optional[RumboError]:
    """None where somebody accepts connections on `path` at this moment, else what is really the matter."""
    def unreachable(message: str) -> RumboError:
        return DaemonUnreachable(message, code="UNAVAILABLE", reason="DAEMON_UNREACHABLE", next_step=_START)

    def denied(message: str) -> RumboError:
        return PermissionDenied(message, code="PERMISSION_DENIED", reason="PERMISSION_DENIED",
                                next_step="Use a socket of your own: set RUMBO_SOCKET.")

    if not path or len(os.fsencode(path)) > 107:
        return InvalidArgument(f"the socket path is empty or longer than 107 bytes: {path}", code="INVALID_ARGUMENT",
                               reason="INVALID_ARGUMENT")
    try:
        info = os.stat(path)
    except PermissionError:
        return denied(f"no access to the socket {path}")
    except OSError:
        return unreachable(f"no daemon runs: there is no socket {path}")
    if not stat.S_ISSOCK(info.st_mode):
        return unreachable(f"{path} is not a socket")
    if must_be_ours and info.st_uid not in (os.getuid(), 0):
        return denied(f"the socket {path} belongs to another user (uid {info.st_uid})")
    with sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM) as probe_socket:
        probe_socket.setblocking(False)
        error = probe_socket.connect_ex(path)
    if error in (0, errno.EAGAIN, errno.EINPROGRESS):
        return None
    if error in (errno.EACCES, errno.EPERM):
        return denied(f"no access to the socket {path}")
    return unreachable(f"no daemon runs: nobody listens on {path}")


def _make_private(path: str) -> None:
    os.makedirs(path, mode=0o700, exist_ok=True)
    info = os.lstat(path)
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid() or info.st_mode & 0o022:
        raise PermissionDenied(f"{path} is not a folder that only you can write to", code="PERMISSION_DENIED",
                               reason="PERMISSION_DENIED", next_step="Remove it, or set RUMBO_SOCKET.")


def _fail(what: str, log: str, offset: int) -> DaemonUnreachable:
    with open(log, "rb") as f:
        f.seek(offset)
        tail = f.read()[-600:].decode(errors="replace").strip()
    return DaemonUnreachable(f"{what}:\n{tail}" if tail else what, code="UNAVAILABLE", reason="DAEMON_UNREACHABLE",
                             next_step=f"The whole log is {log}.")


def start(path: str, must_be_ours: bool, program: Optional[str], timeout_s: float) -> None:
    """Starts a daemon that outlives this process; returns once it listens."""
    deadline = time.monotonic() + timeout_s
    program = program or shutil.which("rumbod")
    if not program:
        raise DaemonUnreachable("no daemon runs, and rumbod is not on the PATH", code="UNAVAILABLE",
                                reason="DAEMON_UNREACHABLE", next_step="Install Rumbo, or start rumbod by hand.")
    state = _state_dir()
    os.makedirs(state, mode=0o700, exist_ok=True)
    if must_be_ours:
        _make_private(os.path.dirname(path))
    else:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    log = f"{state}/rumbod.log"
    with open(os.open(path + ".start", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600), "r+") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise DaemonUnreachable("another program is starting the daemon and does not come to an end",
                                            code="UNAVAILABLE", reason="DAEMON_UNREACHABLE") from None
                time.sleep(0.005)
        if probe(path, must_be_ours) is None:
            return
        offset = os.path.getsize(log) if os.path.exists(log) else 0
        with open(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600), "ab") as out:
            try:
                daemon = subprocess.Popen([program, "--socket", path], stdin=subprocess.DEVNULL, stdout=out,
                                          stderr=out, cwd="/", start_new_session=True)
            except OSError as error:
                raise DaemonUnreachable(f"start {program}: {error.strerror}", code="UNAVAILABLE",
                                        reason="DAEMON_UNREACHABLE") from error
        _started.append(daemon)
        while probe(path, must_be_ours) is not None:
            if daemon.poll() is not None:
                raise _fail("the daemon ended while starting", log, offset)
            if time.monotonic() > deadline:
                raise _fail("the daemon was not ready in time", log, offset)
            time.sleep(0.002)


def find(socket: Optional[str], start_daemon: bool, program: Optional[str], timeout_s: float) -> str:
    """The socket of a daemon that listens, or a RumboError."""
    path = os.path.abspath(socket) if socket else default_socket()
    # A place that we chose ourselves may lie in a shared folder; one that was named is trusted.
    must_be_ours = not socket and not os.environ.get("RUMBO_SOCKET")
    error = probe(path, must_be_ours)
    if error is None:
        return path
    if not start_daemon or not isinstance(error, DaemonUnreachable):
        raise error
    start(path, must_be_ours, program, timeout_s)
    return path
