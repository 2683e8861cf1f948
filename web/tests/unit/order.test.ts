import { expect, test } from "vitest";

import { activeSpan, activityOf } from "../../src/views/timeline/active";
import { orderOf } from "../../src/views/timeline/order";
import type { Slice, Store, StoreTable } from "../../src/views/timeline/store";
import { treeOf } from "../../src/views/timeline/tree";

/** A store of threads with their time on a CPU. */
function storeOf(threads: [name: string, running: number][], cpus = 1): Store {
  const states = {
    ...{ name: "states", title: "states", shape: "intervals", key: ["tid"], value: "state", values: [["idle", 9e9], ["running", 1e6]] },
    ...{ instructions: [], columns: [], lanes: threads.map((_, number) => [String(number)]) },
    paths: threads.map(([name]) => ["Threads", `process ${name}`, name]),
    weights: threads.map(([, running]) => [[0, 5], [1, running]]),
  } as unknown as StoreTable;
  const cpu = {
    ...{ name: "cpu", title: "", shape: "intervals", key: ["cpu"], value: "comm", values: [], weights: [], instructions: [] },
    lanes: Array.from({ length: cpus }, (_, number) => [String(number)]),
    paths: Array.from({ length: cpus }, (_, number) => ["CPUs", `CPU ${number}`]),
  } as unknown as StoreTable;
  return { generation: 1, origin: "0", length: 1_000_000, half_width: 0, tables: [states, cpu] };
}

const namesOf = (store: Store, earlier = new Map<string, number>()) =>
  treeOf(store, earlier).map(({ name, below }) => [name, ...below.map((one) => one.name)]);

test("CPUs are first, then threads by their time on a CPU, and idle ones are one folded row", () => {
  const idle = ["i1", "i2", "i3", "i4"].map((name): [string, number] => [name, 10]);
  const store = storeOf([["quiet", 2000], ...idle, ["busy", 90_000], ["also", 2000]], 2);
  expect(namesOf(store)).toEqual([
    ["CPUs", "CPU 0", "CPU 1"],
    ["Threads", "process busy", "process also", "process quiet", "idle threads"],
  ]);
  const last = treeOf(store)[1]?.below.at(-1);
  expect(last?.isFolded).toBe(true);
  expect(last?.below.map(({ name }) => name)).toEqual(["process i1", "process i2", "process i3", "process i4"]);
});

test("a few idle threads stay, and threads without states are ordered by instructions", () => {
  expect(namesOf(storeOf([["a", 10], ["b", 20], ["c", 90_000], ["d", 90]]))[1]).toEqual(["Threads", "process c", "process d", "process b", "process a"]);
  const store = storeOf([["a", 0], ["b", 0], ["c", 0], ["d", 0], ["e", 0]]);
  const [states] = store.tables as [StoreTable];
  const calls = { ...states, name: "calls", value: "function", instructions: [1, 2, 5, 4, 3] };
  expect(namesOf({ ...store, tables: [calls] })[0]).toEqual(["Threads", "process c", "process d", "process e", "process b", "process a"]);
});

test("while a store grows, what was seen keeps its order and new threads follow", () => {
  const before = treeOf(storeOf([["a", 5000], ["b", 4000]]));
  const grown = storeOf([["new", 900_000], ["b", 80_000], ["a", 5000]]);
  expect(namesOf(grown, new Map(orderOf(before)))[1]).toEqual(["Threads", "process a", "process b", "process new"]);
  expect(namesOf(grown)[1]).toEqual(["Threads", "process new", "process b", "process a"]);
});

test("the shown part is the shortest with nearly all of the activity, if that is less than half", () => {
  const activity = Array.from({ length: 100 }, (_, at) => (at >= 60 && at < 70 ? 100 : 0.05));
  const span = activeSpan(activity, 1000);
  expect(span?.begin).toBeCloseTo(600 - 4);
  expect(span?.length).toBeCloseTo(100 + 8);
  expect(activeSpan(Array.from({ length: 100 }, () => 1), 1000)).toBeUndefined();
  expect(activeSpan([0, 0, 0], 1000)).toBeUndefined();
});

test("activity is what is not quiet, in the bins that it touches", () => {
  const of = (begin: number, end: number, value: string): Slice =>
    ({ begin, end, records: null, weight: end - begin, parts: [{ value, weight: end - begin }], missing: 0, low: null, high: null });
  const bins = activityOf([of(10, 30, "work"), of(30, 256, "idle")], 256);
  expect(bins.reduce((sum, one) => sum + one, 0)).toBeCloseTo(20);
  expect(bins.slice(9, 31)).toEqual([0, ...Array.from({ length: 20 }, () => 1), 0]);
});
