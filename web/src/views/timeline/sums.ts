// Sums of a chosen span: what its rows hold, by value, and by thread or CPU. Source: `crates/server/src/endpoints/timeline/sums.rs`.

import { json } from "../../shared/api";
import { quiet } from "./colours";
import { LOSSES } from "./overlays";
import type { Row } from "./rows";
import type { Store, StoreTable } from "./store";

/** Rows whose sums are asked for at once. */
const LANES = 4096;

/** What a lane holds in a span, as the server says it. */
export interface LaneSum {
  lane: number;
  /** Records that begin in the span. */
  records: number;
  weight: number;
  values: [string | null, number][];
  missing: number;
}

/** A line of a sum. */
export interface Line {
  name: string;
  /** Nanoseconds, or the number of points. */
  weight: number;
}

/** The sums of the rows of a table. */
export interface TableSum {
  table: StoreTable;
  rows: number;
  /** Rows beyond those that one question may have. */
  leftOut: number;
  records: number;
  weight: number;
  /** By value, the heaviest first. */
  values: Line[];
  /** By thread, CPU or what else the rows are of: time in which something happens. */
  owners: Line[];
  /** Weight that a value may have beyond what is said. */
  missing: number;
}

/** Numbers as a text such as `1,4-7`. */
export function ranges(numbers: number[]): string {
  const parts: [number, number][] = [];
  for (const number of [...new Set(numbers)].sort((one, other) => one - other)) {
    const last = parts[parts.length - 1];
    if (last && last[1] === number - 1) last[1] = number;
    else parts.push([number, number]);
  }
  return parts.map(([first, last]) => (first === last ? String(first) : `${first}-${last}`)).join(",");
}

function lines(weights: Map<string, number>): Line[] {
  const all = [...weights].map(([name, weight]) => ({ name, weight })).filter(({ weight }) => weight > 0);
  return all.sort((one, other) => other.weight - one.weight || (one.name < other.name ? -1 : 1));
}

/** Whose a lane is: the thread or CPU of its path, without what is below it. */
export function ownerOf(table: StoreTable, lane: number): string {
  const path = table.paths[lane] ?? [];
  return path.find((part) => /\(\d+\)$|^CPU \d+$/.test(part)) ?? path.at(-1) ?? "";
}

/** Adds up what the lanes of a table hold. */
export function summed(table: StoreTable, rows: number, leftOut: number, lanes: LaneSum[]): TableSum {
  const [values, owners] = [new Map<string, number>(), new Map<string, number>()];
  const add = (to: Map<string, number>, name: string, weight: number) => to.set(name, (to.get(name) ?? 0) + weight);
  const sum: TableSum = { table, rows, leftOut, records: 0, weight: 0, values: [], owners: [], missing: 0 };
  for (const { lane, records, weight, values: own, missing } of lanes) {
    sum.records += records;
    sum.weight += weight;
    sum.missing += missing;
    let busy = weight;
    for (const [value, part] of own) {
      add(values, value ?? "–", part);
      // Of threads, the time on a CPU; of others, all in which something happens.
      if (table.value === "state" ? value !== "running" : quiet(value)) busy -= part;
    }
    // A depth of a call stack holds what the depth above it called.
    const depth = table.key.indexOf("depth");
    if (depth < 0 || table.lanes[lane]?.[depth] === "0") add(owners, ownerOf(table, lane), busy);
  }
  return { ...sum, values: lines(values), owners: lines(owners) };
}

/** Asks for the sums of rows in a span. */
export async function fetchSums(store: Store, rows: Row[], [begin, end]: [number, number], signal: AbortSignal): Promise<TableSum[]> {
  const byTable = new Map<StoreTable, number[]>();
  for (const { table, lane } of rows) {
    if (!["intervals", "points"].includes(table.shape) || table.name === LOSSES) continue;
    const lanes = byTable.get(table);
    if (lanes) lanes.push(lane);
    else byTable.set(table, [lane]);
  }
  const of = async ([table, lanes]: [StoreTable, number[]]): Promise<TableSum> => {
    const some = lanes.slice(0, LANES);
    const asked = { generation: store.generation, table: table.name, lanes: ranges(some), begin, end };
    const answer = await json<{ lanes: LaneSum[] }>("timeline/sums", asked, signal);
    return summed(table, some.length, lanes.length - some.length, answer.lanes);
  };
  return Promise.all([...byTable].map(of));
}
