// The conversation of the playground: only in this page's memory.
import { signal } from "@preact/signals";
import { RpcError, stream } from "./api";

export interface ToolCall { id: string; name: string; arguments_json: string }
export interface Image { data: string; mime_type: string; name: string }
export interface Turn {
  role: "user" | "assistant" | "tool";
  text: string;
  reasoning?: string;
  images?: Image[];
  tool_calls?: ToolCall[];
  tool_call_id?: string;
  started?: Started;
  finished?: Finished;
  first_ms?: number; // measured here, from sending to the first piece
  error?: RpcError;
}
export interface Started { request_id: string; instance_id: string; engine: string; backend: string; devices: string[]; placement_reason: string; prompt_tokens: number; cached_tokens: number }
export interface Finished { reason: string; stop_string: string; usage?: { prompt_tokens: number; cached_tokens: number; completion_tokens: number; drafted_tokens: number; accepted_tokens: number }; timings?: { queue_ms: number; ttft_ms: number; decode_ms: number; total_ms: number; decode_tok_s: number } }
interface Delta { index: number; id: string; name: string; arguments_json: string }
interface ChatEvent { started?: Started; chunk?: { text: string; reasoning: string; tokens: number; tool_calls: Delta[] }; finished?: Finished }

export interface Settings {
  model: string; system: string; temperature?: number; top_p?: number; top_k?: number; min_p?: number; max_tokens?: number; repeat_penalty?: number; seed?: number;
  stop: string; format: "text" | "schema" | "grammar" | "regex"; constraint: string; tools: string; tool_choice: string;
}
export const settings = signal<Settings>({ model: "", system: "", stop: "", format: "text", constraint: "", tools: "", tool_choice: "" });
export const turns = signal<Turn[]>([]);
export const answering = signal<AbortController | null>(null);

export interface ToolSpec { name: string; description?: string; parameters?: unknown }
export function readTools(text: string): ToolSpec[] {
  if (!text.trim()) return [];
  const value = JSON.parse(text);
  const list = Array.isArray(value) ? value : [value];
  return list.map((x) => x.function ?? x); // OpenAI's wrapping is welcome too
}

export function sampling(s: Settings): Record<string, unknown> {
  const out: Record<string, unknown> = {};
  for (const key of ["temperature", "top_p", "top_k", "min_p", "max_tokens", "repeat_penalty", "seed"] as const) if (s[key] !== undefined) out[key] = s[key];
  const stop = s.stop.split("\n").filter((x) => x !== "");
  if (stop.length) out.stop = stop;
  if (s.format === "schema" && s.constraint.trim()) out.json_schema = s.constraint;
  if (s.format === "grammar" && s.constraint.trim()) out.grammar = s.constraint;
  if (s.format === "regex" && s.constraint) out.regex = s.constraint;
  return out;
}

function message(turn: Turn) {
  const content: unknown[] = turn.images?.map((i) => ({ image: { data: i.data, mime_type: i.mime_type } })) ?? [];
  if (turn.text) content.push({ text: turn.text });
  return { role: turn.role as string, content, tool_calls: turn.tool_calls ?? [], tool_call_id: turn.tool_call_id ?? "" };
}

export function chatRequest(s: Settings, list: Turn[]) {
  const messages: ReturnType<typeof message>[] = list.map(message);
  if (s.system.trim()) messages.unshift({ role: "system", content: [{ text: s.system }], tool_calls: [], tool_call_id: "" });
  const tools = readTools(s.tools).map((x) => ({ name: x.name, description: x.description ?? "", parameters_json_schema: JSON.stringify(x.parameters ?? {}) }));
  return { model: s.model, messages, tools, tool_choice: tools.length ? s.tool_choice : "", sampling: sampling(s), options: { priority: "interactive", app: "dashboard" } };
}

// Sends what is there and appends the answer as it comes. A few repaints a frame at most, however fast it comes.
export async function answer(): Promise<void> {
  const abort = new AbortController();
  answering.value = abort;
  const turn: Turn = { role: "assistant", text: "" };
  const before = turns.value;
  let frame = 0;
  const show = () => {
    frame = 0;
    turns.value = [...before, { ...turn }];
  };
  const soon = () => { if (!frame) frame = requestAnimationFrame(show); };
  const began = performance.now();
  show();
  try {
    for await (const event of stream<ChatEvent>("InferenceService/Chat", chatRequest(settings.value, before), abort.signal)) {
      if (event.started) turn.started = event.started;
      if (event.finished) turn.finished = event.finished;
      if (event.chunk) {
        turn.first_ms ??= performance.now() - began;
        turn.text += event.chunk.text;
        if (event.chunk.reasoning) turn.reasoning = (turn.reasoning ?? "") + event.chunk.reasoning;
        for (const d of event.chunk.tool_calls) {
          turn.tool_calls ??= [];
          const call = (turn.tool_calls[d.index] ??= { id: "", name: "", arguments_json: "" });
          call.id += d.id;
          call.name += d.name;
          call.arguments_json += d.arguments_json;
        }
      }
      soon();
    }
  } catch (error) {
    if (!abort.signal.aborted) turn.error = error instanceof RpcError ? error : new RpcError(0, "UNKNOWN", "", String(error), "");
  }
  cancelAnimationFrame(frame);
  show();
  answering.value = null;
}
