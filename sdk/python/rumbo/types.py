"""What requests are made of and what the daemon tells. Plain values; what is unknown is None, never 0.

Field names are those of the protocol. Units end the names; memory is in bytes, speed in tokens per second.
"""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Optional


# --- the machine ------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Finding:
    severity: str = ""  # "info", "warning", "broken"
    code: str = ""
    device: str = ""
    text: str = ""
    remedy: str = ""


@dataclass(slots=True)
class MemoryLimit:
    """A cap on a pool that several users share; never extra memory."""
    id: str = ""
    kind: str = ""
    max_bytes: Optional[int] = None
    used_bytes: Optional[int] = None
    source: str = ""


@dataclass(slots=True)
class MemoryPool:
    """Physical memory that is counted once."""
    id: str = ""
    kind: str = ""  # "system", "vram", "carveout"
    total_bytes: Optional[int] = None
    free_bytes: Optional[int] = None
    limits: list[MemoryLimit] = field(default_factory=list)
    source: str = ""
    reserved_bytes: Optional[int] = None


@dataclass(slots=True)
class Backend:
    """One way to reach a device."""
    name: str = ""
    usable: bool = False
    reason: str = ""
    remedy: str = ""
    version: str = ""


@dataclass(slots=True)
class Device:
    id: str = ""
    kind: str = ""  # "cpu", "gpu", "npu"
    name: str = ""
    vendor: str = ""
    memory_kind: str = ""  # "host", "discrete", "unified", "unknown"
    pools: list[str] = field(default_factory=list)
    backends: list[Backend] = field(default_factory=list)
    present: bool = False
    accessible: bool = False
    usable: bool = False
    reason: str = ""
    remedy: str = ""
    evidence: list[str] = field(default_factory=list)
    software: bool = False
    bandwidth_bytes_s: Optional[float] = None
    cores_physical: Optional[int] = None
    cores_logical: Optional[int] = None
    threads_allowed: Optional[int] = None
    compute_units: Optional[int] = None


@dataclass(slots=True)
class Topology:
    devices: list[Device] = field(default_factory=list)
    pools: list[MemoryPool] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    source: str = ""  # "probe" or "profile:NAME"
    system: str = ""
    name: str = ""


@dataclass(slots=True)
class Status:
    version: str = ""
    api_versions: list[str] = field(default_factory=list)
    pid: int = 0
    started_unix_s: int = 0
    http_address: str = ""
    draining: bool = False
    instances: int = 0
    running_requests: int = 0
    queued_requests: int = 0
    finished_requests: int = 0
    engines: list[str] = field(default_factory=list)


@dataclass(slots=True)
class EngineSystem:
    system: str = ""
    maturity: str = ""


@dataclass(slots=True)
class EngineSupport:
    """How proven an engine is somewhere; empty conditions hold always, the first that holds decides."""
    systems: list[str] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)
    vendors: list[str] = field(default_factory=list)
    formats: list[str] = field(default_factory=list)
    maturity: str = ""
    note: str = ""
    source: str = ""


@dataclass(slots=True)
class EngineBackend:
    name: str = ""
    device_kinds: list[str] = field(default_factory=list)
    support: list[EngineSupport] = field(default_factory=list)


@dataclass(slots=True)
class EngineBuild:
    version: str = ""
    build: str = ""
    backends: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Engine:
    """What is known about an engine, and what of it is installed."""
    name: str = ""
    title: str = ""
    kind: str = ""  # "worker", "process", "attached", "remote", "test"
    version: str = ""
    license: str = ""
    homepage: str = ""
    origin: str = ""
    formats: list[str] = field(default_factory=list)
    capabilities: list[str] = field(default_factory=list)
    max_sessions: int = 0
    systems: list[EngineSystem] = field(default_factory=list)
    backends: list[EngineBackend] = field(default_factory=list)
    builds: list[EngineBuild] = field(default_factory=list)
    next_step: str = ""


# --- models -----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Variant:
    """One file set that can be run."""
    id: str = ""
    format: str = ""
    architecture: str = ""
    quantization: str = ""
    size_bytes: int = 0
    sha256: str = ""
    parameters: int = 0
    context_trained: int = 0
    has_chat_template: bool = False
    state: str = ""  # "complete", "incomplete", "damaged"
    capabilities: list[str] = field(default_factory=list)
    added_unix_s: int = 0


@dataclass(slots=True)
class Model:
    name: str = ""
    variants: list[Variant] = field(default_factory=list)
    pinned: bool = False


@dataclass(slots=True)
class ModelDetails:
    model: Model = field(default_factory=Model)
    descriptor_json: str = ""
    metadata: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class CheckResult:
    severity: str = ""  # "ok", "info", "warning", "broken"
    code: str = ""
    text: str = ""
    remedy: str = ""


@dataclass(slots=True)
class Progress:
    """How far a transfer or load has come."""
    step: str = ""
    done_bytes: Optional[int] = None
    total_bytes: Optional[int] = None
    fraction: Optional[float] = None
    bytes_per_s: Optional[float] = None
    eta_s: Optional[float] = None


# --- plans ------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Workload:
    """What the app expects; None: the daemon's defaults."""
    sessions: Optional[int] = None
    context: Optional[int] = None  # tokens, all sessions together
    prompt_tokens: Optional[int] = None
    answer_tokens: Optional[int] = None
    shared_prefix_tokens: Optional[int] = None
    objective: str = ""  # "latency", "throughput", "energy", "memory"
    draft_acceptance: Optional[float] = None


@dataclass(slots=True)
class Contract:
    """What a placement must keep, or else fail."""
    device_kind: str = ""
    min_context: Optional[int] = None
    min_tokens_per_s: Optional[float] = None
    local_only: bool = False


@dataclass(slots=True)
class PlanOverrides:
    """Choices made instead of the planner."""
    engine: str = ""
    device: str = ""
    threads: Optional[int] = None
    kv_type: str = ""
    gpu_layers: Optional[int] = None
    force: bool = False
    variant: str = ""
    pooling: str = ""
    """"mean", "cls", "last": load for embeddings, also a model that is made to answer."""
    draft_tokens: Optional[int] = None
    draft_model: str = ""
    """A smaller stored model of the same vocabulary that guesses ahead."""


@dataclass(slots=True)
class MemoryItem:
    pool: str = ""
    what: str = ""
    bytes: int = 0
    source: str = ""


@dataclass(slots=True)
class Predicted:
    ttft_ms: Optional[float] = None
    decode_tok_s: Optional[float] = None
    aggregate_tok_s: Optional[float] = None
    load_s: Optional[float] = None
    energy_j_per_tok: Optional[float] = None
    uncertainty: Optional[float] = None
    source: str = ""


@dataclass(slots=True)
class Settings:
    context_total: Optional[int] = None
    context_per_session: Optional[int] = None
    sessions: Optional[int] = None
    threads: Optional[int] = None
    threads_batch: Optional[int] = None
    batch: Optional[int] = None
    ubatch: Optional[int] = None
    gpu_layers: Optional[int] = None
    kv_type_k: str = ""
    kv_type_v: str = ""
    flash_attention: str = ""
    mmap: Optional[bool] = None
    kv_unified: Optional[bool] = None
    swa_full: Optional[bool] = None
    draft_tokens: Optional[int] = None
    host_cache_bytes: Optional[int] = None
    poll: Optional[int] = None
    extra: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Candidate:
    variant: str = ""
    engine: str = ""
    engine_version: str = ""
    backend: str = ""
    devices: list[str] = field(default_factory=list)
    settings: Settings = field(default_factory=Settings)
    memory: list[MemoryItem] = field(default_factory=list)
    predicted: Predicted = field(default_factory=Predicted)
    reasons: list[str] = field(default_factory=list)
    maturity: str = ""


@dataclass(slots=True)
class Rejected:
    variant: str = ""
    engine: str = ""
    backend: str = ""
    devices: list[str] = field(default_factory=list)
    reason_code: str = ""
    reason: str = ""
    predicted: Optional[Predicted] = None
    memory: list[MemoryItem] = field(default_factory=list)


@dataclass(slots=True)
class Refusal:
    reason_code: str = ""
    reason: str = ""
    pool: str = ""
    missing_bytes: Optional[int] = None
    nearest: Optional[Workload] = None
    next_step: str = ""


@dataclass(slots=True)
class Plan:
    """Where and with what a model would run, and why."""
    chosen: Optional[Candidate] = None
    rejected: list[Rejected] = field(default_factory=list)
    model: str = ""
    refusal: Optional[Refusal] = None
    workload: Workload = field(default_factory=Workload)
    evictions: list[str] = field(default_factory=list)
    forced: bool = False
    hardware: str = ""


@dataclass(slots=True)
class Measured:
    memory: list[MemoryItem] = field(default_factory=list)
    load_s: Optional[float] = None
    ttft_ms: Optional[float] = None
    decode_tok_s: Optional[float] = None
    aggregate_tok_s: Optional[float] = None
    requests: int = 0


@dataclass(slots=True)
class Explanation:
    plan: Plan = field(default_factory=Plan)
    measured: Optional[Measured] = None
    instance_id: str = ""
    model: str = ""


@dataclass(slots=True)
class Loaded:
    instance_id: str = ""
    plan: Optional[Plan] = None
    measured: Optional[Measured] = None


@dataclass(slots=True)
class Instance:
    id: str = ""
    model: str = ""
    engine: str = ""
    backend: str = ""
    devices: list[str] = field(default_factory=list)
    state: str = ""  # "starting", "loading", "ready", "draining", "stopped", "failed"
    pid: Optional[int] = None
    memory: list[MemoryItem] = field(default_factory=list)
    sessions: int = 0
    queue: int = 0
    since: int = 0
    running: int = 0
    reason: str = ""
    variant: str = ""
    context_per_session: int = 0
    restarts: int = 0
    pinned: bool = False
    progress: Optional[float] = None


# --- inference --------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Sampling:
    """How the next token is chosen; None: the engine's documented defaults. Nothing is ever clamped."""
    max_tokens: Optional[int] = None
    temperature: Optional[float] = None
    top_p: Optional[float] = None
    top_k: Optional[int] = None
    min_p: Optional[float] = None
    typical_p: Optional[float] = None
    repeat_penalty: Optional[float] = None
    presence_penalty: Optional[float] = None
    frequency_penalty: Optional[float] = None
    repeat_last_n: Optional[int] = None
    seed: Optional[int] = None
    stop: list[str] = field(default_factory=list)
    logprobs: Optional[int] = None
    min_tokens: Optional[int] = None
    ignore_eos: bool = False
    # At most one of the three.
    json_schema: Optional[str] = None
    grammar: Optional[str] = None
    regex: Optional[str] = None


@dataclass(slots=True)
class ToolCall:
    id: str = ""
    name: str = ""
    arguments_json: str = ""


@dataclass(slots=True)
class Tool:
    name: str = ""
    description: str = ""
    parameters_json_schema: str = ""


@dataclass(slots=True)
class Message:
    role: str
    text: str = ""
    tool_calls: list[ToolCall] = field(default_factory=list)
    tool_call_id: str = ""
    name: str = ""
    reasoning: str = ""


@dataclass(slots=True)
class Started:
    """The prompt was accepted and placed."""
    request_id: str = ""
    instance_id: str = ""
    engine: str = ""
    backend: str = ""
    devices: list[str] = field(default_factory=list)
    placement_reason: str = ""
    prompt_tokens: int = 0
    cached_tokens: int = 0


@dataclass(slots=True)
class ToolCallDelta:
    index: int = 0
    id: str = ""
    name: str = ""
    arguments_json: str = ""


@dataclass(slots=True)
class Chunk:
    """A piece of the answer, always whole characters."""
    text: str = ""
    reasoning: str = ""
    tokens: int = 0
    tool_calls: list[ToolCallDelta] = field(default_factory=list)


@dataclass(slots=True)
class Usage:
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0


@dataclass(slots=True)
class Timings:
    """Milliseconds, by the daemon's clock."""
    queue_ms: float = 0.0
    ttft_ms: float = 0.0
    prompt_ms: float = 0.0
    decode_ms: float = 0.0
    total_ms: float = 0.0
    decode_tok_s: float = 0.0


@dataclass(slots=True)
class Finished:
    reason: str = ""  # "stop", "stop_string", "length", "tool_calls", "context"
    usage: Usage = field(default_factory=Usage)
    timings: Timings = field(default_factory=Timings)
    stop_string: str = ""


@dataclass(slots=True)
class Answer:
    """A whole answer."""
    text: str
    reasoning: str
    tool_calls: list[ToolCall]
    started: Optional[Started]
    finished: Finished


@dataclass(slots=True)
class RerankResult:
    index: int = 0
    score: float = 0.0


@dataclass(slots=True)
class Tokens:
    ids: list[int] = field(default_factory=list)
    pieces: list[bytes] = field(default_factory=list)
