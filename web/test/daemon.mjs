// A private rumbod for the page's tests, and a browser that reports whatever the page does wrong.
import { spawn, spawnSync } from "node:child_process";
import { mkdtempSync, openSync, rmSync, writeFileSync, existsSync, mkdirSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

export const kRoot = resolve(dirname(fileURLToPath(import.meta.url)), "../..");
export const kBin = process.env.RUMBO_BIN_DIR ?? join(kRoot, "build/release/bin");
export const kModels = process.env.RUMBO_TEST_MODELS ?? "";
export const kSkip = 77;
export const kToken = "dashboard-test-0123456789abcdef";
export const kListToken = "dashboard-list-0123456789abcdef";

function freePort() {
  return new Promise((done) => {
    const server = createServer().listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => done(port));
    });
  });
}

export async function until(what, seconds, step_ms = 20) {
  const end = Date.now() + seconds * 1000;
  for (;;) {
    const value = await what();
    if (value) return value;
    if (Date.now() > end) throw new Error(`not within ${seconds} s: ${what}`);
    await new Promise((r) => setTimeout(r, step_ms));
  }
}

export class Daemon {
  static async start(extra = []) {
    const daemon = new Daemon();
    daemon.dir = mkdtempSync(join(tmpdir(), "rumbo-web-"));
    daemon.port = await freePort();
    daemon.extra = extra;
    mkdirSync(join(daemon.dir, "state"), { mode: 0o700 });
    writeFileSync(join(daemon.dir, "state/tokens"), `tester admin ${kToken}\nviewer list ${kListToken}\n`, { mode: 0o600 });
    await daemon.spawn();
    return daemon;
  }
  get url() { return `http://127.0.0.1:${this.port}`; }
  get pid() { return this.process.pid; }
  async spawn() {
    const log = openSync(join(this.dir, "log"), "a");
    const env = Object.fromEntries(Object.entries(process.env).filter(([k]) => !k.startsWith("RUMBO_")));
    this.env = { ...env, RUMBO_SOCKET: join(this.dir, "s") };
    this.process = spawn(join(kBin, "rumbod"), ["--socket", join(this.dir, "s"), "--http", `127.0.0.1:${this.port}`,
      "--state-dir", join(this.dir, "state"), "--cache-dir", join(this.dir, "cache"), ...this.extra], { stdio: ["ignore", log, log], env: this.env });
    await until(async () => (await fetch(this.url + "/health").catch(() => null))?.ok, 20);
  }
  cli(...args) {
    const r = spawnSync(join(kBin, "rumbo"), args, { env: this.env, encoding: "utf8", timeout: 120000 });
    if (r.status !== 0) throw new Error(`rumbo ${args.join(" ")}: ${r.stderr}`);
    return r.stdout;
  }
  async rpc(method, body = {}, token = kToken) {
    const r = await fetch(`${this.url}/rumbo/v1/${method}`, { method: "POST", body: JSON.stringify(body), headers: { "content-type": "application/json", authorization: `Bearer ${token}` } });
    const text = await r.text();
    return { status: r.status, headers: r.headers, text, json: r.headers.get("content-type")?.includes("json") ? JSON.parse(text) : null };
  }
  async kill(signal = "SIGTERM") {
    if (this.process.exitCode !== null || this.process.signalCode) return;
    const gone = new Promise((r) => this.process.once("exit", r));
    this.process.kill(signal);
    await gone;
  }
  async close() {
    await this.kill();
    rmSync(this.dir, { recursive: true, force: true });
  }
}

export const model = (name) => {
  const path = join(kModels, name);
  return kModels && existsSync(path) ? path : null;
};

const kChromium = process.env.RUMBO_CHROMIUM ?? ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find((p) => existsSync(p));
export const haveChromium = () => !!kChromium;

export function launch() {
  return chromium.launch({ executablePath: kChromium, args: ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--disable-background-networking", "--disable-component-update"] });
}

// A page whose faults are collected: requests that leave the origin, CSP violations, errors of scripts.
export async function open(browser, url, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 860 }, colorScheme: "light", locale: "en-GB", permissions: ["clipboard-read", "clipboard-write"], ...options });
  const page = await context.newPage();
  const faults = [];
  const origin = new URL(url).origin;
  page.on("request", (r) => { if (!r.url().startsWith(origin) && !r.url().startsWith("data:")) faults.push(`leaves the origin: ${r.url()}`); });
  page.on("pageerror", (e) => faults.push(`script: ${e.message}`));
  page.on("console", (m) => { if (/Content Security Policy|Trusted ?Type|violates/i.test(m.text())) faults.push(`CSP: ${m.text()}`); });
  await page.addInitScript(() => {
    window.__violations = [];
    document.addEventListener("securitypolicyviolation", (e) => window.__violations.push(`${e.violatedDirective} ${e.blockedURI} ${e.sample}`));
  });
  await page.goto(url);
  return {
    page, context,
    async check() {
      const violations = await page.evaluate(() => window.__violations);
      return [...faults, ...violations.map((v) => `CSP: ${v}`)];
    },
  };
}
