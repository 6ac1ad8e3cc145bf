"""What can go wrong. Every failure of a call is a RumboError; its subclass says what to do about it."""
from __future__ import annotations

from typing import Any, Optional

import grpc

from . import _wire


class RumboError(Exception):
    """A failed call.

    code: gRPC's name of the kind of failure, e.g. "NOT_FOUND".
    reason: why, as the daemon spells it, e.g. "MODEL_NOT_FOUND"; "" where it gave none.
    message: what happened. next_step: what to do about it, or "".
    retry_after: seconds after which a retry makes sense; None where the daemon did not say that one does.
    """

    def __init__(self, message: str, *, code: str = "UNKNOWN", reason: str = "", next_step: str = "",
                 retry_after: Optional[float] = None) -> None:
        super().__init__(f"{message} {next_step}" if next_step else message)
        self.message = message
        self.code = code
        self.reason = reason
        self.next_step = next_step
        self.retry_after = retry_after


class InvalidArgument(RumboError):
    """A value of the request is missing or out of range."""


class NotFound(RumboError):
    """No such model, instance, profile or file."""


class AlreadyExists(RumboError):
    """The name is taken by other content."""


class PermissionDenied(RumboError):
    """The caller may not do this."""


class Refused(RumboError):
    """No placement keeps the contract, or the model cannot do this. A retry does not help."""


class ResourceExhausted(RumboError):
    """Memory does not suffice, or too many requests wait; see retry_after."""


class Unavailable(RumboError):
    """The engine or the instance went away during the call."""


class DaemonUnreachable(Unavailable):
    """No daemon answers."""


class DeadlineExceeded(RumboError):
    """The timeout passed first."""


class Cancelled(RumboError):
    """The call was cancelled."""


_BY_CODE = {
    "INVALID_ARGUMENT": InvalidArgument, "OUT_OF_RANGE": InvalidArgument, "NOT_FOUND": NotFound,
    "ALREADY_EXISTS": AlreadyExists, "PERMISSION_DENIED": PermissionDenied, "UNAUTHENTICATED": PermissionDenied,
    "FAILED_PRECONDITION": Refused, "RESOURCE_EXHAUSTED": ResourceExhausted, "UNAVAILABLE": Unavailable,
    "DEADLINE_EXCEEDED": DeadlineExceeded, "CANCELLED": Cancelled,
}

# For what no daemon explained: (reason, message, next step).
_LOCAL = {
    "UNAVAILABLE": ("DAEMON_UNREACHABLE", "the connection to the daemon failed",
                    "Look whether it runs with `rumbo status`; start it with `rumbod`."),
    "DEADLINE_EXCEEDED": ("DEADLINE_EXCEEDED", "the daemon did not answer in time",
                          "Allow more time, or look what it does with `rumbo ps`."),
    "CANCELLED": ("CANCELLED", "cancelled", ""),
    "UNIMPLEMENTED": ("NOT_IMPLEMENTED", "this daemon cannot do that",
                      "Use a daemon and a client of the same version."),
}


def _details(metadata: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in metadata or ():
        if key != "grpc-status-details-bin":
            continue
        for any_ in _wire.message("google.rpc.Status").FromString(value).details:
            name = any_.type_url.rsplit("/", 1)[-1]
            if name == "google.rpc.ErrorInfo":
                info = _wire.message(name).FromString(any_.value)
                if info.domain == "rumbo":
                    found["reason"] = info.reason
                    found["next_step"] = info.metadata["next_step"] if "next_step" in info.metadata else ""
            elif name == "google.rpc.RetryInfo":
                delay = _wire.message(name).FromString(any_.value).retry_delay
                found["retry_after"] = delay.seconds + delay.nanos / 1e9
    return found


def from_rpc(error: grpc.RpcError) -> RumboError:
    """gRPC's error as ours."""
    code = error.code().name
    message = error.details() or ""
    found = _details(error.trailing_metadata())
    if not found.get("reason") and code in _LOCAL:
        reason, text, next_step = _LOCAL[code]
        message = f"{text}: {message}" if message and code in ("UNAVAILABLE", "UNIMPLEMENTED") else text
        found.update(reason=reason, next_step=next_step)
    kind = DaemonUnreachable if found.get("reason") == "DAEMON_UNREACHABLE" else _BY_CODE.get(code, RumboError)
    return kind(message or code, code=code, **found)
