// Call paths merged by function.

import type { Model } from "./model";
import type { Path } from "./tree";

/** What the paths of a function sum up to. */
interface Sum {
  name: string;
  module: string;
  /** Amounts without callees and with them: instructions, then time. */
  own: number[];
  total: number[];
  paths: number;
}

/** The columns of the table, in order. */
const COLUMNS: [name: string, unit: string][] = [
  ["function", ""],
  ["share", "share"],
  ["total_instructions", "instructions"],
  ["self_instructions", "instructions"],
  ["total_time_ns", "ns"],
  ["self_time_ns", "ns"],
  ["paths", "count"],
  ["module", ""],
];

/** Sums the paths of each function; what is below several frames of a function counts once. Most instructions of its own come first. */
export function byFunction(tree: Path): Sum[] {
  const sums = new Map<string, Sum>();
  const open = new Map<Sum, number>();
  const add = (one: number[], other: number[]) => other.forEach((amount, place) => (one[place] = (one[place] ?? 0) + amount));
  // Deep recursions would overflow the stack of a function that calls itself.
  const waiting: { path: Path; leaving: boolean }[] = tree.children.map((path) => ({ path, leaving: false }));
  for (let next = waiting.pop(); next; next = waiting.pop()) {
    const { path, leaving } = next;
    const key = JSON.stringify([path.name, path.module]);
    const sum = sums.get(key) ?? { name: path.name, module: path.module, own: [], total: [], paths: 0 };
    sums.set(key, sum);
    const frames = open.get(sum) ?? 0;
    if (leaving) {
      open.set(sum, frames - 1);
      continue;
    }
    if (frames === 0) add(sum.total, path.total);
    open.set(sum, frames + 1);
    add(sum.own, path.own);
    sum.paths++;
    waiting.push({ path, leaving: true }, ...path.children.map((child) => ({ path: child, leaving: false })));
  }
  return [...sums.values()].sort((one, other) => (other.own[0] ?? 0) - (one.own[0] ?? 0));
}

/** The table of functions of a tree of call paths; `of` is the table of the paths. */
export function merged(tree: Path, of: Model): Model {
  const sums = byFunction(tree);
  const all = sums.reduce((sum, { own }) => sum + (own[0] ?? 0), 0);
  const rows = sums.map(({ name, module, own, total, paths }) => [name, all ? (own[0] ?? 0) / all : 0, total[0] ?? 0, own[0] ?? 0, total[1] ?? 0, own[1] ?? 0, paths, module]);
  return {
    ...{ name: "functions of these paths", rows: rows.length, leftOut: of.leftOut, summary: [], loss: [] },
    columns: COLUMNS.map(([name, unit]) => ({ name, unit, numeric: unit !== "" })),
    cell: (row, column) => {
      const cell = rows[row]?.[column] ?? null;
      return typeof cell === "number" && column !== 1 ? BigInt(Math.round(cell)) : cell;
    },
  };
}
