import { expect, test } from "vitest";

import { byFunction } from "../../src/shared/merged";
import { type Path, everything } from "../../src/shared/tree";

const path = (name: string, own: number, total: number, children: Path[] = []): Path => ({ ...{ name, module: "m", row: 0, own: [own], total: [total], change: "" }, children });

test("paths of a function are summed, and a recursion counts once", () => {
  const tree = everything([path("main", 1, 16, [path("f", 2, 10, [path("g", 3, 8, [path("f", 5, 5)])]), path("f", 4, 5, [path("h", 1, 1)])])]);
  const sums = Object.fromEntries(byFunction(tree).map(({ name, own, total, paths }) => [name, [own[0], total[0], paths]]));
  expect(sums).toEqual({ main: [1, 16, 1], f: [11, 15, 3], g: [3, 8, 1], h: [1, 1, 1] });
  expect(byFunction(tree)[0]?.name).toBe("f");
});

test("a recursion may be deep", () => {
  let deep = path("f", 1, 1);
  for (let depth = 2; depth <= 100_000; depth++) deep = path("f", 1, depth, [deep]);
  expect(byFunction(everything([deep]))[0]).toMatchObject({ own: [100_000], total: [100_000], paths: 100_000 });
});
