// The shell: where one is, how the daemon is, and the way to everything else.
import { signal } from "@preact/signals";
import type { FunctionComponent } from "preact";
import { useEffect, useState } from "preact/hooks";
import { refused, setToken, token } from "./api";
import { safe } from "./format";
import { language, setLanguage, t } from "./i18n";
import { connection, live, status } from "./state";
import { choice } from "./theme";
import { Code, Dialog, Field } from "./ui/parts";
import { Activity } from "./views/activity";
import { Machine } from "./views/machine";
import { Models } from "./views/models";
import { Planner } from "./views/planner";
import { Playground } from "./views/playground";

interface View { id: string; name: string; key: string; icon: string; view: FunctionComponent }
const kViews: View[] = [
  { id: "machine", name: "Machine", key: "1", icon: "M4 6h16v9H4zM9 19h6M12 15v4", view: Machine },
  { id: "models", name: "Models", key: "2", icon: "M12 3 3.5 7.5 12 12l8.5-4.5zM3.5 12 12 16.5 20.5 12M3.5 16.5 12 21l8.5-4.5", view: Models },
  { id: "planner", name: "Planner", key: "3", icon: "M4 20 10 8l4 7 6-11M4 20h16", view: Planner },
  { id: "playground", name: "Playground", key: "4", icon: "M4 5h16v11H10l-5 4v-4H4z", view: Playground },
  { id: "activity", name: "Activity", key: "5", icon: "M3 12h4l3-7 4 14 3-7h4", view: Activity },
];

const here = () => kViews.find((v) => location.hash.slice(2).split("/")[0] === v.id) ?? kViews[0];
const current = signal(here());
addEventListener("hashchange", () => (current.value = here()));

function Mark() {
  return (
    <svg class="mark" viewBox="0 0 32 32" aria-hidden="true">
      <circle cx="16" cy="16" r="13" class="ring" />
      <path d="M24 6 18.3 18.3 13.7 13.7z" class="north" />
      <path d="M8 26 13.7 13.7 18.3 18.3z" class="south" />
    </svg>
  );
}

function Connection() {
  const s = connection.value;
  const draining = status.value?.draining;
  const word = s === "online" ? (draining ? t("shutting down") : t("running")) : s === "offline" ? t("not reachable") : t("connecting");
  return (
    <div class={`connection ${s}`} role="status">
      <i aria-hidden="true" />
      <span>
        {word}
        {s === "online" && <small>{t("{n} loaded", { n: live.value.length })}</small>}
      </span>
    </div>
  );
}

function TokenDialog({ close }: { close: () => void }) {
  const [value, setValue] = useState("");
  const scope = /scope (\w+)/.exec(refused.value?.nextStep ?? "")?.[1];
  return (
    <Dialog title={t("API token")} onClose={close}>
      <form onSubmit={(e) => (e.preventDefault(), setToken(value), (refused.value = null), close())}>
        {refused.value && <p role="alert">{token.value ? t("The daemon refused this token.") : t("The daemon wants a token for this.")} {scope && t("Scope needed: {scope}.", { scope: safe(scope, 20) })}</p>}
        <p>{t("Tokens stand in the file “tokens” of the daemon’s state folder, one per line. This makes one that may do everything:")}</p>
        <Code text={'umask 077; echo "me admin $(head -c 24 /dev/urandom | base64)" | tee -a ~/.local/share/rumbo/tokens'} />
        <Field label={t("Token")} hint={t("Kept in this tab only, until you close it.")}>
          <input type="password" autoComplete="off" spellcheck={false} value={value} onInput={(e) => setValue(e.currentTarget.value)} required minLength={24} autoFocus />
        </Field>
        <div class="actions">
          {token.value && <button type="button" class="quiet" onClick={() => (setToken(""), close())}>{t("Forget token")}</button>}
          <button type="submit" class="primary">{t("Use token")}</button>
        </div>
      </form>
    </Dialog>
  );
}

function Help({ close }: { close: () => void }) {
  return (
    <Dialog title={t("Keys")} onClose={close}>
      <dl class="keys">
        {kViews.map((v) => [<dt><kbd>{v.key}</kbd></dt>, <dd>{t(v.name)}</dd>])}
        <dt><kbd>?</kbd></dt><dd>{t("this list")}</dd>
        <dt><kbd>Esc</kbd></dt><dd>{t("close a dialog, stop an answer")}</dd>
        <dt><kbd>Enter</kbd></dt><dd>{t("send (Playground); with Shift: a new line")}</dd>
      </dl>
    </Dialog>
  );
}

const asking = signal<"token" | "help" | null>(null);

export function App() {
  useEffect(() => {
    const onKey = (e: KeyboardEvent) => {
      const field = (e.target as HTMLElement).closest("input, textarea, select, dialog");
      if (field || e.ctrlKey || e.metaKey || e.altKey) return;
      const view = kViews.find((v) => v.key === e.key);
      if (view) location.hash = `/${view.id}`;
      if (e.key === "?") asking.value = "help";
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
  useEffect(() => refused.subscribe((r) => { if (r) asking.value = "token"; }), []);
  const view = current.value;
  useEffect(() => { document.title = `${t(view.name)} · Rumbo`; }, [view, language.value]);
  const Body = view.view;
  const close = () => (asking.value = null);
  return (
    <div class="shell">
      <a class="skip" href="#main" onClick={(e) => (e.preventDefault(), document.getElementById("main")!.focus())}>{t("Skip to content")}</a>
      <aside class="rail">
        <a class="brand" href="#/machine"><Mark /><span>Rumbo</span></a>
        <nav aria-label={t("Views")}>
          {kViews.map((v) => (
            <a key={v.id} href={`#/${v.id}`} aria-current={v === view ? "page" : undefined}>
              <svg viewBox="0 0 24 24" aria-hidden="true"><path d={v.icon} /></svg>
              <span>{t(v.name)}</span>
              <kbd aria-hidden="true">{v.key}</kbd>
            </a>
          ))}
        </nav>
        <div class="rail-foot">
          <Connection />
          <div class="settings">
            <select aria-label={t("Language")} value={language.value} onChange={(e) => setLanguage(e.currentTarget.value as "en" | "es")}>
              <option value="en">English</option>
              <option value="es">Español</option>
            </select>
            <select aria-label={t("Colours")} value={choice.value} onChange={(e) => (choice.value = e.currentTarget.value as typeof choice.value)}>
              <option value="auto">{t("System")}</option>
              <option value="light">{t("Light")}</option>
              <option value="dark">{t("Dark")}</option>
            </select>
            <button type="button" class="quiet" onClick={() => (asking.value = "token")}>{token.value ? t("Token ✓") : t("Token")}</button>
            <button type="button" class="quiet" aria-label={t("Keys")} onClick={() => (asking.value = "help")}>?</button>
          </div>
        </div>
      </aside>
      <main id="main" tabIndex={-1} key={view.id}>
        {connection.value === "offline" && (
          <div class="banner" role="alert">
            <strong>{t("The daemon does not answer.")}</strong> {t("This page comes back by itself once it does.")} <code>rumbod</code>
          </div>
        )}
        {status.value?.draining && <div class="banner" role="alert">{t("The daemon is shutting down: it takes no new work.")}</div>}
        <Body />
      </main>
      {asking.value === "token" && <TokenDialog close={close} />}
      {asking.value === "help" && <Help close={close} />}
    </div>
  );
}
