"""Client of Rumbo, the local-first inference daemon.

    import rumbo

    with rumbo.Client.connect(start_daemon=True) as client:
        for chunk in client.chat("smollm2", "Write one sentence about the sea."):
            print(chunk.text, end="", flush=True)

rumbo.AsyncClient has the same calls for asyncio. Failures are raised as rumbo.RumboError; its subclasses say what to
do about them.
"""
from .aio import AsyncClient, AsyncTextStream
from .client import Client, TextStream
from .errors import (AlreadyExists, Cancelled, DaemonUnreachable, DeadlineExceeded, InvalidArgument, NotFound,
                     PermissionDenied, Refused, ResourceExhausted, RumboError, Unavailable)
from ._structured import WrongShape
from .types import Contract, Message, PlanOverrides, Sampling, Tool, ToolCall, Workload

__all__ = [
    "AlreadyExists", "AsyncClient", "AsyncTextStream", "Cancelled", "Client", "Contract", "DaemonUnreachable",
    "DeadlineExceeded", "InvalidArgument", "Message", "NotFound", "PermissionDenied", "PlanOverrides", "Refused",
    "ResourceExhausted", "RumboError", "Sampling", "TextStream", "Tool", "ToolCall", "Unavailable", "Workload",
    "WrongShape",
]
