// The timeline's state in the address. Times there are absolute, so that other views can name them.

import { type How, select, selection } from "../../shared/selection";
import type { Span } from "./draw";
import type { Choice } from "./rows";
import type { Store } from "./store";

/** The shortest span, in nanoseconds. */
const SHORTEST = 20;

/** A note of the user. */
export interface Note {
  time: number;
  text: string;
}

/** What the address says. */
export interface State {
  span: Span;
  at: number | undefined;
  row: string | undefined;
  /** A span that was chosen, and the first and the last of its rows; without these, all rows. */
  chosen: [begin: number, end: number] | undefined;
  area: [first: string, last: string] | undefined;
  marks: number[];
  notes: Note[];
  find: string;
  /** Whether links are drawn. */
  arrows: boolean;
  /** The id of the thread whose critical path is drawn. */
  path: string | undefined;
  choice: Choice;
}

function list(text: string | undefined): string[] {
  if (!text) return [];
  try {
    const items: unknown = JSON.parse(text);
    return Array.isArray(items) ? items.map(String) : [];
  } catch {
    return [];
  }
}

/** Reads the state; what is wrong in an address is ignored. */
export function read(store: Store): State {
  const known = selection.value;
  const origin = BigInt(store.origin);
  const relative = (text: string | undefined) =>
    text && /^\d{1,20}$/.test(text) ? Number(BigInt(text) - origin) : undefined;
  const [begin, end] = [relative(known.t0), relative(known.t1)];
  const span =
    begin !== undefined && end !== undefined && end > begin ? { begin, length: end - begin } : (store.active ?? whole(store));
  const [from, until] = [relative(known.c0), relative(known.c1)];
  const [first, last] = list(known.area);
  const times = (text: string | undefined) => list(text).flatMap((one) => relative(one) ?? []);
  const notes = list(known.notes).flatMap((one) => {
    const at = one.indexOf(" ");
    const time = relative(one.slice(0, at));
    return time === undefined ? [] : [{ time, text: one.slice(at + 1) }];
  });
  return {
    span: limited(span, store),
    at: relative(known.at),
    row: known.row,
    chosen: from !== undefined && until !== undefined && until > from ? [Math.max(0, from), until] : undefined,
    area: first !== undefined && last !== undefined ? [first, last] : undefined,
    marks: times(known.marks).slice(0, 2),
    notes,
    find: known.find ?? "",
    arrows: known.arrows !== "0",
    path: known.path && /^\d{1,10}$/.test(known.path) ? known.path : undefined,
    choice: {
      filter: known.rows ?? store.filter ?? "",
      onlyActive: known.active === "1",
      collapsed: new Set(list(known.folded)),
      opened: new Set(list(known.opened)),
      pins: list(known.pins),
      order: list(known.order),
      hidden: list(known.hidden),
      worst: new Set(list(known.worst)),
    },
  };
}

/** Writes a part of the state. Back returns from another span, another selection and another search; rows, marks and notes stay. */
export function write(store: Store, changes: Partial<Omit<State, "choice">> & Partial<Choice>, how: How = howOf(changes)): void {
  const origin = BigInt(store.origin);
  const absolute = (time: number) => String(origin + BigInt(Math.round(time)));
  const items = (values: Iterable<string>) => {
    const all = [...values];
    return all.length ? JSON.stringify(all) : undefined;
  };
  const next: Record<string, string | undefined> = {};
  if (changes.span) {
    next.t0 = absolute(Math.max(0, changes.span.begin));
    next.t1 = absolute(Math.max(0, changes.span.begin) + changes.span.length);
  }
  if ("at" in changes) next.at = changes.at === undefined ? undefined : absolute(Math.max(0, changes.at));
  if ("row" in changes) next.row = changes.row;
  if ("chosen" in changes) {
    const [from, until] = changes.chosen ? ordered(changes.chosen) : [];
    next.c0 = from === undefined ? undefined : absolute(from);
    next.c1 = until === undefined ? undefined : absolute(until);
  }
  if ("area" in changes) next.area = changes.area && items(changes.area);
  if (changes.marks) next.marks = items(changes.marks.map(absolute));
  if (changes.notes) next.notes = items(changes.notes.map((note) => `${absolute(note.time)} ${note.text}`));
  if (changes.find !== undefined) next.find = changes.find || undefined;
  if (changes.arrows !== undefined) next.arrows = changes.arrows ? undefined : "0";
  if ("path" in changes) next.path = changes.path;
  // A filter that is there without the address is removed by an empty one.
  if (changes.filter !== undefined) next.rows = changes.filter || (store.filter ? "" : undefined);
  if (changes.onlyActive !== undefined) next.active = changes.onlyActive ? "1" : undefined;
  if (changes.collapsed) next.folded = items(changes.collapsed);
  if (changes.opened) next.opened = items(changes.opened);
  if (changes.hidden) next.hidden = items(changes.hidden);
  if (changes.pins) next.pins = items(changes.pins);
  if (changes.order) next.order = items(changes.order);
  if (changes.worst) next.worst = items(changes.worst);
  select(next, how);
}

function howOf(changes: object): How {
  if ("span" in changes) return "merged";
  return ["at", "row", "chosen", "path", "find"].some((name) => name in changes) ? "step" : "silent";
}

/** Two instants as a span of whole nanoseconds, at least one, the earlier first. */
export function ordered([one, other]: [number, number]): [number, number] {
  const begin = Math.max(0, Math.round(Math.min(one, other)));
  return [begin, Math.max(begin + 1, Math.round(Math.max(one, other)))];
}

/** The whole time, with a margin. */
export function whole(store: Store): Span {
  return { begin: 0, length: Math.max(SHORTEST, store.length + 1) };
}

/** A span that is neither too short nor outside. */
export function limited(span: Span, store: Store): Span {
  const all = whole(store);
  const length = Math.min(Math.max(span.length, SHORTEST), all.length);
  return { begin: Math.min(Math.max(span.begin, 0), all.length - length), length };
}

/** A span made longer by a factor, where one instant stays in its place. */
export function zoomed(span: Span, factor: number, around: number, store: Store): Span {
  const length = Math.min(Math.max(span.length * factor, SHORTEST), whole(store).length);
  return limited({ begin: around - ((around - span.begin) / span.length) * length, length }, store);
}

/** A span moved by a share of its length. */
export function moved(span: Span, share: number, store: Store): Span {
  return limited({ begin: span.begin + share * span.length, length: span.length }, store);
}
