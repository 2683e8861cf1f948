import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { afterAll, beforeAll, expect, test } from "vitest";

import { HODO, close, closeBrowser, fixture, launch, open, printed } from "./viewer";

const KERNEL = fixture("ctf/lttng2.13-kernel");
let folder: string;

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "hodo-page-"));
});

afterAll(async () => {
  await closeBrowser();
  rmSync(folder, { recursive: true, force: true });
});

function write(name: string, ...options: string[]): { path: string; bytes: number } {
  return writeOf([KERNEL], name, ...options);
}

function writeOf(inputs: string[], name: string, ...options: string[]): { path: string; bytes: number } {
  const path = join(folder, name);
  const store = ["--store", join(folder, "store")];
  const text = execFileSync(HODO, ["view", "-q", "-o", path, ...store, ...options, ...inputs]).toString();
  const bytes = statSync(path).size;
  expect(text.trim()).toBe(`${path}: ${bytes} bytes`);
  return { path, bytes };
}

test("a page that is a file works without a network", async () => {
  const { path, bytes } = write("page.html");
  expect(bytes).toBeLessThan(2 << 20);
  const context = await (await launch()).newContext({ offline: true, viewport: { width: 1280, height: 1800 } });
  const page = await context.newPage();
  const [asked, messages]: [string[], string[]] = [[], []];
  page.on("request", (request) => asked.push(request.url()));
  page.on("console", (message) => messages.push(message.text()));
  page.on("pageerror", (error) => messages.push(String(error)));
  await page.goto(`file://${path}#view=tables&report=cpu`);
  const expected = printed("report", "cpu", KERNEL);
  await page.waitForSelector(`table[aria-rowcount="${expected.rows.length}"]`);
  const cells = await page.locator('.content tr[data-row="0"] td').all();
  const titles = await Promise.all(cells.map((cell) => cell.getAttribute("title")));
  expect(titles).toEqual(expected.rows[0]?.map((cell) => (cell === null ? "" : String(cell))));
  await page.keyboard.press("1");
  await page.waitForSelector(".row-label b");
  const picture = await page.locator(".picture").boundingBox();
  const row = await page.locator('[data-row-id^="states:"][data-row-id*=",336,"]').boundingBox();
  if (!picture || !row) throw new Error("the timeline is not drawn");
  await page.waitForTimeout(500);
  await page.mouse.click(picture.x + 0.75 * picture.width, row.y + row.height / 2);
  await page.waitForSelector('.record [data-cell="state"]:text-is("running")');
  await page.keyboard.press("f");
  await page.keyboard.press(".");
  await page.keyboard.press("2");
  await page.waitForSelector("[data-finding], .findings .good");
  expect(asked.filter((url) => !url.startsWith("file:") && !url.startsWith("data:"))).toEqual([]);
  expect(messages).toEqual([]);
  await context.close();
});

test("a smaller page says what was left out", async () => {
  const { bytes } = write("whole.html");
  const { path, bytes: less } = write("part.html", "--size", "320K");
  expect(less).toBeLessThan(bytes);
  expect(less).toBeLessThanOrEqual(320 << 10);
  const opened = await open(`file://${path}#view=about`);
  await opened.page.waitForSelector("details.banner summary");
  await opened.page.click("details.banner summary");
  await opened.page.waitForSelector('details.banner li:has-text("only the first")');
  await close(opened);
});

test.each([false, true])("a file has a span of some rows, with all of its detail (dark: %s)", async (dark) => {
  const { columns, rows } = printed("report", "states", "--by", "interval", KERNEL);
  const cell = (row: unknown[], name: string) => row[columns.findIndex((column) => column.name === name)];
  const running = rows.filter((row) => cell(row, "state") === "running" && Number(cell(row, "tid")) > 0);
  const begins = running.map((row) => BigInt(String(cell(row, "begin_ns"))));
  const from = begins[Math.floor(begins.length / 2)] ?? 0n;
  const until = from + 3_000_000n;
  const seconds = (time: bigint) => `${time / 1_000_000_000n}.${String(time % 1_000_000_000n).padStart(9, "0")}`;
  const whole = write("detail-whole.html");
  const { path, bytes } = write("detail.html", "--time", `${seconds(from)},${seconds(until)}`, "--rows", "^states");
  expect(bytes).toBeLessThan(whole.bytes);
  const opened = await open(`file://${path}`, { dark });
  const { page } = opened;
  await page.waitForSelector('.timeline[data-settled="true"]');
  expect(await page.inputValue('input[name="rows"]')).toBe("^states");
  const tables = await page.locator(".space [data-row-id]").evaluateAll((all) => all.map((row) => row.getAttribute("data-row-id")?.split(":")[0]));
  expect(new Set(tables)).toEqual(new Set(["states"]));
  // A record of the span has its exact begin and its duration.
  const row = running.find((row) => BigInt(String(cell(row, "begin_ns"))) === from) ?? [];
  await page.click(`.space [data-row-id^="states:"][data-row-id*=",${cell(row, "tid")},"] .name`);
  const picture = await page.locator(".picture").boundingBox();
  const label = await page.locator(`.space [data-row-id^="states:"][data-row-id*=",${cell(row, "tid")},"]`).boundingBox();
  if (!picture || !label) throw new Error("the timeline is not drawn");
  const share = Math.min(0.5, Number(cell(row, "duration_ns")) / 3_000_000 / 2);
  await page.mouse.click(picture.x + share * picture.width, label.y + label.height / 2);
  await page.waitForSelector('.record [data-cell="state"]:text-is("running")');
  await close(opened);
});

test("the views of control flow are in the file: flame graph, latency, source, diff", async () => {
  const symbols = ["--symfs", fixture("perf/symfs")];
  const inputs = [fixture("perf/tiny.data"), fixture("perf/tiny-no-return-compression.data")];
  const { path } = writeOf(inputs, "flow.html", ...symbols);
  const [first] = inputs as [string];
  const opened = await open(`file://${path}#view=flame`);
  const { page } = opened;
  const report = (...words: string[]) => printed(...words, ...symbols, first);
  const paths = report("report", "paths");
  const total = paths.columns.findIndex((column) => column.name === "total_instructions");
  await page.waitForSelector(`svg.boxes [data-path="0"][data-value="${paths.rows[0]?.[total]}"]`);
  // A thread was not chosen when the file was written.
  await page.goto(`file://${path}#view=flame&thread=1`);
  await page.waitForSelector('.problem:has-text("left out")');
  await page.goto(`file://${path}#view=latency`);
  await page.click('.content tr:has(td:text-is("choose")) a');
  await page.waitForSelector(".histogram [data-bin]");
  const bins = report("latency", "--function", "choose").rows.filter((row) => row[0] === "time_ns" && row[1] === "logarithmic");
  const counts = await page.locator(".histogram [data-bin]").evaluateAll((all) => all.map((one) => Number(one.getAttribute("data-count"))));
  expect(counts).toEqual(bins.map((row) => row[4]));
  const slow = bins.at(-1) as number[];
  await page.click('tr[data-group="slow"] button');
  await page.waitForSelector(`p[data-count="${slow[4]}"]`);
  expect(await page.locator('[data-table="executions"] tbody tr').count()).toBe(slow[4]);
  await page.click('nav a:text-is("Source")');
  await page.waitForSelector('.drawing:has-text("5 018 instructions")');
  await page.click('nav a:text-is("Diff")');
  const { summary } = printed("diff", ...symbols, ...inputs);
  await page.waitForSelector(`[data-figure="verdict"]:text-is("${summary.verdict}")`);
  await page.click("details.banner:not([data-unrelated]) summary");
  await page.waitForSelector('details.banner li:has-text("for the functions that run most")');
  await close(opened);
});
