// Plans for machines one has and machines one might buy.
import { signal } from "@preact/signals";
import { useEffect, useMemo, useState } from "preact/hooks";
import { rpc } from "../api";
import { bytes, figure, money, ms, num, safe, tokS } from "../format";
import { t } from "../i18n";
import { models } from "../state";
import { profiles, titleOf, useProfiles } from "../profiles";
import type { Advice, Plan, Topology, Workload } from "../types";
import { sum } from "../ui/memory";
import { Chip, Code, Dialog, Empty, Field, Name, NumberField, Problem, Section } from "../ui/parts";
import { PlanDetails, PoolBars, RefusalBox, Source, place, withRange } from "../ui/plan";
import { Scatter } from "../ui/scatter";

interface Form { model: string; sessions?: number; context?: number; prompt_tokens?: number; answer_tokens?: number; objective: string; system: string; hardware: string[]; budget?: number; currency: string }
const form = signal<Form>({ model: "", objective: "", system: "", hardware: [""], currency: "", sessions: 1 });
const change = (part: Partial<Form>) => (form.value = { ...form.value, ...part });
const tab = signal<"plan" | "buy">("plan");

interface Result { hardware: string; topology?: Topology; plan?: Plan; error?: unknown }
const results = signal<Result[] | null>(null);
const advice = signal<{ rows: Advice[]; error?: unknown } | null>(null);
const busy = signal(false);
const opened = signal<Result | null>(null);

function workload(f: Form): Workload {
  return { sessions: f.sessions, context: f.context, prompt_tokens: f.prompt_tokens, answer_tokens: f.answer_tokens, objective: f.objective || undefined };
}

async function plan() {
  const f = form.value;
  busy.value = true;
  results.value = await Promise.all(
    f.hardware.map(async (hardware): Promise<Result> => {
      try {
        const [answer, devices] = await Promise.all([
          rpc<{ plan: Plan }>("PlanService/MakePlan", { model: f.model, hardware, system: f.system, workload: workload(f) }),
          rpc<{ topology: Topology }>("DeviceService/ListDevices", { hardware }),
        ]);
        return { hardware, plan: answer.plan, topology: devices.topology };
      } catch (error) {
        return { hardware, error };
      }
    }));
  busy.value = false;
}

async function advise() {
  const f = form.value;
  busy.value = true;
  try {
    advice.value = await rpc<{ rows: Advice[] }>("PlanService/Advise", { models: [f.model], workload: workload(f), budget: f.budget, currency: f.currency, system: f.system });
  } catch (error) {
    advice.value = { rows: [], error };
  }
  busy.value = false;
}

// The same question on the command line.
const quote = (s: string) => (/^[\w./:@+-]+$/.test(s) ? s : `'${s.replace(/'/g, "'\\''")}'`);
export function command(verb: string, f: Form, hardware: string, settings?: Record<string, any>): string {
  const parts = ["rumbo", verb, quote(f.model)];
  const add = (flag: string, value: unknown) => value !== undefined && value !== "" && value !== null && parts.push(flag, quote(String(value)));
  add("--sessions", settings?.sessions ?? f.sessions);
  add("--context", settings?.context_total ?? f.context);
  if (verb === "load") {
    add("--kv", settings?.kv_type_k);
    add("--threads", settings?.threads);
  } else {
    add("--objective", f.objective);
    add("--hardware", hardware);
    add("--system", f.system);
  }
  return parts.join(" ");
}

function HardwarePicker() {
  const f = form.value;
  const [filter, setFilter] = useState("");
  const list = [{ name: "", title: t("this machine"), system: "" }, ...profiles.value].filter((p) => `${p.name} ${p.title}`.toLowerCase().includes(filter.toLowerCase()));
  const toggle = (name: string) => change({ hardware: f.hardware.includes(name) ? f.hardware.filter((h) => h !== name) : [...f.hardware, name] });
  return (
    <fieldset class="field wide picker">
      <legend>{t("Hardware")} <small>{t("{n} chosen", { n: f.hardware.length })}</small></legend>
      <input type="search" class="filter" placeholder={t("Filter")} aria-label={t("Filter hardware")} value={filter} onInput={(e) => setFilter(e.currentTarget.value)} />
      <div class="choices">
        {list.map((p) => (
          <button key={p.name} type="button" class="choice" aria-pressed={f.hardware.includes(p.name)} onClick={() => toggle(p.name)} title={safe(p.title, 120)}>{p.name === "" ? p.title : <Name text={p.name} max={40} />}</button>
        ))}
      </div>
    </fieldset>
  );
}

function Inputs() {
  const f = form.value;
  const stored = models.value.map((m) => m.name);
  const submit = () => (tab.value === "plan" ? plan() : advise());
  return (
    <form class="card" onSubmit={(e) => (e.preventDefault(), void submit())}>
      <div class="fields">
        <Field label={t("Model")} hint={tab.value === "plan" ? t("a stored name, or the path of a file on this machine") : undefined}>
          <input list="models" required value={f.model} spellcheck={false} onInput={(e) => change({ model: e.currentTarget.value })} />
          <datalist id="models">{stored.map((m) => <option key={m} value={m} />)}</datalist>
        </Field>
        <NumberField label={t("sessions at once")} value={f.sessions} min={1} max={4096} set={(sessions) => change({ sessions })} />
        <NumberField label={t("context, all sessions")} value={f.context} min={256} step={256} set={(context) => change({ context })} placeholder={t("model’s own")} />
        <NumberField label={t("tokens per prompt")} value={f.prompt_tokens} min={1} set={(prompt_tokens) => change({ prompt_tokens })} />
        <NumberField label={t("tokens per answer")} value={f.answer_tokens} min={1} set={(answer_tokens) => change({ answer_tokens })} />
        <Field label={t("objective")}>
          <select value={f.objective} onChange={(e) => change({ objective: e.currentTarget.value })}>
            <option value="">{t("latency")}</option>{["throughput", "energy", "memory"].map((o) => <option key={o} value={o}>{t(o)}</option>)}
          </select>
        </Field>
        <Field label={t("system")}>
          <select value={f.system} onChange={(e) => change({ system: e.currentTarget.value })}>
            <option value="">{t("the machine’s own")}</option><option value="linux">Linux</option><option value="windows">Windows</option>
          </select>
        </Field>
        {tab.value === "buy" && <NumberField label={t("budget")} value={f.budget} min={0} step="any" set={(budget) => change({ budget })} />}
        {tab.value === "buy" && <Field label={t("currency")}><input value={f.currency} maxLength={3} placeholder="EUR, USD" onInput={(e) => change({ currency: e.currentTarget.value.toUpperCase() })} /></Field>}
        {tab.value === "plan" && <HardwarePicker />}
      </div>
      <div class="actions">
        <button type="submit" class="primary" disabled={busy.value || !f.model || (tab.value === "plan" && f.hardware.length === 0)}>{tab.value === "plan" ? t("Plan") : t("Compare machines")}</button>
      </div>
    </form>
  );
}

// Speeds beside each other, each with the interval that holds the truth in about four cases of five.
function SpeedBars({ list }: { list: Result[] }) {
  const rows = list.filter((r) => r.plan?.chosen?.predicted?.aggregate_tok_s ?? r.plan?.chosen?.predicted?.decode_tok_s);
  if (rows.length < 2) return null;
  const value = (r: Result) => r.plan!.chosen!.predicted!.aggregate_tok_s ?? r.plan!.chosen!.predicted!.decode_tok_s!;
  const u = (r: Result) => r.plan!.chosen!.predicted!.uncertainty ?? 0;
  const max = Math.max(...rows.map((r) => value(r) * (1 + u(r))));
  return (
    <Section title={t("Predicted speed, all sessions together")}>
      <div class="card speeds">
        {[...rows].sort((a, b) => value(b) - value(a)).map((r) => (
          <div class="speed" key={r.hardware}>
            <span><bdi>{safe(titleOf(r.hardware), 80)}</bdi></span>
            <div class="speed-track" role="img" aria-label={`${safe(titleOf(r.hardware), 80)}: ${withRange(value(r), u(r), tokS)}`}>
              <div class="speed-bar" style={{ width: `${(100 * value(r)) / max}%` }} />
              <div class="speed-range" style={{ left: `${(100 * value(r) * Math.max(0, 1 - u(r))) / max}%`, width: `${(100 * value(r) * (Math.min(u(r), 1) + u(r))) / max}%` }} />
            </div>
            <span class="figures">{tokS(value(r))}</span>
          </div>
        ))}
      </div>
    </Section>
  );
}

function ResultCard({ result }: { result: Result }) {
  const c = result.plan?.chosen;
  return (
    <article class="card result">
      <header><h3><Name text={titleOf(result.hardware)} max={80} /></h3>{result.hardware && <small>{safe(result.hardware, 60)}</small>}</header>
      <Problem error={result.error} />
      {result.plan && <RefusalBox plan={result.plan} />}
      {c && (
        <>
          <p><Chip level="accent">{place(c)}</Chip></p>
          <dl class="stats">
            <div class="stat"><dt>{t("one session")}</dt><dd>{figure(c.predicted?.decode_tok_s)} <small>tok/s</small></dd></div>
            <div class="stat"><dt>{t("together")}</dt><dd>{figure(c.predicted?.aggregate_tok_s)} <small>tok/s</small></dd></div>
            <div class="stat"><dt>{t("first token")}</dt><dd>{ms(c.predicted?.ttft_ms)}</dd></div>
            <div class="stat"><dt>{t("memory")}</dt><dd>{bytes(sum(c.memory))}</dd></div>
          </dl>
          {c.predicted?.uncertainty !== undefined && <p class="note">± {num(c.predicted.uncertainty * 100)} % · <Source text={c.predicted.source} /></p>}
          <PoolBars candidate={c} pools={result.topology?.pools} />
          <p class="reason"><bdi>{safe(c.reasons[0], 300)}</bdi></p>
          <Code text={result.hardware ? command("plan", form.value, result.hardware) : command("load", form.value, "", c.settings)} />
        </>
      )}
      {result.plan && <button type="button" onClick={() => (opened.value = result)}>{t("All candidates and numbers")}</button>}
    </article>
  );
}

type Key = "title" | "price" | "speed" | "ttft" | "memory" | "per";
function Buy() {
  const [sort, setSort] = useState<{ key: Key; down: boolean }>({ key: "per", down: false });
  const rows = advice.value?.rows ?? [];
  const value = (r: Advice, key: Key): number | string | undefined => {
    const c = r.plan?.chosen;
    return key === "title" ? r.title || r.hardware : key === "price" ? r.price : key === "speed" ? (c?.predicted?.aggregate_tok_s ?? c?.predicted?.decode_tok_s) : key === "ttft" ? c?.predicted?.ttft_ms : key === "memory" ? (c ? sum(c.memory) : undefined) : r.price_per_tok_s;
  };
  const sorted = useMemo(() => [...rows].sort((a, b) => {
    const x = value(a, sort.key), y = value(b, sort.key);
    // Amounts in different currencies have no order between them.
    if ((sort.key === "price" || sort.key === "per") && x !== undefined && y !== undefined && a.currency !== b.currency) return a.currency < b.currency ? -1 : 1;
    if (x === undefined || y === undefined) return x === y ? 0 : x === undefined ? 1 : -1;
    return (x < y ? -1 : x > y ? 1 : 0) * (sort.down ? -1 : 1);
  }), [rows, sort]);
  if (!advice.value) return <Empty>{t("Choose a model and a load; every known machine is planned.")}</Empty>;
  if (advice.value.error) return <Problem error={advice.value.error} />;
  const head = (key: Key, name: string, n = true) => (
    <th class={n ? "n" : ""} aria-sort={sort.key === key ? (sort.down ? "descending" : "ascending") : "none"}><button type="button" onClick={() => setSort({ key, down: sort.key === key ? !sort.down : false })}>{name}</button></th>
  );
  const priced = new Map<string, number>();
  for (const r of rows) if (r.price !== undefined && r.plan?.chosen) priced.set(r.currency, (priced.get(r.currency) ?? 0) + 1);
  const currency = [...priced].sort((a, b) => b[1] - a[1])[0]?.[0] ?? "";
  const elsewhere = [...priced].reduce((n, [c, k]) => (c === currency ? n : n + k), 0);
  const points = rows.filter((r) => r.currency === currency).flatMap((r) => {
    const p = r.plan?.chosen?.predicted;
    const y = p?.aggregate_tok_s ?? p?.decode_tok_s;
    return r.price !== undefined && y !== undefined ? [{ x: r.price, y, low: y * (1 - Math.min(p?.uncertainty ?? 0, 0.95)), high: y * (1 + (p?.uncertainty ?? 0)), label: safe(r.hardware, 40), text: `${safe(r.title || r.hardware, 60)}: ${money(r.price, r.currency)}, ${tokS(y)}` }] : [];
  });
  return (
    <>
      {points.length > 1 && <Section title={t("Price against speed")}><div class="card"><Scatter points={points} x={t("price")} y={t("tok/s, all sessions")} showX={(v) => money(v, currency)} showY={(v) => figure(v)} />{elsewhere > 0 && <p class="note">{t("{n} machines with prices in another currency are not drawn; name a currency to compare them.", { n: elsewhere })}</p>}</div></Section>}
      <Section title={t("Machines")} aside={<small>{t("{n} planned", { n: rows.length })}</small>}>
        <div class="card scroll">
          <table>
            <thead><tr>{head("title", t("machine"), false)}{head("price", t("price"))}{head("speed", t("tok/s, all sessions"))}{head("ttft", t("first token"))}{head("memory", t("memory"))}{head("per", t("price per tok/s"))}<th>{t("how")}</th><th><span class="sr">{t("Why")}</span></th></tr></thead>
            <tbody>
              {sorted.map((r) => {
                const c = r.plan?.chosen;
                return (
                  <tr key={r.hardware} class={c ? "" : "dim"}>
                    <td><b><Name text={r.title || r.hardware} max={60} /></b><br /><small>{safe(r.hardware, 40)}</small></td>
                    <td class="n">{money(r.price, r.currency)}{r.price_date && <><br /><small>{safe(r.price_date, 12)}</small></>}</td>
                    <td class="n">{c ? withRange(c.predicted?.aggregate_tok_s ?? c.predicted?.decode_tok_s, c.predicted?.uncertainty, figure) : "–"}</td>
                    <td class="n">{ms(c?.predicted?.ttft_ms)}</td><td class="n">{c ? bytes(sum(c.memory)) : "–"}</td><td class="n">{money(r.price_per_tok_s, r.currency)}</td>
                    <td>{c ? <bdi>{place(c)}</bdi> : <span class="refused"><bdi>{safe(r.plan?.refusal?.reason, 160)}</bdi></span>}</td>
                    <td>{r.plan && <button type="button" class="quiet small" aria-label={`${t("Why")}: ${safe(r.title || r.hardware, 60)}`} onClick={() => (opened.value = { hardware: r.hardware, plan: r.plan })}>{t("Why")}</button>}</td>
                  </tr>
                );
              })}
            </tbody>
          </table>
        </div>
      </Section>
    </>
  );
}

export function Planner() {
  useProfiles();
  useEffect(() => { if (!form.value.model && models.value[0]) change({ model: models.value[0].name }); }, [models.value]);
  const list = results.value;
  const o = opened.value;
  return (
    <>
      <header class="page-head">
        <div><h1>{t("Planner")}</h1><p>{t("Where a model would run, how fast, and why. Nothing is loaded.")}</p></div>
        <div class="tabs" role="group" aria-label={t("Planner")}>
          <button type="button" aria-pressed={tab.value === "plan"} onClick={() => (tab.value = "plan")}>{t("Plan")}</button>
          <button type="button" aria-pressed={tab.value === "buy"} onClick={() => (tab.value = "buy")}>{t("What should I buy?")}</button>
        </div>
      </header>
      <div class="section"><Inputs /></div>
      {tab.value === "plan" && list && (
        <>
          <SpeedBars list={list} />
          <Section title={t("Plans side by side")}><div class="grid results">{list.map((r) => <ResultCard key={r.hardware} result={r} />)}</div></Section>
        </>
      )}
      {tab.value === "buy" && <Buy />}
      {o?.plan && <Dialog wide title={safe(titleOf(o.hardware), 80)} onClose={() => (opened.value = null)}><PlanDetails plan={o.plan} pools={o.topology?.pools} /></Dialog>}
    </>
  );
}
