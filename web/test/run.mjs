// The dashboard in a real browser, against a real daemon with a real model. usage: node run.mjs [NAME...]
// Screenshots of every view go to build/PRESET/web-shots: dark, light, phone.
import { spawnSync } from "node:child_process";
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { checkTexts } from "./i18n.mjs";
import { Daemon, haveChromium, kBin, kListToken, kRoot, kSkip, kToken, launch, model, open, until } from "./daemon.mjs";

const kWeb = join(kRoot, "web");
const kShots = process.env.RUMBO_SHOTS ?? join(kBin, "../web-shots");
const kAxe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

if (!haveChromium()) {
  console.log("skipped: no Chromium (apt install chromium)");
  process.exit(kSkip);
}
const smol = model("smollm2.gguf");
if (!smol) {
  console.log("skipped: no models (./dev setup)");
  process.exit(kSkip);
}
mkdirSync(kShots, { recursive: true });

const equal = (a, b, what) => { if (a !== b) throw new Error(`${what}: ${JSON.stringify(a)} instead of ${JSON.stringify(b)}`); };
const truthy = (value, what) => { if (!value) throw new Error(what); };
const views = ["machine", "models", "planner", "playground", "activity"];

async function serious(page) {
  // Through the debugger: the page's own policy lets no foreign script in.
  await page.evaluate(kAxe);
  const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  return violations.filter((v) => ["serious", "critical"].includes(v.impact)).map((v) => `${v.id}: ${v.nodes.slice(0, 3).map((n) => `${n.target} ${n.failureSummary?.split("\n")[1] ?? ""}`).join(" | ")}`);
}
const go = async (page, view) => {
  await page.evaluate((v) => { location.hash = `/${v}`; }, view);
  await page.locator("main h1").waitFor();
};
const heading = (page, text) => page.getByRole("heading", { level: 1, name: text, exact: true }).waitFor();
const clean = async (opened) => equal((await opened.check()).join("\n"), "", "faults of the page");

let daemon, browser;

async function chat(page, text, { system = "", tokens = 24 } = {}) {
  await page.getByLabel("tokens at most").fill(String(tokens));
  if (system) await page.getByLabel("System prompt").fill(system);
  await page.getByRole("textbox", { name: "Message" }).fill(text);
  await page.getByRole("button", { name: "Send", exact: true }).click();
}

async function fill(page, view) {
  await go(page, view);
  if (view === "planner") {
    for (const name of ["r9700", "ryzen-ai-max-395-default"]) {
      const choice = page.getByRole("button", { name, exact: true });
      if ((await choice.getAttribute("aria-pressed")) !== "true") await choice.click();
    }
    await page.getByRole("button", { name: "Plan", exact: true }).last().click();
    await page.locator(".result").nth(2).locator(".bar").first().waitFor({ timeout: 30000 });
  }
  if (view === "playground" && (await page.locator(".turn").count()) === 0) {
    await chat(page, "Name three colours.");
    await page.locator(".answer-facts").waitFor({ timeout: 120000 });
    await page.getByRole("button", { name: "Send", exact: true }).waitFor({ timeout: 60000 });
  }
  if (view === "models") await page.locator(".instance .stats").waitFor({ timeout: 30000 });
}

const tests = {
  async types() {
    const r = spawnSync(process.execPath, [join(kWeb, "node_modules/typescript/bin/tsc"), "--noEmit", "-p", kWeb], { encoding: "utf8" });
    equal(r.stdout, "", "tsc");
  },
  async texts() { equal(checkTexts().join("\n"), "", "texts"); },

  async "page weight is at most 250 kB compressed and cached by hash"() {
    const page = await fetch(daemon.url + "/", { headers: { accept: "text/html", "accept-encoding": "gzip" } });
    const html = await page.text();
    let total = 0;
    for (const path of ["/", ...[...html.matchAll(/(?:src|href)="([^"]+)"/g)].map((m) => m[1])]) {
      const r = await fetch(daemon.url + path, { headers: { accept: "text/html", "accept-encoding": "gzip" } });
      equal(r.status, 200, path);
      equal(r.headers.get("content-encoding"), "gzip", path);
      truthy(r.headers.get("content-security-policy")?.includes("default-src 'none'"), `${path} has a policy`);
      if (path !== "/") truthy(r.headers.get("cache-control").includes("immutable"), `${path} is immutable`);
      total += Number(r.headers.get("content-length"));
    }
    console.log(`    ${total} bytes`);
    truthy(total > 20000 && total <= 250000, `${total} bytes`);
  },

  async "machine shows this machine, its memory and its devices"() {
    const o = await open(browser, daemon.url);
    await heading(o.page, "Machine");
    const { json } = await daemon.rpc("DeviceService/ListDevices");
    await o.page.locator(".device").first().waitFor();
    equal(await o.page.locator(".device").count(), json.topology.devices.length, "devices");
    equal(await o.page.locator(".pool").count(), json.topology.pools.length, "pools");
    await clean(o);
    await o.context.close();
  },

  async "an APU is one DRAM with views, a card has its own memory"() {
    const o = await open(browser, daemon.url);
    const select = o.page.getByLabel("Show hardware");
    await o.page.locator("select.hardware option[value=ryzen-ai-max-395-vgm64]").waitFor({ state: "attached" });
    await select.selectOption("ryzen-ai-max-395-vgm64");
    await o.page.getByRole("heading", { name: /One DRAM/ }).waitFor();
    equal(await o.page.locator(".memory").first().locator(".pool").count(), 2, "pools of the one DRAM");
    truthy((await o.page.locator(".limit").count()) >= 1, "GTT is shown as a view");
    await o.page.screenshot({ path: join(kShots, "machine-apu.png"), fullPage: true });
    await select.selectOption("r9700");
    await o.page.getByRole("heading", { name: /Graphics memory/ }).first().waitFor();
    equal(await o.page.getByRole("heading", { name: /One DRAM/ }).count(), 0, "no shared DRAM");
    await o.page.screenshot({ path: join(kShots, "machine-r9700.png"), fullPage: true });
    await clean(o);
    await o.context.close();
  },

  async "models: load with progress, why here, pin, unload"() {
    const o = await open(browser, daemon.url + "/#/models");
    const { page } = o;
    await page.getByRole("button", { name: "Load", exact: true }).first().click();
    await page.getByLabel("sessions at once").fill("2");
    await page.getByRole("dialog").getByRole("button", { name: "Load", exact: true }).click();
    await page.locator(".instance").waitFor({ timeout: 120000 });
    await page.locator(".instance .chip", { hasText: "ready" }).waitFor({ timeout: 60000 });
    const listed = (await daemon.rpc("InstanceService/ListInstances")).json.instances.filter((i) => i.state === "ready");
    equal(listed.length, 1, "ready instances");
    equal(listed[0].sessions, 2, "sessions");
    await page.getByRole("button", { name: "Why here" }).click();
    const why = page.getByRole("dialog");
    await why.getByText("chosen", { exact: true }).waitFor();
    truthy((await why.locator(".rejected tbody tr").count()) > 0, "rejected candidates");
    truthy((await why.locator(".src").count()) > 3, "numbers have sources");
    await page.screenshot({ path: join(kShots, "why.png") });
    await page.keyboard.press("Escape");
    equal(await page.getByRole("dialog").count(), 0, "dialog after Escape");
    // Pins change the store: that takes a token, and the page asks for one.
    await page.locator(".model-row").getByRole("button", { name: "Pin", exact: true }).click();
    await page.getByRole("dialog").getByRole("heading", { name: "API token" }).waitFor();
    await page.getByRole("textbox", { name: "Token" }).or(page.locator("dialog input[type=password]")).first().fill(kToken);
    await page.getByRole("button", { name: "Use token" }).click();
    await page.locator(".model-row").getByRole("button", { name: "Pin", exact: true }).click();
    await page.locator(".model-row").getByText("pinned").waitFor();
    await page.locator(".model-row").getByRole("button", { name: "Unpin", exact: true }).click();
    await page.locator(".instance").getByRole("button", { name: "Unload" }).click();
    await page.getByText("Nothing is loaded.").waitFor({ timeout: 30000 });
    equal((await daemon.rpc("InstanceService/ListInstances")).json.instances.filter((i) => i.state === "ready").length, 0, "instances after unload");
    await clean(o);
    await o.context.close();
  },

  async "playground: streams, shows where and how fast, stops, copies as code"() {
    const o = await open(browser, daemon.url + "/#/playground");
    const { page } = o;
    await chat(page, "Say hello.", { system: "You are brief." });
    const facts = page.locator(".answer-facts");
    await facts.waitFor({ timeout: 120000 });
    await facts.getByText("ran on").waitFor();
    await facts.getByText("ended by").waitFor({ timeout: 60000 });
    truthy((await page.locator(".turn.assistant .words").innerText()).length > 0, "an answer");
    for (const language of ["curl", "Python", "TypeScript", "C++"]) {
      await page.getByRole("button", { name: "Copy as code" }).click();
      await page.getByRole("dialog").getByRole("button", { name: language, exact: true }).click();
      const code = await page.getByRole("dialog").locator("pre").innerText();
      truthy(code.includes("Say hello.") && code.includes("smollm2") && code.includes("You are brief."), `${language}: ${code}`);
      await page.keyboard.press("Escape");
    }
    await chat(page, "Count from 1 to 1000, one number per line.", { tokens: 2000 });
    await page.getByRole("button", { name: /^Stop/ }).waitFor();
    await until(async () => (await page.locator(".turn.assistant").last().innerText()).length > 5, 60);
    await page.getByRole("button", { name: /^Stop/ }).click();
    await page.getByRole("button", { name: "Send", exact: true }).waitFor();
    await until(async () => (await daemon.rpc("AdminService/GetStatus")).json.running_requests === 0, 10);
    await clean(o);
    await o.context.close();
  },

  async "playground: an answer in the shape of a schema"() {
    const o = await open(browser, daemon.url + "/#/playground");
    const { page } = o;
    await page.getByText("Shape of the answer").click();
    await page.locator("label.field", { hasText: /^shape/ }).locator("select").selectOption("schema");
    await page.getByLabel("constraint").fill('{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}');
    await chat(page, "Give me a number.", { tokens: 60 });
    await page.locator(".answer-facts").getByText("ended by").waitFor({ timeout: 120000 });
    truthy(Number.isInteger(JSON.parse(await page.locator(".turn.assistant .words").innerText()).n), "an integer n");
    await clean(o);
    await o.context.close();
  },

  async "planner: several machines side by side, a command that works, what to buy"() {
    const o = await open(browser, daemon.url + "/#/planner");
    const { page } = o;
    await fill(page, "planner");
    equal(await page.locator(".result").count(), 3, "results");
    truthy((await page.locator(".speed").count()) >= 2, "speeds compared");
    const command = (await page.locator(".result", { hasText: "r9700" }).locator("pre").innerText()).trim().split(" ");
    equal(command[0], "rumbo", "command");
    const plan = JSON.parse(daemon.cli(...command.slice(1), "--json"));
    const shown = await page.locator(".result", { hasText: "r9700" }).locator(".chip").first().innerText();
    truthy(shown.includes(plan.chosen.engine) && shown.includes(plan.chosen.backend), `${shown} against ${plan.chosen.engine} ${plan.chosen.backend}`);
    await page.getByRole("button", { name: "What should I buy?" }).click();
    await page.getByRole("button", { name: "Compare machines" }).click();
    await page.locator(".scatter .point").first().waitFor({ timeout: 60000 });
    truthy((await page.locator("tbody tr").count()) > 10, "machines");
    await page.getByRole("button", { name: "tok/s, all sessions" }).click();
    await page.getByRole("button", { name: "tok/s, all sessions" }).click();
    equal(await page.locator("th[aria-sort=descending]").count(), 1, "sorted");
    await page.screenshot({ path: join(kShots, "buy.png"), fullPage: true });
    await clean(o);
    await o.context.close();
  },

  async "planner: a plan that fails says what the command line says"() {
    const o = await open(browser, daemon.url + "/#/planner");
    const { page } = o;
    await page.locator("label.field", { hasText: /^Model/ }).locator("input").fill("no-such-model");
    await page.getByRole("button", { name: "Plan", exact: true }).last().click();
    const problem = page.locator(".result .problem");
    await problem.waitFor();
    const text = await problem.innerText();
    let cli = "";
    try { daemon.cli("plan", "no-such-model"); } catch (e) { cli = e.message; }
    truthy(text.includes("MODEL_NOT_FOUND"), text);
    truthy(cli.includes(text.split("\n")[0]), `${text} against ${cli}`);
    await clean(o);
    await o.context.close();
  },

  async "activity: events, requests without words, doctor"() {
    const o = await open(browser, daemon.url + "/#/activity");
    const { page } = o;
    await page.locator(".connection.online").waitFor();
    await page.waitForTimeout(300);
    daemon.cli("load", "smollm2", "--sessions", "1");
    daemon.cli("run", "smollm2", "secret-words-of-mine", "--max-tokens", "4");
    await page.locator(".event", { hasText: "smollm2" }).first().waitFor({ timeout: 20000 });
    await page.getByRole("button", { name: "Requests" }).click();
    await page.locator(".request").first().waitFor({ timeout: 20000 });
    truthy(!(await daemon.rpc("InstanceService/ListRequests")).text.includes("secret-words"), "no words are kept");
    await page.getByRole("button", { name: "Doctor" }).click();
    const findings = (await daemon.rpc("AdminService/Doctor")).json.findings;
    if (findings.length) await page.locator(".finding").first().waitFor();
    equal(await page.locator(".finding").count(), findings.length, "findings");
    await clean(o);
    await o.context.close();
  },

  async "200 instances and 10,000 events stay light"() {
    const o = await open(browser, daemon.url + "/#/models");
    const { page } = o;
    await page.locator(".connection.online").waitFor();
    await page.close();
    // A daemon's answer with 200 instances, put in between by the browser.
    const p = await o.context.newPage();
    p.on("pageerror", (e) => console.log(`    ${e.stack}`));
    const many = Array.from({ length: 200 }, (_, i) => ({ id: `i-${i}`, model: `model-${i}`, engine: "fake", backend: "cpu", devices: ["cpu0"], state: "ready", memory: [{ pool: "system", what: "weights", bytes: "1000000", source: "formula" }], sessions: 1, queue: 0, since: "1", running: 0, reason: "", variant: "default", context_per_session: 4096, restarts: 0, pinned: false, requests: "0", generated_tokens: "0", engine_version: "1" }));
    await p.route("**/InstanceService/ListInstances", (r) => r.fulfill({ json: { instances: many } }));
    await p.route("**/InstanceService/WatchInstances", (r) => r.fulfill({ contentType: "text/event-stream", body: Array.from({ length: 10000 }, (_, i) => `data: ${JSON.stringify({ instance: { ...many[i % 200], state: Math.floor(i / 200) % 2 ? "ready" : "loading", reason: `change ${i}` }, initial: false })}\n\n`).join("") + "event: end\ndata: {}\n\n" }));
    const began = Date.now();
    await p.goto(daemon.url + "/#/models");
    await until(async () => (await p.locator(".row").count()) > 5, 20);
    truthy((await p.locator(".row").count()) < 60, "rows in the page");
    await p.evaluate(() => { location.hash = "/activity"; });
    await p.locator(".event").first().waitFor();
    truthy((await p.locator(".event").count()) < 80, "events in the page");
    truthy(await until(async () => (await p.locator(".virtual-inner").evaluate((e) => e.clientHeight)) > 44 * 9000, 20), "all events are there");
    await p.locator(".virtual").evaluate((e) => { e.scrollTop = e.scrollHeight; });
    await p.getByText("change 1", { exact: true }).or(p.locator(".event").last()).first().waitFor();
    console.log(`    ${Date.now() - began} ms`);
    await o.context.close();
  },

  async "hostile names and answers are inert"() {
    const evil = '<img src=x onerror="window.__pwned=1"><script>window.__pwned=1</script>\u202eevil\u2066' + "A".repeat(200000);
    const o = await open(browser, daemon.url);
    const p = await o.context.newPage();
    const wrap = (value) => JSON.parse(JSON.stringify(value, (k, v) => (typeof v === "string" && !["kind", "state", "memory_kind", "severity", "what", "pool", "total_bytes", "free_bytes", "bytes", "since", "requests", "generated_tokens", "size_bytes", "parameters", "added_unix_s", "started_unix_s"].includes(k) && !/^\d+$/.test(v) ? evil : v)));
    for (const method of ["DeviceService/ListDevices", "InstanceService/ListInstances", "ModelService/ListModels", "AdminService/Doctor", "PlanService/Explain", "DeviceService/ListProfiles", "InstanceService/ListRequests"]) {
      await p.route(`**/${method}`, async (r) => {
        const response = await r.fetch();
        await r.fulfill({ response, json: response.ok() ? wrap(await response.json()) : await response.json() });
      });
    }
    await p.route("**/DeviceService/WatchDevices", async (r) => r.fulfill({ contentType: "text/event-stream", body: `data: ${JSON.stringify({ topology: wrap((await daemon.rpc("DeviceService/ListDevices")).json.topology) })}\n\nevent: end\ndata: {}\n\n` }));
    await p.route("**/InferenceService/Chat", (r) => r.fulfill({ contentType: "text/event-stream", body: `data: ${JSON.stringify({ started: { request_id: evil, instance_id: evil, engine: evil, backend: evil, devices: [evil], placement_reason: evil, prompt_tokens: 1, cached_tokens: 0 } })}\n\ndata: ${JSON.stringify({ chunk: { text: evil, reasoning: evil, tokens: 1, tool_calls: [{ index: 0, id: evil, name: evil, arguments_json: evil }] } })}\n\nevent: end\ndata: {}\n\n` }));
    await p.goto(daemon.url);
    for (const view of views) {
      await go(p, view);
      if (view === "playground") {
        await p.getByRole("textbox", { name: "Message" }).fill(evil.slice(0, 2000));
        await p.getByRole("button", { name: "Send", exact: true }).click();
        await p.locator(".turn.assistant > .words").first().waitFor();
      }
      await p.waitForTimeout(300);
      equal(await p.evaluate(() => window.__pwned), undefined, `script ran in ${view}`);
      equal(await p.locator("main img, main script").count(), 0, `elements made from text in ${view}`);
      truthy((await p.evaluate(() => document.documentElement.scrollWidth - innerWidth)) <= 0, `${view} scrolls sideways`);
      const bad = await p.evaluate(() => [...document.querySelectorAll("main :not(.words):not(textarea)")].some((e) => [...e.childNodes].some((n) => n.nodeType === 3 && /[\u202e\u2066]/.test(n.data))));
      equal(bad, false, `direction marks outside of words in ${view}`);
    }
    await o.context.close();
  },

  async "a token that may only look: the page says so and takes another"() {
    const o = await open(browser, daemon.url, { extraHTTPHeaders: {} });
    const { page } = o;
    await page.getByRole("button", { name: "Token", exact: true }).click();
    await page.locator("dialog input[type=password]").fill("wrong-wrong-wrong-wrong-wrong");
    await page.getByRole("button", { name: "Use token" }).click();
    await page.locator(".connection.online").waitFor();
    await page.evaluate((t) => sessionStorage.setItem("rumbo.token", t), kListToken);
    await page.goto(daemon.url + "/#/models");
    await page.reload();
    await page.locator(".model-row").getByRole("button", { name: "Pin", exact: true }).click();
    await page.getByRole("dialog").getByText("The daemon refused this token.").waitFor();
    truthy((await page.getByRole("dialog").innerText()).includes("models"), "names the scope");
    await clean(o);
    await o.context.close();
  },

  async "keyboard alone reaches every view and control"() {
    const o = await open(browser, daemon.url);
    const { page } = o;
    await heading(page, "Machine");
    for (const [i, name] of ["Machine", "Models", "Planner", "Playground", "Activity"].entries()) {
      await page.keyboard.press(String(i + 1));
      await heading(page, name);
    }
    await page.keyboard.press("?");
    await page.getByRole("dialog").waitFor();
    await page.keyboard.press("Escape");
    for (const view of views) {
      await go(page, view);
      await page.evaluate(() => document.body.focus());
      const hidden = await page.evaluate(() => [...document.querySelectorAll("button, a[href], input, select, textarea, summary")].filter((e) => e.tabIndex < 0 && e.offsetParent && !e.closest("[inert]")).length);
      equal(hidden, 0, `controls of ${view} that Tab never reaches`);
    }
    await clean(o);
    await o.context.close();
  },

  async "axe finds nothing serious; screenshots in light, dark and phone"() {
    daemon.cli("load", "smollm2", "--sessions", "2");
    const found = [];
    for (const [name, options] of Object.entries({ light: {}, dark: { colorScheme: "dark" }, phone: { viewport: { width: 390, height: 844 }, deviceScaleFactor: 2, isMobile: true, hasTouch: true, colorScheme: "dark" } })) {
      const o = await open(browser, daemon.url, options);
      for (const view of [...views].sort((a) => (a === "playground" ? -1 : 0))) {
        await fill(o.page, view);
        await o.page.waitForTimeout(view === "models" ? 1500 : 250);
        await o.page.screenshot({ path: join(kShots, `${view}-${name}.png`), fullPage: view !== "playground" });
        found.push(...(await serious(o.page)).map((v) => `${view} ${name}: ${v}`));
        const wide = await o.page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        if (wide > 0) found.push(`${view} ${name}: ${wide} px wider than the window`);
      }
      await clean(o);
      await o.context.close();
    }
    equal(found.join("\n"), "", "axe");
  },

  async "Spanish: every heading and label"() {
    const o = await open(browser, daemon.url, { locale: "es-ES" });
    const { page } = o;
    await heading(page, "Máquina");
    equal(await page.getAttribute("html", "lang"), "es", "lang");
    for (const [view, name] of Object.entries({ models: "Modelos", planner: "Planificador", playground: "Probar", activity: "Actividad" })) {
      await go(page, view);
      await heading(page, name);
    }
    await go(page, "machine");
    await page.screenshot({ path: join(kShots, "machine-es.png"), fullPage: true });
    await page.getByLabel("Idioma").selectOption("en");
    await heading(page, "Machine");
    await clean(o);
    await o.context.close();
  },

  async "the daemon goes and comes back: the page says so and recovers"() {
    const o = await open(browser, daemon.url);
    const { page } = o;
    await page.locator(".connection.online").waitFor();
    await daemon.kill("SIGKILL");
    await page.getByRole("alert").getByText("The daemon does not answer.").waitFor({ timeout: 10000 });
    await page.screenshot({ path: join(kShots, "offline.png") });
    await daemon.spawn();
    await page.locator(".connection.online").waitFor({ timeout: 15000 });
    equal(await page.getByText("The daemon does not answer.").count(), 0, "banner");
    await go(page, "activity");
    await page.getByRole("button", { name: "Events" }).click();
    await page.locator(".event", { hasText: "daemon gone" }).waitFor();
    await page.locator(".event", { hasText: "daemon back" }).waitFor();
    await clean(o);
    await o.context.close();
  },
};

daemon = await Daemon.start();
browser = await launch();
let failed = 0;
try {
  daemon.cli("import", smol, "--name", "smollm2");
  for (const [name, test] of Object.entries(tests)) {
    if (process.argv.length > 2 && !process.argv.slice(2).some((a) => name.includes(a))) continue;
    const began = Date.now();
    try {
      await test();
      console.log(`ok   ${name} (${((Date.now() - began) / 1000).toFixed(1)} s)`);
    } catch (error) {
      failed++;
      console.log(`FAIL ${name}\n     ${String(error.stack ?? error).split("\n").slice(0, 8).join("\n     ")}`);
      const page = browser.contexts().at(-1)?.pages().at(-1);
      await page?.screenshot({ path: join(kShots, "failed.png") }).catch(() => {});
      for (const context of browser.contexts()) await context.close();
    }
  }
} finally {
  await browser.close();
  await daemon.close();
}
console.log(failed ? `${failed} failed` : "all passed");
process.exit(failed ? 1 : 0);
