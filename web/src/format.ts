// Numbers and foreign text for people. Everything from outside goes through `safe` or stands in a <bdi>.
import { locale, t } from "./i18n";

const number = (digits: number) => new Intl.NumberFormat(locale.value, { maximumFractionDigits: digits });

export function num(value: number | undefined | null, digits = 0): string {
  return value === undefined || value === null || !Number.isFinite(value) ? "–" : number(digits).format(value);
}

// Three significant figures at most: predictions are no better than that.
export function figure(value: number | undefined | null): string {
  if (value === undefined || value === null || !Number.isFinite(value)) return "–";
  const a = Math.abs(value);
  return num(value, a >= 100 ? 0 : a >= 10 ? 1 : 2);
}

export function bytes(value: string | number | undefined | null, digits = 1): string {
  if (value === undefined || value === null) return "–";
  const n = Number(value);
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  let x = n;
  while (Math.abs(x) >= 1024 && i < units.length - 1) (x /= 1024), i++;
  return `${num(x, i < 2 || x >= 100 ? 0 : digits)} ${units[i]}`;
}

export const rate = (bytes_s: number | undefined) => (bytes_s === undefined ? "–" : `${figure(bytes_s / 1e9)} GB/s`);
export const tera = (flops: number | undefined) => (flops === undefined ? "–" : `${figure(flops / 1e12)} TFLOP/s`);

export function ms(value: number | undefined | null): string {
  if (value === undefined || value === null || !Number.isFinite(value)) return "–";
  return value >= 10000 ? `${num(value / 1000, 0)} s` : value >= 1000 ? `${num(value / 1000, 1)} s` : `${num(value, value < 10 ? 1 : 0)} ms`;
}

export function tokS(value: number | undefined | null): string {
  return value === undefined || value === null ? "–" : `${figure(value)} tok/s`;
}

// 38,912 -> "38 K"
export function tokens(value: number | undefined | null): string {
  if (value === undefined || value === null) return "–";
  return value >= 4096 && value % 1024 === 0 ? `${num(value / 1024)} K` : num(value);
}

export function parameters(value: string | number | undefined): string {
  const n = Number(value ?? 0);
  if (!n) return "–";
  return n >= 1e9 ? `${figure(n / 1e9)} B` : `${num(n / 1e6)} M`;
}

export function money(value: number | undefined, currency: string): string {
  if (value === undefined) return "–";
  try {
    return new Intl.NumberFormat(locale.value, { style: "currency", currency: currency || "USD", maximumFractionDigits: value < 100 ? 2 : 0 }).format(value);
  } catch {
    return `${num(value)} ${safe(currency, 8)}`;
  }
}

export function ago(unix_s: number, now: number): string {
  const s = Math.max(0, Math.round(now - unix_s));
  if (s < 60) return t("{n} s", { n: s });
  if (s < 3600) return t("{n} min", { n: Math.floor(s / 60) });
  if (s < 86400) return t("{n} h", { n: Math.floor(s / 3600) });
  return t("{n} d", { n: Math.floor(s / 86400) });
}

export function clock(time_ms: number): string {
  return new Date(time_ms).toLocaleTimeString(locale.value, { hour12: false });
}

// Text of foreign origin as one harmless line: what would reorder, hide or break it is shown as a sign, and
// more than `max` characters are cut.
// eslint-disable-next-line no-control-regex
const kUnsafe = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;
export function safe(text: string | undefined, max = 160): string {
  if (!text) return "";
  const cut = text.length > max ? text.slice(0, max) + "…" : text;
  return cut.replace(kUnsafe, (c) => (c === "\n" || c === "\t" ? " " : "␦"));
}
