// A large trace: what a reader does while it is indexed, and how quickly the page answers afterwards.
// LARGE=TRACE [STORE=FOLDER] npx vitest run --dir tests/browser large

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import type { Page } from "playwright-core";
import { afterAll, describe, expect, test } from "vitest";

import type { Session } from "../../src/shared/session";
import { box, settled } from "./kernel";
import { percentile, tasksWhile } from "./tasks";
import { close, closeBrowser, open, start } from "./viewer";

const LARGE = process.env.LARGE;

/** Milliseconds of the processor that one task of the page may take while the store grows, so that no frame is later. */
const MOST_OF_A_FRAME = 250;
/** Milliseconds for a frame of 60 a second. */
const FRAME = 17;
const FIRST_PICTURE = 1000;
const HOVER = 50;

afterAll(closeBrowser);

async function indexOf(address: string): Promise<Session["index"]> {
  return ((await (await fetch(`${address}api/session`)).json()) as Session).index;
}

/** Waits until a frame was drawn. */
async function frame(page: Page): Promise<void> {
  await page.evaluate(() => new Promise((drawn) => requestAnimationFrame(drawn)));
}

/** Presses keys, drags and turns the wheel; returns what was typed. */
async function readAround(page: Page, round: number): Promise<string> {
  const picture = await box(page, ".picture");
  const [x, y] = [picture.x + (0.3 + 0.1 * (round % 5)) * picture.width, picture.y + picture.height / 2];
  await page.mouse.move(x, y);
  await page.mouse.wheel(0, 150);
  await page.keyboard.press("w");
  await page.mouse.down();
  await page.mouse.move(x + 40, y, { steps: 5 });
  await page.mouse.up();
  await page.keyboard.press("s");
  const typed = String.fromCharCode(97 + (round % 26));
  await page.click('input[name="find"]', { position: { x: 3, y: 5 } });
  await page.keyboard.press("End");
  await page.keyboard.type(typed);
  await page.locator(".scroller").focus();
  return typed;
}

describe.skipIf(!LARGE)("a large trace", () => {
  const own = mkdtempSync(join(tmpdir(), "hodo-large-"));
  const store = process.env.STORE ?? own;
  afterAll(() => rmSync(own, { recursive: true, force: true }));

  test("nothing is lost while it is indexed, and no frame is late", { timeout: 300_000 }, async () => {
    const viewer = await start([LARGE as string], ["--store", own]);
    const opened = await open(`${viewer.address}#view=timeline`);
    const { page } = opened;
    await page.waitForSelector(".picture");
    await page.evaluate(() => Object.assign(document.querySelector(".timeline") as object, { isSame: true }));
    let [typed, rounds] = ["", 0];
    const tasks = await tasksWhile(page, async () => {
      do {
        typed += await readAround(page, rounds++);
        expect(await page.inputValue('input[name="find"]')).toBe(typed);
      } while ((await indexOf(viewer.address)).state === "building");
      await settled(page);
    });
    expect(await page.evaluate(() => (document.querySelector(".timeline") as unknown as { isSame?: boolean }).isSame)).toBe(true);
    expect(await page.inputValue('input[name="find"]')).toBe(typed);
    const processor = tasks.map(({ processor }) => processor);
    console.log(`${rounds} rounds, ${tasks.length} tasks, longest ${Math.max(...processor).toFixed(1)} ms of the processor, ${Math.max(...tasks.map(({ wall }) => wall)).toFixed(1)} ms by the clock`);
    expect(rounds).toBeGreaterThan(2);
    expect(Math.max(...processor)).toBeLessThan(MOST_OF_A_FRAME);
    await close(opened);
    await viewer.stop();
  });

  test.each([false, true])("a stored one is drawn, zoomed and dragged at once (dark: %s)", { timeout: 300_000 }, async (dark) => {
    const viewer = await start([LARGE as string], ["--store", store]);
    await expect.poll(async () => (await indexOf(viewer.address)).state, { timeout: 200_000 }).toBe("ready");
    const opened = await open("about:blank", { dark });
    const { page } = opened;
    const begun = performance.now();
    await page.goto(`${viewer.address}#view=timeline`);
    await page.waitForSelector('.timeline[data-settled="true"]');
    const first = performance.now() - begun;
    const picture = await box(page, ".picture");
    const [x, y] = [picture.x + picture.width / 2, picture.y + 60];
    const zoom = async () => {
      await page.mouse.move(x, y);
      for (let step = 0; step < 24; step++) {
        await page.keyboard.press(step % 6 < 3 ? "w" : "s");
        await frame(page);
      }
    };
    const drag = async () => {
      await page.mouse.move(x, y);
      await page.mouse.down();
      for (let step = 0; step < 60; step++) {
        await page.mouse.move(x + 4 * (step % 30), y);
        await frame(page);
      }
      await page.mouse.up();
    };
    // The first time, the browser compiles what draws.
    await zoom();
    await drag();
    await settled(page);
    const zooming = await tasksWhile(page, zoom);
    await settled(page);
    const dragging = await tasksWhile(page, drag);
    await settled(page);
    const hovers: number[] = [];
    for (let step = 0; step < 20; step++) {
      const at = performance.now();
      await page.mouse.move(picture.x + ((step + 1) / 22) * picture.width, y);
      await page.waitForSelector(".hint");
      hovers.push(performance.now() - at);
    }
    // Tasks shorter than this draw nothing.
    const busy = (tasks: { processor: number }[]) => tasks.map(({ processor }) => processor).filter((time) => time > 1);
    const [ofZoom, ofDrag] = [percentile(busy(zooming), 0.95), percentile(busy(dragging), 0.95)];
    const hover = percentile(hovers, 0.95);
    console.log(`first picture ${first.toFixed(0)} ms; 95 % of tasks: zoom ${ofZoom.toFixed(1)} ms, drag ${ofDrag.toFixed(1)} ms; hover ${hover.toFixed(0)} ms`);
    expect.soft(first).toBeLessThan(FIRST_PICTURE);
    expect.soft(ofZoom).toBeLessThan(FRAME);
    expect.soft(ofDrag).toBeLessThan(FRAME);
    expect.soft(hover).toBeLessThan(HOVER);
    await close(opened);
    await viewer.stop();
  });
});
