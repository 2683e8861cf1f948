import { execFileSync } from "node:child_process";

import { afterAll, beforeAll, expect, test } from "vitest";

import { HODO, type Viewer, close, closeBrowser, fixture, open, printed, start } from "./viewer";

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

interface Annotation {
  lines: { line: number; executions: number }[];
  code: { address: number; executions: number }[];
}

test("the counts are those of hodo annotate", async () => {
  const opened = await open(`${viewer.address}#view=source`);
  const { page } = opened;
  await page.locator('.content tr:has-text("choose") a').first().click();
  await page.waitForSelector("tr[data-address]");
  const text = execFileSync(HODO, ["annotate", ...OPTIONS, "-q", "--format", "json", "choose", TINY], {
    stdio: ["ignore", "pipe", "ignore"],
  });
  const expected = JSON.parse(text.toString()) as Annotation;
  const drawn = await page
    .locator("tr[data-address]")
    .evaluateAll((rows) => rows.map((row) => [row.getAttribute("data-address"), Number(row.getAttribute("data-executions"))]));
  expect(drawn).toEqual(expected.code.map((one) => [one.address.toString(16), one.executions]));
  await close(opened);
});

test("a line leads to its executions, and keys to the next and the one before", async () => {
  const opened = await open(`${viewer.address}#view=source&function=choose`);
  const { page } = opened;
  await page.click('tr[data-line="22"]');
  const words = ["latency", ...OPTIONS, "--from", "tiny.c:22", "--to", "tiny.c:22", "--nesting", "first", "--by", "executions"];
  const { columns, rows } = printed(...words, TINY);
  const begin = columns.findIndex((column) => column.name === "begin_ns");
  await page.waitForSelector(`[data-count="${rows.length}"]`);
  await page.keyboard.press(".");
  await page.keyboard.press(".");
  await page.keyboard.press(".");
  await page.keyboard.press(",");
  await page.waitForSelector('[data-table="passages"] tr.marked:nth-child(2)');
  const link = page.locator('[data-table="passages"] tr.marked a');
  expect(await link.getAttribute("data-begin")).toBe(String(rows[1]?.[begin]));
  const span = "&t0=1000005000&t1=1000010000";
  await page.goto(`${viewer.address}#view=source&function=choose&place=tiny.c:22${span}`);
  const part = printed(...words, "--time", "1.000005,1.000010", TINY).rows.filter((row) => row[begin] !== null);
  await page.waitForSelector(`[data-count="${part.length}"]`);
  expect(part.length).toBeLessThan(rows.length);
  await close(opened);
});
