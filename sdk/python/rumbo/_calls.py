"""Every call as data: what is sent, where to, and how the answer is read. Shared by the two clients."""
from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, Optional, TypeVar, Union

from . import _wire, types
from ._convert import fill, fill_message, from_wire
from .errors import RumboError

UNARY_TIMEOUT_S = 60.0
CHANNEL_OPTIONS = [
    ("grpc.max_receive_message_length", 64 << 20), ("grpc.max_send_message_length", 64 << 20),
    # With a fixed window a reader that stops is felt by the daemon at once, not after many megabytes.
    ("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 65535),
    ("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.enable_http_proxy", 0), ("grpc.enable_retries", 0), ("grpc.default_authority", "localhost"),
]

R = TypeVar("R")
T = TypeVar("T")
Turn = Union[types.Message, Mapping[str, str]]


@dataclasses.dataclass(slots=True)
class Call(Generic[R]):
    path: str
    request: Any
    response: Any  # the class of the answer
    parse: Callable[[Any], R]
    timeout_s: Optional[float]

    @staticmethod
    def serialize(request: Any) -> bytes:
        data: bytes = request.SerializeToString()
        return data


def _call(service: str, rpc: str, parse: Callable[[Any], R], timeout_s: Optional[float] = UNARY_TIMEOUT_S, /,
          **fields: Any) -> Call[R]:
    path, request_class, response = _wire.method(service, rpc)
    return Call(path, request_class(**{k: v for k, v in fields.items() if v is not None}), response, parse, timeout_s)


def _list(field: str, kind: type[T]) -> Callable[[Any], list[T]]:
    return lambda message: [from_wire(kind, element) for element in getattr(message, field)]


def devices(hardware: str, refresh: bool) -> Call[types.Topology]:
    return _call("DeviceService", "ListDevices", lambda m: from_wire(types.Topology, m.topology), hardware=hardware,
                 refresh=refresh)


def instances() -> Call[list[types.Instance]]:
    return _call("InstanceService", "ListInstances", _list("instances", types.Instance))


def status() -> Call[types.Status]:
    return _call("AdminService", "GetStatus", lambda m: from_wire(types.Status, m))


def engines(name: str) -> Call[list[types.Engine]]:
    return _call("AdminService", "ListEngines", _list("engines", types.Engine), name=name)


def doctor() -> Call[list[types.Finding]]:
    return _call("AdminService", "Doctor", _list("findings", types.Finding))


def models() -> Call[list[types.Model]]:
    return _call("ModelService", "ListModels", _list("models", types.Model))


def model(name: str) -> Call[types.ModelDetails]:
    return _call("ModelService", "GetModel", lambda m: from_wire(types.ModelDetails, m), name=name)


def check(name: str) -> Call[list[types.CheckResult]]:
    return _call("ModelService", "CheckModel", _list("results", types.CheckResult), name=name)


def delete(name: str) -> Call[int]:
    return _call("ModelService", "DeleteModel", lambda m: m.freed_bytes, name=name)


def pin(name: str, pinned: bool) -> Call[None]:
    return _call("ModelService", "PinModel", lambda m: None, name=name, pinned=pinned)


def unload(name: str) -> Call[list[str]]:
    return _call("ModelService", "UnloadModel", lambda m: list(m.instance_ids), name=name)


def import_model(path: str, name: str, expected_sha256: str, replace: bool) -> Call[types.Model]:
    return _call("ModelService", "ImportModel", lambda m: from_wire(types.Model, m.model), None, path=path, name=name,
                 expected_sha256=expected_sha256, replace=replace)


def pull(reference: str, name: str) -> Call[types.Model]:
    return _call("ModelService", "PullModel", lambda m: from_wire(types.Model, m.model), None, reference=reference,
                 name=name)


def _place(call: Call[R], workload: Optional[types.Workload], contract: Optional[types.Contract],
           overrides: Optional[types.PlanOverrides]) -> Call[R]:
    for field, value in (("workload", workload), ("contract", contract), ("overrides", overrides)):
        if value is not None:
            fill(getattr(call.request, field), value)
    return call


def load(name: str, workload: Optional[types.Workload], contract: Optional[types.Contract],
         overrides: Optional[types.PlanOverrides], keep_alive_s: Optional[int]) -> Call[types.Loaded]:
    call = _call("ModelService", "LoadModel", lambda m: from_wire(types.Loaded, m.loaded), None, name=name,
                 keep_alive_s=keep_alive_s)
    return _place(call, workload, contract, overrides)


def plan(name: str, workload: Optional[types.Workload], contract: Optional[types.Contract],
         overrides: Optional[types.PlanOverrides], hardware: str, system: str) -> Call[types.Plan]:
    call = _call("PlanService", "MakePlan", lambda m: from_wire(types.Plan, m.plan), model=name, hardware=hardware,
                 system=system)
    return _place(call, workload, contract, overrides)


def explain(id: str) -> Call[types.Explanation]:
    return _call("PlanService", "Explain", lambda m: from_wire(types.Explanation, m), id=id)


def embed(name: str, inputs: Sequence[str], dimensions: int, pooling: str) -> Call[list[list[float]]]:
    return _call("InferenceService", "Embed", lambda m: [list(e.values) for e in m.embeddings], None, model=name,
                 inputs=list(inputs), dimensions=dimensions, pooling=pooling)


def rerank(name: str, query: str, documents: Sequence[str], top_n: int) -> Call[list[types.RerankResult]]:
    return _call("InferenceService", "Rerank", _list("results", types.RerankResult), None, model=name, query=query,
                 documents=list(documents), top_n=top_n)


def tokenize(name: str, text: str) -> Call[types.Tokens]:
    return _call("InferenceService", "Tokenize", lambda m: from_wire(types.Tokens, m), None, model=name, text=text)


def detokenize(name: str, ids: Iterable[int]) -> Call[str]:
    return _call("InferenceService", "Detokenize", lambda m: m.text, None, model=name, ids=list(ids))


def _finish_text_request(call: Call[Any], sampling: Optional[types.Sampling], app: str, options: dict[str, Any]) -> Call[Any]:
    for adapter, scale in (options.pop("adapters", None) or {}).items():
        call.request.options.adapters.add(name=adapter, scale=scale)
    chosen = dataclasses.replace(sampling) if sampling is not None else types.Sampling()
    for name, value in options.items():
        if name not in types.Sampling.__dataclass_fields__:
            raise TypeError(f"there is no sampling option {name!r}")
        setattr(chosen, name, value)
    fill(call.request.sampling, chosen)
    call.request.options.app = app
    return call


def chat(name: str, messages: Union[str, Sequence[Turn]], tools: Sequence[types.Tool],
         sampling: Optional[types.Sampling], app: str, options: dict[str, Any]) -> Call[Any]:
    call = _call("InferenceService", "Chat", lambda m: m, None, model=name)
    for turn in [types.Message("user", messages)] if isinstance(messages, str) else messages:
        fill_message(call.request.messages.add(), turn)
    for tool in tools:
        fill(call.request.tools.add(), tool)
    return _finish_text_request(call, sampling, app, options)


def generate(name: str, prompt: str, sampling: Optional[types.Sampling], app: str, options: dict[str, Any]) -> Call[Any]:
    call = _call("InferenceService", "Generate", lambda m: m, None, model=name, prompt=prompt)
    return _finish_text_request(call, sampling, app, options)


def may_retry(error: RumboError, tries: int, deadline: Optional[float], now: float) -> bool:
    """Only where the daemon said when; at most twice; only waits up to 5 s that end before the deadline."""
    wait = error.retry_after
    return wait is not None and wait <= 5 and tries < 2 and (deadline is None or now + wait < deadline)


class TextState:
    """What came of an answer so far. The streams of both clients feed it."""

    def __init__(self) -> None:
        self.started: Optional[types.Started] = None
        self.finished: Optional[types.Finished] = None
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[int, types.ToolCall] = {}

    def take(self, message: Any) -> Optional[types.Chunk]:
        event = message.WhichOneof("event")
        if event == "started":
            self.started = from_wire(types.Started, message.started)
        elif event == "finished":
            self.finished = from_wire(types.Finished, message.finished)
        elif event == "chunk":
            wire = message.chunk
            calls = [from_wire(types.ToolCallDelta, call) for call in wire.tool_calls]
            chunk = types.Chunk(wire.text, wire.reasoning, wire.tokens, calls)
            self._text.append(chunk.text)
            self._reasoning.append(chunk.reasoning)
            for delta in calls:
                call = self._calls.setdefault(delta.index, types.ToolCall())
                call.id += delta.id
                call.name += delta.name
                call.arguments_json += delta.arguments_json
            return chunk
        return None

    def answer(self) -> types.Answer:
        assert self.finished is not None
        return types.Answer("".join(self._text), "".join(self._reasoning),
                            [self._calls[i] for i in sorted(self._calls)], self.started, self.finished)

    def check_end(self) -> None:
        if self.finished is None:
            raise RumboError("the answer ended without its last message", code="INTERNAL", reason="INTERNAL",
                             next_step="This is a fault of the daemon; please report it.")


def no_result() -> RumboError:
    return RumboError("the daemon ended the call without a result", code="INTERNAL", reason="INTERNAL")
