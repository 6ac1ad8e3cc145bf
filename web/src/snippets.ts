// The playground's request for somebody's own program.
import { type Settings, type Turn, readTools, sampling } from "./chat";

type Json = Record<string, unknown>;

// In the shape of the OpenAI API, which every client library speaks.
function openAi(s: Settings, list: Turn[]): Json {
  const messages: Json[] = list.map((turn) => {
    if (turn.role === "tool") return { role: "tool", tool_call_id: turn.tool_call_id, content: turn.text };
    if (turn.images?.length) return { role: turn.role, content: [...turn.images.map((i) => ({ type: "image_url", image_url: { url: `data:${i.mime_type};base64,${i.data}` } })), { type: "text", text: turn.text }] };
    const calls = turn.tool_calls?.map((c) => ({ id: c.id, type: "function", function: { name: c.name, arguments: c.arguments_json } }));
    return { role: turn.role, content: turn.text, ...(calls?.length ? { tool_calls: calls } : {}) };
  });
  if (s.system.trim()) messages.unshift({ role: "system", content: s.system });
  const { json_schema, ...rest } = sampling(s) as Json;
  const out: Json = { model: s.model, messages, ...rest };
  if (json_schema) out.response_format = { type: "json_schema", json_schema: { name: "answer", schema: JSON.parse(json_schema as string) } };
  const tools = readTools(s.tools);
  if (tools.length) out.tools = tools.map((x) => ({ type: "function", function: x }));
  if (tools.length && s.tool_choice) out.tool_choice = s.tool_choice;
  return out;
}

const shell = (text: string) => `'${text.replace(/'/g, "'\\''")}'`;
const json = (value: unknown, indent = 2) => JSON.stringify(value, null, indent);
const python = (value: unknown, pad = "    "): string => {
  if (value === true) return "True";
  if (value === false) return "False";
  if (value === null || value === undefined) return "None";
  if (Array.isArray(value)) return value.length ? `[\n${value.map((v) => `${pad}    ${python(v, pad + "    ")},\n`).join("")}${pad}]` : "[]";
  if (typeof value === "object") return `{${Object.entries(value).map(([k, v]) => `${JSON.stringify(k)}: ${python(v, pad + "    ")}`).join(", ")}}`;
  return JSON.stringify(value);
};
const cpp = (text: string) => (text.includes("\n") || text.includes("\\") ? `R"rumbo(${text})rumbo"` : JSON.stringify(text));

export const kLanguages = ["curl", "Python", "TypeScript", "C++"] as const;
export type SnippetLanguage = (typeof kLanguages)[number];

export function snippet(language: SnippetLanguage, s: Settings, list: Turn[], origin: string): string {
  const body = openAi(s, list);
  if (language === "curl") return `curl -N ${origin}/v1/chat/completions \\\n  -H 'Content-Type: application/json' \\\n  -d ${shell(json({ ...body, stream: true }))}`;
  const known = ["model", "messages", "temperature", "top_p", "max_tokens", "seed", "stop", "tools", "tool_choice", "response_format"];
  const own = Object.fromEntries(Object.entries(body).filter(([k]) => known.includes(k)));
  const extra = Object.fromEntries(Object.entries(body).filter(([k]) => !known.includes(k)));
  if (language === "Python") {
    const lines = Object.entries(own).map(([k, v]) => `    ${k}=${python(v)},\n`).join("");
    const more = Object.keys(extra).length ? `    extra_body=${python(extra)},\n` : "";
    return `from openai import OpenAI\n\nclient = OpenAI(base_url="${origin}/v1", api_key="none")\nstream = client.chat.completions.create(\n${lines}${more}    stream=True,\n)\nfor chunk in stream:\n    print(chunk.choices[0].delta.content or "", end="", flush=True)\n`;
  }
  if (language === "TypeScript") {
    return `import OpenAI from "openai";\n\nconst client = new OpenAI({ baseURL: "${origin}/v1", apiKey: "none" });\nconst stream = await client.chat.completions.create(${json({ ...body, stream: true })});\nfor await (const chunk of stream) process.stdout.write(chunk.choices[0]?.delta?.content ?? "");\n`;
  }
  return cppSnippet(s, list);
}

// The C++ SDK; designated initialisers stand in the order of its structs.
function cppSnippet(s: Settings, list: Turn[]): string {
  const role = { user: "User", assistant: "Assistant" } as const;
  const one = (m: Turn) =>
    m.role === "tool"
      ? `rumbo::Message{.role = "tool", .content = {{.data = ${cpp(m.text)}}}, .tool_call_id = ${cpp(m.tool_call_id ?? "")}}`
      : m.tool_calls?.length
        ? `rumbo::Message{.role = "assistant", .tool_calls = {${m.tool_calls.map((c) => `{${cpp(c.id)}, ${cpp(c.name)}, ${cpp(c.arguments_json)}}`).join(", ")}}}`
        : `rumbo::${role[m.role]}(${cpp(m.text)})`;
  const messages = [...(s.system.trim() ? [`rumbo::System(${cpp(s.system)})`] : []), ...list.map(one)];
  const chosen = sampling(s);
  const order = ["max_tokens", "temperature", "top_p", "top_k", "min_p", "repeat_penalty", "seed", "stop", "json_schema", "grammar", "regex"];
  const value = (v: unknown): string => (Array.isArray(v) ? `{${v.map((x) => cpp(String(x))).join(", ")}}` : typeof v === "string" ? cpp(v) : Number.isInteger(v) ? String(v) : `${v}f`);
  const fields = order.filter((k) => chosen[k] !== undefined).map((k) => `.${k} = ${value(chosen[k])}`);
  const tools = readTools(s.tools).map((x) => `{${cpp(x.name)}, ${cpp(x.description ?? "")}, ${cpp(JSON.stringify(x.parameters ?? {}))}}`);
  return [
    "#include <iostream>", "#include <rumbo/client.h>", "", "int main() {",
    "  auto client = rumbo::Client::Connect({.start_daemon = true}).value();",
    "  auto answer = client.Chat({", `      .model = ${cpp(s.model)},`, `      .messages = {${messages.join(",\n                   ")}},`,
    ...(tools.length ? [`      .tools = {${tools.join(", ")}},`] : []),
    ...(tools.length && s.tool_choice ? [`      .tool_choice = ${cpp(s.tool_choice)},`] : []),
    ...(fields.length ? [`      .sampling = {${fields.join(", ")}},`] : []),
    "  });", "  for (const auto& chunk : answer) std::cout << chunk.text << std::flush;", "  return answer.Finish().ok() ? 0 : 1;", "}", "",
  ].join("\n");
}
