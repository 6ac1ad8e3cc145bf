// What the daemon says, kept current: two watches and a slow poll while the page is visible, nothing otherwise.
import { batch, computed, signal } from "@preact/signals";
import { RpcError, refused, rpc, stream, token } from "./api";
import type { DeviceLoad, Instance, Measured, Model, RequestRecord, Status, Topology } from "./types";

export type Connection = "connecting" | "online" | "offline";
export const connection = signal<Connection>("connecting");
export const topology = signal<Topology | null>(null);
export const loads = signal<DeviceLoad[]>([]);
export const instances = signal<Instance[]>([]);
export const models = signal<Model[]>([]);
export const status = signal<Status | null>(null);
export const now_s = signal(Date.now() / 1000);
// Goes up whenever a series got a new point or moved on: plots draw then.
export const tick = signal(0);

export const live = computed(() => instances.value.filter((i) => i.state !== "stopped"));

// ---- Events, newest last ----

export interface Event { time_ms: number; kind: string; subject: string; text: string; level: "info" | "warning" | "broken" }
const kMaxEvents = 10000;
export const events = signal<Event[]>([]);
let fresh: Event[] = [];
export function note(event: Omit<Event, "time_ms">) {
  fresh.push({ time_ms: Date.now(), ...event });
  soon();
}

// Changes are shown once a frame, however many come at once.
let changed: Map<string, Instance> | null = null;
let waiting = false;
function soon() {
  if (waiting) return;
  waiting = true;
  setTimeout(show, 30);
}
function show() {
  waiting = false;
  batch(() => {
    if (fresh.length) events.value = [...events.value, ...fresh].slice(-kMaxEvents);
    if (changed) instances.value = [...changed.values()];
    fresh = [];
    changed = null;
  });
}

// ---- Series per instance ----

const kPoints = 600;
export class Series {
  time: number[] = [];
  tok_s: (number | null)[] = [];
  running: number[] = [];
  queue: number[] = [];
  ttftTime: number[] = []; // of single requests, when they ended
  ttft: number[] = [];
  measured: Measured | null = null;
  private readings: { time: number; total: number }[] = [];
  private requests = "";

  add(instance: Instance, time: number): boolean {
    const total = Number(instance.generated_tokens);
    // Over the last second: tokens come in bursts, and so do our readings.
    this.readings.push({ time, total });
    while (this.readings.length > 2 && time - this.readings[1].time >= 1) this.readings.shift();
    const first = this.readings[0];
    const speed = this.readings.length > 1 && total >= first.total ? (total - first.total) / (time - first.time) : null;
    this.time.push(time);
    this.tok_s.push(speed);
    this.running.push(instance.running);
    this.queue.push(instance.queue);
    if (this.time.length > kPoints) for (const list of [this.time, this.tok_s, this.running, this.queue]) list.shift();
    const finished = instance.requests !== this.requests;
    this.requests = instance.requests;
    return finished;
  }
}
export const series = new Map<string, Series>();

// ---- Requests that ended, oldest first ----

const kMaxRequests = 2000;
export const requests = signal<RequestRecord[]>([]);

async function fetchRequests(abort: AbortSignal) {
  const known = requests.value;
  const after = known.length ? known[known.length - 1].sequence : "0";
  const { requests: fresh } = await rpc<{ requests: RequestRecord[] }>("InstanceService/ListRequests", { after }, abort);
  if (fresh.length === 0) return;
  for (const r of fresh) {
    const own = series.get(r.instance_id);
    if (!own || !r.ok) continue;
    own.ttftTime.push(Number(r.ended_unix_s));
    own.ttft.push(r.ttft_ms);
    if (own.ttft.length > kPoints) (own.ttftTime.shift(), own.ttft.shift());
  }
  requests.value = [...known, ...fresh].slice(-kMaxRequests);
}

async function measure(id: string, of: Series) {
  try {
    of.measured = (await rpc<{ measured?: Measured }>("PlanService/Explain", { id })).measured ?? null;
    tick.value++;
  } catch {
    // An instance that has just gone has nothing to say.
  }
}

function addPoints(list: Instance[]) {
  const time = Date.now() / 1000;
  for (const instance of list) {
    if (instance.state !== "ready") continue;
    let own = series.get(instance.id);
    if (!own) series.set(instance.id, (own = new Series()));
    if (own.add(instance, time)) void measure(instance.id, own);
  }
  for (const id of series.keys()) if (!list.some((i) => i.id === id)) series.delete(id);
  tick.value++;
}

// ---- Keeping current ----

const kWords: Record<string, Event["level"]> = { failed: "broken" };

function merge(instance: Instance, initial: boolean) {
  changed ??= new Map(instances.value.map((i) => [i.id, i]));
  const before = changed.get(instance.id);
  if (instance.state === "stopped") changed.delete(instance.id);
  else changed.set(instance.id, instance);
  if (!initial && before?.state !== instance.state) {
    note({ kind: `instance ${instance.state}`, subject: instance.model, text: instance.reason, level: kWords[instance.state] ?? "info" });
  }
  soon();
}

export async function refreshModels() {
  models.value = (await rpc<{ models: Model[] }>("ModelService/ListModels")).models;
}

async function poll(abort: AbortSignal) {
  let seen = -1;
  for (let round = 0; !abort.aborted; round++) {
    const busy = instances.value.some((i) => i.running > 0 || i.queue > 0);
    if (busy || round % 4 === 0) {
      const list = (await rpc<{ instances: Instance[] }>("InstanceService/ListInstances", {}, abort)).instances.filter((i) => i.state !== "stopped");
      batch(() => {
        changed = null;
        instances.value = list;
        now_s.value = Date.now() / 1000;
        addPoints(list);
      });
    }
    const finished = instances.value.reduce((n, i) => n + Number(i.requests), 0);
    if (round === 0 || finished !== seen || round % 20 === 0) await fetchRequests(abort);
    seen = finished;
    if (round % 20 === 0) status.value = await rpc<Status>("AdminService/GetStatus", {}, abort);
    await new Promise((r) => setTimeout(r, busy ? 250 : 500));
  }
}

async function watchDevices(abort: AbortSignal) {
  for await (const m of stream<{ topology: Topology; loads?: DeviceLoad[] }>("DeviceService/WatchDevices", { min_interval_ms: 2000 }, abort)) {
    batch(() => {
      topology.value = m.topology;
      loads.value = m.loads ?? [];
    });
  }
}

async function watchInstances(abort: AbortSignal) {
  const seen = new Set<string>();
  for await (const m of stream<{ instance: Instance; initial: boolean }>("InstanceService/WatchInstances", {}, abort)) {
    merge(m.instance, m.initial);
    if (!m.initial && !seen.has(m.instance.id + m.instance.state)) void refreshModels().catch(() => {});
    seen.add(m.instance.id + m.instance.state);
  }
}

let current: AbortController | null = null;
let pause_ms = 500;

async function connectOnce() {
  const abort = new AbortController();
  current = abort;
  try {
    status.value = await rpc<Status>("AdminService/GetStatus", {}, abort.signal);
    await refreshModels();
    if (connection.value === "offline") note({ kind: "daemon back", subject: "rumbod", text: "", level: "info" });
    batch(() => {
      connection.value = "online";
      refused.value = null;
    });
    pause_ms = 500;
    await Promise.race([watchDevices(abort.signal), watchInstances(abort.signal), poll(abort.signal)]);
  } catch (error) {
    if (!abort.signal.aborted && error instanceof RpcError && error.status === 0) {
      if (connection.value === "online") note({ kind: "daemon gone", subject: "rumbod", text: error.message, level: "broken" });
      batch(() => {
        connection.value = "offline";
        changed = null;
        instances.value = [];
        requests.value = [];
      });
      series.clear();
    }
  } finally {
    abort.abort();
  }
}

// For the life of the page. A hidden page holds no connection and costs the daemon nothing.
export async function run() {
  document.addEventListener("visibilitychange", () => current?.abort());
  token.subscribe(() => current?.abort());
  for (;;) {
    if (document.hidden) await new Promise<void>((r) => document.addEventListener("visibilitychange", () => r(), { once: true }));
    const began = Date.now();
    await connectOnce();
    if (Date.now() - began > 5000) pause_ms = 500;
    await new Promise((r) => setTimeout(r, document.hidden ? 0 : pause_ms));
    pause_ms = Math.min(pause_ms * 1.5, 5000);
  }
}
