import { computed, effect, signal } from "@preact/signals";

export type Choice = "auto" | "light" | "dark";
const kKey = "rumbo.theme";
const saved = localStorage.getItem(kKey);
export const choice = signal<Choice>(saved === "light" || saved === "dark" ? saved : "auto");
const system = matchMedia("(prefers-color-scheme: dark)");
const systemDark = signal(system.matches);
system.addEventListener("change", () => (systemDark.value = system.matches));
export const theme = computed(() => (choice.value === "auto" ? (systemDark.value ? "dark" : "light") : choice.value));
effect(() => {
  document.documentElement.dataset.theme = theme.value;
  localStorage.setItem(kKey, choice.value);
});
