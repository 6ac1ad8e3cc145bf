// Small pieces that every view uses.
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { RpcError } from "../api";
import { safe } from "../format";
import { t } from "../i18n";

// A name from outside, isolated from the text around it.
export function Name({ text, max = 120 }: { text: string; max?: number }) {
  return <bdi title={text.length > max ? safe(text, 400) : undefined}>{safe(text, max)}</bdi>;
}

export function Chip({ level, children }: { level?: "good" | "warning" | "broken" | "info" | "accent"; children: ComponentChildren }) {
  return <span class={`chip ${level ?? ""}`}>{children}</span>;
}

const kLevels: Record<string, "good" | "warning" | "broken" | "info" | "accent"> = {
  ready: "good", loading: "accent", starting: "accent", draining: "warning", failed: "broken", stopped: "info",
  complete: "good", incomplete: "warning", damaged: "broken", info: "info", warning: "warning", broken: "broken",
};
export function State({ word }: { word: string }) {
  return <Chip level={kLevels[word] ?? "info"}>{t(word)}</Chip>;
}

export function Section({ title, aside, children, id }: { title: string; aside?: ComponentChildren; children: ComponentChildren; id?: string }) {
  return (
    <section class="section" aria-labelledby={id ?? title}>
      <header class="section-head">
        <h2 id={id ?? title}>{title}</h2>
        {aside}
      </header>
      {children}
    </section>
  );
}

export function Empty({ children }: { children: ComponentChildren }) {
  return <p class="empty">{children}</p>;
}

export function Problem({ error }: { error: unknown }) {
  if (!error) return null;
  const e = error instanceof RpcError ? error : new RpcError(0, "UNKNOWN", "", String(error), "");
  return (
    <div class="problem" role="alert">
      <strong>{safe(e.message, 600)}</strong>
      {e.nextStep && <span>{safe(e.nextStep, 600)}</span>}
      {e.reason && <code>{safe(e.reason, 60)}</code>}
    </div>
  );
}

export function CopyButton({ text, label }: { text: string; label?: string }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(text).catch(() => {});
    setDone(true);
    setTimeout(() => setDone(false), 1500);
  };
  return (
    <button type="button" class="quiet" onClick={copy} aria-live="polite">
      {done ? t("Copied") : (label ?? t("Copy"))}
    </button>
  );
}

export function Code({ text }: { text: string }) {
  return (
    <div class="code">
      <pre tabIndex={0}>{text}</pre>
      <CopyButton text={text} />
    </div>
  );
}

export function Field({ label, hint, children, wide }: { label: string; hint?: string; children: ComponentChildren; wide?: boolean }) {
  return (
    <label class={wide ? "field wide" : "field"}>
      <span>{label}</span>
      {children}
      {hint && <small>{hint}</small>}
    </label>
  );
}

export function NumberField(props: { label: string; value: number | undefined; set: (v: number | undefined) => void; min?: number; max?: number; step?: number | "any"; hint?: string; placeholder?: string }) {
  const onInput: JSX.GenericEventHandler<HTMLInputElement> = (e) => {
    const text = e.currentTarget.value;
    props.set(text === "" ? undefined : Number(text));
  };
  return (
    <Field label={props.label} hint={props.hint}>
      <input type="number" inputMode="decimal" value={props.value ?? ""} min={props.min} max={props.max} step={props.step ?? 1} placeholder={props.placeholder} onInput={onInput} />
    </Field>
  );
}

// A modal dialog of the platform: focus stays inside, Escape closes.
export function Dialog({ title, onClose, children, wide }: { title: string; onClose: () => void; children: ComponentChildren; wide?: boolean }) {
  const ref = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const dialog = ref.current!;
    const before = document.activeElement as HTMLElement | null;
    dialog.showModal();
    return () => {
      dialog.close();
      before?.focus?.();
    };
  }, []);
  return (
    <dialog ref={ref} class={wide ? "wide" : ""} aria-labelledby="dialog-title" onCancel={(e) => (e.preventDefault(), onClose())}
      onClick={(e) => e.target === ref.current && onClose()}>
      <div class="dialog-body">
        <header class="section-head">
          <h2 id="dialog-title">{title}</h2>
          <button type="button" class="quiet" onClick={onClose} aria-label={t("Close")}>✕</button>
        </header>
        {children}
      </div>
    </dialog>
  );
}

// A list whose rows have one height: only what is seen is in the page.
export function VirtualList<T>({ items, height, row, label, max = 560 }: { items: T[]; height: number; row: (item: T, index: number) => ComponentChildren; label: string; max?: number }) {
  const ref = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [view, setView] = useState(max);
  useEffect(() => setView(ref.current!.clientHeight || max), [items.length]);
  const first = Math.max(0, Math.floor(top / height) - 6);
  const last = Math.min(items.length, Math.ceil((top + view) / height) + 6);
  return (
    <div class="virtual" ref={ref} style={{ maxHeight: `${max}px` }} tabIndex={0} role="list" aria-label={label} onScroll={(e) => setTop(e.currentTarget.scrollTop)}>
      <div class="virtual-inner" style={{ height: `${items.length * height}px` }}>
        {items.slice(first, last).map((item, i) => (
          <div class="virtual-row" role="listitem" aria-setsize={items.length} aria-posinset={first + i + 1} key={first + i} style={{ top: `${(first + i) * height}px`, height: `${height}px` }}>
            {row(item, first + i)}
          </div>
        ))}
      </div>
    </div>
  );
}
