// The marks of the timeline, as instants to go to. They are times in nanoseconds, in the address.

import { selection } from "../../shared/selection";

/** Marks, at most: the timeline measures between two. */
const MOST = 2;
const NUMBER = /^\d{1,19}$/;

/** The marks, in order of time. */
export function marks(): string[] {
  try {
    const known: unknown = JSON.parse(selection.value.marks ?? "[]");
    const times = Array.isArray(known) ? known.map(String).filter((time) => NUMBER.test(time)) : [];
    return times.sort((one, other) => (BigInt(one) < BigInt(other) ? -1 : 1)).slice(0, MOST);
  } catch {
    return [];
  }
}

/** The marks with another one, which replaces the earlier one if there are two already; without it, if it is one of them. */
export function withMark(time: string): string | undefined {
  const known = marks();
  const next = known.includes(time) ? known.filter((one) => one !== time) : [...known.slice(-(MOST - 1)), time];
  return next.length > 0 ? JSON.stringify(next) : undefined;
}

/** The next mark after an instant, or the one before. */
export function markBeside(time: string, by: number): string | undefined {
  const at = BigInt(time);
  return by > 0 ? marks().find((mark) => BigInt(mark) > at) : marks().findLast((mark) => BigInt(mark) < at);
}
