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

/** Changes parameters of the address; undefined removes one. With `silently`, Back does not come here. */
export function select(changes: Record<string, string | undefined>, silently = false): void {
  const next: Record<string, string> = { ...selection.value };
  for (const [name, value] of Object.entries(changes)) {
    if (value === undefined) delete next[name];
    else next[name] = value;
  }
  const address = `#${new URLSearchParams(next)}`;
  if (address === location.hash) return;
  if (silently) history.replaceState(null, "", address);
  else history.pushState(null, "", address);
  selection.value = next;
}

addEventListener("popstate", () => {
  selection.value = read();
});

/** The address of this page with other parameters, for links. */
export function link(parameters: Record<string, string>): string {
  return `#${new URLSearchParams(parameters)}`;
}
