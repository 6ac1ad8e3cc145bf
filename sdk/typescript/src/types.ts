/**
 * What requests are made of and what the daemon tells. Plain values; what is unknown is undefined, never 0.
 *
 * Units end the names; memory is in bytes, speed in tokens per second.
 */

export interface Finding {
  /** "info", "warning", "broken" */
  severity: string;
  code: string;
  device: string;
  text: string;
  remedy: string;
}

/** A cap on a pool that several users share; never extra memory. */
export interface MemoryLimit {
  id: string;
  kind: string;
  maxBytes?: number;
  usedBytes?: number;
  source: string;
}

/** Physical memory that is counted once. */
export interface MemoryPool {
  id: string;
  /** "system", "vram", "carveout" */
  kind: string;
  totalBytes?: number;
  freeBytes?: number;
  limits: MemoryLimit[];
  source: string;
  reservedBytes?: number;
}

/** One way to reach a device. */
export interface Backend {
  name: string;
  usable: boolean;
  reason: string;
  remedy: string;
  version: string;
}

export interface Device {
  id: string;
  /** "cpu", "gpu", "npu" */
  kind: string;
  name: string;
  vendor: string;
  /** "host", "discrete", "unified", "unknown" */
  memoryKind: string;
  pools: string[];
  backends: Backend[];
  present: boolean;
  accessible: boolean;
  usable: boolean;
  reason: string;
  remedy: string;
  evidence: string[];
  software: boolean;
  bandwidthBytesS?: number;
  coresPhysical?: number;
  coresLogical?: number;
  threadsAllowed?: number;
  computeUnits?: number;
}

export interface Topology {
  devices: Device[];
  pools: MemoryPool[];
  findings: Finding[];
  /** "probe" or "profile:NAME" */
  source: string;
  system: string;
  name: string;
}

export interface Status {
  version: string;
  apiVersions: string[];
  pid: number;
  startedUnixS: number;
  httpAddress: string;
  draining: boolean;
  instances: number;
  runningRequests: number;
  queuedRequests: number;
  finishedRequests: number;
  engines: string[];
}

export interface EngineSupport {
  /** Conditions; empty ones hold always, the first entry that holds decides. */
  systems: string[];
  targets: string[];
  vendors: string[];
  formats: string[];
  maturity: string;
  note: string;
  source: string;
}

/** What is known about an engine, and what of it is installed. */
export interface Engine {
  name: string;
  title: string;
  /** "worker", "process", "attached", "remote", "test" */
  kind: string;
  version: string;
  license: string;
  homepage: string;
  origin: string;
  formats: string[];
  capabilities: string[];
  maxSessions: number;
  systems: { system: string; maturity: string }[];
  backends: { name: string; deviceKinds: string[]; support: EngineSupport[] }[];
  builds: { version: string; build: string; backends: string[] }[];
  nextStep: string;
}

/** One file set that can be run. */
export interface Variant {
  id: string;
  format: string;
  architecture: string;
  quantization: string;
  sizeBytes: number;
  sha256: string;
  parameters: number;
  contextTrained: number;
  hasChatTemplate: boolean;
  /** "complete", "incomplete", "damaged" */
  state: string;
  capabilities: string[];
  addedUnixS: number;
}

export interface Model {
  name: string;
  variants: Variant[];
  pinned: boolean;
}

export interface ModelDetails {
  model: Model;
  descriptorJson: string;
  metadata: Record<string, string>;
}

export interface CheckResult {
  /** "ok", "info", "warning", "broken" */
  severity: string;
  code: string;
  text: string;
  remedy: string;
}

/** How far a transfer or load has come. */
export interface Progress {
  step: string;
  doneBytes?: number;
  totalBytes?: number;
  fraction?: number;
  bytesPerS?: number;
  etaS?: number;
}

/** What the app expects; None: the daemon's defaults. */
export interface Workload {
  sessions?: number;
  /** tokens, all sessions together */
  context?: number;
  promptTokens?: number;
  answerTokens?: number;
  sharedPrefixTokens?: number;
  /** "latency", "throughput", "energy", "memory" */
  objective?: string;
  draftAcceptance?: number;
}

/** What a placement must keep, or else fail. */
export interface Contract {
  deviceKind?: string;
  minContext?: number;
  minTokensPerS?: number;
  localOnly?: boolean;
}

/** Choices made instead of the planner. */
export interface PlanOverrides {
  engine?: string;
  device?: string;
  threads?: number;
  kvType?: string;
  gpuLayers?: number;
  force?: boolean;
  variant?: string;
}

export interface MemoryItem {
  pool: string;
  what: string;
  bytes: number;
  source: string;
}

export interface Predicted {
  ttftMs?: number;
  decodeTokS?: number;
  aggregateTokS?: number;
  loadS?: number;
  energyJPerTok?: number;
  uncertainty?: number;
  source: string;
}

export interface Settings {
  contextTotal?: number;
  contextPerSession?: number;
  sessions?: number;
  threads?: number;
  threadsBatch?: number;
  batch?: number;
  ubatch?: number;
  gpuLayers?: number;
  kvTypeK: string;
  kvTypeV: string;
  flashAttention: string;
  mmap?: boolean;
  kvUnified?: boolean;
  swaFull?: boolean;
  draftTokens?: number;
  hostCacheBytes?: number;
  poll?: number;
  extra: Record<string, string>;
}

export interface Candidate {
  variant: string;
  engine: string;
  engineVersion: string;
  backend: string;
  devices: string[];
  settings: Settings;
  memory: MemoryItem[];
  predicted: Predicted;
  reasons: string[];
  maturity: string;
}

export interface Rejected {
  variant: string;
  engine: string;
  backend: string;
  devices: string[];
  reasonCode: string;
  reason: string;
  predicted?: Predicted;
  memory: MemoryItem[];
}

export interface Refusal {
  reasonCode: string;
  reason: string;
  pool: string;
  missingBytes?: number;
  nearest?: Workload;
  nextStep: string;
}

/** Where and with what a model would run, and why. */
export interface Plan {
  chosen?: Candidate;
  rejected: Rejected[];
  model: string;
  refusal?: Refusal;
  workload: Workload;
  evictions: string[];
  forced: boolean;
  hardware: string;
}

export interface Measured {
  memory: MemoryItem[];
  loadS?: number;
  ttftMs?: number;
  decodeTokS?: number;
  aggregateTokS?: number;
  requests: number;
}

export interface Explanation {
  plan: Plan;
  measured?: Measured;
  instanceId: string;
  model: string;
}

export interface Loaded {
  instanceId: string;
  plan?: Plan;
  measured?: Measured;
}

export interface Instance {
  id: string;
  model: string;
  engine: string;
  backend: string;
  devices: string[];
  /** "starting", "loading", "ready", "draining", "stopped", "failed" */
  state: string;
  pid?: number;
  memory: MemoryItem[];
  sessions: number;
  queue: number;
  since: number;
  running: number;
  reason: string;
  variant: string;
  contextPerSession: number;
  restarts: number;
  pinned: boolean;
  progress?: number;
}

/** How the next token is chosen; None: the engine's documented defaults. Nothing is ever clamped. */
export interface Sampling {
  maxTokens?: number;
  temperature?: number;
  topP?: number;
  topK?: number;
  minP?: number;
  typicalP?: number;
  repeatPenalty?: number;
  presencePenalty?: number;
  frequencyPenalty?: number;
  repeatLastN?: number;
  seed?: number;
  stop?: string[];
  logprobs?: number;
  minTokens?: number;
  ignoreEos?: boolean;
  /** Constrains the answer; of the three at most one. A JSON Schema, as text or as a value. */
  jsonSchema?: string | object;
  /** llama.cpp's GBNF. */
  grammar?: string;
  /** The whole answer matches it. */
  regex?: string;
}

export interface ToolCall {
  id: string;
  name: string;
  /** JSON text. */
  argumentsJson: string;
}

export interface Tool {
  name: string;
  description?: string;
  /** JSON Schema of the arguments, kept byte for byte where it is text. */
  parameters?: string | object;
}

export interface Message {
  /** "system", "user", "assistant", "tool" */
  role: string;
  text?: string;
  toolCalls?: ToolCall[];
  toolCallId?: string;
  name?: string;
  reasoning?: string;
}

/** The prompt was accepted and placed. */
export interface Started {
  requestId: string;
  instanceId: string;
  engine: string;
  backend: string;
  devices: string[];
  placementReason: string;
  promptTokens: number;
  cachedTokens: number;
}

export interface ToolCallDelta {
  index: number;
  id: string;
  name: string;
  argumentsJson: string;
}

/** A piece of the answer, always whole characters. */
export interface Chunk {
  text: string;
  reasoning: string;
  tokens: number;
  toolCalls: ToolCallDelta[];
}

export interface Usage {
  promptTokens: number;
  cachedTokens: number;
  completionTokens: number;
  draftedTokens: number;
  acceptedTokens: number;
}

/** Milliseconds, by the daemon's clock. */
export interface Timings {
  queueMs: number;
  ttftMs: number;
  promptMs: number;
  decodeMs: number;
  totalMs: number;
  decodeTokS: number;
}

export interface Finished {
  /** "stop", "stop_string", "length", "tool_calls", "context" */
  reason: string;
  usage: Usage;
  timings: Timings;
  stopString: string;
}

/** A whole answer. */
export interface Answer {
  text: string;
  reasoning: string;
  toolCalls: ToolCall[];
  started?: Started;
  finished: Finished;
}

export interface RerankResult {
  index: number;
  score: number;
}

export interface Tokens {
  ids: number[];
  pieces: Uint8Array[];
}
