// How busy the recorded system was, over all of the time: what the overview draws.

import { quiet } from "./colours";
import { type Seen, slicesOf } from "./draw";
import { keyCell } from "./rows";
import type { Store, StoreTable, Tiles } from "./store";

/** Lanes that are read, at most. */
const MOST_LANES = 512;
/** What a thread does while it is busy. */
const RUNNING = "running";

/** The lanes whose values say how busy the system was: CPUs, else running threads, else calls at the bottom of stacks. */
export function busyLanes({ tables }: Pick<Store, "tables">): { table: StoreTable; lanes: number[]; isBusy: (value: string | null) => boolean } | undefined {
  const named = (name: string) => tables.find((table) => table.name === name && table.rows > 0);
  const isNotQuiet = (value: string | null) => value !== null && !quiet(value);
  for (const name of ["cpu", "states", "tasks", "calls", "callstack"]) {
    const table = named(name);
    if (!table) continue;
    const isBottom = (lane: number) => !table.key.includes("depth") || keyCell(table, lane, "depth") === "0";
    const lanes = table.lanes.map((_, lane) => lane).filter(isBottom).slice(0, MOST_LANES);
    return { table, lanes, isBusy: name === "states" ? (value) => value === RUNNING : isNotQuiet };
  }
  return undefined;
}

/** The share of the lanes that is busy in each of `columns` parts of the time from 0 to `length`. */
export function loadOf(lanes: Seen[][], isBusy: (value: string | null) => boolean, length: number, columns: number): Float64Array {
  const load = new Float64Array(columns);
  const width = length / columns;
  for (const seen of lanes) {
    for (const { slice, begin, end } of seen) {
      const lasts = slice.end - slice.begin;
      if (end <= begin || lasts <= 0) continue;
      const busy = slice.parts.reduce((sum, { value, weight }) => sum + (isBusy(value) ? weight : 0), 0);
      // A record by itself has its value all of its time.
      const share = slice.records === null ? Number(busy > 0) : Math.min(1, busy / lasts);
      if (share === 0) continue;
      const last = Math.min(columns - 1, Math.floor((end - 1e-6) / width));
      for (let column = Math.max(0, Math.floor(begin / width)); column <= last; column++) {
        const [from, until] = [Math.max(begin, column * width), Math.min(end, (column + 1) * width)];
        if (until > from) load[column] = (load[column] as number) + (share * (until - from)) / width;
      }
    }
  }
  const most = Math.max(lanes.length, 1);
  return load.map((sum) => Math.min(1, sum / most));
}

/** What was computed last, of each store. */
const known = new WeakMap<Tiles, { received: number; columns: number; load: Float64Array }>();

/** The load of a store in a number of parts of its time; computed again when tiles have come. */
export function load(tiles: Tiles, length: number, columns: number): Float64Array {
  const last = known.get(tiles);
  if (last && last.received === tiles.received && last.columns === columns) return last.load;
  const found = busyLanes(tiles.store);
  const span = { begin: 0, length };
  const lanes = found?.lanes.map((lane) => slicesOf({ table: found.table, lane }, { span, tiles }, columns)) ?? [];
  const made = found ? loadOf(lanes, found.isBusy, length, columns) : new Float64Array(columns);
  known.set(tiles, { received: tiles.received, columns, load: made });
  return made;
}
