// Everything is reached by keys and read aloud: axe-core finds nothing on any view, in both themes and in forced colours.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";

import { KERNEL, settled } from "./kernel";
import { type Viewer, close, closeBrowser, fixture, open, start } from "./viewer";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const TINY = fixture("perf/tiny.data");
let flow: Viewer;
let kernel: Viewer;

beforeAll(async () => {
  flow = await start([TINY, TINY], ["--symfs", fixture("perf/symfs")]);
  kernel = await start([KERNEL]);
});

afterAll(async () => {
  await closeBrowser();
  await Promise.all([flow.stop(), kernel.stop()]);
});

interface Found {
  violations: { id: string; nodes: { html: string; failureSummary: string }[] }[];
}

/** What axe-core finds on a page. */
async function findings(page: Page): Promise<string[]> {
  await page.evaluate(AXE);
  const { violations } = (await page.evaluate("axe.run(document, { resultTypes: ['violations'] })")) as Found;
  return violations.flatMap(({ id, nodes }) => nodes.slice(0, 3).map(({ html, failureSummary }) => `${id}: ${html.slice(0, 200)} ${failureSummary.slice(0, 300)}`));
}

const PAGES: [name: string, of: () => Viewer, address: string, there: string][] = [
  ["timeline", () => kernel, "view=timeline", '.timeline[data-settled="true"]'],
  ["timeline of calls", () => flow, "view=timeline", '.timeline[data-settled="true"]'],
  ["findings", () => kernel, "view=findings", ".findings li, .findings .good"],
  ["flame graph", () => flow, "view=flame", "svg.boxes"],
  ["sunburst", () => flow, "view=flame&shape=sunburst", "svg.rings"],
  ["latency", () => flow, "view=latency&function=fib", "svg"],
  ["diff", () => flow, "view=diff", ".table, .boxes"],
  ["source", () => flow, "view=source&function=fib", ".source, table"],
  ["execution", () => flow, "view=execution", ".panes"],
  ["events", () => kernel, "view=events&event=sched_stat_runtime&counters=runtime", ".content table"],
  ["tables", () => kernel, "view=tables&report=syscalls", ".content table"],
  ["sql", () => kernel, "view=sql&sql=select+1", ".content table"],
  ["sql plot", () => kernel, "view=sql&show=plot&sql=select+call,count(*)+from+syscalls_interval+group+by+1", "[data-bar]"],
  ["about", () => kernel, "view=about", "main h1"],
];

for (const [name, of, address, there] of PAGES) {
  test(`axe-core finds nothing: ${name}`, async () => {
    for (const dark of [false, true]) {
      const opened = await open(`${of().address}#${address}`, { dark });
      await opened.page.waitForSelector(there);
      await opened.page.waitForTimeout(300);
      expect(await findings(opened.page), dark ? "dark" : "light").toEqual([]);
      await opened.page.context().close();
    }
  });
}

test("boxes of the flame graph are reached by keys", async () => {
  const opened = await open(`${flow.address}#view=flame`);
  const { page } = opened;
  await page.waitForSelector("svg.boxes");
  const focused = () => page.evaluate(() => document.activeElement?.getAttribute("data-path"));
  for (let tabs = 0; tabs < 60 && (await focused()) !== ""; tabs++) await page.keyboard.press("Tab");
  expect(await focused()).toBe("");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("ArrowDown");
  expect(await focused()).toBe("0.0");
  expect(await page.evaluate(() => document.activeElement?.getAttribute("aria-label"))).toMatch(/in tiny: .*instructions/);
  await page.keyboard.press("ArrowRight");
  expect(await focused()).toBe("0.1");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => location.hash.includes("focus=0.1"));
  await close(opened);
});

test("rows of the timeline are reached by keys, and forced colours show what is selected", async () => {
  const opened = await open(`${kernel.address}#view=timeline`);
  const { page } = opened;
  await settled(page);
  await page.emulateMedia({ forcedColors: "active" });
  const focused = () => page.evaluate(() => (document.activeElement?.matches(".name") ? (document.activeElement.closest("[data-row-id]")?.getAttribute("data-row-id") ?? "") : ""));
  for (let tabs = 0; tabs < 60 && !(await focused()).startsWith("states:"); tabs++) await page.keyboard.press("Tab");
  const row = await focused();
  expect(row).toMatch(/^states:/);
  await page.keyboard.press("Enter");
  const colours = () =>
    page.locator(`[data-row-id="${row}"]`).evaluate((label) => [getComputedStyle(label).backgroundColor, getComputedStyle(document.body).backgroundColor]);
  await page.waitForSelector(`[data-row-id="${row}"].selected`);
  const [own, paper] = await colours();
  expect(own).not.toBe(paper);
  await close(opened);
});
