// Memory pools as bars: what is promised to whom, what others use, what is free.
import { bytes, safe } from "../format";
import { t } from "../i18n";
import type { MemoryItem } from "../types";

export const kWhat = ["weights", "kv_cache", "recurrent_state", "compute", "projector", "draft", "host_cache", "engine"];
export const whatName = (what: string) => t(what === "kv_cache" ? "KV cache" : what.replace(/_/g, " "));

export interface Segment { label: string; bytes: number; class: string; used?: number }

// Segments on a common scale; the rest is free. Widths are shares of `total`.
export function Bar({ segments, total, label }: { segments: Segment[]; total: number; label: string }) {
  const shown = segments.filter((s) => s.bytes > 0);
  const text = `${label}: ${shown.map((s) => `${s.label} ${bytes(s.bytes)}`).join(", ") || t("nothing in use")}; ${t("of {total}", { total: bytes(total) })}`;
  const sum = shown.reduce((n, s) => n + s.bytes, 0);
  const scale = Math.max(total, sum) || 1;
  return (
    <div class={sum > total ? "bar over" : "bar"} role="img" aria-label={text}>
      {shown.map((s, i) => (
        <div key={i} class={`segment ${s.class}`} style={{ width: `${(100 * s.bytes) / scale}%` }} title={`${s.label}: ${bytes(s.bytes)}${s.used === undefined ? "" : ` (${t("really used: {n}", { n: bytes(s.used) })})`}`}>
          {s.used !== undefined && <div class="used" style={{ width: `${Math.min(100, (100 * s.used) / s.bytes)}%` }} />}
        </div>
      ))}
    </div>
  );
}

export function byWhat(items: MemoryItem[], pool?: string): Segment[] {
  const sums = new Map<string, number>();
  for (const item of items) if (pool === undefined || item.pool === pool) sums.set(item.what, (sums.get(item.what) ?? 0) + Number(item.bytes));
  const known = kWhat.filter((w) => sums.has(w));
  const others = [...sums.keys()].filter((w) => !kWhat.includes(w));
  return [...known, ...others].map((w) => ({ label: kWhat.includes(w) ? whatName(w) : safe(w, 40), bytes: sums.get(w)!, class: kWhat.includes(w) ? `what-${w}` : "what-engine" }));
}

export function Legend({ segments, note }: { segments: Segment[]; note?: (s: Segment) => string }) {
  return (
    <ul class="legend">
      {segments.filter((s) => s.bytes > 0).map((s, i) => (
        <li key={i}>
          <span class={`swatch ${s.class}`} />
          <bdi>{s.label}</bdi> <b>{bytes(s.bytes)}</b>
          {note && <small>{note(s)}</small>}
        </li>
      ))}
    </ul>
  );
}

export const sum = (items: MemoryItem[], pool?: string) => items.reduce((n, i) => n + (pool === undefined || i.pool === pool ? Number(i.bytes) : 0), 0);
