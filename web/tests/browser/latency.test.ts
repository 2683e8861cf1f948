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

/** The bins of a measure on a scale, as `hodo latency` prints them: from, until, count, cumulated. */
function bins(measure: string, scale: string): number[][] {
  const { rows } = printed("latency", ...OPTIONS, "--function", "choose", TINY);
  return rows.filter((row) => row[0] === measure && row[1] === scale).map((row) => row.slice(2).map(Number));
}

test("the histogram and the percentiles are those of hodo latency", async () => {
  const opened = await open(`${viewer.address}#view=latency`);
  const { page } = opened;
  await page.waitForSelector(".content table");
  await page.fill('input[name="name"]', "choose");
  await page.press('input[name="name"]', "Enter");
  const drawn = () =>
    page.locator(".histogram [data-bin]").evaluateAll((all) =>
      all.map((one) => ["bin", "count", "cumulated"].map((name) => Number(one.getAttribute(`data-${name}`)))),
    );
  await page.waitForSelector(".histogram [data-bin]");
  const expected = (scale: string) => bins("time_ns", scale).map(([from, , count, cumulated]) => [from, count, cumulated]);
  expect(await drawn()).toEqual(expected("logarithmic"));
  await page.click("h1, .inputs");
  await page.keyboard.press("l");
  await page.waitForFunction(() => location.hash.includes("bins=linear"));
  expect(await drawn()).toEqual(expected("linear"));
  await page.keyboard.press("c");
  await page.waitForFunction(() => location.hash.includes("sum=1"));
  const { summary } = printed("latency", ...OPTIONS, "--function", "choose", TINY);
  expect(await page.getAttribute('[data-percentile="p99"]', "title")).toBe(String(summary.time_p99_ns));
  await close(opened);
});

test("a drag chooses a range; its executions lead to the timeline and to call trees", async () => {
  const opened = await open(`${viewer.address}#view=latency&function=choose&bins=linear&measure=instructions`);
  const { page } = opened;
  await page.waitForSelector(".histogram [data-bin]");
  const expected = bins("instructions", "linear");
  const last = page.locator(".histogram [data-bin] rect:nth-of-type(2)").last();
  const box = await last.boundingBox();
  if (!box) throw new Error("no bin is drawn");
  await page.mouse.move(box.x + box.width - 3, box.y + 30);
  await page.mouse.down();
  await page.mouse.move(box.x + 3 - box.width, box.y + 40, { steps: 4 });
  await page.mouse.up();
  const count = (expected.at(-1)?.[2] ?? 0) + (expected.at(-2)?.[2] ?? 0);
  await page.waitForSelector(`[data-count="${count}"]:not(g)`);
  const rows = printed("latency", ...OPTIONS, "--function", "choose", "--by", "executions", TINY).rows;
  const most = Math.max(...rows.map((row) => Number(row[4])));
  const first = page.locator('[data-table="executions"] tbody tr').first();
  const nth = Number(await first.getAttribute("data-nth"));
  expect(Number(rows[nth - 1]?.[4])).toBe(most);
  await first.locator("button").click();
  await page.waitForSelector('[data-table="aligned"] tr[data-slow]');
  expect(await page.locator('[data-table="aligned"] tbody tr').first().getAttribute("data-slow")).toBe(String(most));
  await page.locator('[data-table="executions"] tbody tr').first().locator("a").click();
  await page.waitForFunction(() => location.hash.includes("view=timeline"));
  expect(new URLSearchParams(new URL(page.url()).hash.slice(1)).get("at")).toBe(String(rows[nth - 1]?.[2]));
  await page.waitForSelector(".timeline");
  await close(opened);
});

test("what the server refuses is said", async () => {
  const { page } = await open(`${viewer.address}#view=latency&function=no_such_function`);
  await page.waitForSelector('.problem:has-text("no_such_function")');
  await page.context().close();
});
