// node.mjs SOCKET MODEL TOKENS: what the TypeScript SDK costs its process, as one JSON line.
const begun = performance.now();
const { Client } = await import('rumbo');
const importMs = performance.now() - begun;
const [socket, model, tokens] = process.argv.slice(2);
const round = (value) => Math.round(value * 100) / 100;

async function connect() {
  const begun = performance.now();
  const client = await Client.connect({ socket });
  await client.status();
  const took = performance.now() - begun;
  client.close();
  return took;
}
const cold = await connect();
const warm = [];
for (let i = 0; i < 21; ++i) warm.push(await connect());
warm.sort((a, b) => a - b);
const client = await Client.connect({ socket });
await client.generate(model, 'x', { maxTokens: 2000 }).answer(); // the compiler of Node warms up
let seen = 0;
const cpu = process.cpuUsage(), wall = performance.now();
for await (const chunk of client.generate(model, 'x', { maxTokens: Number(tokens) })) seen += chunk.tokens;
const used = process.cpuUsage(cpu);
console.log(JSON.stringify({
  import_ms: round(importMs), cold_ms: round(cold), warm_ms: round(warm[10]),
  cpu_us_per_token: round((used.user + used.system) / seen), wall_us_per_token: round((performance.now() - wall) * 1000 / seen),
  tokens: seen,
}));
client.close();
