// Instances that run, models that could, and why each is where it is.
import { signal } from "@preact/signals";
import { useEffect, useMemo, useState } from "preact/hooks";
import { RpcError, rpc, stream } from "../api";
import { ago, bytes, figure, ms, num, parameters, safe, tokens } from "../format";
import { t } from "../i18n";
import { Series, connection, live, models, now_s, refreshModels, requests, series, tick, topology } from "../state";
import type { Instance, Measured, Model, Plan, Progress } from "../types";
import { Bar, Legend, byWhat } from "../ui/memory";
import { Chip, Dialog, Empty, Field, Name, NumberField, Problem, Section, State, VirtualList } from "../ui/parts";
import { PlanDetails } from "../ui/plan";
import { LivePlot } from "../ui/plot";

const selected = signal("");
export const dialog = signal<{ kind: "why"; id: string; title: string } | { kind: "load"; model: Model } | { kind: "delete"; model: Model } | { kind: "add" } | null>(null);

function Why({ id, title }: { id: string; title: string }) {
  const [found, setFound] = useState<{ plan: Plan; measured?: Measured } | null>(null);
  const [error, setError] = useState<unknown>(null);
  useEffect(() => { rpc<{ plan: Plan; measured?: Measured }>("PlanService/Explain", { id }).then(setFound, setError); }, [id]);
  return (
    <Dialog wide title={t("Why {name} is here", { name: safe(title, 60) })} onClose={() => (dialog.value = null)}>
      <Problem error={error} />
      {found && <PlanDetails plan={found.plan} measured={found.measured} pools={topology.value?.pools} />}
    </Dialog>
  );
}

// Follows a call that streams progress; shows each step.
function useProgress() {
  const [progress, setProgress] = useState<Progress | null>(null);
  const [error, setError] = useState<unknown>(null);
  const follow = async (method: string, body: unknown, abort: AbortSignal): Promise<boolean> => {
    setError(null);
    try {
      setProgress({ step: "" });
      for await (const m of stream<{ progress?: Progress }>(method, body, abort)) if (m.progress) setProgress(m.progress);
      return true;
    } catch (e) {
      if (!abort.aborted) setError(e);
      return false;
    } finally {
      setProgress(null);
    }
  };
  return { progress, error, follow };
}

function ProgressBar({ progress }: { progress: Progress }) {
  const done = Number(progress.done_bytes ?? 0), total = Number(progress.total_bytes ?? 0);
  const share = progress.fraction ?? (total > 0 ? done / total : undefined);
  return (
    <div class="progress">
      <progress aria-label={t("Progress")} value={share} max={1} />
      <span>{t(safe(progress.step, 40) || "waiting")}{total > 0 && ` · ${bytes(done)} / ${bytes(total)}`}{share !== undefined && ` · ${num(share * 100)} %`}</span>
    </div>
  );
}

function LoadDialog({ model }: { model: Model }) {
  const [workload, setWorkload] = useState<{ sessions?: number; context?: number; objective?: string }>({});
  const [device, setDevice] = useState("");
  const { progress, error, follow } = useProgress();
  const abort = useMemo(() => new AbortController(), []);
  const close = () => (dialog.value = null);
  const submit = async () => {
    const body = { name: model.name, workload: { ...workload, objective: workload.objective || undefined }, overrides: device ? { device } : undefined };
    if (await follow("ModelService/LoadModel", body, abort.signal)) close();
  };
  return (
    <Dialog title={t("Load {name}", { name: safe(model.name, 60) })} onClose={() => (abort.abort(), close())}>
      <form onSubmit={(e) => (e.preventDefault(), void submit())}>
        <p class="note">{t("Empty fields are left to the planner.")}</p>
        <div class="fields">
          <NumberField label={t("sessions at once")} value={workload.sessions} min={1} max={1024} set={(sessions) => setWorkload({ ...workload, sessions })} />
          <NumberField label={t("context, all sessions")} value={workload.context} min={256} step={256} set={(context) => setWorkload({ ...workload, context })} />
          <Field label={t("objective")}>
            <select value={workload.objective ?? ""} onChange={(e) => setWorkload({ ...workload, objective: e.currentTarget.value })}>
              <option value="">{t("latency")}</option>{["throughput", "energy", "memory"].map((o) => <option key={o} value={o}>{t(o)}</option>)}
            </select>
          </Field>
          <Field label={t("device")}>
            <select value={device} onChange={(e) => setDevice(e.currentTarget.value)}>
              <option value="">{t("planner’s choice")}</option>{topology.value?.devices.filter((d) => d.usable).map((d) => <option key={d.id} value={d.id}>{safe(d.name || d.id, 50)}</option>)}
            </select>
          </Field>
        </div>
        {progress && <ProgressBar progress={progress} />}
        <Problem error={error} />
        <div class="actions"><button type="submit" class="primary" disabled={!!progress}>{t("Load")}</button></div>
      </form>
    </Dialog>
  );
}

function AddDialog() {
  const [reference, setReference] = useState("");
  const [name, setName] = useState("");
  const { progress, error, follow } = useProgress();
  const abort = useMemo(() => new AbortController(), []);
  const file = reference.startsWith("/");
  const submit = async () => {
    const ok = file
      ? await follow("ModelService/ImportModel", { path: reference, name }, abort.signal)
      : await follow("ModelService/PullModel", { reference, name }, abort.signal);
    if (ok) {
      await refreshModels().catch(() => {});
      dialog.value = null;
    }
  };
  return (
    <Dialog title={t("Add a model")} onClose={() => (abort.abort(), (dialog.value = null))}>
      <form onSubmit={(e) => (e.preventDefault(), void submit())}>
        <Field label={t("From")} hint={t("A file on this machine (/path/model.gguf), or a reference to pull.")}>
          <input required value={reference} spellcheck={false} autoFocus onInput={(e) => setReference(e.currentTarget.value)} />
        </Field>
        <Field label={t("Name")}><input required={file} value={name} spellcheck={false} onInput={(e) => setName(e.currentTarget.value)} /></Field>
        {progress && <ProgressBar progress={progress} />}
        <Problem error={error} />
        <div class="actions"><button type="submit" class="primary" disabled={!!progress}>{file ? t("Import") : t("Pull")}</button></div>
      </form>
    </Dialog>
  );
}

function DeleteDialog({ model }: { model: Model }) {
  const [error, setError] = useState<unknown>(null);
  const close = () => (dialog.value = null);
  const go = () => rpc("ModelService/DeleteModel", { name: model.name }).then(() => (void refreshModels(), close()), setError);
  return (
    <Dialog title={t("Delete {name}?", { name: safe(model.name, 60) })} onClose={close}>
      <p>{t("The file leaves the store: {n}.", { n: bytes(model.variants.reduce((n, v) => n + Number(v.size_bytes), 0)) })}</p>
      <Problem error={error} />
      <div class="actions"><button type="button" onClick={close} autoFocus>{t("Keep")}</button><button type="button" class="danger" onClick={go}>{t("Delete")}</button></div>
    </Dialog>
  );
}

const actionError = signal<unknown>(null);
async function act(method: string, body: unknown) {
  actionError.value = null;
  try {
    await rpc(method, body);
    await refreshModels();
  } catch (e) {
    if (!(e instanceof RpcError && (e.status === 401 || e.status === 403))) actionError.value = e;
  }
}

// Share of prompt tokens that were not computed again, over the requests we know of.
function cacheHits(instance: string): number | undefined {
  let prompt = 0, cached = 0;
  for (const r of requests.value) if (r.instance_id === instance) (prompt += r.prompt_tokens), (cached += r.cached_tokens);
  return prompt > 0 ? cached / prompt : undefined;
}

function Stat({ name, value, unit }: { name: string; value: string; unit?: string }) {
  return <div class="stat"><dt>{name}</dt><dd>{value}{unit && <small> {unit}</small>}</dd></div>;
}

const lastSpeed = (s: Series | undefined) => s?.tok_s[s.tok_s.length - 1] ?? 0;

function InstanceDetail({ instance }: { instance: Instance }) {
  const s = series.get(instance.id);
  const hits = cacheHits(instance.id);
  const own = models.value.find((m) => m.name === instance.model);
  return (
    <article class="card instance" aria-label={safe(instance.model, 80)}>
      <header class="instance-head">
        <div>
          <h3><Name text={instance.model} max={80} /></h3>
          <small>{[instance.engine, instance.engine_version, instance.backend, instance.devices.join("+")].filter(Boolean).map((x) => safe(x, 60)).join(" · ")}</small>
        </div>
        <div class="actions">
          <button type="button" onClick={() => (dialog.value = { kind: "why", id: instance.id, title: instance.model })}>{t("Why here")}</button>
          <a class="button" href={`#/playground/${encodeURIComponent(instance.model)}`}>{t("Try")}</a>
          {own && <button type="button" onClick={() => act("ModelService/PinModel", { name: own.name, pinned: !own.pinned })} aria-pressed={own.pinned}>{own.pinned ? t("Unpin") : t("Pin")}</button>}
          <button type="button" class="danger" onClick={() => act("ModelService/UnloadModel", { name: instance.id })}>{t("Unload")}</button>
        </div>
      </header>
      <p class="note"><State word={instance.state} /> {t("for {time}", { time: ago(Number(instance.since), now_s.value) })}{instance.reason && <> · <bdi>{safe(instance.reason, 300)}</bdi></>}</p>
      {instance.progress !== undefined && instance.state !== "ready" && <progress aria-label={t("Progress")} value={instance.progress} max={1} />}
      <dl class="stats">
        <Stat name={t("speed now")} value={figure(lastSpeed(s))} unit="tok/s" />
        <Stat name={t("running")} value={`${num(instance.running)} / ${num(instance.sessions)}`} />
        <Stat name={t("waiting")} value={num(instance.queue)} />
        <Stat name={t("first token")} value={ms(s?.measured?.ttft_ms)} />
        <Stat name={t("prompt from cache")} value={hits === undefined ? "–" : `${num(hits * 100)} %`} />
        <Stat name={t("requests")} value={num(Number(instance.requests))} />
        <Stat name={t("tokens written")} value={num(Number(instance.generated_tokens))} />
        <Stat name={t("context per session")} value={tokens(instance.context_per_session)} />
        {instance.restarts > 0 && <Stat name={t("restarts")} value={num(instance.restarts)} />}
      </dl>
      {s && instance.state === "ready" && (
        <div class="plots">
          <figure><figcaption>{t("tokens per second")}</figcaption><LivePlot key={instance.id} label={t("tokens per second")} time={() => s.time} lines={[{ label: "tok/s", data: () => s.tok_s, color: "--accent" }]} unit={(v) => figure(v)} /></figure>
          <figure><figcaption>{t("running and waiting")}</figcaption><LivePlot key={instance.id} label={t("running and waiting")} time={() => s.time} lines={[{ label: "running", data: () => s.running, color: "--w-weights" }, { label: "queue", data: () => s.queue, color: "--north" }]} unit={(v) => num(v)} /></figure>
          <figure><figcaption>{t("first token, latest requests")}</figcaption><LivePlot key={instance.id} label={t("first token, latest requests")} time={() => s.ttftTime} lines={[{ label: "ttft", data: () => s.ttft, color: "--w-state" }]} unit={ms} points /></figure>
        </div>
      )}
      <Bar segments={byWhat(instance.memory)} total={instance.memory.reduce((n, m) => n + Number(m.bytes), 0)} label={t("Memory")} />
      <Legend segments={byWhat(instance.memory)} />
    </article>
  );
}

function Instances() {
  tick.value;
  const list = live.value;
  const [filter, setFilter] = useState("");
  const shown = filter ? list.filter((i) => `${i.model} ${i.engine} ${i.backend} ${i.state}`.toLowerCase().includes(filter.toLowerCase())) : list;
  const chosen = list.find((i) => i.id === selected.value) ?? shown[0];
  if (list.length === 0) return <Empty>{connection.value === "online" ? t("Nothing is loaded. Load a model below, or just ask one: it is loaded on the first request.") : t("looking")}</Empty>;
  const row = (i: Instance) => (
    <button type="button" class="row" aria-pressed={i.id === chosen?.id} onClick={() => (selected.value = i.id)}>
      <span class="row-main"><b><Name text={i.model} max={60} /></b><small>{[i.backend, i.devices.join("+")].filter(Boolean).map((x) => safe(x, 30)).join(" · ")}</small></span>
      <span class="figures">{i.running > 0 ? `${figure(lastSpeed(series.get(i.id)))} tok/s` : ""}{i.queue > 0 && <small> +{num(i.queue)}</small>}</span>
      <State word={i.state} />
    </button>
  );
  return (
    <div class="master">
      <div>
        {list.length > 8 && <input type="search" class="filter" placeholder={t("Filter")} aria-label={t("Filter instances")} value={filter} onInput={(e) => setFilter(e.currentTarget.value)} />}
        <VirtualList items={shown} height={58} row={row} label={t("Instances")} max={560} />
      </div>
      {chosen && <InstanceDetail instance={chosen} />}
    </div>
  );
}

function ModelRow({ model }: { model: Model }) {
  const v = model.variants[0];
  const loaded = live.value.filter((i) => i.model === model.name);
  return (
    <div class="model-row">
      <span class="row-main"><b><Name text={model.name} max={80} /></b><small>{v ? [v.architecture, v.quantization, v.format].filter(Boolean).map((x) => safe(x, 30)).join(" · ") : ""}</small></span>
      <span class="model-figures figures">{v && <>{parameters(v.parameters)} · {bytes(v.size_bytes)} · {tokens(v.context_trained)}</>}</span>
      <span class="model-marks">{loaded.length > 0 && <Chip level="good">{t("loaded")}</Chip>}{model.pinned && <Chip level="accent">{t("pinned")}</Chip>}{v && v.state !== "complete" && <State word={v.state} />}</span>
      <span class="actions">
        <button type="button" onClick={() => (dialog.value = { kind: "load", model })}>{t("Load")}</button>
        <button type="button" class="quiet" aria-pressed={model.pinned} onClick={() => act("ModelService/PinModel", { name: model.name, pinned: !model.pinned })}>{model.pinned ? t("Unpin") : t("Pin")}</button>
        <button type="button" class="quiet danger" onClick={() => (dialog.value = { kind: "delete", model })} aria-label={t("Delete {name}?", { name: safe(model.name, 60) })}>{t("Delete")}</button>
      </span>
    </div>
  );
}

export function Models() {
  const [filter, setFilter] = useState("");
  const list = models.value.filter((m) => m.name.toLowerCase().includes(filter.toLowerCase()));
  const d = dialog.value;
  useEffect(() => () => { dialog.value = null; actionError.value = null; }, []);
  return (
    <>
      <header class="page-head">
        <div><h1>{t("Models")}</h1><p>{t("{n} loaded", { n: live.value.length })} · {t("{n} stored", { n: models.value.length })}</p></div>
        <button type="button" class="primary" onClick={() => (dialog.value = { kind: "add" })}>{t("Add a model")}</button>
      </header>
      <Problem error={actionError.value} />
      <Section title={t("Instances")}><Instances /></Section>
      <Section title={t("Stored models")} aside={models.value.length > 8 && <input type="search" class="filter" placeholder={t("Filter")} aria-label={t("Filter models")} value={filter} onInput={(e) => setFilter(e.currentTarget.value)} />}>
        {models.value.length === 0 ? <Empty>{t("No model is stored yet.")} <code>rumbo import FILE.gguf --name NAME</code></Empty>
          : <VirtualList items={list} height={matchMedia("(max-width: 760px)").matches ? 124 : 60} row={(m) => <ModelRow model={m} />} label={t("Stored models")} max={620} />}
      </Section>
      {d?.kind === "why" && <Why id={d.id} title={d.title} />}
      {d?.kind === "load" && <LoadDialog model={d.model} />}
      {d?.kind === "delete" && <DeleteDialog model={d.model} />}
      {d?.kind === "add" && <AddDialog />}
    </>
  );
}
