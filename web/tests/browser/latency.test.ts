import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

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

test("sliders divide executions into fast, typical and slow ones", async () => {
  const opened = await open(`${viewer.address}#view=latency&function=choose&bins=linear`);
  const { page } = opened;
  await page.waitForSelector('tr[data-group="slow"][data-sum]');
  const rows = printed("latency", ...OPTIONS, "--function", "choose", "--by", "executions", TINY).rows;
  const times = rows.map((row) => Number(row[3]));
  const group = async (name: string) => {
    const row = page.locator(`tr[data-group="${name}"]`);
    return [Number(await row.getAttribute("data-count")), Number(await row.getAttribute("data-sum"))];
  };
  const expected = (from: number, until: number) => {
    const inside = times.filter((time) => time >= from && time < until);
    return [inside.length, inside.reduce((sum, time) => sum + time, 0)];
  };
  const edges = [...bins("time_ns", "linear").map(([from]) => from as number), Infinity];
  const slow = edges.findLastIndex((edge) => edge <= Number(printed("latency", ...OPTIONS, "--function", "choose", TINY).summary.time_p99_ns));
  expect(await group("slow")).toEqual(expected(edges[slow] as number, Infinity));
  // The keyboard moves a slider by a bin.
  await page.focus('input[name="slow"]');
  await page.keyboard.press("ArrowLeft");
  await page.keyboard.press("ArrowLeft");
  await page.focus('input[name="fast"]');
  await page.keyboard.press("Home");
  await page.keyboard.press("ArrowRight");
  await page.waitForFunction((edge) => location.hash.includes(`slow=${edge}`), edges[slow - 2]);
  const borders = [edges[1], edges[slow - 2]] as [number, number];
  const total = times.reduce((sum, time) => sum + time, 0);
  const [fast, typical, rest] = [expected(0, borders[0]), expected(...borders), expected(borders[1], Infinity)];
  await page.waitForSelector(`tr[data-group="typical"][data-sum="${typical[1]}"]`);
  expect([await group("fast"), await group("typical"), await group("slow")]).toEqual([fast, typical, rest]);
  expect((fast[1] as number) + (typical[1] as number) + (rest[1] as number)).toBe(total);
  await page.click('tr[data-group="slow"] button');
  await page.waitForSelector(`p[data-count="${rest[0]}"]`);
  await close(opened);
});

test("named pairs of markers are those of hodo latency --pair list", async () => {
  const opened = await open(`${viewer.address}#view=latency&function=choose`);
  const { page } = opened;
  await page.waitForSelector('select[name="pair"] option:nth-child(2)', { state: "attached" });
  const names = await page.locator('select[name="pair"] option').evaluateAll((all) => all.slice(1).map((one) => (one as HTMLOptionElement).value));
  const list = execFileSync(HODO, ["latency", "--pair", "list"]).toString().trimEnd().split("\n");
  expect(names).toEqual(list.map((line) => line.trim().split(/\s/)[0]));
  await page.selectOption('select[name="pair"]', "syscall");
  await page.waitForFunction(() => location.hash.includes("pair=syscall") && !location.hash.includes("function="));
  const { summary } = printed("latency", ...OPTIONS, "--pair", "syscall", TINY);
  expect(summary.count).toBe(0);
  await page.waitForSelector('.waiting:has-text("nothing was measured")');
  await close(opened);
});

/** A program that allocates; the 40th time is slow. */
const ALLOCATES = `#include <stdlib.h>
int main(void) {
  for (int round = 1; round <= 60; round++) {
    char *volatile memory = malloc(round == 40 ? 1 << 20 : 24);
    memory[0] = 1;
    free(memory);
  }
  return 0;
}
`;

test("a named pair that occurs is measured as hodo latency --pair measures it", async () => {
  const folder = mkdtempSync(join(tmpdir(), "hodo-pairs-"));
  const [source, program, recording] = ["allocates.c", "allocates", "perf.data"].map((name) => join(folder, name)) as [string, string, string];
  writeFileSync(source, ALLOCATES);
  execFileSync("gcc", ["-O1", "-g", "-o", program, source]);
  execFileSync(HODO, ["record", "--engine", "emulate", "-q", "-o", recording, "--", program]);
  const own = await start([recording]);
  try {
    const measured = (...words: string[]) => printed("latency", "--pair", "malloc", ...words, recording);
    const { summary, rows } = measured();
    expect(Number(summary.count)).toBeGreaterThanOrEqual(60);
    const opened = await open(`${own.address}#view=latency&measure=instructions`);
    const { page } = opened;
    await page.waitForSelector('select[name="pair"] option:text-is("malloc")', { state: "attached" });
    await page.selectOption('select[name="pair"]', "malloc");
    await page.waitForSelector(".histogram [data-bin]");
    const drawn = await page.locator(".histogram [data-bin]").evaluateAll((all) =>
      all.map((one) => ["bin", "count", "cumulated"].map((name) => Number(one.getAttribute(`data-${name}`)))),
    );
    const bins = rows.filter((row) => row[0] === "instructions" && row[1] === "logarithmic");
    expect(drawn).toEqual(bins.map((row) => [row[2], row[4], row[5]].map(Number)));
    expect(await page.getAttribute('[data-percentile="p99"]', "title")).toBe(String(summary.instructions_p99));
    // The slowest execution comes first in the list of all.
    await page.click('tr[data-group="slow"] button');
    const first = page.locator('[data-table="executions"] tbody tr').first();
    const nth = Number(await first.getAttribute("data-nth"));
    const executions = measured("--by", "executions").rows;
    expect(Number(executions[nth - 1]?.[4])).toBe(Math.max(...executions.map((row) => Number(row[4]))));
    await first.locator("a").click();
    await page.waitForFunction(() => location.hash.includes("view=timeline"));
    expect(new URLSearchParams(new URL(page.url()).hash.slice(1)).get("at")).toBe(String(executions[nth - 1]?.[2]));
    await close(opened);
  } finally {
    await own.stop();
    rmSync(folder, { recursive: true });
  }
});

test("what the server refuses is said", async () => {
  const { page } = await open(`${viewer.address}#view=latency&function=no_such_function`);
  await page.waitForSelector('.problem:has-text("no_such_function")');
  await page.context().close();
});
