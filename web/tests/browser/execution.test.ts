import { execFileSync } from "node:child_process";

import type { Page } from "playwright-core";
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

/** What `hodo script` prints, without the losses. */
function script(...words: string[]): string {
  return execFileSync(HODO, ["script", ...OPTIONS, ...words, TINY], { stdio: ["ignore", "pipe", "ignore"], maxBuffer: 1 << 26 }).toString();
}

/** The address of each instruction of the only thread. */
const addresses = () => script("--insns").split("\n").filter((line) => /^[0-9a-f]+$/.test(line)).map((line) => `0x${line}`);

const number = async (page: Page) => Number(await page.locator(".where").getAttribute("data-number"));
const address = (page: Page) => page.locator('[aria-label="Code"] tr[data-current="1"]').getAttribute("data-address");

/** Does something that moves, and returns where to. */
async function moved(page: Page, act: () => Promise<unknown>): Promise<number> {
  const before = await number(page);
  await act();
  await page.waitForFunction((before) => document.querySelector<HTMLElement>(".where")?.dataset.number !== before, String(before));
  await page.waitForSelector('.where[data-busy="0"]');
  return number(page);
}

test("an instruction is where hodo script has it, and its stack is that of hodo script --at", async () => {
  for (const dark of [false, true]) {
    const all = addresses();
    const middle = Math.floor(all.length / 2);
    const opened = await open(`${viewer.address}#view=execution&number=${middle}`, { dark });
    const { page } = opened;
    await page.waitForSelector('[aria-label="Code"] tr[data-current="1"]');
    expect(await address(page)).toBe(all[middle]);
    const scene = JSON.parse(script("--at", `#${middle}`, "--format", "jsonl")) as {
      time_ns: number;
      frames: { function: string; line: number | null }[];
    };
    const drawn = await page.locator("[data-frame]").evaluateAll((frames) => frames.map((frame) => frame.getAttribute("data-function")));
    expect(drawn).toEqual(scene.frames.map((frame) => frame.function));
    expect(await page.locator(".where").getAttribute("data-time")).toBe(String(scene.time_ns));
    const line = page.locator('[aria-label="Source"] tr[data-current="1"]');
    if (scene.frames[0]?.line && (await line.count())) expect(await line.getAttribute("data-line")).toBe(String(scene.frames[0].line));
    await close(opened);
  }
});

test("keys step forwards, and backwards with Shift; the address and the timeline's cursor follow", async () => {
  const all = addresses();
  const opened = await open(`${viewer.address}#view=execution&number=100`);
  const { page } = opened;
  await page.waitForSelector('.where[data-number="100"]');
  for (let step = 101; step <= 110; step++) {
    expect(await moved(page, () => page.keyboard.press("i"))).toBe(step);
    expect(await address(page)).toBe(all[step]);
  }
  for (let step = 109; step >= 100; step--) expect(await moved(page, () => page.keyboard.press("I"))).toBe(step);
  const over = await moved(page, () => page.keyboard.press("n"));
  expect(over).toBeGreaterThan(100);
  expect(page.url()).toContain(`number=${over}`);
  expect(page.url()).toContain(`at=${await page.locator(".where").getAttribute("data-time")}`);
  await page.reload();
  await page.waitForSelector(`.where[data-number="${over}"]`);
  await moved(page, () => page.keyboard.press("End"));
  expect(await number(page)).toBe(all.length - 1);
  await page.keyboard.press("i");
  await page.waitForSelector('.where strong:has-text("ends here")');
  await moved(page, () => page.keyboard.press("Home"));
  expect(await number(page)).toBe(0);
  await close(opened);
});

test("searches find each execution of a function, in both directions", async () => {
  const { columns, rows } = printed("report", "functions", ...OPTIONS, TINY);
  const cell = (row: unknown[], name: string) => row[columns.findIndex((column) => column.name === name)];
  const calls = Number(cell(rows.find((row) => cell(row, "function") === "choose") ?? [], "calls"));
  expect(calls).toBeGreaterThan(1);
  const opened = await open(`${viewer.address}#view=execution&number=0`);
  const { page } = opened;
  await page.waitForSelector('.where[data-number="0"]');
  const find = page.locator('input[aria-label="Find an execution"]');
  await page.keyboard.press("/");
  await find.fill("choose");
  const found: number[] = [];
  for (let call = 0; call < Math.min(calls, 6); call++) found.push(await moved(page, () => find.press("Enter")));
  expect(await page.locator('[data-frame="0"]').getAttribute("data-function")).toBe("choose");
  for (const expected of found.slice(0, -1).reverse()) expect(await moved(page, () => find.press("Shift+Enter"))).toBe(expected);
  await find.press("Shift+Enter");
  await page.waitForSelector('.where strong:has-text("never executed before")');
  // Back returns to the search before.
  await page.goBack();
  await page.waitForSelector(`.where[data-number="${found[1]}"]`);
  await close(opened);
});

test("marks are set here and in the timeline, and are instants to go to", async () => {
  for (const dark of [false, true]) {
    const opened = await open(`${viewer.address}#view=execution&number=100`, { dark });
    const { page } = opened;
    const time = () => page.locator(".where").getAttribute("data-time");
    await page.waitForSelector('.where[data-number="100"]');
    const first = await time();
    await page.keyboard.press("m");
    await page.waitForSelector(`[data-mark="${first}"][aria-pressed="true"]`);
    const instants = page.locator('[aria-label="Go to an instant"]');
    await instants.fill(`#${Math.floor(addresses().length / 2)}`);
    await moved(page, () => instants.press("Enter"));
    await instants.blur();
    const last = await time();
    await page.keyboard.press("m");
    await page.waitForSelector(`[data-mark="${last}"]`);
    // The timeline measures between them.
    await page.click('nav a:text-is("Timeline")');
    await page.waitForSelector('.measure:has-text("between marks")');
    await page.click('nav a:text-is("Execution")');
    await page.waitForSelector(".where");
    await moved(page, () => page.click(`[data-mark="${first}"]`));
    expect(await time()).toBe(first);
    await moved(page, () => page.keyboard.press("j"));
    expect(await time()).toBe(last);
    await moved(page, () => page.keyboard.press("J"));
    expect(await time()).toBe(first);
    // The same key removes the mark of the instant.
    await page.keyboard.press("m");
    await page.waitForSelector(`[data-mark="${first}"]`, { state: "detached" });
    expect(await page.locator("[data-mark]").count()).toBe(1);
    await close(opened);
  }
});

test("a step that takes long can be given up", async () => {
  const opened = await open(`${viewer.address}#view=execution&number=100`);
  const { page } = opened;
  await page.waitForSelector('.where[data-number="100"]');
  // An answer that does not come.
  await page.route(/api\/execution/, () => {});
  const failed = page.waitForEvent("requestfailed");
  await page.keyboard.press("n");
  await page.click("[data-stop]");
  expect((await failed).url()).toContain("api/execution");
  await page.waitForSelector('[role="alert"]:has-text("Stopped.")');
  expect(await number(page)).toBe(100);
  await page.unroute(/api\/execution/);
  expect(await moved(page, () => page.keyboard.press("i"))).toBe(101);
  await close(opened);
});

test("a click on an instruction leads to its next execution, and a frame shows its own code", async () => {
  const all = addresses();
  const opened = await open(`${viewer.address}#view=execution&number=100`);
  const { page } = opened;
  await page.waitForSelector('.where[data-number="100"]');
  const here = all[100] ?? "";
  const next = all.indexOf(here, 101);
  if (next > 0) expect(await moved(page, () => page.click(`[aria-label="Code"] tr[data-address="${here}"]`))).toBe(next);
  const before = await address(page);
  await page.keyboard.press("ArrowDown");
  await page.waitForSelector('[data-frame="1"][aria-pressed="true"]');
  await page.waitForFunction(
    (before) => document.querySelector('[aria-label="Code"] tr[data-current="1"]')?.getAttribute("data-address") !== before,
    before,
  );
  await close(opened);
});
