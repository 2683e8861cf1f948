import { expect, test } from "vitest";

import { loadOf } from "../../src/views/timeline/load";
import { uncovered } from "../../src/views/timeline/reveal";
import { type Choice, allDepths, idOf, layout } from "../../src/views/timeline/rows";
import type { Slice, Store, StoreTable } from "../../src/views/timeline/store";
import { treeOf, withProcesses } from "../../src/views/timeline/tree";

/** A thread with states, system calls and calls of some depths. */
function storeOf(depths: number): Store {
  const table = (name: string, key: string[], lanes: string[][], paths: string[][]) =>
    ({ ...{ name, title: name, shape: "intervals", key, value: name, values: [], weights: [], instructions: [], columns: [] }, lanes, paths }) as unknown as StoreTable;
  const thread = ["Threads", "process 1", "a (1)"];
  return {
    ...{ generation: 1, origin: "0", length: 1000, half_width: 0 },
    tables: [
      table("states", ["tid"], [["1"]], [thread]),
      table("syscalls", ["tid"], [["1"]], [[...thread, "system calls"]]),
      table("calls", ["tid", "depth"], Array.from({ length: depths }, (_, depth) => ["1", String(depth)]), Array.from({ length: depths }, (_, depth) => [...thread, "call stack", String(depth)])),
    ],
  };
}

const choice = (changes: Partial<Choice> = {}): Choice => ({
  ...{ filter: "", onlyActive: false, collapsed: new Set(), opened: new Set(), pins: [], hidden: [], order: [], worst: new Set() },
  ...changes,
});
const placed = (store: Store, chosen = choice()) => layout(treeOf(store), chosen, [], new Map());

test("a thread is one track: states, and strips of system calls and of each depth", () => {
  const { rows, headings, height } = placed(storeOf(5));
  expect(rows.map(({ isThin }) => isThin)).toEqual([false, true, true, true, true, true, true]);
  expect(headings.map(({ name }) => name)).toEqual(["Threads"]);
  // The strips follow each other without space, and all are lower than the states.
  for (const [place, row] of rows.slice(1).entries()) expect(row.top).toBe((rows[place]?.top ?? 0) + (rows[place]?.height ?? 0));
  expect(Math.max(...rows.slice(1).map((row) => row.height))).toBeLessThan(rows[0]?.height ?? 0);
  expect(height).toBeLessThan(24 + 22 + 6 * 16);
  // Folded, only the states are left.
  expect(placed(storeOf(5), choice({ collapsed: new Set(["Threads › process 1 › a (1)"]) })).rows.map(({ table }) => table.name)).toEqual(["states"]);
});

test("thousands of depths are bounded until they are asked for, and a found one is shown", () => {
  const store = storeOf(3000);
  const [tree, calls] = [treeOf(store), store.tables[2] as StoreTable];
  const { rows, deeper } = placed(store);
  expect(rows).toHaveLength(2 + 24);
  expect(deeper.map(({ rows }) => rows)).toEqual([3000 - 24]);
  const { path } = deeper[0] ?? { path: "" };
  expect(placed(store, choice({ opened: new Set([allDepths(path)]) })).rows).toHaveLength(2 + 3000);
  const found = uncovered(tree, idOf(calls, 2000), choice());
  expect(placed(store, choice(found)).rows.some((row) => row.lane === 2000 && row.table.name === "calls")).toBe(true);
  expect(uncovered(tree, idOf(calls, 3), choice())).toEqual({});
  // A pinned depth stays, though it is left out.
  expect(placed(store, choice({ pins: [idOf(calls, 2000)] })).pinned.map(({ lane }) => lane)).toEqual([2000]);
});

test("headings count threads, not rows, and name processes", () => {
  const store = storeOf(5);
  const [states] = store.tables as [StoreTable];
  states.lanes.push(["2"], ["7"], ["8"]);
  states.paths.push(["Threads", "process 1", "b (2)"], ["Threads", "process 6", "c (7)"], ["Threads", "process 6", "c (8)"]);
  expect(placed(store).headings.map(({ name, tracks }) => [name, tracks])).toEqual([["Threads", 4], ["process 1 · a", 2], ["process 6 · c", 2]]);
  // Without states, the heading of a call stack has its number of depths.
  const calls = { ...store, tables: [{ ...(store.tables[2] as StoreTable), name: "calls" }] };
  expect(placed(calls).headings.map(({ name, tracks }) => [name, tracks])).toEqual([["Threads", 1], ["a (1) › call stack", 5]]);
});

test("a thread of an unknown process is that of the same name and number in another table, if there is one", () => {
  const paths = (...threads: string[][]) => threads.map((thread) => ["Threads", ...thread]);
  const flow = { paths: paths(["process 1", "a (1)", "call stack", "0"], ["process 2", "b (3)"], ["process 3", "b (3)"]) };
  const events = { paths: paths(["process ?", "a (1)"], ["process ?", "a (1)", "system calls"], ["process ?", "b (3)"], ["process ?", "c (4)"]) };
  withProcesses([events, flow]);
  expect(events.paths.map(([, process]) => process)).toEqual(["process 1", "process 1", "process ?", "process ?"]);
});

test("the load is the share of lanes that are busy", () => {
  const slice = (begin: number, end: number, value: string | null, weight = end - begin, records: number | null = null) => ({
    ...{ begin, end },
    slice: { begin, end, records, weight, parts: [{ value, weight }], missing: 0, low: null, high: null } as Slice,
  });
  const isBusy = (value: string | null) => value === "busy";
  const one = [slice(0, 50, "busy"), slice(50, 100, "idle")];
  const other = [slice(0, 25, "idle"), slice(25, 75, "busy", 25, 3)];
  expect([...loadOf([one, other], isBusy, 100, 4)]).toEqual([0.5, 0.75, 0.25, 0]);
});
