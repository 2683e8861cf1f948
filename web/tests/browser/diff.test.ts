import { afterAll, expect, test } from "vitest";

import { close, closeBrowser, fixture, open, printed, start } from "./viewer";

const TINY = fixture("perf/tiny.data");
const OPTIONS = ["--symfs", fixture("perf/symfs")];

afterAll(closeBrowser);

test("without a function, functions with two executions can be chosen", async () => {
  const viewer = await start([TINY], OPTIONS);
  const opened = await open(`${viewer.address}#view=diff`);
  const { page } = opened;
  // Nothing is compared, so there is nothing to switch.
  await page.waitForSelector('tr:has(td:text-is("choose")) a');
  expect(await page.locator(".switch").count()).toBe(0);
  expect(await page.locator('tr:has(td:text-is("main")) a').count()).toBe(0);
  await page.click('tr:has(td:text-is("choose")) a');
  await page.waitForSelector('[data-path="0"]');
  expect(await page.inputValue('input[name="name"]')).toContain("choose");
  const { summary } = printed("diff", ...OPTIONS, "--function", "choose@tiny", "--nth", "1,2", TINY);
  expect(await page.textContent('.drawing [data-figure="verdict"]')).toBe(summary.verdict);
  await close(opened);
  await viewer.stop();
});

test("two executions: the numbers of hodo diff, grown apart from shrunk, and the divergence", async () => {
  const viewer = await start([TINY], OPTIONS);
  const opened = await open(`${viewer.address}#view=diff`);
  const { page } = opened;
  await page.fill('input[name="n"]', "1");
  await page.fill('input[name="m"]', "3");
  await page.fill('input[name="name"]', "choose");
  await page.press('input[name="name"]', "Enter");
  await page.waitForSelector('[data-path="0"]');
  const words = ["diff", ...OPTIONS, "--function", "choose", "--nth", "1,3"];
  const { summary, columns, rows } = printed(...words, TINY);
  const value = (path: string) => page.getAttribute(`[data-path="${path}"]`, "data-value");
  expect(await page.textContent('.drawing [data-figure="verdict"]')).toBe(summary.verdict);
  expect(Number(await value("0"))).toBe(Number(summary.b_instructions));
  await page.click('[data-value="a"]:not(g)');
  await page.waitForFunction(() => location.hash.includes("width=a"));
  expect(Number(await value("0"))).toBe(Number(summary.a_instructions));
  await page.keyboard.press("g");
  await page.waitForFunction(() => location.hash.includes("width=grown"));
  const byPath = printed(...words, "--by", "path", TINY);
  const delta = columns.findIndex((column) => column.name === "delta_instructions");
  const grown = byPath.rows.reduce((sum, row) => sum + Math.max(0, Number(row[delta])), 0);
  expect(Number(await value("0"))).toBe(grown);
  expect(await page.getAttribute(".aside > .table table", "aria-rowcount")).toBe(String(rows.length));
  await page.click('button:text-is("Find the first divergence")');
  await page.waitForSelector('table[data-table="first_divergence"]');
  const common = await page.locator('[data-figure="common_instructions"]').textContent();
  // `--format json` writes one table after the other; the divergence is the last one.
  expect(Number(common?.replace(/\D/g, ""))).toBeGreaterThan(0);
  await close(opened);
  await viewer.stop();
});

test("two recordings of the same run do not differ", async () => {
  const files = [TINY, fixture("perf/tiny-no-return-compression.data")];
  const viewer = await start(files, OPTIONS);
  const opened = await open(`${viewer.address}#view=diff`);
  const { page } = opened;
  await page.waitForSelector('[data-path="0"]');
  const { summary } = printed("diff", ...OPTIONS, ...files);
  expect(await page.textContent('.drawing [data-figure="verdict"]')).toBe(summary.verdict);
  await page.click('a:text-is("Flame graph")');
  await page.selectOption('[data-choice="recording"]', "1");
  await page.waitForSelector('svg.boxes [data-path="0"][data-value="20731"]');
  await close(opened);
  await viewer.stop();
});
