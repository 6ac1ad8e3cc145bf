// A plan as a person reads it: what was chosen, every byte, every number with its source, and what was not chosen.
import { useState } from "preact/hooks";
import { bytes, figure, ms, num, safe, tokS, tokens } from "../format";
import { t } from "../i18n";
import type { Candidate, Measured, MemoryItem, Plan, Pool, Predicted, Rejected, Workload } from "../types";
import { Bar, Legend, byWhat, sum, whatName } from "./memory";
import { Chip, Name } from "./parts";

export const place = (c: { engine: string; backend: string; devices: string[]; variant?: string }) =>
  [c.engine, c.backend, c.devices.join("+"), c.variant && c.variant !== "default" ? c.variant : ""].filter(Boolean).map((s) => safe(s, 60)).join(" · ");

const kSources: Record<string, string> = {
  formula: "formula", profile: "hardware profile", "measured here": "measured here", default: "default", oracle: "the engine’s own count",
};
export const Source = ({ text }: { text: string }) => (text ? <span class="src">{kSources[text] ? t(kSources[text]) : safe(text, 80)}</span> : null);

// 38 tok/s (31–45)
export function withRange(value: number | undefined, uncertainty: number | undefined, unit: (v: number) => string): string {
  if (value === undefined) return "–";
  if (!uncertainty) return unit(value);
  return `${unit(value)} (${figure(value * (1 - Math.min(uncertainty, 0.95)))}–${figure(value * (1 + uncertainty))})`;
}

export function Figures({ predicted, measured, sessions }: { predicted?: Predicted; measured?: Measured; sessions?: number }) {
  const p = predicted ?? { source: "" };
  const rows: [string, string, string][] = [
    [t("speed of one session"), withRange(p.decode_tok_s, p.uncertainty, tokS), tokS(measured?.decode_tok_s)],
    ...((sessions ?? 1) > 1 ? [[t("all sessions together"), withRange(p.aggregate_tok_s, p.uncertainty, tokS), tokS(measured?.aggregate_tok_s)] as [string, string, string]] : []),
    [t("first token after"), withRange(p.ttft_ms, p.uncertainty, ms), ms(measured?.ttft_ms)],
    [t("load time"), p.load_s === undefined ? "–" : ms(p.load_s * 1000), measured?.load_s === undefined ? "–" : ms(measured.load_s * 1000)],
    ...(p.energy_j_per_tok === undefined ? [] : [[t("energy per token"), `${figure(p.energy_j_per_tok)} J`, "–"] as [string, string, string]]),
  ];
  return (
    <div class="scroll">
      <table>
        <thead><tr><th>{t("figure")}</th><th class="n">{t("predicted")}</th>{measured && <th class="n">{t("measured")}</th>}<th>{t("source")}</th></tr></thead>
        <tbody>{rows.map(([name, a, b]) => <tr key={name}><td>{name}</td><td class="n">{a}</td>{measured && <td class="n">{b}</td>}<td>{a !== "–" && <Source text={p.source} />}</td></tr>)}</tbody>
      </table>
    </div>
  );
}

export function MemoryTable({ memory, measured }: { memory: MemoryItem[]; measured?: MemoryItem[] }) {
  const real = (item: MemoryItem) => measured?.find((m) => m.pool === item.pool && m.what === item.what);
  return (
    <div class="scroll">
      <table>
        <thead><tr><th>{t("pool")}</th><th>{t("what for")}</th><th class="n">{t("reserved")}</th>{measured && <th class="n">{t("really used")}</th>}<th>{t("source")}</th></tr></thead>
        <tbody>
          {memory.map((m, i) => (
            <tr key={i}><td><code>{safe(m.pool, 40)}</code></td><td>{whatName(safe(m.what, 40))}</td><td class="n">{bytes(m.bytes)}</td>{measured && <td class="n">{real(m) ? bytes(real(m)!.bytes) : "–"}</td>}<td><Source text={m.source} /></td></tr>
          ))}
          <tr class="total"><td colSpan={2}>{t("together")}</td><td class="n">{bytes(sum(memory))}</td>{measured && <td class="n">{measured.length ? bytes(sum(measured)) : "–"}</td>}<td /></tr>
        </tbody>
      </table>
    </div>
  );
}

const kSettings: [string, string, (v: any) => string][] = [
  ["context_total", "context, all sessions", tokens], ["context_per_session", "context per session", tokens], ["sessions", "sessions", num], ["threads", "threads", num],
  ["threads_batch", "threads for prompts", num], ["gpu_layers", "layers on the GPU", num], ["batch", "batch", num], ["ubatch", "physical batch", num],
  ["kv_type_k", "KV type (K)", (v) => safe(v, 20)], ["kv_type_v", "KV type (V)", (v) => safe(v, 20)], ["flash_attention", "flash attention", (v) => safe(v, 20)],
  ["mmap", "memory-mapped file", (v) => t(v ? "yes" : "no")], ["kv_unified", "one cache for all", (v) => t(v ? "yes" : "no")], ["swa_full", "full window cache", (v) => t(v ? "yes" : "no")],
  ["draft_tokens", "draft tokens", num], ["host_cache_bytes", "host cache", bytes], ["poll", "busy waiting", num],
];

export function Settings({ settings }: { settings: Record<string, any> }) {
  const rows = kSettings.filter(([k]) => settings[k] !== undefined && settings[k] !== "").map(([k, name, show]) => [t(name), show(settings[k])]);
  for (const [k, v] of Object.entries(settings.extra ?? {})) rows.push([safe(k, 60), safe(String(v), 60)]);
  return <dl class="facts">{rows.map(([k, v]) => <div key={k}><dt>{k}</dt><dd>{v}</dd></div>)}</dl>;
}

export function Rejections({ rejected }: { rejected: Rejected[] }) {
  const [all, setAll] = useState(false);
  const shown = all ? rejected.slice(0, 500) : rejected.slice(0, 12);
  if (rejected.length === 0) return <p class="note">{t("Nothing else was possible.")}</p>;
  return (
    <>
      <div class="scroll">
        <table class="rejected">
          <thead><tr><th>{t("candidate")}</th><th>{t("why not")}</th><th class="n">{t("one session")}</th><th class="n">{t("together")}</th><th class="n">{t("first token")}</th><th class="n">{t("memory")}</th><th>{t("source")}</th></tr></thead>
          <tbody>
            {shown.map((r, i) => (
              <tr key={i}>
                <td><bdi>{place(r)}</bdi></td>
                <td><Chip level={r.reason_code === "SLOWER_THAN_CHOSEN" ? "info" : "warning"}>{safe(r.reason_code.toLowerCase().replace(/_/g, " "), 40)}</Chip><br /><bdi>{safe(r.reason, 400)}</bdi></td>
                <td class="n">{tokS(r.predicted?.decode_tok_s)}</td><td class="n">{tokS(r.predicted?.aggregate_tok_s)}</td><td class="n">{ms(r.predicted?.ttft_ms)}</td>
                <td class="n">{r.memory.length ? bytes(sum(r.memory)) : "–"}</td><td>{r.predicted && <Source text={r.predicted.source} />}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {rejected.length > shown.length && <button type="button" class="quiet" onClick={() => setAll(true)}>{t("Show all {n}", { n: rejected.length })}</button>}
    </>
  );
}

// What a plan takes from each pool, on the pool's own scale where that is known.
export function PoolBars({ candidate, pools }: { candidate: Candidate; pools?: Pool[] }) {
  const ids = [...new Set(candidate.memory.map((m) => m.pool))];
  return (
    <div class="pool-bars">
      {ids.map((id) => {
        const pool = pools?.find((p) => p.id === id);
        const segments = byWhat(candidate.memory, id);
        const taken = sum(candidate.memory, id);
        const total = Number(pool?.total_bytes ?? taken);
        return (
          <div key={id}>
            <div class="pool-head"><span><code>{safe(id, 40)}</code></span><span class="figures"><b>{bytes(taken)}</b>{pool?.total_bytes !== undefined && ` ${t("of {total}", { total: bytes(total) })}`}</span></div>
            <Bar segments={segments} total={total} label={safe(id, 40)} />
          </div>
        );
      })}
      <Legend segments={byWhat(candidate.memory)} />
    </div>
  );
}

export function workloadText(w: Workload | undefined): string {
  if (!w) return "";
  return [t("{n} sessions", { n: w.sessions ?? 1 }), w.context && t("{n} tokens of context", { n: tokens(w.context) }), w.prompt_tokens && t("prompts of {n}", { n: tokens(w.prompt_tokens) }),
    w.answer_tokens && t("answers of {n}", { n: tokens(w.answer_tokens) }), w.objective && t(w.objective)].filter(Boolean).join(", ");
}

export function RefusalBox({ plan }: { plan: Plan }) {
  const r = plan.refusal;
  if (plan.chosen || !r) return null;
  return (
    <div class="problem" role="alert">
      <strong>{safe(r.reason, 600)}</strong>
      {r.next_step && <span>{safe(r.next_step, 600)}</span>}
      {r.missing_bytes !== undefined && <span>{t("{n} are missing in {pool}", { n: bytes(r.missing_bytes), pool: safe(r.pool, 40) })}</span>}
      {r.nearest && <span>{t("The nearest that fits:")} {workloadText(r.nearest)}</span>}
      <code>{safe(r.reason_code, 60)}</code>
    </div>
  );
}

export function PlanDetails({ plan, measured, pools }: { plan: Plan; measured?: Measured; pools?: Pool[] }) {
  const c = plan.chosen;
  return (
    <div class="plan">
      <RefusalBox plan={plan} />
      {c && (
        <>
          <p class="chosen"><Chip level="accent">{t("chosen")}</Chip> <strong><bdi>{place(c)}</bdi></strong> {c.maturity && <Chip>{safe(c.maturity, 30)}</Chip>}{plan.forced && <Chip level="warning">{t("forced")}</Chip>}</p>
          <ul class="reasons">{c.reasons.map((r, i) => <li key={i}><bdi>{safe(r, 400)}</bdi></li>)}</ul>
          <p class="note">{t("Planned for {workload}.", { workload: workloadText(plan.workload) })}</p>
          <Figures predicted={c.predicted} measured={measured} sessions={plan.workload?.sessions} />
          <h3>{t("Memory")}</h3>
          <PoolBars candidate={c} pools={pools} />
          <details open><summary>{t("Every reservation")}</summary><MemoryTable memory={c.memory} measured={measured?.memory} /></details>
          <details><summary>{t("Settings")}</summary><Settings settings={c.settings} /></details>
        </>
      )}
      {plan.evictions.length > 0 && <p class="note">{t("Would be unloaded first:")} {plan.evictions.map((e) => safe(e, 40)).join(", ")}</p>}
      <h3>{t("Not chosen")} <small>{num(plan.rejected.length)}</small></h3>
      <Rejections rejected={plan.rejected} />
    </div>
  );
}

export const PlanTitle = ({ plan }: { plan: Plan }) => <Name text={plan.model} max={60} />;
