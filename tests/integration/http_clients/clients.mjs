// Each test asks a real model through a real client; answers change with their input.
import assert from "node:assert/strict";
import http from "node:http";
import { test } from "node:test";

import Anthropic from "@anthropic-ai/sdk";
import { Ollama } from "ollama";
import OpenAI from "openai";

const address = process.env.RUMBO_ADDRESS;
const openai = new OpenAI({ baseURL: `http://${address}/v1`, apiKey: "none", maxRetries: 0 });
const anthropic = new Anthropic({ baseURL: `http://${address}`, apiKey: "none", maxRetries: 0 });
const ollama = new Ollama({ host: `http://${address}` });
const schema = {
  type: "object",
  properties: { city: { type: "string" }, people: { type: "integer" } },
  required: ["city", "people"],
  additionalProperties: false,
};
const add = {
  name: "add",
  description: "adds two numbers",
  parameters: {
    type: "object",
    properties: { a: { type: "number" }, b: { type: "number" } },
    required: ["a", "b"],
  },
};

const ask = (text, more = {}, options) =>
  openai.chat.completions.create(
    { model: "smollm2", messages: [{ role: "user", content: text }], max_tokens: 24, temperature: 0, ...more },
    options,
  );

function running() {
  return new Promise((resolve, reject) => {
    http.get(`http://${address}/metrics`, (response) => {
      let page = "";
      response.on("data", (piece) => (page += piece));
      response.on("end", () => resolve(Number(/^rumbo_requests_running (\S+)$/m.exec(page)[1])));
    }).on("error", reject);
  });
}

async function becomesIdle() {
  for (let i = 0; i < 400; ++i) {
    if ((await running()) === 0) return true;
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  return false;
}

test("openai: models", async () => {
  const names = [];
  for await (const model of openai.models.list()) names.push(model.id);
  assert.deepEqual(names, ["smollm2"]);
  assert.equal((await openai.models.retrieve("smollm2")).id, "smollm2");
});

test("openai: answers differ with the question and repeat with it", async () => {
  const first = await ask("What is gravity?");
  const again = await ask("What is gravity?");
  const other = await ask("Say hello to my cat.");
  assert.ok(first.choices[0].message.content.length > 0);
  assert.equal(first.choices[0].message.content, again.choices[0].message.content);
  assert.notEqual(first.choices[0].message.content, other.choices[0].message.content);
  assert.match(first._request_id, /^req-[0-9a-f]{16}$/);
});

test("openai: a stream is the whole answer, with usage", async () => {
  const whole = await ask("Name three colours.");
  let text = "";
  let usage = null;
  for await (const chunk of await ask("Name three colours.", { stream: true, stream_options: { include_usage: true } })) {
    text += chunk.choices[0]?.delta?.content ?? "";
    usage = chunk.usage ?? usage;
  }
  assert.equal(text, whole.choices[0].message.content);
  assert.deepEqual(usage.completion_tokens, whole.usage.completion_tokens);
});

test("openai: the stream helper gathers the same", async () => {
  const stream = openai.chat.completions.stream({
    model: "smollm2", messages: [{ role: "user", content: "Name three colours." }], max_tokens: 24, temperature: 0,
  });
  const final = await stream.finalChatCompletion();
  assert.equal(final.choices[0].message.content, (await ask("Name three colours.")).choices[0].message.content);
});

test("openai: structured output keeps its schema", async () => {
  const answer = await ask("Describe Berlin as JSON.", {
    max_tokens: 60,
    response_format: { type: "json_schema", json_schema: { name: "city", strict: true, schema } },
  });
  const city = JSON.parse(answer.choices[0].message.content);
  assert.deepEqual(Object.keys(city).sort(), ["city", "people"]);
  assert.ok(Number.isInteger(city.people));
});

test("openai: tools are called, whole and streamed, or refused as a missing capability", async () => {
  const tools = { tools: [{ type: "function", function: add }], tool_choice: "required", max_tokens: 60 };
  let whole;
  try {
    whole = await ask("Add 1 and 2.", tools);
  } catch (error) {
    assert.equal(error.status, 400);
    assert.equal(error.code, "capability_missing");
    return;
  }
  const call = whole.choices[0].message.tool_calls[0];
  assert.equal(call.function.name, "add");
  assert.deepEqual(Object.keys(JSON.parse(call.function.arguments)).sort(), ["a", "b"]);
  let name = "";
  let text = "";
  for await (const chunk of await ask("Add 1 and 2.", { ...tools, stream: true })) {
    for (const delta of chunk.choices[0]?.delta?.tool_calls ?? []) {
      name += delta.function?.name ?? "";
      text += delta.function?.arguments ?? "";
    }
  }
  assert.equal(name, "add");
  assert.equal(text, call.function.arguments);
});

test("openai: responses, whole and streamed", async () => {
  const args = { model: "smollm2", input: "What is gravity?", max_output_tokens: 24, temperature: 0 };
  const whole = await openai.responses.create(args);
  assert.equal(whole.output_text, (await ask("What is gravity?")).choices[0].message.content);
  let text = "";
  for await (const event of await openai.responses.create({ ...args, stream: true })) {
    if (event.type === "response.output_text.delta") text += event.delta;
  }
  assert.equal(text, whole.output_text);
});

test("openai: embeddings differ with their text, or are refused", async () => {
  let answer;
  try {
    answer = await openai.embeddings.create({ model: "smollm2", input: ["a cat", "quantum field theory"] });
  } catch (error) {
    assert.ok([400, 501].includes(error.status), String(error));
    return;
  }
  assert.equal(answer.data.length, 2);
  assert.notDeepEqual(answer.data[0].embedding, answer.data[1].embedding);
});

test("openai: errors have their types", async () => {
  await assert.rejects(ask("x", { model: "nothing" }), (e) => e instanceof OpenAI.NotFoundError && e.code === "model_not_found");
  await assert.rejects(ask("x", { temperature: -1 }), (e) => e instanceof OpenAI.BadRequestError && e.param === "temperature");
  const lost = new OpenAI({ baseURL: `http://${address}`, apiKey: "none", maxRetries: 0 });
  await assert.rejects(lost.models.list(), (e) => e instanceof OpenAI.NotFoundError && /Did you mean \/v1\/models\?/.test(e.message));
});

test("openai: aborting frees the slot", async () => {
  const controller = new AbortController();
  const stream = await ask("Write a long story.", { stream: true, max_tokens: 1500, ignore_eos: true }, { signal: controller.signal });
  const first = await stream[Symbol.asyncIterator]().next();
  assert.equal(first.done, false);
  assert.ok((await running()) >= 1);
  controller.abort();
  assert.ok(await becomesIdle());
});

test("anthropic: messages, streams and counts agree", async () => {
  const messages = [{ role: "user", content: "Name three colours." }];
  const args = { model: "smollm2", max_tokens: 24, temperature: 0, messages };
  const whole = await anthropic.messages.create(args);
  const stream = anthropic.messages.stream(args);
  const final = await stream.finalMessage();
  assert.equal(final.content[0].text, whole.content[0].text);
  assert.equal(final.usage.output_tokens, whole.usage.output_tokens);
  const count = await anthropic.messages.countTokens({ model: "smollm2", messages });
  assert.equal(count.input_tokens, whole.usage.input_tokens);
  assert.match(whole._request_id, /^req-[0-9a-f]{16}$/);
  const other = await anthropic.messages.create({ ...args, system: "You are a pirate." });
  assert.notEqual(other.content[0].text, whole.content[0].text);
});

test("anthropic: errors and cancellation", async () => {
  await assert.rejects(
    anthropic.messages.create({ model: "nothing", max_tokens: 4, messages: [{ role: "user", content: "x" }] }),
    Anthropic.NotFoundError,
  );
  const stream = anthropic.messages.stream({ model: "smollm2", max_tokens: 1500, messages: [{ role: "user", content: "Write a long story." }] });
  await new Promise((resolve, reject) => {
    stream.once("text", resolve);
    stream.once("error", reject);
  });
  stream.abort();
  await assert.rejects(stream.done(), Anthropic.APIUserAbortError);
  assert.ok(await becomesIdle());
});

test("ollama: chat, stream, format, list", async () => {
  const args = { model: "smollm2", messages: [{ role: "user", content: "What is gravity?" }], options: { temperature: 0, num_predict: 24 } };
  const whole = await ollama.chat(args);
  let text = "";
  for await (const part of await ollama.chat({ ...args, stream: true })) text += part.message.content;
  assert.equal(text, whole.message.content);
  assert.equal(text, (await ask("What is gravity?")).choices[0].message.content);
  const formed = await ollama.chat({
    model: "smollm2", messages: [{ role: "user", content: "Describe Berlin as JSON." }], format: schema,
    options: { temperature: 0, num_predict: 60 },
  });
  assert.deepEqual(Object.keys(JSON.parse(formed.message.content)).sort(), ["city", "people"]);
  assert.deepEqual((await ollama.list()).models.map((m) => m.model), ["smollm2:latest"]);
  assert.ok((await ollama.show({ model: "smollm2" })).capabilities.includes("completion"));
  await assert.rejects(ollama.chat({ ...args, model: "nothing" }), (e) => e.status_code === 404);
});

test("ollama: aborting frees the slot", async () => {
  const stream = await ollama.generate({ model: "smollm2", prompt: "Write a long story.", stream: true, options: { num_predict: 1500 } });
  await stream[Symbol.asyncIterator]().next();
  stream.abort();
  assert.ok(await becomesIdle());
});
