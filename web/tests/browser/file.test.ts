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
  const path = join(folder, name);
  const store = ["--store", join(folder, "store")];
  const text = execFileSync(HODO, ["view", "-q", "-o", path, ...store, ...options, KERNEL]).toString();
  const bytes = statSync(path).size;
  expect(text.trim()).toBe(`${path}: ${bytes} bytes`);
  return { path, bytes };
}

test("a page that is a file works without a network", async () => {
  const { path, bytes } = write("page.html");
  expect(bytes).toBeLessThan(2 << 20);
  const context = await (await launch()).newContext({ offline: true });
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
  const { path, bytes: less } = write("part.html", "--size", "150K");
  expect(less).toBeLessThan(bytes);
  expect(less).toBeLessThanOrEqual(150 << 10);
  const opened = await open(`file://${path}#view=about`);
  await opened.page.waitForSelector("details.banner summary");
  await opened.page.click("details.banner summary");
  await opened.page.waitForSelector('details.banner li:has-text("only the first")');
  await close(opened);
});
