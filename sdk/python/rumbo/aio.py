"""The client for asyncio: the same names as rumbo.Client."""
from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any, Optional, TypeVar, Union

import grpc

from . import _calls, _connect, types
from ._structured import schema_of
from ._convert import from_wire
from .errors import Cancelled, from_rpc

R = TypeVar("R")
OnProgress = Callable[[types.Progress], None]


class AsyncTextStream(AsyncIterator[types.Chunk]):
    """An answer while it is made: `async for` gives its chunks. Failures are raised as RumboError.

    Cancelling the task that waits for it cancels the answer, and so does leaving an `async with` block.
    """

    def __init__(self, open_: Callable[[], Any], timeout: Optional[float]) -> None:
        self._open = open_
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._state = _calls.TextState()
        self._tries = 0
        self._call = open_()

    @property
    def started(self) -> Optional[types.Started]:
        """Where it runs; None before the first chunk."""
        return self._state.started

    @property
    def finished(self) -> Optional[types.Finished]:
        """How it ended; None before it did."""
        return self._state.finished

    def __aiter__(self) -> AsyncTextStream:
        return self

    async def __anext__(self) -> types.Chunk:
        while True:
            try:
                message = await self._call.read()
            except asyncio.CancelledError:
                # grpc.aio raises it also where the call alone was cancelled, by cancel().
                task = asyncio.current_task()
                if not self._call.cancelled() or (task is not None and getattr(task, "cancelling", lambda: 0)()):
                    self._call.cancel()
                    raise
                raise Cancelled("cancelled", code="CANCELLED", reason="CANCELLED") from None
            except grpc.RpcError as failed:
                error = from_rpc(failed)
                if self._state.started or not _calls.may_retry(error, self._tries, self._deadline, time.monotonic()):
                    raise error from None
                await asyncio.sleep(error.retry_after or 0)
                self._tries += 1
                self._call = self._open()
                continue
            if message is grpc.aio.EOF:
                self._state.check_end()
                raise StopAsyncIteration
            chunk = self._state.take(message)
            if chunk is not None:
                return chunk

    async def answer(self) -> types.Answer:
        """The whole answer, with the chunks that were taken already; waits for the rest."""
        async for _ in self:
            pass
        return self._state.answer()

    def cancel(self) -> None:
        """Ends the answer."""
        self._call.cancel()

    async def __aenter__(self) -> AsyncTextStream:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.cancel()


class AsyncClient:
    """A connection to one daemon, for one event loop. Calls raise RumboError where they fail.

    `timeout` is in seconds; without it, calls that answer at once have 60, and streams, loads and embeddings none.
    """

    def __init__(self, channel: grpc.aio.Channel, app: str) -> None:
        self._channel = channel
        self._app = app

    @classmethod
    async def connect(cls, socket: Optional[str] = None, *, start_daemon: bool = False,
                      daemon_program: Optional[str] = None, start_timeout: float = 15.0, app: str = "") -> AsyncClient:
        """Finds the daemon ($RUMBO_SOCKET, $XDG_RUNTIME_DIR, /tmp), starts one where asked to.

        Raises DaemonUnreachable with what is the matter, PermissionDenied where the socket is not ours.
        """
        path = await asyncio.to_thread(_connect.find, socket, start_daemon, daemon_program, start_timeout)
        return cls(grpc.aio.insecure_channel(f"unix://{path}", options=_calls.CHANNEL_OPTIONS), app)

    async def close(self) -> None:
        await self._channel.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def _unary(self, call: _calls.Call[R], timeout: Optional[float]) -> R:
        timeout = call.timeout_s if timeout is None else timeout
        deadline = None if timeout is None else time.monotonic() + timeout
        stub = self._channel.unary_unary(call.path, call.serialize, call.response.FromString)
        tries = 0
        while True:
            try:
                left = None if deadline is None else deadline - time.monotonic()
                return call.parse(await stub(call.request, timeout=left))
            except grpc.RpcError as failed:
                error = from_rpc(failed)
                if not _calls.may_retry(error, tries, deadline, time.monotonic()):
                    raise error from None
                await asyncio.sleep(error.retry_after or 0)
                tries += 1

    async def _progress(self, call: _calls.Call[R], on_progress: Optional[OnProgress],
                        timeout: Optional[float]) -> R:
        stub = self._channel.unary_stream(call.path, call.serialize, call.response.FromString)
        result: Optional[R] = None
        try:
            async for message in stub(call.request, timeout=timeout):
                if message.HasField("progress"):
                    if on_progress:
                        on_progress(from_wire(types.Progress, message.progress))
                else:
                    result = call.parse(message)
        except grpc.RpcError as failed:
            raise from_rpc(failed) from None
        if result is None:
            raise _calls.no_result()
        return result

    def _text(self, call: _calls.Call[Any], timeout: Optional[float]) -> AsyncTextStream:
        stub = self._channel.unary_stream(call.path, call.serialize, call.response.FromString)
        return AsyncTextStream(lambda: stub(call.request, timeout=timeout), timeout)

    async def devices(self, hardware: str = "", refresh: bool = False, *,
                      timeout: Optional[float] = None) -> types.Topology:
        """What the machine has, or a hardware profile."""
        return await self._unary(_calls.devices(hardware, refresh), timeout)

    async def instances(self, *, timeout: Optional[float] = None) -> list[types.Instance]:
        """Loaded models."""
        return await self._unary(_calls.instances(), timeout)

    async def status(self, *, timeout: Optional[float] = None) -> types.Status:
        """The daemon itself."""
        return await self._unary(_calls.status(), timeout)

    async def doctor(self, *, timeout: Optional[float] = None) -> list[types.Finding]:
        """What is wrong with this machine and the daemon, worst first."""
        return await self._unary(_calls.doctor(), timeout)

    async def engines(self, name: str = "", *, timeout: Optional[float] = None) -> list[types.Engine]:
        """What is known about engines (or the one named), and which are installed."""
        return await self._unary(_calls.engines(name), timeout)

    async def models(self, *, timeout: Optional[float] = None) -> list[types.Model]:
        """Models in the store."""
        return await self._unary(_calls.models(), timeout)

    async def model(self, name: str, *, timeout: Optional[float] = None) -> types.ModelDetails:
        """One model in full."""
        return await self._unary(_calls.model(name), timeout)

    async def check(self, name: str, *, timeout: Optional[float] = None) -> list[types.CheckResult]:
        """What will go wrong with a model."""
        return await self._unary(_calls.check(name), timeout)

    async def delete(self, name: str, *, timeout: Optional[float] = None) -> int:
        """Deletes a model; gives the bytes that became free."""
        return await self._unary(_calls.delete(name), timeout)

    async def pin(self, name: str, pinned: bool = True, *, timeout: Optional[float] = None) -> None:
        """Keeps a model loaded, also after a restart of the daemon; or no longer."""
        await self._unary(_calls.pin(name, pinned), timeout)

    async def import_model(self, path: str, name: str, *, expected_sha256: str = "", replace: bool = False,
                           on_progress: Optional[OnProgress] = None, timeout: Optional[float] = None) -> types.Model:
        """Takes a model file (an absolute path on the daemon's machine) into the store."""
        return await self._progress(_calls.import_model(path, name, expected_sha256, replace), on_progress, timeout)

    async def pull(self, reference: str, name: str = "", *, on_progress: Optional[OnProgress] = None,
                   timeout: Optional[float] = None) -> types.Model:
        """Brings a model from a hub."""
        return await self._progress(_calls.pull(reference, name), on_progress, timeout)

    async def plan(self, model: str, *, workload: Optional[types.Workload] = None,
                   contract: Optional[types.Contract] = None,
                   overrides: Optional[types.PlanOverrides] = None, hardware: str = "", system: str = "",
                   timeout: Optional[float] = None) -> types.Plan:
        """Where and how a model would run, and why; `chosen` is None where nothing fits."""
        return await self._unary(_calls.plan(model, workload, contract, overrides, hardware, system), timeout)

    async def explain(self, id: str, *, timeout: Optional[float] = None) -> types.Explanation:
        """The plan an instance, request or model was placed by, and what was measured since."""
        return await self._unary(_calls.explain(id), timeout)

    async def load(self, model: str, *, workload: Optional[types.Workload] = None,
                   contract: Optional[types.Contract] = None,
                   overrides: Optional[types.PlanOverrides] = None, keep_alive_s: Optional[int] = None,
                   on_progress: Optional[OnProgress] = None, timeout: Optional[float] = None) -> types.Loaded:
        """Plans and loads a model."""
        call = _calls.load(model, workload, contract, overrides, keep_alive_s)
        return await self._progress(call, on_progress, timeout)

    async def unload(self, name: str, *, timeout: Optional[float] = None) -> list[str]:
        """Ends the instances of a model, or one instance; gives their ids."""
        return await self._unary(_calls.unload(name), timeout)

    def chat(self, model: str, messages: Union[str, Sequence[_calls.Turn]], *, tools: Sequence[types.Tool] = (),
             sampling: Optional[types.Sampling] = None, timeout: Optional[float] = None,
             **options: Any) -> AsyncTextStream:
        """Answers a conversation, or one question given as text. `options` are fields of Sampling, and `adapters`: LoRA
        adapters by name, with their scale."""
        return self._text(_calls.chat(model, messages, tools, sampling, self._app, options), timeout)

    async def chat_as(self, model: str, messages: Union[str, Sequence[_calls.Turn]], shape: Any, *,
                      sampling: Optional[types.Sampling] = None, timeout: Optional[float] = None,
                      **options: Any) -> Any:
        """An answer of a given shape: a JSON Schema as a dict, or a type that pydantic understands.

        The engine can write nothing else; the value is parsed and checked. Raises WrongShape where it was cut off.
        """
        schema, read = schema_of(shape)
        return read(await self.chat(model, messages, sampling=sampling, timeout=timeout, json_schema=schema,
                                    **options).answer())

    def generate(self, model: str, prompt: str, *, sampling: Optional[types.Sampling] = None,
                 timeout: Optional[float] = None, **options: Any) -> AsyncTextStream:
        """Continues a text. `options` as for chat()."""
        return self._text(_calls.generate(model, prompt, sampling, self._app, options), timeout)

    async def embed(self, model: str, inputs: Sequence[str], *, dimensions: int = 0, pooling: str = "",
                    timeout: Optional[float] = None) -> list[list[float]]:
        """One vector for each input: with `dimensions` so many values of each, at unit length. A `pooling` ("mean", "cls",
        "last") makes vectors with a model that is made to answer, too."""
        return await self._unary(_calls.embed(model, inputs, dimensions, pooling), timeout)

    async def rerank(self, model: str, query: str, documents: Sequence[str], *, top_n: int = 0,
                     timeout: Optional[float] = None) -> list[types.RerankResult]:
        """The documents by how well they answer the query, best first."""
        return await self._unary(_calls.rerank(model, query, documents, top_n), timeout)

    async def tokenize(self, model: str, text: str, *, timeout: Optional[float] = None) -> types.Tokens:
        return await self._unary(_calls.tokenize(model, text), timeout)

    async def detokenize(self, model: str, ids: Iterable[int], *, timeout: Optional[float] = None) -> str:
        return await self._unary(_calls.detokenize(model, ids), timeout)

