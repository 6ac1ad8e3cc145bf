// What the dashboard costs: ./dev bench web. Prints one line per figure of docs/benchmarks.md.
import { readFileSync, readdirSync } from "node:fs";
import { Daemon, haveChromium, launch, model, open, until } from "./daemon.mjs";

const smol = model("smollm2.gguf");
if (!haveChromium() || !smol) {
  console.error("this needs Chromium and the models of ./dev setup");
  process.exit(1);
}
const seconds = Number(process.argv[2] ?? 30);
const median = (list) => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)];
const sleep = (s) => new Promise((r) => setTimeout(r, s * 1000));
// Nanoseconds of all threads: /proc/PID/stat counts in hundredths, too coarse for an idle process.
const run_s = (pid) => readdirSync(`/proc/${pid}/task`).reduce((n, t) => n + Number(readFileSync(`/proc/${pid}/task/${t}/schedstat`, "utf8").split(" ")[0]) / 1e9, 0);

const daemon = await Daemon.start();
const browser = await launch();
try {
  daemon.cli("import", smol, "--name", "smollm2");

  let bytes = 0;
  const html = await (await fetch(daemon.url, { headers: { accept: "text/html" } })).text();
  for (const path of ["/", ...[...html.matchAll(/(?:src|href)="([^"]+)"/g)].map((m) => m[1])]) {
    bytes += Number((await fetch(daemon.url + path, { headers: { accept: "text/html", "accept-encoding": "gzip" } })).headers.get("content-length"));
  }
  console.log(`page weight, gzip: ${(bytes / 1000).toFixed(1)} kB`);

  const paints = [];
  for (let i = 0; i < 9; i++) {
    const o = await open(browser, daemon.url);
    paints.push(await until(() => o.page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime), 20));
    await o.context.close();
  }
  console.log(`first contentful paint, fresh context: median ${median(paints).toFixed(0)} ms (${paints.map((p) => p.toFixed(0)).join(" ")})`);

  const base = run_s(daemon.pid);
  await sleep(seconds);
  const without = (run_s(daemon.pid) - base) / seconds;
  const idle = await open(browser, daemon.url);
  await idle.page.locator(".connection.online").waitFor();
  await sleep(3);
  const before = run_s(daemon.pid);
  await sleep(seconds);
  const open_page = (run_s(daemon.pid) - before) / seconds;
  console.log(`idle daemon: ${(without * 100).toFixed(3)} % of a core; with an open page: ${(open_page * 100).toFixed(3)} % (difference ${((open_page - without) * 100).toFixed(3)} %)`);
  await idle.context.close();

  // Plots that move: an instance that writes all the time.
  daemon.cli("load", "smollm2", "--sessions", "1");
  const o = await open(browser, daemon.url + "/#/models");
  await o.page.locator(".plot canvas").first().waitFor();
  let stop = false;
  const work = (async () => {
    while (!stop) await fetch(daemon.url + "/v1/completions", { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ model: "smollm2", prompt: "Once upon a time", max_tokens: 64 }) }).then((r) => r.text());
  })();
  await sleep(3);
  const cdp = await o.context.newCDPSession(o.page);
  await cdp.send("Performance.enable");
  const metrics = async () => Object.fromEntries((await cdp.send("Performance.getMetrics")).metrics.map((m) => [m.name, m.value]));
  const cost = async (label) => {
    const a = await metrics();
    await sleep(seconds / 2);
    const b = await metrics();
    const share = (b.TaskDuration - a.TaskDuration) / (b.Timestamp - a.Timestamp);
    console.log(`${label}: ${(share * 100).toFixed(2)} % of a core on the page's main thread (script ${(((b.ScriptDuration - a.ScriptDuration) / (b.Timestamp - a.Timestamp)) * 100).toFixed(2)} %)`);
    return share;
  };
  const moving = await cost("models view, three plots at 10 Hz, under load");
  // The same page, as busy, without its plots: the difference is theirs.
  await o.page.evaluate(() => document.querySelectorAll(".plots").forEach((e) => { e.style.display = "none"; }));
  const still = await cost("the same without plots");
  console.log(`plots alone: ${((moving - still) * 100).toFixed(2)} % of a core`);
  stop = true;
  await work;
  await o.context.close();
} finally {
  await browser.close();
  await daemon.close();
}
