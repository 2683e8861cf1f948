// Light and dark: as the system has it, or as chosen here.

import { signal } from "@preact/signals";

const KEY = "hodo-theme";
const system = matchMedia("(prefers-color-scheme: dark)");

function kept(): string | null {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null; // A page from a file may not keep anything.
  }
}

/** Whether the page is dark. */
export const dark = signal(kept() === null ? system.matches : kept() === "dark");

function apply(): void {
  document.documentElement.dataset.theme = dark.value ? "dark" : "light";
}

/** Changes to the other theme, and keeps that. */
export function toggleTheme(): void {
  dark.value = !dark.value;
  try {
    localStorage.setItem(KEY, dark.value ? "dark" : "light");
  } catch {
    // It is kept for this page only.
  }
}

system.addEventListener("change", () => {
  if (kept() === null) dark.value = system.matches;
});
dark.subscribe(apply);
