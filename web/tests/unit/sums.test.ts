import { expect, test } from "vitest";

import { sliceUnder } from "../../src/views/timeline/hover";
import type { Slice, StoreTable } from "../../src/views/timeline/store";
import { ranges, summed } from "../../src/views/timeline/sums";

const STATES = {
  ...{ name: "states", shape: "intervals", key: ["tid"], value: "state" },
  paths: [["Threads", "process 1", "one (1)"], ["Threads", "process 1", "two (2)"]],
  lanes: [["1"], ["2"]],
} as unknown as StoreTable;

test("sums are by value over all rows, and by thread of the time on a CPU", () => {
  const sum = summed(STATES, 2, 0, [
    { lane: 0, records: 3, weight: 100, values: [["idle", 60], ["running", 30], ["runnable", 10]], missing: 0 },
    { lane: 1, records: 1, weight: 50, values: [["running", 50]], missing: 2 },
  ]);
  expect(sum.values).toEqual([{ name: "running", weight: 80 }, { name: "idle", weight: 60 }, { name: "runnable", weight: 10 }]);
  expect(sum.owners).toEqual([{ name: "two (2)", weight: 50 }, { name: "one (1)", weight: 30 }]);
  expect(sum).toMatchObject({ records: 4, weight: 150, missing: 2 });
});

test("a thread has the time of its lowest depth, not of each", () => {
  const calls = {
    ...{ name: "calls", shape: "intervals", key: ["tid", "depth"], value: "function" },
    paths: [0, 1].map((depth) => ["Threads", "process 1", "one (1)", "call stack", String(depth)]),
    lanes: [["1", "0"], ["1", "1"]],
  } as unknown as StoreTable;
  const lane = (lane: number, name: string) => ({ lane, records: 1, weight: 10, values: [[name, 10]] as [string, number][], missing: 0 });
  const { values, owners } = summed(calls, 2, 0, [lane(0, "main"), lane(1, "work")]);
  expect(owners).toEqual([{ name: "one (1)", weight: 10 }]);
  expect(values.map(({ name }) => name)).toEqual(["main", "work"]);
});

test("numbers of lanes are ranges", () => {
  expect(ranges([7, 1, 2, 3, 9, 10, 2])).toBe("1-3,7,9-10");
});

test("a narrow record is found from beside it, and a wide one before its neighbours", () => {
  const of = (begin: number, end: number) => ({ begin, end, slice: { begin, end } as Slice });
  const slices = [of(0, 90), of(100, 100), of(104, 200)];
  expect(sliceUnder(slices, 50, 1)?.begin).toBe(0);
  expect(sliceUnder(slices, 100, 1)).toMatchObject({ begin: 100, end: 100 });
  expect(sliceUnder(slices, 102, 1)).toMatchObject({ begin: 100, end: 100 });
  expect(sliceUnder(slices, 103, 0.5)?.begin).toBe(104);
  expect(sliceUnder(slices, 300, 1)).toBeUndefined();
});
