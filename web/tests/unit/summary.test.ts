import { expect, test } from "vitest";

import type { Slice } from "../../src/views/timeline/store";
import { summarised } from "../../src/views/timeline/summary";

function slice(begin: number, end: number, ...parts: [string, number][]): Slice {
  const of = parts.map(([value, weight]) => ({ value, weight }));
  const weight = of.reduce((sum, part) => sum + part.weight, 0);
  return { begin, end, records: null, weight, parts: of, missing: 0, low: null, high: null };
}

test("a summary has the mean of all rows in each cell, and nothing beyond the span", () => {
  const lanes = new Map([
    [3, [slice(0, 256, ["work", 256])]],
    [4, [slice(0, 128, ["work", 128]), slice(128, 300, ["wait", 172])]],
  ]);
  const { slices } = summarised(lanes, { begin: 0, length: 256 });
  expect(slices).toHaveLength(256);
  expect(slices[0]).toMatchObject({ begin: 0, end: 1, weight: 1, parts: [{ value: "work", weight: 1 }] });
  expect(slices[200]?.parts).toEqual([
    { value: "work", weight: 0.5 },
    { value: "wait", weight: 0.5 },
  ]);
  const sum = (value: string) => slices.flatMap(({ parts }) => parts).reduce((all, part) => all + (part.value === value ? part.weight : 0), 0);
  expect([sum("work"), sum("wait")]).toEqual([192, 64]);
});

test("the row that differs most from the median has the greatest distance", () => {
  const usual = (at: number) => [slice(at, at + 50, ["work", 50])];
  // One at another time does the same; one does something else as well; cells of several records count by weight.
  const lanes = new Map([
    [0, usual(0)],
    [1, usual(0)],
    [2, usual(40)],
    [3, [...usual(0), slice(50, 90, ["urgent", 30], ["work", 10])]],
  ]);
  const { distance } = summarised(lanes, { begin: 0, length: 100 });
  expect([0, 1, 2].map((lane) => distance.get(lane))).toEqual([0, 0, 0]);
  expect(distance.get(3)).toBeCloseTo(0.4);
});
