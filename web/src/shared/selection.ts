// What is shown and selected, in the address: so that a view can be shared, and Back works.

import { signal } from "@preact/signals";

/** Parameters of the address, after `#`. */
export type Selection = Readonly<Record<string, string>>;

function read(): Selection {
  return Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
}

/** The selection of the address. `view` is the view; other names belong to views, which share them. */
export const selection = signal<Selection>(read());

addEventListener("hashchange", () => {
  selection.value = read();
});

/** How the address changes: as a step of its own for Back, as a part of the last step, or as a part of it if that was just now. */
export type How = "step" | "silent" | "merged";

/** Time within which changes are one step, such as those of a wheel, in ms. */
const TOGETHER = 1000;
let changedAt = Number.NEGATIVE_INFINITY;

/** Changes parameters of the address; undefined removes one. */
export function select(changes: Record<string, string | undefined>, how: How = "step"): void {
  const next: Record<string, string> = { ...selection.value };
  for (const [name, value] of Object.entries(changes)) {
    if (value === undefined) delete next[name];
    else next[name] = value;
  }
  const address = `#${new URLSearchParams(next)}`;
  if (address === location.hash) return;
  const isPart = how === "silent" || (how === "merged" && performance.now() - changedAt < TOGETHER);
  if (how !== "silent") changedAt = performance.now();
  if (isPart) history.replaceState(null, "", address);
  else history.pushState(null, "", address);
  selection.value = next;
}

addEventListener("popstate", () => {
  // What comes after Back is a step of its own.
  changedAt = Number.NEGATIVE_INFINITY;
  selection.value = read();
});

/** The address of this page with other parameters, for links. */
export function link(parameters: Record<string, string>): string {
  return `#${new URLSearchParams(parameters)}`;
}
