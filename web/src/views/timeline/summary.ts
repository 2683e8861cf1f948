// Groups of many rows, such as the slaves of a board: what all of them hold in one row, and which differ most from the others.

import { useRef } from "preact/hooks";

import { answers } from "../../shared/answers";
import { useAnswer } from "../../shared/ask";
import type { Span } from "./draw";
import { LOSSES } from "./overlays";
import { LANES, type Part, type Slice, type Store, type StoreTable, type Tiles, fetchTile } from "./store";
import type { Node } from "./tree";

/** Rows from which a group has a summary. */
const MANY = 12;
/** Rows that a summary reads, at most. */
const MOST = 2048;
/** Cells of time of a summary. */
const CELLS = 256;
/** Values of a cell; the rest is one. */
const VALUES = 6;
/** Tiles asked for at once. */
const AT_ONCE = 4;

/** The lanes of one table that lie directly below a node. */
export interface Group {
  path: string;
  table: StoreTable;
  lanes: number[];
}

/** What the rows of a group hold in a span. */
export interface Summary {
  /** Of all rows; weights are those of a mean row. */
  slices: Slice[];
  /** How far each lane is from the median of all: the sum over all values of the differences of their shares of the span. */
  distance: Map<number, number>;
}

/** A depth of a call stack. */
const IS_DEPTH = /^\d+$/;

/** The groups of a tree that have many rows. The depths of a call stack are no group: each has what the one above called. */
export function groupsOf(roots: Node[]): Group[] {
  return roots.flatMap((node) => {
    const byTable = new Map<StoreTable, number[]>();
    for (const { table, lane } of node.below.filter(({ name }) => !IS_DEPTH.test(name)).flatMap((one) => one.lanes)) {
      if (table.shape !== "intervals" || table.name === LOSSES) continue;
      const lanes = byTable.get(table);
      if (lanes) lanes.push(lane);
      else byTable.set(table, [lane]);
    }
    const [most] = [...byTable].sort(([, one], [, other]) => other.length - one.length);
    const own = most && most[1].length >= MANY ? [{ path: node.path, table: most[0], lanes: most[1].slice(0, MOST) }] : [];
    return [...own, ...groupsOf(node.below)];
  });
}

/** Shares of a slice's values in a part of its time. */
function partsOf({ parts, begin, end }: Slice, from: number, until: number): Part[] {
  const share = (Math.min(until, end) - Math.max(from, begin)) / (end - begin);
  return parts.map(({ value, weight }) => ({ value, weight: weight * share }));
}

/** Sums weights by value. */
class Mix {
  readonly weights = new Map<string | null, number>();

  add({ value, weight }: Part): void {
    this.weights.set(value, (this.weights.get(value) ?? 0) + weight);
  }
}

function median(sorted: number[]): number {
  return sorted[Math.floor(sorted.length / 2)] ?? 0;
}

/** Sums what lanes hold in a span. */
export function summarised(lanes: Map<number, Slice[]>, { begin, length }: Span): Summary {
  const cells = Array.from({ length: CELLS }, () => new Mix());
  const width = length / CELLS;
  const ofLane = new Map([...lanes.keys()].map((lane) => [lane, new Mix()]));
  for (const [lane, slices] of lanes) {
    for (const slice of slices) {
      const [from, until] = [Math.max(slice.begin, begin), Math.min(slice.end, begin + length)];
      if (until <= from) continue;
      for (const part of partsOf(slice, from, until)) ofLane.get(lane)?.add(part);
      const first = Math.floor((from - begin) / width);
      for (let cell = first; cell < CELLS && begin + cell * width < until; cell++) {
        const [left, right] = [begin + cell * width, begin + (cell + 1) * width];
        if (right <= from) continue;
        for (const part of partsOf(slice, Math.max(left, from), Math.min(right, until))) cells[cell]?.add(part);
      }
    }
  }
  const distance = new Map([...lanes.keys()].map((lane) => [lane, 0]));
  const values = new Set([...ofLane.values()].flatMap((mix) => [...mix.weights.keys()]));
  for (const value of values) {
    const weights = [...ofLane].map(([lane, mix]) => [lane, (mix.weights.get(value) ?? 0) / length] as const);
    const middle = median(weights.map(([, weight]) => weight).sort((one, other) => one - other));
    for (const [lane, weight] of weights) distance.set(lane, (distance.get(lane) ?? 0) + Math.abs(weight - middle));
  }
  const slices = cells.map(({ weights }, cell): Slice => {
    const all = [...weights].map(([value, weight]) => ({ value, weight: weight / lanes.size }));
    const parts = all.sort((one, other) => other.weight - one.weight).slice(0, VALUES);
    const weight = all.reduce((sum, part) => sum + part.weight, 0);
    const bounds = { begin: begin + cell * width, end: begin + (cell + 1) * width };
    return { ...bounds, records: all.length, weight, parts, missing: 0, low: null, high: null };
  });
  return { slices: slices.filter(({ weight }) => weight > 0), distance };
}

async function fetchSummary(tiles: Tiles, group: Group, span: Span, signal: AbortSignal): Promise<Summary> {
  const digits = tiles.digits(span.length / (CELLS / 2));
  const firsts = [...new Set(group.lanes.map((lane) => lane - (lane % LANES)))];
  const places = firsts.flatMap((first) => tiles.places(group.table.name, first, digits, span.begin, span.begin + span.length));
  const lanes = new Map<number, Slice[]>(group.lanes.map((lane) => [lane, []]));
  for (let at = 0; at < places.length; at += AT_ONCE) {
    const some = places.slice(at, at + AT_ONCE);
    const found = await Promise.all(some.map((place) => fetchTile(tiles.store.generation, place, signal)));
    for (const [number, tile] of found.entries()) {
      const [from, until] = tiles.span(some[number] as (typeof some)[number]);
      for (const [lane, slices] of tile) {
        // A record that crosses the border of tiles is in both.
        for (const { begin, end, ...slice } of slices) {
          const [left, right] = [Math.max(begin, from), Math.min(end, until)];
          if (right <= left) continue;
          const share = (right - left) / (end - begin);
          const parts = slice.parts.map(({ value, weight }) => ({ value, weight: weight * share }));
          lanes.get(lane)?.push({ ...slice, parts, begin: left, end: right });
        }
      }
    }
  }
  return summarised(lanes, span);
}

/** The summaries of groups in a span, by path; those of the span before until they are there. A page that is a file has none. */
export function useSummaries(store: Store, tiles: Tiles, groups: Group[], span: Span): Map<string, Summary> {
  const key = answers || groups.length === 0 ? undefined : `${store.generation} ${span.begin} ${span.length}`;
  const found = useAnswer(key, async (signal) => {
    const all = new Map<string, Summary>();
    for (const group of groups) all.set(group.path, await fetchSummary(tiles, group, span, signal));
    return all;
  });
  const last = useRef<Map<string, Summary>>(new Map());
  if (found.value) last.current = found.value;
  return last.current;
}
