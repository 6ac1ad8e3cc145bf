// Try a model: what it says, how fast, and where it ran. Nothing of it is kept outside this page.
import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { type Image, type Settings, type Turn, answer, answering, readTools, settings, turns } from "../chat";
import { figure, ms, num, safe } from "../format";
import { t } from "../i18n";
import { live, models } from "../state";
import { type SnippetLanguage, kLanguages, snippet } from "../snippets";
import { Chip, Code, Dialog, Field, NumberField, Problem } from "../ui/parts";

const draft = signal("");
const images = signal<Image[]>([]);
const copying = signal(false);
const kShown = 60000; // characters of one answer in the page; more would only slow it

const change = (part: Partial<Settings>) => (settings.value = { ...settings.value, ...part });
const stop = () => answering.value?.abort();

function badTools(text: string): string {
  try {
    return readTools(text).every((x) => typeof x?.name === "string") ? "" : t("Every tool needs a name.");
  } catch {
    return t("This is not JSON.");
  }
}

function send() {
  const text = draft.value;
  if (answering.value || !settings.value.model || (!text.trim() && images.value.length === 0) || badTools(settings.value.tools)) return;
  turns.value = [...turns.value, { role: "user", text, images: images.value.length ? images.value : undefined }];
  draft.value = "";
  images.value = [];
  void answer();
}

function Facts({ turn }: { turn: Turn }) {
  const { started: s, finished: f } = turn;
  if (!s && !f) return null;
  const where = s && [s.engine, s.backend, s.devices.join("+")].filter(Boolean).map((x) => safe(x, 60)).join(" · ");
  return (
    <dl class="answer-facts">
      {f?.timings && <div><dt>{t("first token")}</dt><dd>{ms(f.timings.ttft_ms)}{f.timings.queue_ms >= 1 && <small> {t("+ {n} waiting", { n: ms(f.timings.queue_ms) })}</small>}</dd></div>}
      {f?.timings && (f.usage?.completion_tokens ?? 0) > 1 && <div><dt>tok/s</dt><dd>{figure(f.timings.decode_tok_s)}</dd></div>}
      {f?.usage && <div><dt>{t("answer")}</dt><dd>{num(f.usage.completion_tokens)} {t("tokens")}</dd></div>}
      {s && <div><dt>{t("prompt")}</dt><dd>{num(s.prompt_tokens)} {t("tokens")}<small> {t("{n} cached", { n: num(s.cached_tokens) })}</small></dd></div>}
      {f && f.usage && f.usage.drafted_tokens > 0 && <div><dt>{t("drafted")}</dt><dd>{num(f.usage.accepted_tokens)} / {num(f.usage.drafted_tokens)}</dd></div>}
      {f && <div><dt>{t("ended by")}</dt><dd>{safe(f.reason.replace(/_/g, " "), 30)}</dd></div>}
      {s && <div class="wide"><dt>{t("ran on")}</dt><dd><bdi title={safe(s.placement_reason, 300)}>{where}</bdi> <a href="#/models">{t("why")}</a></dd></div>}
    </dl>
  );
}

function ToolResults({ turn }: { turn: Turn }) {
  const calls = turn.tool_calls!;
  const [values, setValues] = useState<string[]>(calls.map(() => ""));
  const submit = () => {
    turns.value = [...turns.value, ...calls.map((c, i): Turn => ({ role: "tool", text: values[i], tool_call_id: c.id }))];
    void answer();
  };
  return (
    <form onSubmit={(e) => (e.preventDefault(), submit())}>
      {calls.map((c, i) => <Field key={i} wide label={t("Result of {name}", { name: safe(c.name, 60) })}><textarea rows={2} value={values[i]} onInput={(e) => setValues(values.map((v, j) => (j === i ? e.currentTarget.value : v)))} /></Field>)}
      <div class="actions"><button type="submit">{t("Send results")}</button></div>
    </form>
  );
}

function TurnView({ turn, last }: { turn: Turn; last: boolean }) {
  const running = last && !!answering.value && turn.role === "assistant";
  const text = turn.text.length > kShown ? turn.text.slice(0, kShown) : turn.text;
  return (
    <article class={`turn ${turn.role}`} aria-label={t(turn.role)} aria-busy={running}>
      {turn.images?.map((i, n) => <Chip key={n}>{safe(i.name, 40)}</Chip>)}
      {turn.reasoning && <details open={running && !turn.text}><summary>{t("Thoughts")}</summary><p class="words quiet-words" dir="auto">{turn.reasoning.slice(0, kShown)}</p></details>}
      {turn.role === "tool" && <small>{t("tool result")}</small>}
      {(text || running) && <p class="words" dir="auto">{text}{running && <span class="caret" aria-hidden="true" />}</p>}
      {turn.text.length > kShown && <p class="note">{t("{n} more characters are not shown.", { n: num(turn.text.length - kShown) })}</p>}
      {turn.tool_calls?.map((c, i) => <div class="tool-call" key={i}><Chip level="accent">{safe(c.name, 60)}</Chip><code>{safe(c.arguments_json, 2000)}</code></div>)}
      {last && !running && turn.tool_calls?.length && !turn.error ? <ToolResults turn={turn} /> : null}
      <Problem error={turn.error} />
      {turn.role === "assistant" && <Facts turn={turn} />}
    </article>
  );
}

function SettingsPanel() {
  const s = settings.value;
  const bad = badTools(s.tools);
  const names = [...new Set([...live.value.map((i) => i.model), ...models.value.map((m) => m.name)])];
  return (
    <aside class="card play-settings" aria-label={t("Settings")}>
      <Field label={t("Model")}>
        <select value={s.model} onChange={(e) => change({ model: e.currentTarget.value })}>
          {!names.includes(s.model) && <option value={s.model}>{safe(s.model, 60) || t("choose")}</option>}
          {names.map((n) => <option key={n} value={n}>{safe(n, 60)}{live.value.some((i) => i.model === n) ? " ●" : ""}</option>)}
        </select>
      </Field>
      <Field label={t("System prompt")}><textarea rows={3} value={s.system} onInput={(e) => change({ system: e.currentTarget.value })} /></Field>
      <div class="fields two">
        <NumberField label={t("temperature")} value={s.temperature} min={0} max={100} step="any" set={(temperature) => change({ temperature })} />
        <NumberField label={t("tokens at most")} value={s.max_tokens} min={1} set={(max_tokens) => change({ max_tokens })} />
      </div>
      <details>
        <summary>{t("More sampling")}</summary>
        <div class="fields two">
          <NumberField label="top-p" value={s.top_p} min={0} max={1} step="any" set={(top_p) => change({ top_p })} />
          <NumberField label="top-k" value={s.top_k} min={0} set={(top_k) => change({ top_k })} />
          <NumberField label="min-p" value={s.min_p} min={0} max={1} step="any" set={(min_p) => change({ min_p })} />
          <NumberField label={t("repeat penalty")} value={s.repeat_penalty} min={0} max={100} step="any" set={(repeat_penalty) => change({ repeat_penalty })} />
          <NumberField label={t("seed")} value={s.seed} min={0} set={(seed) => change({ seed })} />
        </div>
        <Field label={t("stop at, one per line")}><textarea rows={2} value={s.stop} onInput={(e) => change({ stop: e.currentTarget.value })} /></Field>
      </details>
      <details>
        <summary>{t("Shape of the answer")}</summary>
        <Field label={t("shape")}>
          <select value={s.format} onChange={(e) => change({ format: e.currentTarget.value as Settings["format"] })}>
            <option value="text">{t("free text")}</option><option value="schema">JSON Schema</option><option value="grammar">{t("grammar (GBNF)")}</option><option value="regex">{t("regular expression")}</option>
          </select>
        </Field>
        {s.format !== "text" && <Field label={t("constraint")}><textarea rows={5} class="mono" spellcheck={false} value={s.constraint} onInput={(e) => change({ constraint: e.currentTarget.value })} placeholder={s.format === "schema" ? '{"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}' : ""} /></Field>}
      </details>
      <details>
        <summary>{t("Tools")}</summary>
        <Field label={t("JSON: a list of name, description, parameters")}><textarea rows={5} class="mono" spellcheck={false} value={s.tools} aria-invalid={!!bad} onInput={(e) => change({ tools: e.currentTarget.value })} placeholder='[{"name": "weather", "description": "…", "parameters": {"type": "object"}}]' /></Field>
        {bad && <p role="alert" class="bad">{bad}</p>}
        <Field label={t("use")}><select value={s.tool_choice} onChange={(e) => change({ tool_choice: e.currentTarget.value })}><option value="">{t("as the model likes")}</option><option value="required">{t("always")}</option><option value="none">{t("never")}</option></select></Field>
      </details>
    </aside>
  );
}

async function addFiles(files: FileList | null) {
  for (const file of files ?? []) {
    const bytes = new Uint8Array(await file.arrayBuffer());
    let text = "";
    for (let i = 0; i < bytes.length; i += 8192) text += String.fromCharCode(...bytes.subarray(i, i + 8192));
    images.value = [...images.value, { data: btoa(text), mime_type: file.type, name: file.name }];
  }
}

const seesImages = (name: string) => models.value.find((m) => m.name === name)?.variants.some((v) => v.capabilities.some((c) => /image|vision/.test(c)));

function CopyDialog() {
  const [language, setLanguage] = useState<SnippetLanguage>("curl");
  const list = turns.value.filter((x) => !x.error && (x.text || x.tool_calls?.length));
  const last = list.length && list[list.length - 1].role === "assistant" ? list.slice(0, -1) : list;
  const shown = last.length ? last : [{ role: "user" as const, text: draft.value || "Hello!" }];
  let text: string;
  try {
    text = snippet(language, settings.value, shown, location.origin);
  } catch {
    text = t("The tools or the schema are not JSON.");
  }
  return (
    <Dialog wide title={t("This request in your program")} onClose={() => (copying.value = false)}>
      <div class="tabs" role="group" aria-label={t("Language of the program")}>{kLanguages.map((l) => <button key={l} type="button" aria-pressed={l === language} onClick={() => setLanguage(l)}>{l}</button>)}</div>
      <Code text={text} />
    </Dialog>
  );
}

export function Playground() {
  const end = useRef<HTMLDivElement>(null);
  const list = turns.value;
  const running = !!answering.value;
  useEffect(() => {
    const asked = decodeURIComponent(location.hash.split("/")[2] ?? "");
    if (asked) change({ model: asked });
    else if (!settings.value.model) change({ model: live.value[0]?.model ?? models.value[0]?.name ?? "" });
  }, [models.value]);
  useEffect(() => {
    const onKey = (e: KeyboardEvent) => { if (e.key === "Escape") stop(); };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
  // Keeps the newest words in view while the reader is at the end.
  useEffect(() => {
    const box = end.current!.parentElement!;
    if (box.scrollHeight - box.scrollTop - box.clientHeight < 160) box.scrollTop = box.scrollHeight;
  }, [list]);
  return (
    <>
      <header class="page-head">
        <div><h1>{t("Playground")}</h1><p>{t("Words stay in this page; closing it forgets them.")}</p></div>
        <div class="actions">
          <button type="button" onClick={() => (copying.value = true)}>{t("Copy as code")}</button>
          <button type="button" class="quiet" disabled={list.length === 0 || running} onClick={() => (turns.value = [])}>{t("Start over")}</button>
        </div>
      </header>
      <div class="play">
        <section class="card conversation" aria-label={t("Conversation")}>
          <div class="turns" role="log" tabIndex={0} aria-label={t("Conversation")}>
            {list.length === 0 && <p class="hello">{t("Ask something. A model that is not loaded is planned and loaded first.")}</p>}
            {list.map((turn, i) => <TurnView key={i} turn={turn} last={i === list.length - 1} />)}
            <div ref={end} />
          </div>
          <form class="composer" onSubmit={(e) => (e.preventDefault(), send())}>
            {images.value.map((i, n) => <Chip key={n}>{safe(i.name, 40)} <button type="button" class="quiet" aria-label={t("Remove")} onClick={() => (images.value = images.value.filter((_, j) => j !== n))}>✕</button></Chip>)}
            <textarea aria-label={t("Message")} rows={3} placeholder={t("Message")} value={draft.value} dir="auto"
              onInput={(e) => (draft.value = e.currentTarget.value)}
              onKeyDown={(e) => { if (e.key === "Enter" && (e.ctrlKey || e.metaKey || !e.shiftKey) && !e.isComposing) (e.preventDefault(), send()); }} />
            <div class="actions">
              {seesImages(settings.value.model) && <label class="button">{t("Add image")}<input class="sr" type="file" accept="image/*" multiple onChange={(e) => void addFiles(e.currentTarget.files)} /></label>}
              {running ? <button type="button" class="danger" onClick={stop}>{t("Stop")} <kbd>Esc</kbd></button>
                : <button type="submit" class="primary" disabled={!settings.value.model || (!draft.value.trim() && images.value.length === 0)}>{t("Send")}</button>}
            </div>
          </form>
        </section>
        <SettingsPanel />
      </div>
      {copying.value && <CopyDialog />}
    </>
  );
}
