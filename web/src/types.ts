// The messages of proto/rumbo/v1 as protobuf's JSON mapping writes them: 64-bit numbers are strings.
export type U64 = string;
export interface Backend { name: string; usable: boolean; reason: string; remedy: string; version: string; selector: string; pools: string[]; may_span_pools: boolean }
export interface Device {
  id: string; kind: string; name: string; vendor: string; memory_kind: string; pools: string[]; backends: Backend[];
  present: boolean; accessible: boolean; usable: boolean; reason: string; remedy: string; evidence: string[];
  memory_kind_rule: string; pci_address: string; pci_id: string; gfx_target: string; driver: string; driver_version: string;
  software: boolean; secondary: boolean; bandwidth_bytes_s?: number; bandwidth_source: string; fp16_flops?: number; fp16_source: string;
  compute_units?: number; cores_physical?: number; cores_logical?: number; threads_allowed?: number; isa: string[];
  number_formats: string[]; power_watts?: number;
}
export interface DeviceLoad { device: string; busy?: number; power_watts?: number; temperature_c?: number; suspended: boolean }
export interface Limit { id: string; kind: string; max_bytes?: U64; used_bytes?: U64; source: string }
export interface Pool { id: string; kind: string; total_bytes?: U64; free_bytes?: U64; limits: Limit[]; source: string; reserved_bytes?: U64 }
export interface Finding { severity: string; code: string; device: string; text: string; remedy: string }
export interface Topology { devices: Device[]; pools: Pool[]; findings: Finding[]; source: string; system: string; name: string }
export interface MemoryItem { pool: string; what: string; bytes: U64; source: string }
export interface Instance {
  id: string; model: string; engine: string; backend: string; devices: string[]; state: string; pid?: U64; memory: MemoryItem[];
  sessions: number; queue: number; since: U64; running: number; reason: string; variant: string; context_per_session: number;
  restarts: number; pinned: boolean; requests: U64; generated_tokens: U64; engine_version: string; progress?: number;
}
export interface Variant {
  id: string; format: string; architecture: string; quantization: string; size_bytes: U64; sha256: string; parameters: U64;
  context_trained: number; has_chat_template: boolean; state: string; capabilities: string[]; added_unix_s: U64;
}
export interface Model { name: string; variants: Variant[]; pinned: boolean }
export interface Workload {
  sessions?: number; context?: number; prompt_tokens?: number; answer_tokens?: number; shared_prefix_tokens?: number; objective?: string;
}
export interface Predicted {
  ttft_ms?: number; decode_tok_s?: number; aggregate_tok_s?: number; load_s?: number; energy_j_per_tok?: number; uncertainty?: number; source: string;
}
export interface Candidate {
  variant: string; engine: string; engine_version: string; backend: string; devices: string[]; settings: Record<string, unknown>;
  memory: MemoryItem[]; predicted?: Predicted; reasons: string[]; maturity: string;
}
export interface Rejected {
  variant: string; engine: string; backend: string; devices: string[]; reason_code: string; reason: string; predicted?: Predicted; memory: MemoryItem[];
}
export interface Refusal { reason_code: string; reason: string; pool: string; missing_bytes?: U64; nearest?: Workload; next_step: string }
export interface Plan {
  chosen?: Candidate; rejected: Rejected[]; model: string; refusal?: Refusal; workload?: Workload; evictions: string[]; forced: boolean; hardware: string;
}
export interface Measured { memory: MemoryItem[]; load_s?: number; ttft_ms?: number; decode_tok_s?: number; aggregate_tok_s?: number; requests: U64 }
export interface Advice {
  hardware: string; title: string; model: string; plan?: Plan; price?: number; currency: string; price_date: string; price_per_gb?: number; price_per_tok_s?: number;
}
export interface Status {
  version: string; pid: U64; started_unix_s: U64; http_address: string; draining: boolean; instances: number; running_requests: number;
  queued_requests: number; finished_requests: U64; engines: string[];
}
export interface RequestRecord {
  sequence: U64; ended_unix_s: U64; id: string; model: string; instance_id: string; app: string; uid: number; priority: string; outcome: string; ok: boolean;
  prompt_tokens: number; cached_tokens: number; completion_tokens: number; queue_ms: number; ttft_ms: number; total_ms: number; decode_tok_s: number;
}
export interface Profile { name: string; title: string; system: string }
export interface Progress { step: string; done_bytes?: U64; total_bytes?: U64; fraction?: number }
