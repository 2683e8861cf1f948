// The rows that do something in the seen span.

import { useRef } from "preact/hooks";

import { useAnswer } from "../../shared/ask";
import { quiet } from "./colours";
import type { Span } from "./draw";
import { LANES, type Slice, type Tiles, fetchTile } from "./store";
import { idOf } from "./tree";

/** Cells of time that the span has at least. */
const CELLS = 64;
/** Tiles asked for at once. */
const AT_ONCE = 4;

/** Whether a slice has something in a span besides states in which nothing happens. */
export function isActive({ begin, end, records, weight, parts }: Slice, span: Span): boolean {
  const isInside = begin < span.begin + span.length && Math.max(end, begin + 1) > span.begin;
  if (!isInside) return false;
  const busy = parts.filter(({ value }) => !quiet(value));
  if (records === null) return busy.length > 0;
  // What the parts don't name is something else.
  return busy.some((part) => part.weight > 0) || weight > parts.reduce((sum, part) => sum + part.weight, 0) || weight === 0;
}

async function fetchActiveRows(tiles: Tiles, span: Span, signal: AbortSignal): Promise<Set<string>> {
  const { store } = tiles;
  const active = new Set<string>();
  const digits = tiles.digits(span.length / CELLS);
  const wanted = store.tables.flatMap((table) => {
    const firsts = Array.from({ length: Math.ceil(table.lanes.length / LANES) }, (_, block) => block * LANES);
    return firsts.flatMap((first) => tiles.places(table.name, first, digits, span.begin, span.begin + span.length).map((place) => ({ table, place })));
  });
  for (let at = 0; at < wanted.length; at += AT_ONCE) {
    const some = wanted.slice(at, at + AT_ONCE);
    const found = await Promise.all(some.map(({ place }) => fetchTile(store.generation, place, signal)));
    for (const [number, tile] of found.entries()) {
      const { table } = some[number] as (typeof some)[number];
      for (const [lane, slices] of tile) if (slices.some((slice) => isActive(slice, span))) active.add(idOf(table, lane));
    }
  }
  return active;
}

/** The ids of the rows that do something in a span: those of the span before until they are here; undefined if all rows are wanted. */
export function useActiveRows(isWanted: boolean, tiles: Tiles, span: Span): ReadonlySet<string> | undefined {
  const key = isWanted ? `${tiles.store.generation} ${span.begin} ${span.length}` : undefined;
  const found = useAnswer(key, (signal) => fetchActiveRows(tiles, span, signal));
  const last = useRef<ReadonlySet<string> | undefined>(undefined);
  if (found.value) last.current = found.value;
  return isWanted ? last.current : undefined;
}
