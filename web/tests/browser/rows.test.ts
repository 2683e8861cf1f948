// Which rows are shown, how found ones come into sight, and how Esc, Back and Forward lead through the timeline.

import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";

import type { Session } from "../../src/shared/session";
import type { Store } from "../../src/views/timeline/store";
import { KERNEL, box, rowOf, settled, spanAfter, states } from "./kernel";
import { type Viewer, close, closeBrowser, open, start } from "./viewer";

let viewer: Viewer;
/** Rows of a new span need answers. */
const PATIENT = { timeout: 20_000 };
let paths: string[];

beforeAll(async () => {
  viewer = await start([KERNEL]);
  const ask = async (path: string) => (await fetch(`${viewer.address}api/${path}`)).json();
  while (((await ask("session")) as Session).index.state !== "ready") await new Promise((later) => setTimeout(later, 50));
  const { tables } = (await ask("timeline")) as Store;
  paths = tables.filter(({ shape }) => shape !== "links").flatMap((table) => table.paths.map((path) => `${table.name} ${table.title} ${path.join(" › ")}`));
});

afterAll(async () => {
  await closeBrowser();
  await viewer.stop();
});

async function openTimeline(parameters = "", size = {}) {
  const opened = await open(`${viewer.address}#view=timeline${parameters}`, { height: 1800, ...size });
  await settled(opened.page);
  return opened;
}

/** A parameter of the address. */
const parameter = (page: Page, name: string) => new URLSearchParams(new URL(page.url()).hash.slice(1)).get(name);

test("a regular expression filters rows, and a wrong one is taken as text", async () => {
  const opened = await openTimeline();
  const { page } = opened;
  const labels = page.locator(".space [data-row-id]");
  const filtered = async (text: string) => {
    await page.fill('input[name="rows"]', text);
    await page.waitForFunction((text) => (new URLSearchParams(location.hash.slice(1)).get("rows") ?? "") === text, text);
    await settled(page);
    return labels.count();
  };
  const expression = "^states.*(cat|mkdir) \\(33[56]\\)$";
  expect(paths.filter((path) => new RegExp(expression).test(path))).toHaveLength(2);
  expect(await filtered(expression)).toBe(2);
  expect(await page.getAttribute('input[name="rows"]', "aria-invalid")).toBe("false");
  // A name as it is shown is found though brackets mean something else in an expression.
  expect(await filtered("cat (336)")).toBe(paths.filter((path) => path.includes("cat (336)")).length);
  expect(await filtered("cat (33")).toBe(paths.filter((path) => path.includes("cat (33")).length);
  expect(await page.getAttribute('input[name="rows"]', "aria-invalid")).toBe("true");
  await page.waitForSelector('.problem:has-text("taken as text")');
  expect(await filtered("none has this")).toBe(0);
  await page.waitForSelector('.none:has-text("No row passes")');
  await filtered("cat (33");
  // Enter selects the first row.
  await page.press('input[name="rows"]', "Enter");
  await page.waitForSelector(`${rowOf("336")}.selected`);
  await close(opened);
});

test.each([false, true])("only rows that do something in the seen span (dark: %s)", async (dark) => {
  const all = states();
  const isQuiet = (state: string) => ["interruptible", "idle", "sleeping", "stopped"].includes(state);
  // A span of a hundredth of the trace around the begin of a thread's running.
  const begins = all.map(({ begin }) => begin).sort((one, other) => (one < other ? -1 : 1));
  const [first, last] = [begins[0] ?? 0n, begins.at(-1) ?? 0n];
  const middle = all.filter(({ state }) => state === "running")[40]?.begin ?? first;
  const [from, until] = [middle, middle + (last - first) / 100n];
  const expected = new Set(all.filter(({ begin, duration, state }) => !isQuiet(state) && begin < until && begin + duration > from).map(({ tid }) => tid));
  const everyone = new Set(all.map(({ tid }) => tid));
  expect(expected.size).toBeGreaterThan(0);
  expect(expected.size).toBeLessThan(everyone.size);
  const opened = await openTimeline(`&t0=${from}&t1=${until}`, { dark });
  const { page } = opened;
  const shown = async () => {
    const ids = await page.locator('.space [data-row-id^="states:"]').evaluateAll((rows) => rows.map((row) => row.getAttribute("data-row-id") ?? ""));
    return new Set(ids.map((id) => id.slice("states:".length).split(",")[1]));
  };
  await page.keyboard.press("v");
  await page.waitForSelector('[data-only-active][aria-pressed="true"]');
  await expect.poll(shown, PATIENT).toEqual(expected);
  expect(parameter(page, "active")).toBe("1");
  // All of the time: every thread that ever does something.
  await spanAfter(page, () => page.keyboard.press("0"));
  await expect.poll(shown, PATIENT).toEqual(new Set(all.filter(({ state }) => !isQuiet(state)).map(({ tid }) => tid)));
  await page.click("[data-only-active]");
  await page.waitForSelector('[data-only-active][aria-pressed="false"]');
  expect(parameter(page, "active")).toBe(null);
  await close(opened);
});

test("rows are hidden with what is below them, and come back", async () => {
  const opened = await openTimeline();
  const { page } = opened;
  const labels = page.locator(".space [data-row-id]");
  const all = await labels.count();
  const below = paths.filter((path) => path.includes("(336)")).length;
  expect(below).toBeGreaterThan(1);
  await page.click(`${rowOf("336")} .name`);
  await page.keyboard.press("h");
  await page.locator(rowOf("336")).waitFor({ state: "detached" });
  expect(await labels.count()).toBe(all - below);
  // Another one with its button; the address has both.
  await page.hover(rowOf("335"));
  await page.click(`${rowOf("335")} .hide`);
  await page.waitForSelector('[data-hidden="2"]');
  const again = await open(page.url(), { height: 1800 });
  await again.page.waitForSelector('[data-hidden="2"]');
  await settled(again.page);
  expect(await again.page.locator(rowOf("336")).count()).toBe(0);
  await close(again);
  await page.click("[data-hidden]");
  await page.waitForSelector(rowOf("336"));
  expect(await labels.count()).toBe(all);
  await close(opened);
});

test.each([false, true])("what a search finds is opened and scrolled into sight (dark: %s)", async (dark) => {
  const folded = encodeURIComponent(JSON.stringify(["Threads"]));
  const opened = await openTimeline(`&folded=${folded}&rows=nothing&hidden=${encodeURIComponent(JSON.stringify(["Threads › process 336"]))}`, { dark, height: 420 });
  const { page } = opened;
  expect(await page.locator('.space [data-row-id^="states:"]').count()).toBe(0);
  await page.keyboard.press("/");
  await page.keyboard.type("uninterr");
  await page.keyboard.press("Enter");
  const expected = states().filter(({ state }) => state === "uninterruptible");
  await page.waitForSelector(`.matches:has-text("${expected.length} matches")`);
  const tids = new Set<string>();
  for (let visited = 0; visited < expected.length && tids.size < 2; visited++) {
    await page.keyboard.press("Enter");
    const row = page.locator(".row-label.selected");
    await row.waitFor();
    await page.waitForSelector(".record");
    await page.waitForTimeout(200);
    const [label, scroller] = [await box(page, ".row-label.selected"), await box(page, ".scroller")];
    expect(label.y).toBeGreaterThanOrEqual(scroller.y - 1);
    expect(label.y + label.height).toBeLessThanOrEqual(scroller.y + scroller.height + 1);
    tids.add((await row.getAttribute("data-row-id")) ?? "");
  }
  expect(parameter(page, "rows")).toBe(null);
  expect(parameter(page, "folded")).toBe(null);
  await close(opened);
});

test("Back and Forward lead through zooms and selections, and Esc closes one thing", async () => {
  const opened = await openTimeline();
  const { page } = opened;
  const long = states().filter(({ duration }) => duration > 20_000_000n).slice(0, 2);
  const zoomed = await spanAfter(page, () => page.keyboard.press("w"));
  await page.waitForTimeout(1100);
  const closer = await spanAfter(page, () => page.keyboard.press("w"));
  await page.waitForTimeout(1100);
  for (const { tid } of long) await page.click(`${rowOf(tid)} .name`);
  const rows = async () => parameter(page, "row");
  expect(await rows()).toContain(`,${long[1]?.tid},`);
  await page.goBack();
  await expect.poll(rows).toContain(`,${long[0]?.tid},`);
  await page.goBack();
  await expect.poll(rows).toBe(null);
  expect([parameter(page, "t0"), parameter(page, "t1")]).toEqual(closer.map(String));
  await page.goBack();
  await expect.poll(() => parameter(page, "t0")).toBe(String(zoomed[0]));
  await settled(page);
  // What is drawn follows: from here, the next zoom is the same one.
  await page.goForward();
  await expect.poll(() => parameter(page, "t0")).toBe(String(closer[0]));
  await page.goForward();
  await expect.poll(rows).toContain(`,${long[0]?.tid},`);
  // Esc: the list of keys, then the critical path, one after the other; details before the path.
  await page.keyboard.press("k");
  await page.waitForSelector('[data-figure="path_total"]');
  await page.keyboard.press(".");
  await page.waitForSelector(".details");
  await page.keyboard.press("?");
  await page.waitForSelector("dialog[open]");
  await page.keyboard.press("Escape");
  await page.waitForSelector("dialog", { state: "detached" });
  expect(await page.locator(".details").count()).toBe(1);
  await page.keyboard.press("Escape");
  await page.waitForSelector(".details", { state: "detached" });
  expect(await page.locator(".critical").count()).toBe(1);
  await page.keyboard.press("Escape");
  await page.waitForSelector(".critical", { state: "detached" });
  await close(opened);
});
