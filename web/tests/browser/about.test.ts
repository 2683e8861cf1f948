import { afterAll, beforeAll, expect, test } from "vitest";

import { type Viewer, close, closeBrowser, fixture, open, printed, start } from "./viewer";

const KERNEL = fixture("ctf/lttng2.13-kernel");
let viewer: Viewer;

beforeAll(async () => {
  viewer = await start([KERNEL]);
});

afterAll(async () => {
  await closeBrowser();
  await viewer.stop();
});

test("about says what is in the trace and what was lost", async () => {
  const opened = await open(`${viewer.address}#view=about`);
  const { page } = opened;
  const count = printed("report", "count", KERNEL).summary;
  await page.waitForSelector('[data-figure="events_lost"]');
  expect(await page.textContent('[data-figure="events_lost"]')).toBe(String(count.events_lost));
  const lossless = count.events_lost === 0 && count.packets_lost === 0;
  expect(await page.locator(lossless ? ".good" : ".bad").count()).toBe(1);
  expect(await page.locator(".about table tbody tr[data-row]").count()).toBe(count.streams as number);
  await close(opened);
});

test("findings are those of hodo explain, and their links lead to tables", async () => {
  const opened = await open(`${viewer.address}#view=findings`);
  const { page } = opened;
  const expected = printed("explain", KERNEL);
  const sentence = expected.columns.findIndex((column) => column.name === "finding");
  await page.waitForSelector(expected.rows.length ? "[data-finding]" : ".findings .good");
  // A number and its unit stay on one line.
  const sentences = (await page.locator(".sentence").allTextContents()).map((text) => text.replaceAll("\u00a0", " "));
  expect(sentences).toEqual(expected.rows.map((row) => row[sentence]));
  const links = await page.locator('.evidence a:text-is("See the table")').count();
  for (let link = 0; link < links; link++) {
    await page.locator('.evidence a:text-is("See the table")').nth(link).click();
    await page.waitForSelector(".content table");
    await page.goBack();
    await page.waitForSelector("[data-finding]");
  }
  await close(opened);
});

test("views are reached by keys, and ? lists them", async () => {
  const opened = await open(viewer.address);
  const { page } = opened;
  await page.waitForSelector(".bar nav a");
  const names = await page.locator(".bar nav a").allTextContents();
  for (const [number, name] of names.entries()) {
    await page.keyboard.press(String(number + 1));
    await page.waitForSelector(`.bar nav a[aria-current="page"]:text-is("${name}")`);
  }
  await page.keyboard.press("?");
  await page.waitForSelector("dialog[open] kbd");
  await page.keyboard.press("Escape");
  await page.waitForSelector("dialog", { state: "detached" });
  const theme = () => page.evaluate(() => document.documentElement.dataset.theme);
  const before = await theme();
  await page.keyboard.press("t");
  expect(await theme()).not.toBe(before);
  await close(opened);
});
