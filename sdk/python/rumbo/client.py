"""The client that waits."""
from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Optional, TypeVar, Union

import grpc

from . import _calls, _connect, types
from ._structured import schema_of
from ._convert import from_wire
from .errors import RumboError, from_rpc

R = TypeVar("R")
OnProgress = Callable[[types.Progress], None]


class TextStream(Iterator[types.Chunk]):
    """An answer while it is made: iterate for its chunks. Failures are raised as RumboError.

    Leaving a `with` block, close() and garbage collection cancel what still runs.
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

    def __iter__(self) -> TextStream:
        return self

    def __next__(self) -> types.Chunk:
        while True:
            try:
                message = next(self._call)
            except StopIteration:
                self._state.check_end()
                raise
            except grpc.RpcError as failed:
                error = from_rpc(failed)
                if self._state.started or not _calls.may_retry(error, self._tries, self._deadline, time.monotonic()):
                    raise error from None
                time.sleep(error.retry_after or 0)
                self._tries += 1
                self._call = self._open()
                continue
            chunk = self._state.take(message)
            if chunk is not None:
                return chunk

    def answer(self) -> types.Answer:
        """The whole answer, with the chunks that were taken already; waits for the rest."""
        for _ in self:
            pass
        return self._state.answer()

    def cancel(self) -> None:
        """Ends the answer; from any thread."""
        self._call.cancel()

    close = cancel

    def __enter__(self) -> TextStream:
        return self

    def __exit__(self, *exc: object) -> None:
        self.cancel()

    def __del__(self) -> None:
        if hasattr(self, "_call"):
            self._call.cancel()


class Client:
    """A connection to one daemon. Thread-safe. Calls wait, and raise RumboError where they fail.

    `timeout` is in seconds; without it, calls that answer at once have 60, and streams, loads and embeddings none.
    """

    def __init__(self, channel: grpc.Channel, app: str) -> None:
        self._channel = channel
        self._app = app

    @classmethod
    def connect(cls, socket: Optional[str] = None, *, start_daemon: bool = False, daemon_program: Optional[str] = None,
                start_timeout: float = 15.0, app: str = "") -> Client:
        """Finds the daemon ($RUMBO_SOCKET, $XDG_RUNTIME_DIR, /tmp), starts one where asked to.

        Raises DaemonUnreachable with what is the matter, PermissionDenied where the socket is not ours.
        """
        path = _connect.find(socket, start_daemon, daemon_program, start_timeout)
        return cls(grpc.insecure_channel(f"unix://{path}", options=_calls.CHANNEL_OPTIONS), app)

    def close(self) -> None:
        self._channel.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _unary(self, call: _calls.Call[R], timeout: Optional[float]) -> R:
        timeout = call.timeout_s if timeout is None else timeout
        deadline = None if timeout is None else time.monotonic() + timeout
        stub = self._channel.unary_unary(call.path, call.serialize, call.response.FromString)
        tries = 0
        while True:
            try:
                return call.parse(stub(call.request, timeout=None if deadline is None else deadline - time.monotonic()))
            except grpc.RpcError as failed:
                error = from_rpc(failed)
                if not _calls.may_retry(error, tries, deadline, time.monotonic()):
                    raise error from None
                time.sleep(error.retry_after or 0)
                tries += 1

    def _progress(self, call: _calls.Call[R], on_progress: Optional[OnProgress],
                  timeout: Optional[float]) -> R:
        stub = self._channel.unary_stream(call.path, call.serialize, call.response.FromString)
        result: Optional[R] = None
        try:
            for message in stub(call.request, timeout=timeout):
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

    def _text(self, call: _calls.Call[Any], timeout: Optional[float]) -> TextStream:
        stub = self._channel.unary_stream(call.path, call.serialize, call.response.FromString)
        return TextStream(lambda: stub(call.request, timeout=timeout), timeout)

    def devices(self, hardware: str = "", refresh: bool = False, *, timeout: Optional[float] = None) -> types.Topology:
        """What the machine has, or a hardware profile."""
        return self._unary(_calls.devices(hardware, refresh), timeout)

    def instances(self, *, timeout: Optional[float] = None) -> list[types.Instance]:
        """Loaded models."""
        return self._unary(_calls.instances(), timeout)

    def status(self, *, timeout: Optional[float] = None) -> types.Status:
        """The daemon itself."""
        return self._unary(_calls.status(), timeout)

    def doctor(self, *, timeout: Optional[float] = None) -> list[types.Finding]:
        """What is wrong with this machine and the daemon, worst first."""
        return self._unary(_calls.doctor(), timeout)

    def engines(self, name: str = "", *, timeout: Optional[float] = None) -> list[types.Engine]:
        """What is known about engines (or the one named), and which are installed."""
        return self._unary(_calls.engines(name), timeout)

    def models(self, *, timeout: Optional[float] = None) -> list[types.Model]:
        """Models in the store."""
        return self._unary(_calls.models(), timeout)

    def model(self, name: str, *, timeout: Optional[float] = None) -> types.ModelDetails:
        """One model in full."""
        return self._unary(_calls.model(name), timeout)

    def check(self, name: str, *, timeout: Optional[float] = None) -> list[types.CheckResult]:
        """What will go wrong with a model."""
        return self._unary(_calls.check(name), timeout)

    def delete(self, name: str, *, timeout: Optional[float] = None) -> int:
        """Deletes a model; gives the bytes that became free."""
        return self._unary(_calls.delete(name), timeout)

    def pin(self, name: str, pinned: bool = True, *, timeout: Optional[float] = None) -> None:
        """Keeps a model loaded, also after a restart of the daemon; or no longer."""
        self._unary(_calls.pin(name, pinned), timeout)

    def import_model(self, path: str, name: str, *, expected_sha256: str = "", replace: bool = False,
                     on_progress: Optional[OnProgress] = None, timeout: Optional[float] = None) -> types.Model:
        """Takes a model file (an absolute path on the daemon's machine) into the store."""
        return self._progress(_calls.import_model(path, name, expected_sha256, replace), on_progress, timeout)

    def pull(self, reference: str, name: str = "", *, on_progress: Optional[OnProgress] = None,
             timeout: Optional[float] = None) -> types.Model:
        """Brings a model from a hub."""
        return self._progress(_calls.pull(reference, name), on_progress, timeout)

    def plan(self, model: str, *, workload: Optional[types.Workload] = None, contract: Optional[types.Contract] = None,
             overrides: Optional[types.PlanOverrides] = None, hardware: str = "", system: str = "",
             timeout: Optional[float] = None) -> types.Plan:
        """Where and how a model would run, and why; `chosen` is None where nothing fits."""
        return self._unary(_calls.plan(model, workload, contract, overrides, hardware, system), timeout)

    def explain(self, id: str, *, timeout: Optional[float] = None) -> types.Explanation:
        """The plan an instance, request or model was placed by, and what was measured since."""
        return self._unary(_calls.explain(id), timeout)

    def load(self, model: str, *, workload: Optional[types.Workload] = None, contract: Optional[types.Contract] = None,
             overrides: Optional[types.PlanOverrides] = None, keep_alive_s: Optional[int] = None,
             on_progress: Optional[OnProgress] = None, timeout: Optional[float] = None) -> types.Loaded:
        """Plans and loads a model."""
        return self._progress(_calls.load(model, workload, contract, overrides, keep_alive_s), on_progress, timeout)

    def unload(self, name: str, *, timeout: Optional[float] = None) -> list[str]:
        """Ends the instances of a model, or one instance; gives their ids."""
        return self._unary(_calls.unload(name), timeout)

    def chat(self, model: str, messages: Union[str, Sequence[_calls.Turn]], *, tools: Sequence[types.Tool] = (),
             sampling: Optional[types.Sampling] = None, timeout: Optional[float] = None, **options: Any) -> TextStream:
        """Answers a conversation, or one question given as text. `options` are fields of Sampling, and `adapters`: LoRA
        adapters by name, with their scale."""
        return self._text(_calls.chat(model, messages, tools, sampling, self._app, options), timeout)

    def chat_as(self, model: str, messages: Union[str, Sequence[_calls.Turn]], shape: Any, *,
                sampling: Optional[types.Sampling] = None, timeout: Optional[float] = None, **options: Any) -> Any:
        """An answer of a given shape: a JSON Schema as a dict, or a type that pydantic understands.

        The engine can write nothing else; the value is parsed and checked. Raises WrongShape where it was cut off.
        """
        schema, read = schema_of(shape)
        return read(self.chat(model, messages, sampling=sampling, timeout=timeout, json_schema=schema,
                              **options).answer())

    def generate(self, model: str, prompt: str, *, sampling: Optional[types.Sampling] = None,
                 timeout: Optional[float] = None, **options: Any) -> TextStream:
        """Continues a text. `options` as for chat()."""
        return self._text(_calls.generate(model, prompt, sampling, self._app, options), timeout)

    def embed(self, model: str, inputs: Sequence[str], *, dimensions: int = 0, pooling: str = "",
              timeout: Optional[float] = None) -> list[list[float]]:
        """One vector for each input: with `dimensions` so many values of each, at unit length. A `pooling` ("mean", "cls",
        "last") makes vectors with a model that is made to answer, too."""
        return self._unary(_calls.embed(model, inputs, dimensions, pooling), timeout)

    def rerank(self, model: str, query: str, documents: Sequence[str], *, top_n: int = 0,
               timeout: Optional[float] = None) -> list[types.RerankResult]:
        """The documents by how well they answer the query, best first."""
        return self._unary(_calls.rerank(model, query, documents, top_n), timeout)

    def tokenize(self, model: str, text: str, *, timeout: Optional[float] = None) -> types.Tokens:
        return self._unary(_calls.tokenize(model, text), timeout)

    def detokenize(self, model: str, ids: Iterable[int], *, timeout: Optional[float] = None) -> str:
        return self._unary(_calls.detokenize(model, ids), timeout)


__all__ = ["Client", "RumboError", "TextStream"]
