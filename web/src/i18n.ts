// The English text is the key; Spanish stands in es.ts. What the daemon itself says stays as it says it.
import { signal } from "@preact/signals";
import { es } from "./es";

export type Language = "en" | "es";
const kKey = "rumbo.language";

function initial(): Language {
  const saved = localStorage.getItem(kKey);
  if (saved === "en" || saved === "es") return saved;
  return navigator.languages.some((l) => l.startsWith("en")) || !navigator.languages[0]?.startsWith("es") ? "en" : "es";
}

export const language = signal<Language>(initial());
export const locale = { get value() { return language.value; } };

export function setLanguage(next: Language) {
  language.value = next;
  localStorage.setItem(kKey, next);
  document.documentElement.lang = next;
}
document.documentElement.lang = language.value;

export function t(text: string, values?: Record<string, string | number>): string {
  const found = language.value === "es" ? (es[text] ?? text) : text;
  return values ? found.replace(/\{(\w+)\}/g, (_, key) => String(values[key] ?? "")) : found;
}
