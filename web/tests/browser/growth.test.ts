// A store that grows under the reader's hand. The server answers as if it had read a part of the trace first.

import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";

import type { Session } from "../../src/shared/session";
import type { Store, StoreTable } from "../../src/views/timeline/store";
import { KERNEL, box, rowOf, settled } from "./kernel";
import { type Viewer, close, closeBrowser, open, start } from "./viewer";

let viewer: Viewer;

beforeAll(async () => {
  viewer = await start([KERNEL]);
  const index = async () => ((await (await fetch(`${viewer.address}api/session`)).json()) as Session).index.state;
  while ((await index()) !== "ready") await new Promise((later) => setTimeout(later, 50));
});

afterAll(async () => {
  await closeBrowser();
  await viewer.stop();
});

/** A table with the lanes of some threads left out, and with other times of threads on a CPU, so that these are in another order.
 * The lanes are the last ones, so that others keep their numbers. */
function cut(table: StoreTable): StoreTable {
  const most = table.name === "states" ? table.lanes.length - 4 : table.lanes.length;
  const first = <T>(all: T[]) => all.slice(0, most);
  return { ...table, lanes: first(table.lanes), paths: first(table.paths), weights: first(table.weights).reverse() };
}

/** Makes a page see a part of the store, until the returned function lets it see all; tiles of that wait for `ready`. */
async function growing(page: Page): Promise<{ grow: () => void; ready: () => void }> {
  let isGrown = false;
  let ready = () => {};
  const isReady = new Promise<void>((done) => (ready = done));
  await page.route("**/api/session", async (route) => {
    const session = (await (await route.fetch()).json()) as Session;
    if (!isGrown) session.index = { state: "building", done: 1, total: 10 };
    await route.fulfill({ json: session });
  });
  await page.route(/\/api\/timeline$/, async (route) => {
    const store = (await (await route.fetch()).json()) as Store;
    // Times count from another origin than later, and the end is not yet known.
    const part = { ...store, generation: store.generation + 7, length: Math.floor(store.length / 2), tables: store.tables.map(cut) };
    await route.fulfill({ json: isGrown ? store : part });
  });
  await page.route(/\/api\/timeline\/.*generation=/, async (route) => {
    const url = route.request().url();
    const asked = /generation=(\d+)/.exec(url)?.[1];
    const own = String(Number(asked) > 7 ? Number(asked) - 7 : asked);
    if (own === asked) await isReady;
    await route.continue({ url: url.replace(/generation=\d+/, `generation=${own}`) }).catch(() => {});
  });
  return { grow: () => (isGrown = true), ready };
}

test.each([false, true])("what grows changes nothing under the reader's hand (dark: %s)", async (dark) => {
  const opened = await open(`${viewer.address}#view=about`, { dark, height: 500 });
  const { page } = opened;
  const { grow, ready } = await growing(page);
  await page.goto(`${viewer.address}#view=timeline`);
  await page.reload();
  await settled(page);
  const lanes = async () => page.locator('[data-group="Threads"] .fold span').textContent();
  const few = Number(await lanes());
  // The reader scrolls, selects, zooms, chooses a span, and types.
  await page.click(`${rowOf("243")} .name`);
  await page.keyboard.press(".");
  await page.waitForSelector(".record");
  await page.keyboard.press("w");
  await page.waitForFunction(() => location.hash.includes("t0="));
  await page.evaluate(() => document.querySelector(".scroller")?.scrollTo(0, 130));
  await page.fill('input[name="note"]', "half a note");
  await page.click('input[name="find"]');
  await page.keyboard.type("half a search");
  await settled(page);
  await page.evaluate(() => Object.assign(document.querySelector(".timeline") as object, { isSame: true }));
  const hash = await page.evaluate(() => location.hash);
  const [row, record] = [await box(page, rowOf("243")), await page.textContent(".record")];
  const colours = await page.locator(".legend i").evaluateAll((all) => all.map((one) => getComputedStyle(one).backgroundColor).slice(0, 5));
  // The part of the picture that the selected row has.
  const pixels = () =>
    page.locator(".picture").evaluate((element, [top, high]) => {
      const canvas = element as HTMLCanvasElement;
      const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
      copy?.drawImage(canvas, 0, 0);
      const from = (top - canvas.getBoundingClientRect().top) * devicePixelRatio;
      return [...(copy?.getImageData(0, from, canvas.width, high).data ?? [])].filter((_, at) => at % 4 === 3 && at % 16 === 3).filter((alpha) => alpha > 0).length;
    }, [row.y + 4, row.height - 8] as const);
  const drawn = await pixels();
  expect(drawn).toBeGreaterThan(100);
  grow();
  await page.waitForFunction((few) => Number(document.querySelector('[data-group="Threads"] .fold span')?.textContent) > few, few);
  // Before the new tiles are here, the picture is that of before.
  expect(await pixels()).toBeGreaterThan(0.9 * drawn);
  ready();
  await settled(page);
  expect(await pixels()).toBeGreaterThan(0.9 * drawn);
  expect(await page.evaluate(() => (document.querySelector(".timeline") as unknown as { isSame?: boolean }).isSame)).toBe(true);
  expect(await page.evaluate(() => location.hash)).toBe(hash);
  expect((await box(page, rowOf("243"))).y).toBe(row.y);
  expect(await page.textContent(".record")).toBe(record);
  expect(await page.inputValue('input[name="note"]')).toBe("half a note");
  expect(await page.inputValue('input[name="find"]')).toBe("half a search");
  expect(await page.evaluate(() => document.activeElement?.getAttribute("name"))).toBe("find");
  expect(await page.locator(".legend i").evaluateAll((all) => all.map((one) => getComputedStyle(one).backgroundColor).slice(0, 5))).toEqual(colours);
  await close(opened);
});

test("before a reader has begun, rows come in the order of the newest store", async () => {
  const opened = await open(`${viewer.address}#view=about`, { height: 1800 });
  const { page } = opened;
  const { grow, ready } = await growing(page);
  await page.goto(`${viewer.address}#view=timeline`);
  await page.reload();
  await settled(page);
  const order = async () => {
    const rows = await page.locator('[data-row-id^="states:"]').evaluateAll((all) => all.map((one) => [one.getBoundingClientRect().top, one.getAttribute("data-row-id")] as const));
    return rows.sort(([one], [other]) => one - other).map(([, id]) => id);
  };
  const before = await order();
  grow();
  ready();
  await expect.poll(async () => (await order()).length).toBeGreaterThan(before.length);
  const after = await order();
  expect(after.filter((id) => before.includes(id))).not.toEqual(before);
  await page.reload();
  await settled(page);
  expect(await order()).toEqual(after);
  await close(opened);
});

test("indexing can be stopped, and the page says that it was", async () => {
  const opened = await open(`${viewer.address}#view=about`);
  const { page } = opened;
  let isStopped = false;
  await page.route(/\/api\/session(\/stop)?$/, async (route) => {
    isStopped ||= route.request().url().endsWith("/stop");
    const session = (await (await route.fetch()).json()) as Session;
    session.index = isStopped ? { state: "absent", why: "indexing was stopped", failed: true } : { state: "building", done: 3, total: 10 };
    await route.fulfill({ json: session });
  });
  await page.click(".progress button:text('Stop')");
  await page.waitForSelector('.banner:text("not all of it: indexing was stopped")');
  expect(await page.locator(".progress").count()).toBe(0);
  await close(opened);
});
