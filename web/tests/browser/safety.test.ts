import { cpSync, mkdtempSync, readFileSync, readdirSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { afterAll, beforeAll, expect, test } from "vitest";

import { type Viewer, close, closeBrowser, fixture, open, start } from "./viewer";

const MARKUP = "<img src=x o=1>";
const HIDDEN = "k\u202e\u0007ompa";
let folder: string;
let trace: string;
let viewer: Viewer;

/** A copy of a trace in which names of threads are hostile: markup, and characters that hide and reorder others. */
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "hodo-hostile-"));
  trace = join(folder, "trace");
  cpSync(fixture("ctf/lttng2.13-kernel"), trace, { recursive: true });
  for (const name of readdirSync(trace, { recursive: true, encoding: "utf8" })) {
    const path = join(trace, name);
    if (name.includes("metadata") || name.includes("index")) continue;
    let bytes: Buffer;
    try {
      bytes = readFileSync(path);
    } catch {
      continue; // A folder.
    }
    for (const [from, to] of [["lttng-consumerd", MARKUP], ["kcompactd0", HIDDEN]] as const) {
      const [old, other] = [Buffer.from(from), Buffer.from(to)];
      expect(other.length).toBeLessThanOrEqual(old.length);
      const padded = Buffer.concat([other, Buffer.alloc(old.length - other.length)]);
      for (let at = bytes.indexOf(old); at >= 0; at = bytes.indexOf(old, at)) padded.copy(bytes, at);
    }
    writeFileSync(path, bytes);
  }
  viewer = await start([trace]);
});

afterAll(async () => {
  await closeBrowser();
  await viewer.stop();
  rmSync(folder, { recursive: true, force: true });
});

test("names of a trace are text, and nothing in them is hidden", async () => {
  const opened = await open(`${viewer.address}#view=tables&report=states`);
  const { page } = opened;
  await page.waitForSelector(`td:text-is("${MARKUP}")`);
  await page.waitForSelector('td:has-text("k\\\\u{202e}\\\\u{7}ompa")');
  await page.keyboard.press("1");
  await page.waitForSelector(`.row-label b:has-text("${MARKUP} (")`);
  await page.waitForSelector('.row-label b:has-text("\\\\u{202e}")');
  expect(await page.locator("img").count()).toBe(0);
  const body = await page.evaluate(() => document.body.innerText);
  expect(body).not.toMatch(/[\u202e\u0007]/);
  await close(opened);
});

test("two pages at once have their own selections", async () => {
  const [one, other] = [await open(`${viewer.address}#view=tables&report=cpu`), await open(`${viewer.address}#view=timeline`)];
  await Promise.all([one.page.waitForSelector(".content table"), other.page.waitForSelector(".row-label b")]);
  await Promise.all([one.page.click('.side a:text-is("irq")'), other.page.keyboard.press("w")]);
  await one.page.waitForSelector('.content h1:text-is("irq")');
  expect(other.page.url()).not.toContain("report=irq");
  await close(one);
  await close(other);
});

test("a trace that is replaced while it is open is said to be", async () => {
  const opened = await open(`${viewer.address}#view=tables&report=cpu`);
  const { page } = opened;
  await page.waitForSelector(".content table");
  expect(await page.locator(".banner").count()).toBe(0);
  utimesSync(join(trace, "metadata"), new Date(), new Date(Date.now() - 86_400_000));
  await page.waitForSelector('.banner:has-text("changed after it was opened")', { timeout: 15_000 });
  await page.click('.side a:text-is("sched")');
  await page.waitForSelector('.content h1:text-is("sched")');
  await page.waitForSelector(".content table");
  await close(opened);
});

test("a process that has ended is said to have", async () => {
  const own = await start([fixture("ctf/lttng2.13-kernel")]);
  const opened = await open(`${own.address}#view=about`);
  await opened.page.waitForSelector(".about table");
  await own.stop();
  await opened.page.waitForSelector('.banner:has-text("does not answer")', { timeout: 15_000 });
  // The browser itself prints that the connection was refused.
  opened.messages.splice(0, opened.messages.length, ...opened.messages.filter((text) => !text.includes("ERR_CONNECTION")));
  await close(opened);
});

test("a store that can't be written is said to be missing, and the tables are there", async () => {
  const own = await start([fixture("ctf/lttng2.13-kernel")], ["--store", "/dev/full/store"]).catch(() => undefined);
  if (!own) throw new Error("hodo view does not start without a store");
  const opened = await open(own.address);
  await opened.page.waitForSelector('.banner:has-text("There is no timeline")');
  await opened.page.click('nav a:text-is("Tables")');
  await opened.page.waitForSelector(".content table");
  await close(opened);
  await own.stop();
});
