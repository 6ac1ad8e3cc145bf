// The machine: memory as it physically is, the devices that use it, and what is wrong.
import { signal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import { rpc } from "../api";
import { bytes, num, rate, safe, tera } from "../format";
import { t } from "../i18n";
import { live, loads, series, tick, topology } from "../state";
import { profiles, useProfiles } from "../profiles";
import type { Device, DeviceLoad, Instance, Limit, Pool, Topology } from "../types";
import { Bar, Legend, type Segment, sum } from "../ui/memory";
import { Chip, Empty, Name, Problem, Section } from "../ui/parts";

export const hardware = signal(""); // profile shown instead of this machine

const kHues = 8;
const hue = (id: string) => [...id].reduce((n, c) => (n * 31 + c.charCodeAt(0)) >>> 0, 7) % kHues;

const kPoolNames: Record<string, string> = { system: "System memory", vram: "Graphics memory", carveout: "Carve-out" };
const poolName = (pool: Pool) => t(kPoolNames[pool.kind] ?? safe(pool.kind, 40));

function segmentsOf(pool: Pool, running: Instance[]): Segment[] {
  const total = Number(pool.total_bytes ?? 0);
  const ours = running.map((i) => {
    const measured = series.get(i.id)?.measured;
    const used = measured && measured.memory.length > 0 ? sum(measured.memory, pool.id) : undefined;
    return { label: safe(i.model, 40), bytes: sum(i.memory, pool.id), class: `hue-${hue(i.id)}`, used };
  }).filter((s) => s.bytes > 0);
  if (pool.free_bytes === undefined) return ours;
  const used = ours.reduce((n, s) => n + (s.used ?? s.bytes), 0);
  const foreign = Math.max(0, total - Number(pool.free_bytes) - used);
  return [...ours, { label: t("other programs and system"), bytes: foreign, class: "foreign" }];
}

const kLimitNames: Record<string, string> = {
  gtt: "what the graphics driver may map", ttm: "pages the kernel gives to graphics", kfd: "what ROCm may allocate",
  cgroup: "control group of the daemon", reserve: "kept free for the system", other: "limit",
};

// A limit is a view on its pool, never more memory: a bracket on the same scale.
function LimitView({ limit, scale }: { limit: Limit; scale: number }) {
  const max = limit.max_bytes === undefined ? undefined : Number(limit.max_bytes);
  const name = t(kLimitNames[limit.kind] ?? "limit");
  return (
    <li class="limit" title={safe(limit.source, 200)}>
      {max !== undefined && max <= scale * 1.001 && (
        <div class="limit-track"><div class="limit-span" style={{ width: `${Math.min(100, (100 * max) / scale)}%` }}>
          {limit.used_bytes !== undefined && <div class="limit-used" style={{ width: `${max > 0 ? Math.min(100, (100 * Number(limit.used_bytes)) / max) : 0}%` }} />}
        </div></div>
      )}
      <span><b>{safe(limit.kind.toUpperCase(), 20)}</b> {name}</span>
      <span class="figures">{max === undefined ? t("no limit") : t("up to {n}", { n: bytes(max) })}{limit.used_bytes !== undefined && ` · ${t("{n} in use", { n: bytes(limit.used_bytes) })}`}</span>
    </li>
  );
}

function PoolView({ pool, running, scale, measured }: { pool: Pool; running: Instance[]; scale: number; measured: boolean }) {
  const total = Number(pool.total_bytes ?? 0);
  const segments = segmentsOf(pool, running);
  return (
    <div class="pool" style={{ flexGrow: scale > 0 ? Math.max(total / scale, 0.12) : 1 }}>
      <div class="pool-head">
        <h4>{poolName(pool)} <small>{safe(pool.id, 40)}</small></h4>
        <span class="figures"><b>{pool.total_bytes === undefined ? t("size unknown") : bytes(total)}</b>{measured && pool.free_bytes !== undefined && ` · ${t("{n} free", { n: bytes(pool.free_bytes) })}`}</span>
      </div>
      <Bar segments={segments} total={total} label={`${poolName(pool)} ${safe(pool.id, 40)}`} />
      <Legend segments={segments} note={(s) => (s.used === undefined ? "" : t("{n} really used", { n: bytes(s.used) }))} />
      {pool.limits.length > 0 && (
        <ul class="limits" aria-label={t("Views on this memory")}>
          {pool.limits.map((l) => <LimitView key={l.id} limit={l} scale={total} />)}
        </ul>
      )}
      <p class="source">{safe(pool.source, 160)}</p>
    </div>
  );
}

// Pools that are one piece of DRAM (an APU's carve-out and the rest) stand side by side in one frame.
function groups(topo: Topology): { title: string; note: string; pools: Pool[]; devices: Device[] }[] {
  const unified = topo.devices.some((d) => d.memory_kind === "unified");
  const shared = topo.pools.filter((p) => p.kind === "system" || (unified && p.kind === "carveout"));
  const users = (pools: Pool[]) => topo.devices.filter((d) => d.pools.some((id) => pools.some((p) => p.id === id)));
  const out = [];
  if (shared.length > 0) {
    const total = shared.reduce((n, p) => n + Number(p.total_bytes ?? 0), 0);
    out.push({
      title: unified && shared.length > 1 ? t("One DRAM, {n}", { n: bytes(total) }) : unified ? t("Unified memory") : t("System memory"),
      note: unified ? (shared.length > 1 ? t("Firmware has set a carve-out aside for graphics. Both parts are the same chips; GTT is a view on the rest, not further memory.") : t("CPU and graphics share these chips: every byte is counted once.")) : "",
      pools: shared, devices: users(shared),
    });
  }
  for (const pool of topo.pools) if (!shared.includes(pool)) out.push({ title: poolName(pool), note: "", pools: [pool], devices: users([pool]) });
  return out;
}

function Steps({ device }: { device: Device }) {
  const step = (ok: boolean, word: string) => <li class={ok ? "ok" : "no"}><span aria-hidden="true">{ok ? "✓" : "✗"}</span> {t(word)}<span class="sr">: {ok ? t("yes") : t("no")}</span></li>;
  return <ol class="steps">{step(device.present, "present")}{step(device.accessible, "accessible")}{step(device.usable, "usable")}</ol>;
}

function Remedy({ text }: { text: string }) {
  return text ? <p class="remedy"><b>{t("What to do:")}</b> <bdi>{safe(text, 600)}</bdi></p> : null;
}

// What it does now, where the machine tells.
function Load({ load }: { load: DeviceLoad }) {
  if (load.suspended) return <p class="load"><Chip>{t("asleep")}</Chip></p>;
  return (
    <div class="load">
      {load.busy !== undefined && <><meter aria-label={t("load now")} min={0} max={1} value={load.busy} /><b class="figures">{num(load.busy * 100)} %</b></>}
      {load.power_watts !== undefined && <span class="figures">{num(load.power_watts)} W</span>}
      {load.temperature_c !== undefined && <span class="figures">{num(load.temperature_c)} °C</span>}
    </div>
  );
}

function DeviceCard({ device, load }: { device: Device; load?: DeviceLoad }) {
  const facts: [string, string][] = [];
  const add = (name: string, value: string | undefined) => value && value !== "–" && facts.push([t(name), value]);
  add("bandwidth", rate(device.bandwidth_bytes_s));
  add("FP16", tera(device.fp16_flops));
  add("compute units", device.compute_units === undefined ? undefined : num(device.compute_units));
  if (device.cores_physical !== undefined) add("cores", `${num(device.cores_physical)} / ${num(device.cores_logical)} ${t("threads")}`);
  add("threads allowed", device.threads_allowed === undefined ? undefined : num(device.threads_allowed));
  add("chip", safe(device.gfx_target, 40));
  add("driver", safe([device.driver, device.driver_version].filter(Boolean).join(" "), 60));
  add("power limit", device.power_watts === undefined ? undefined : `${num(device.power_watts)} W`);
  add("address", safe(device.pci_address, 40));
  add("number formats", safe(device.number_formats.join(" "), 120));
  return (
    <article class={`card device kind-${device.kind}`}>
      <header>
        <span class="kind">{safe(device.kind.toUpperCase(), 8)}</span>
        <h3><Name text={device.name || device.id} max={80} /></h3>
        <small>{safe(device.id, 60)} · {t(device.memory_kind === "unified" ? "unified memory" : device.memory_kind === "discrete" ? "own memory" : device.memory_kind === "host" ? "host memory" : "unknown memory")}{device.software && ` · ${t("software renderer")}`}{device.secondary && ` · ${t("drives the display")}`}</small>
      </header>
      <Steps device={device} />
      {load && <Load load={load} />}
      {!device.usable && device.reason && <p class="reason"><bdi>{safe(device.reason, 400)}</bdi></p>}
      <Remedy text={device.remedy} />
      <dl class="facts">{facts.map(([k, v]) => <div key={k}><dt>{k}</dt><dd>{v}</dd></div>)}</dl>
      {device.backends.length > 0 && (
        <ul class="backends">
          {device.backends.map((b) => (
            <li key={b.name}>
              <Chip level={b.usable ? "good" : "info"}>{safe(b.name, 20)}{b.version && ` ${safe(b.version, 20)}`}</Chip>
              {!b.usable && <span><bdi>{safe(b.reason, 200)}</bdi> {b.remedy && <em><bdi>{safe(b.remedy, 300)}</bdi></em>}</span>}
            </li>
          ))}
        </ul>
      )}
      {device.evidence.length > 0 && (
        <details><summary>{t("How this was recognised")}</summary><ul class="evidence">{device.evidence.map((e, i) => <li key={i}><bdi>{safe(e, 300)}</bdi></li>)}</ul></details>
      )}
    </article>
  );
}

export function Machine() {
  useProfiles();
  const [profile, setProfile] = useState<Topology | null>(null);
  const [error, setError] = useState<unknown>(null);
  const chosen = hardware.value;
  useEffect(() => {
    setProfile(null);
    setError(null);
    if (!chosen) return;
    const abort = new AbortController();
    rpc<{ topology: Topology }>("DeviceService/ListDevices", { hardware: chosen }, abort.signal).then((r) => setProfile(r.topology), (e) => abort.signal.aborted || setError(e));
    return () => abort.abort();
  }, [chosen]);
  tick.value; // measured memory comes with the series
  const topo = chosen ? profile : topology.value;
  const running = chosen ? [] : live.value;
  return (
    <>
      <header class="page-head">
        <div>
          <h1>{t("Machine")}</h1>
          <p>{topo ? <><Name text={topo.name || t("this machine")} /> · {safe(topo.system, 20)}{chosen && ` · ${t("profile, not this machine")}`}</> : t("looking")}</p>
        </div>
        <select class="hardware" aria-label={t("Show hardware")} value={chosen} onChange={(e) => (hardware.value = e.currentTarget.value)}>
          <option value="">{t("this machine")}</option>
          {profiles.value.map((p) => <option key={p.name} value={p.name}>{safe(p.title || p.name, 70)}</option>)}
        </select>
      </header>
      <Problem error={error} />
      {topo && (
        <>
          <Section title={t("Memory")}>
            {groups(topo).map((g) => {
              const scale = g.pools.reduce((n, p) => n + Number(p.total_bytes ?? 0), 0);
              return (
                <article class="card memory" key={g.title + g.pools[0].id}>
                  <header><h3>{g.title}</h3><small>{g.devices.map((d) => safe(d.name || d.id, 40)).join(" · ")}</small></header>
                  {g.note && <p class="note">{g.note}</p>}
                  <div class="pools">{g.pools.map((p) => <PoolView key={p.id} pool={p} running={running} scale={scale} measured={!chosen} />)}</div>
                </article>
              );
            })}
          </Section>
          <Section title={t("Devices")}>
            {topo.devices.length === 0 && <Empty>{t("No device was found.")}</Empty>}
            <div class="grid">{topo.devices.map((d) => <DeviceCard key={d.id} device={d} load={chosen ? undefined : loads.value.find((l) => l.device === d.id)} />)}</div>
          </Section>
        </>
      )}
    </>
  );
}
