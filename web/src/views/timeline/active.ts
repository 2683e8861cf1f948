// The part of the time in which something happens: what a timeline shows first.

import { quiet } from "./colours";
import type { Span } from "./draw";
import { LANES, type Slice, type Store, Tiles, fetchTile } from "./store";

/** Bins of time in which activity is summed. */
const BINS = 256;
/** The share of all activity that the shown part has. */
const MOST = 0.99;
/** A part of the time that is longer than this is no better than all of it. */
const LONGEST = 0.5;
/** The share of the part that is shown before and after it. */
const MARGIN = 0.04;
/** Lanes that are read. */
const MOST_LANES = 256;

/** The shortest part of the time that has nearly all of the activity; undefined if it is most of the time, or nothing happens. */
export function activeSpan(activity: number[], length: number): Span | undefined {
  const all = activity.reduce((sum, one) => sum + one, 0);
  if (all <= 0) return undefined;
  let best: [number, number] = [0, activity.length];
  let [from, sum] = [0, 0];
  for (const [until, one] of activity.entries()) {
    sum += one;
    while (sum - (activity[from] ?? 0) >= MOST * all) sum -= activity[from++] ?? 0;
    if (sum >= MOST * all && until + 1 - from < best[1] - best[0]) best = [from, until + 1];
  }
  const [first, behind] = best;
  if (behind - first > LONGEST * activity.length) return undefined;
  const bin = length / activity.length;
  const margin = MARGIN * (behind - first) * bin;
  const begin = Math.max(0, first * bin - margin);
  return { begin, length: Math.min(length, behind * bin + margin) - begin };
}

/** Sums what slices hold in each bin of a length of time, without values in which nothing happens. */
export function activityOf(slices: Slice[], length: number): number[] {
  const bins = Array.from({ length: BINS }, () => 0);
  const bin = length / BINS;
  for (const { begin, end, parts } of slices) {
    const busy = parts.reduce((sum, { value, weight }) => sum + (quiet(value) ? 0 : weight), 0);
    if (busy <= 0 || end <= begin) continue;
    for (let at = Math.max(0, Math.floor(begin / bin)); at < BINS && at * bin < end; at++) {
      const inside = Math.min(end, (at + 1) * bin) - Math.max(begin, at * bin);
      bins[at] = (bins[at] ?? 0) + (busy * Math.max(0, inside)) / (end - begin);
    }
  }
  return bins;
}

/** Asks what CPUs did, and finds the part of the time with nearly all of it. */
export async function fetchActive(store: Store, signal: AbortSignal): Promise<Span | undefined> {
  const table = store.tables.find(({ key, shape, rows }) => key.length === 1 && key[0] === "cpu" && shape === "intervals" && rows > 0);
  if (!table || store.length === 0) return undefined;
  const tiles = new Tiles(store, () => {});
  const digits = tiles.digits(store.length / (BINS / 2));
  const lanes = Math.min(table.lanes.length, MOST_LANES);
  const firsts = Array.from({ length: Math.ceil(lanes / LANES) }, (_, number) => number * LANES);
  const places = firsts.flatMap((first) => tiles.places(table.name, first, digits, 0, store.length));
  const found = await Promise.all(places.map((place) => fetchTile(store.generation, place, signal)));
  const slices = found.flatMap((tile, number) => {
    const [from, until] = tiles.span(places[number] as (typeof places)[number]);
    // A record that crosses the border of tiles is in both.
    return [...tile.values()].flat().flatMap((slice) => {
      const [begin, end] = [Math.max(slice.begin, from), Math.min(slice.end, until)];
      if (end <= begin) return [];
      const share = (end - begin) / (slice.end - slice.begin);
      return [{ ...slice, begin, end, parts: slice.parts.map(({ value, weight }) => ({ value, weight: weight * share })) }];
    });
  });
  return activeSpan(activityOf(slices, store.length), store.length);
}
