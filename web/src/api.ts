// rumbo.v1 over the daemon's JSON API: one document per call, server-sent events per stream.
import { signal } from "@preact/signals";

export class RpcError extends Error {
  constructor(
    readonly status: number, // HTTP; 0 where nothing answered
    readonly code: string,
    readonly reason: string,
    message: string,
    readonly nextStep: string,
  ) {
    super(message);
  }
}

// The token lives as long as the tab: never in a URL, never on disk beyond the session.
const kTokenKey = "rumbo.token";
export const token = signal(sessionStorage.getItem(kTokenKey) ?? "");
export function setToken(value: string) {
  token.value = value.trim();
  if (token.value) sessionStorage.setItem(kTokenKey, token.value);
  else sessionStorage.removeItem(kTokenKey);
}

// Set where a call was refused for want of a token or of a scope; the page then asks for one.
export const refused = signal<RpcError | null>(null);

async function post(method: string, body: unknown, abort?: AbortSignal): Promise<Response> {
  const headers: Record<string, string> = { "content-type": "application/json", "x-rumbo-app": "dashboard" };
  if (token.value) headers.authorization = `Bearer ${token.value}`;
  let response: Response;
  try {
    response = await fetch(`/rumbo/v1/${method}`, { method: "POST", headers, body: JSON.stringify(body), signal: abort, cache: "no-store" });
  } catch (error) {
    if (abort?.aborted) throw error;
    throw new RpcError(0, "UNAVAILABLE", "DAEMON_UNREACHABLE", "the daemon does not answer", "");
  }
  if (response.ok) return response;
  const error = toError(response.status, await response.json().catch(() => ({})));
  if (response.status === 401 || (response.status === 403 && error.reason === "PERMISSION_DENIED")) refused.value = error;
  throw error;
}

function toError(status: number, body: any): RpcError {
  const e = body?.error ?? {};
  return new RpcError(status, e.code ?? "UNKNOWN", e.reason ?? "", e.message ?? `HTTP ${status}`, e.next_step ?? "");
}

export async function rpc<T>(method: string, body: unknown = {}, abort?: AbortSignal): Promise<T> {
  return (await post(method, body, abort)).json();
}

// The messages of a server stream. Ends when the server ends it; throws RpcError where it breaks off.
export async function* stream<T>(method: string, body: unknown, abort: AbortSignal): AsyncGenerator<T> {
  const response = await post(method, body, abort);
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) throw new RpcError(0, "UNAVAILABLE", "DAEMON_UNREACHABLE", "the daemon went away", "");
      buffer += value;
      for (let end; (end = buffer.indexOf("\n\n")) >= 0; buffer = buffer.slice(end + 2)) {
        const event = buffer.slice(0, end);
        const at = event.indexOf("data: ");
        const data = JSON.parse(event.slice(at + 6));
        if (event.startsWith("event: error")) throw toError(502, data);
        if (event.startsWith("event: end")) return;
        yield data;
      }
    }
  } catch (error) {
    if (error instanceof RpcError || abort.aborted) throw error;
    throw new RpcError(0, "UNAVAILABLE", "DAEMON_UNREACHABLE", "the daemon went away", "");
  } finally {
    reader.cancel().catch(() => {});
  }
}
