// Every literal text of the page has its Spanish; every Spanish entry keeps the placeholders.
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { kRoot } from "./daemon.mjs";

export function checkTexts() {
  const src = join(kRoot, "web/src");
  const table = new Map([...readFileSync(join(src, "es.ts"), "utf8").matchAll(/"((?:[^"\\]|\\.)*)":\s*"((?:[^"\\]|\\.)*)"/g)].map((m) => [m[1], m[2]]));
  const faults = [];
  for (const dir of ["", "ui", "views"]) for (const file of readdirSync(join(src, dir)).filter((f) => /\.tsx?$/.test(f) && f !== "es.ts")) {
    const text = readFileSync(join(src, dir, file), "utf8");
    for (const m of text.matchAll(/\bt\(\s*"((?:[^"\\]|\\.)*)"/g)) if (!table.has(m[1])) faults.push(`${file}: no Spanish for "${m[1]}"`);
  }
  for (const [en, es] of table) for (const [name] of en.matchAll(/\{\w+\}/g)) if (!es.includes(name)) faults.push(`"${en}": its Spanish lacks ${name}`);
  if (table.size < 100) faults.push("the table was not read");
  return faults;
}
