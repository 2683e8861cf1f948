import { expect, test } from "vitest";

import { duration, grouped } from "../../src/shared/format";
import { type Model, compare, csv, exactJson } from "../../src/shared/model";
import { shown, unbroken, visible } from "../../src/shared/text";

test("a number and its unit are not parted", () => {
  expect(unbroken("40.8 ms in all, 8.6 % of 5 spans")).toBe("40.8\u00a0ms in all, 8.6\u00a0% of 5 spans");
});

test("what hides or reorders text is visible", () => {
  expect(visible("a\u202eb\u0000c\u200bd")).toBe("a\\u{202e}b\\u{0}c\\u{200b}d");
  expect(visible("\ud800")).toBe("\\u{d800}");
  expect(visible("größe 日本 🙂")).toBe("größe 日本 🙂");
});

test("a name of a megabyte is cut, and the cut is marked", () => {
  const cut = shown("x".repeat(1 << 20), 100);
  expect(cut).toBe(`${"x".repeat(100)}…`);
  expect(shown("\u{202e}".repeat(1 << 20), 2)).toBe("\\u{202e}\\u{202e}…");
});

test("numbers have units", () => {
  expect([duration(999), duration(1500), duration(2.5e9), duration(0)]).toEqual(["999 ns", "1.500 µs", "2.500 s", "0 ns"]);
  expect(grouped(12345678901234567890n)).toBe("12\u2009345\u2009678\u2009901\u2009234\u2009567\u2009890");
});

test("cells are in order, without a number last", () => {
  const cells = [3n, null, 1n, 2.5];
  expect(cells.sort(compare)).toEqual([1n, 2.5, 3n, null]);
});

test("CSV quotes what must be quoted", () => {
  const cells = [['a"b', 1n], ["c,d\n", null]];
  const model: Model = {
    name: "t",
    columns: [{ name: "x", unit: "", numeric: false }, { name: "y", unit: "", numeric: true }],
    rows: 2,
    cell: (row, column) => cells[row]?.[column] ?? null,
    summary: [],
    loss: [],
    leftOut: 0,
  };
  expect(csv(model, [0, 1])).toBe('x,y\n"a""b",1\n"c,d\n",\n');
});

test("JSON without large integers is as usual", () => {
  expect(exactJson('{"a":[1,2.5,null,"1"]}')).toEqual({ a: [1, 2.5, null, "1"] });
});
