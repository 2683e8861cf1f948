import { afterAll, beforeAll, expect, test } from "vitest";

import { type Viewer, close, closeBrowser, fixture, open, printed, start } from "./viewer";

const TINY = fixture("perf/tiny.data");
const OPTIONS = ["--symfs", fixture("perf/symfs")];
let viewer: Viewer;

beforeAll(async () => {
  viewer = await start([TINY], OPTIONS);
});

afterAll(async () => {
  await closeBrowser();
  await viewer.stop();
});

/** A column of `hodo report paths`. */
function column(name: string, ...more: string[]): unknown[] {
  const { columns, rows } = printed("report", "paths", ...OPTIONS, ...more, TINY);
  const place = columns.findIndex((column) => column.name === name);
  return rows.map((row) => row[place]);
}

test("the flame graph has the numbers of hodo report paths, by instructions and by time", async () => {
  const opened = await open(`${viewer.address}#view=flame`);
  const { page } = opened;
  const value = (path: string) => page.getAttribute(`[data-path="${path}"]`, "data-value");
  await page.waitForSelector('svg.boxes [data-path="0"]');
  const totals = column("total_instructions");
  expect(await value("0")).toBe(String(totals[0]));
  expect(await value("0.0")).toBe(String(totals[1]));
  await page.keyboard.press("m");
  await page.waitForFunction(() => location.hash.includes("measure=time"));
  expect(await value("0")).toBe(String(column("total_time_ns")[0]));
  const rows = await page.getAttribute(".aside table", "aria-rowcount");
  expect(rows).toBe(String(totals.length));
  await close(opened);
});

test("one key switches to the sunburst, another inverts; a click zooms", async () => {
  const opened = await open(`${viewer.address}#view=flame`);
  const { page } = opened;
  await page.click('svg.boxes [data-path="0.0"] rect');
  await page.waitForFunction(() => location.hash.includes("focus=0.0"));
  const width = await page.locator('svg.boxes [data-path="0.0"] rect').getAttribute("width");
  const whole = await page.locator("svg.boxes").getAttribute("width");
  expect(Number(width)).toBeGreaterThan(Number(whole) - 2);
  await page.keyboard.press("Escape");
  await page.keyboard.press("b");
  await page.waitForSelector('svg.rings [data-path="0"]');
  // The name of a wide ring follows it, and is whole.
  const says = (await page.textContent('svg.rings [data-path="0"] title')) ?? "";
  const name = (await page.textContent('svg.rings [data-path="0"] textPath')) ?? "";
  expect(name.length > 2 && says.startsWith(name)).toBe(true);
  await page.keyboard.press("i");
  await page.waitForFunction(() => location.hash.includes("order=callers"));
  // Inverted, the widest path is the function with most instructions of its own.
  const names = column("function");
  const own = new Map<unknown, number>();
  column("self_instructions").forEach((count, row) => own.set(names[row], (own.get(names[row]) ?? 0) + Number(count)));
  expect(await page.getAttribute('[data-path="0"]', "data-value")).toBe(String(Math.max(...own.values())));
  await close(opened);
});

test("only the selected span is counted", async () => {
  const [t0, t1] = ["1000005000", "1000010000"];
  const opened = await open(`${viewer.address}#view=flame&t0=${t0}&t1=${t1}`);
  const { page } = opened;
  await page.waitForSelector('svg.boxes [data-path="0"]');
  const roots = column("total_instructions", "--time", "1.000005,1.000010");
  expect(await page.getAttribute('[data-path="0"]', "data-value")).toBe(String(roots[0]));
  await page.click('button:text-is("All of the time")');
  const all = String(column("total_instructions")[0]);
  await page.waitForSelector(`[data-path="0"][data-value="${all}"]`);
  await close(opened);
});

test.each([false, true])("a function has the same colour here and in the timeline (dark: %s)", async (dark) => {
  const opened = await open(`${viewer.address}#view=flame`, { dark });
  const { page } = opened;
  await page.waitForSelector('svg.boxes [data-path="0"]');
  const boxes = await page.locator("svg.boxes .box").evaluateAll((all) =>
    all.flatMap((box) => {
      const [name, shape] = [box.querySelector("text")?.textContent, box.querySelector("rect")];
      return name && shape ? [[name.trim(), getComputedStyle(shape).fill]] : [];
    }),
  );
  await page.click('nav a:text-is("Timeline")');
  await page.waitForSelector('.timeline[data-settled="true"]');
  const legend = await page.locator(".legend span:has(> i)").evaluateAll((all) =>
    all.map((one) => [one.textContent?.trim() ?? "", getComputedStyle(one.querySelector("i") as Element).backgroundColor]),
  );
  const colours = new Map(boxes.map(([name, colour]) => [name ?? "", colour ?? ""]));
  const both = legend.filter(([name]) => colours.has(name ?? ""));
  expect(both.length).toBeGreaterThan(1);
  for (const [name, colour] of both) expect(colour, name).toBe(colours.get(name ?? ""));
  await close(opened);
});
