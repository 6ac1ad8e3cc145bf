// What happened: changes since the page opened, requests without their words, and what the doctor finds.
import { signal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import { rpc } from "../api";
import { clock, figure, ms, num, safe } from "../format";
import { t } from "../i18n";
import { type Event, events, requests } from "../state";
import type { Finding, RequestRecord } from "../types";
import { Chip, Empty, Name, Problem, VirtualList } from "../ui/parts";

type Tab = "events" | "requests" | "doctor";
const tab = signal<Tab>("events");

const kLevel = { info: "info", warning: "warning", broken: "broken" } as const;

function Events() {
  const [filter, setFilter] = useState("");
  const [level, setLevel] = useState("");
  const wanted = filter.toLowerCase();
  const list = events.value.filter((e) => (!level || e.level === level) && (!wanted || `${e.kind} ${e.subject} ${e.text}`.toLowerCase().includes(wanted)));
  const row = (_: Event, i: number) => {
    const e = list[list.length - 1 - i];
    return (
      <div class="event">
        <time class="figures">{clock(e.time_ms)}</time>
        <Chip level={kLevel[e.level]}>{t(e.kind)}</Chip>
        <b><Name text={e.subject} max={60} /></b>
        <span class="event-text"><bdi>{safe(e.text, 300)}</bdi></span>
      </div>
    );
  };
  return (
    <>
      <div class="toolbar">
        <input type="search" class="filter" placeholder={t("Filter")} aria-label={t("Filter events")} value={filter} onInput={(e) => setFilter(e.currentTarget.value)} />
        <select aria-label={t("Level")} value={level} onChange={(e) => setLevel(e.currentTarget.value)}>
          <option value="">{t("all levels")}</option>{["info", "warning", "broken"].map((l) => <option key={l} value={l}>{t(l)}</option>)}
        </select>
        <small>{t("{n} events since this page opened", { n: num(list.length) })}</small>
      </div>
      {list.length === 0 ? <Empty>{t("Nothing has changed yet. Loads, unloads, failures and restarts appear here.")}</Empty> : <VirtualList items={list} height={44} row={row} label={t("Events")} max={640} />}
    </>
  );
}

function Requests() {
  const list = requests.value;
  const row = (_: RequestRecord, i: number) => {
    const r = list[list.length - 1 - i];
    const cached = r.prompt_tokens > 0 ? Math.round((100 * r.cached_tokens) / r.prompt_tokens) : 0;
    return (
      <div class="request">
        <time class="figures">{clock(Number(r.ended_unix_s) * 1000)}</time>
        <span><b><Name text={r.model} max={50} /></b><small>{safe(r.app, 40) || t("unnamed app")} · {t(r.priority)}</small></span>
        <Chip level={r.ok ? "good" : r.outcome === "CANCELLED" ? "warning" : "broken"}>{safe(r.outcome.toLowerCase().replace(/_/g, " "), 30)}</Chip>
        <span class="figures">{num(r.prompt_tokens)} → {num(r.completion_tokens)}<small>{t("{n} % cached", { n: cached })}</small></span>
        <span class="figures">{r.ok ? ms(r.ttft_ms) : "–"}<small>{t("first token")}</small></span>
        <span class="figures">{r.ok && r.completion_tokens > 1 ? figure(r.decode_tok_s) : "–"}<small>tok/s</small></span>
        <span class="figures">{ms(r.total_ms)}<small>{r.queue_ms >= 1 ? t("{n} waiting", { n: ms(r.queue_ms) }) : t("in all")}</small></span>
      </div>
    );
  };
  return (
    <>
      <p class="note">{t("The daemon keeps who, where and how fast, never what was asked or answered.")}</p>
      {list.length === 0 ? <Empty>{t("No request has ended yet.")}</Empty> : <VirtualList items={list} height={58} row={row} label={t("Requests")} max={640} />}
    </>
  );
}

const findings = signal<Finding[] | null>(null);

function Doctor() {
  const [error, setError] = useState<unknown>(null);
  const [running, setRunning] = useState(false);
  const look = () => {
    setRunning(true);
    rpc<{ findings: Finding[] }>("AdminService/Doctor").then((r) => (setError(null), (findings.value = r.findings)), setError).finally(() => setRunning(false));
  };
  useEffect(() => { if (!findings.value) look(); }, []);
  return (
    <>
      <div class="toolbar"><button type="button" onClick={look} disabled={running}>{running ? t("looking") : t("Look again")}</button></div>
      <Problem error={error} />
      {findings.value?.length === 0 && <Empty>{t("The doctor found nothing wrong.")}</Empty>}
      <div class="findings">
        {findings.value?.map((f, i) => (
          <article class={`card finding ${f.severity}`} key={i}>
            <header><Chip level={kLevel[f.severity as keyof typeof kLevel] ?? "info"}>{t(f.severity)}</Chip> <code>{safe(f.code, 80)}</code>{f.device && <small> {safe(f.device, 60)}</small>}</header>
            <p><bdi>{safe(f.text, 800)}</bdi></p>
            {f.remedy && <p class="remedy"><b>{t("What to do:")}</b> <bdi>{safe(f.remedy, 800)}</bdi></p>}
          </article>
        ))}
      </div>
    </>
  );
}

export function Activity() {
  const tabs: [Tab, string][] = [["events", t("Events")], ["requests", t("Requests")], ["doctor", t("Doctor")]];
  return (
    <>
      <header class="page-head">
        <div><h1>{t("Activity")}</h1><p>{t("What the daemon does, without anybody’s words.")}</p></div>
        <div class="tabs" role="group" aria-label={t("Activity")}>{tabs.map(([id, name]) => <button key={id} type="button" aria-pressed={tab.value === id} onClick={() => (tab.value = id)}>{name}</button>)}</div>
      </header>
      {tab.value === "events" ? <Events /> : tab.value === "requests" ? <Requests /> : <Doctor />}
    </>
  );
}
