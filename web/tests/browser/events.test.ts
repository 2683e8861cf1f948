// The view of events: names with counts, conditions, columns, counters, and the instant that it shares with the timeline.

import { afterAll, beforeAll, expect, test } from "vitest";

import { KERNEL, settled, span, spanAfter } from "./kernel";
import { type Viewer, close, closeBrowser, fixture, open, printed, start } from "./viewer";

let viewer: Viewer;

beforeAll(async () => {
  viewer = await start([KERNEL]);
});

afterAll(async () => {
  await closeBrowser();
  await viewer.stop();
});

const count = (query: string) => Number(printed("sql", KERNEL, query).rows[0]?.[0]);
const rowsAre = (rows: number) => `.content table[aria-rowcount="${rows}"]`;

for (const dark of [false, true]) {
  test(`events of a name are filtered by a condition and have the columns that are chosen, ${dark ? "dark" : "light"}`, async () => {
    const opened = await open(`${viewer.address}#view=events`, { dark });
    const { page } = opened;
    for (const [event, events] of printed("report", "count", KERNEL).rows.slice(0, 5)) {
      await page.waitForSelector(`[data-event="${event}"] span:text-is("${events}")`);
    }
    await page.click('[data-event="sched_switch"]');
    await page.waitForSelector(rowsAre(count("select count(*) from sched_switch")));
    await page.click('input[name="where"]');
    await page.keyboard.type("next_tid = 0 and prev_comm regexp '^kworker'");
    await page.keyboard.press("Enter");
    const expected = count("select count(*) from sched_switch where next_tid = 0 and prev_comm regexp '^kworker'");
    expect(expected).toBeGreaterThan(0);
    await page.waitForSelector(rowsAre(expected));
    await page.click('[data-choose="columns"] summary');
    await page.click('input[name="columns-prev_comm"]');
    await page.click('input[name="columns-cpu"]');
    await page.waitForFunction(() => document.querySelectorAll(".content th button").length === 3);
    expect(await page.locator(".content th button").allTextContents()).toEqual(["time", "prev comm", "cpu"]);
    await page.waitForSelector(rowsAre(expected));
    await close(opened);
  });
}

test("a row and the timeline share the instant", async () => {
  const opened = await open(`${viewer.address}#view=events&event=sched_switch`);
  const { page } = opened;
  const times = printed("sql", KERNEL, "select time_ns from sched_switch order by 1").rows.map(([time]) => String(time));
  await page.waitForSelector(rowsAre(times.length));
  await page.click('.content tr[data-row="7"] td:nth-child(3)');
  await page.waitForSelector('tr[data-row="7"].marked');
  const at = () => new URLSearchParams(new URL(page.url()).hash.slice(1)).get("at");
  expect(at()).toBe(times[7]);
  // The timeline has it, and what is selected there is marked here: the last event up to that instant.
  await page.click('nav a:text-is("Timeline")');
  await settled(page);
  expect(at()).toBe(times[7]);
  const later = String(BigInt(times[100] ?? 0) + 1n);
  await page.goto(`${viewer.address}#view=events&event=sched_switch&at=${later}`);
  await page.waitForSelector('tr[data-row="100"].marked');
  // Only what the timeline shows.
  await page.goto(`${viewer.address}#view=timeline`);
  await settled(page);
  const [from, until] = await spanAfter(page, async () => {
    for (let time = 0; time < 4; time++) await page.keyboard.press("w");
  });
  await page.click('nav a:text-is("Events")');
  await page.click('[data-event="sched_switch"]');
  await page.click('input[name="span"]');
  await page.waitForSelector(rowsAre(times.filter((time) => BigInt(time) >= from && BigInt(time) < until).length));
  await close(opened);
});

test("a field is a counter with a scale, and a click there selects the instant", async () => {
  const opened = await open(`${viewer.address}#view=events&event=sched_stat_runtime`);
  const { page } = opened;
  await page.click('[data-choose="counters"] summary');
  await page.click('input[name="counters-runtime"]');
  const rows = count("select count(*) from sched_stat_runtime");
  await page.waitForSelector(`.plot[data-plot="runtime"][data-points="${rows}"] .u-over`);
  const box = await page.locator(".plot .u-over").boundingBox();
  if (!box) throw new Error("the plot is not drawn");
  await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
  await page.mouse.click(box.x + box.width / 2, box.y + box.height / 2);
  await page.waitForSelector(".content tr.marked");
  const at = new URLSearchParams(new URL(page.url()).hash.slice(1)).get("at");
  expect(count(`select count(*) from sched_stat_runtime where time_ns = ${at}`)).toBeGreaterThan(0);
  await close(opened);
});

test("events of all names are one table", async () => {
  const opened = await open(`${viewer.address}#view=events&event=events&where=${encodeURIComponent("event like 'irq%'")}`);
  const { page } = opened;
  await page.waitForSelector(rowsAre(count("select count(*) from events where event like 'irq%'")));
  await close(opened);
});

test("events are ticks on the rows of the timeline", async () => {
  const opened = await open(`${viewer.address}#view=events&event=sched_stat_runtime&where=${encodeURIComponent("cpu = 3")}`);
  const { page } = opened;
  const expected = count("select count(*) from sched_stat_runtime where cpu = 3");
  await page.click('button:text-is("Ticks")');
  await page.click('nav a:text-is("Timeline")');
  await page.waitForSelector(`[data-ticks="${expected}"]`);
  await settled(page);
  // The row of the CPU has ink where it had none, and that of another CPU stays as it was.
  const pixels = async (cpu: number) => {
    const [label, canvas] = await Promise.all([page.locator(`[data-row-id="cpu:${cpu}"]`).boundingBox(), page.locator("canvas.picture").boundingBox()]);
    if (!label || !canvas) throw new Error("the rows are not drawn");
    return page.screenshot({ clip: { x: canvas.x, y: label.y, width: canvas.width, height: 3 } });
  };
  const [own, other] = [await pixels(3), await pixels(0)];
  await page.click('[data-ticks] button[aria-label^="No ticks"]');
  await page.locator("[data-ticks]").waitFor({ state: "detached" });
  await settled(page);
  expect(own.equals(await pixels(3))).toBe(false);
  expect(other.equals(await pixels(0))).toBe(true);
  await close(opened);
});

test.each([false, true])("a trace without states leads from its empty timeline to its events (dark: %s)", async (dark) => {
  const own = await start([fixture("ctf/ust2.16-ctf2")]);
  const opened = await open(`${own.address}#view=timeline`, { dark });
  const { page } = opened;
  await page.click('[data-none="rows"] a');
  await page.waitForSelector("[data-event]");
  expect(page.url()).toContain("view=events");
  await close(opened);
  await own.stop();
});

test.each([false, true])("fields of events are counters above the rows of the timeline (dark: %s)", async (dark) => {
  const opened = await open(`${viewer.address}#view=events&event=sched_stat_runtime&counters=runtime`, { dark });
  const { page } = opened;
  await page.click('[data-in-timeline="runtime"]');
  await page.click('nav a:text-is("Timeline")');
  const label = '[data-counter="sched_stat_runtime.runtime"]';
  const most = (where: string) => String(count(`select max(runtime) from sched_stat_runtime ${where}`));
  // All of the time, then a part: the scale is that of what is seen.
  await settled(page);
  await spanAfter(page, () => page.keyboard.press("0"));
  await page.waitForSelector(`${label}[data-low="0"][data-high="${most("")}"]`);
  await spanAfter(page, async () => {
    for (let time = 0; time < 6; time++) await page.keyboard.press("w");
  });
  const expected = () => {
    const [from, until] = span(page);
    const before = count(`select runtime from sched_stat_runtime where time_ns < ${from} order by time_ns desc limit 1`);
    return String(Math.max(before, Number(most(`where time_ns >= ${from} and time_ns < ${until}`))));
  };
  await expect.poll(async () => (await page.getAttribute(label, "data-high")) === expected(), { interval: 500, timeout: 30_000 }).toBe(true);
  // Something is drawn, and a name that the trace does not have says so.
  const canvas = await page.locator(".counters canvas").boundingBox();
  if (!canvas) throw new Error("the counter is not drawn");
  const drawn = await page.screenshot({ clip: canvas });
  const known = new URLSearchParams(new URL(page.url()).hash.slice(1));
  known.set("plots", JSON.stringify(["sched_stat_runtime.runtime", "sched_stat_runtime.nothing"]));
  await page.goto(`${viewer.address}#${known}`);
  await page.waitForSelector('[data-counter="sched_stat_runtime.nothing"] .problem:has-text("nothing")');
  await page.click('[aria-label="No counter sched_stat_runtime.nothing"]');
  await page.click('[aria-label="No counter sched_stat_runtime.runtime"]');
  await page.locator(".counters").waitFor({ state: "detached" });
  expect(new URL(page.url()).hash).not.toContain("plots");
  expect(drawn.equals(await page.screenshot({ clip: canvas }))).toBe(false);
  // The server refused the wrong name, and nothing else.
  expect(opened.messages.splice(0).every((message) => message.includes("422"))).toBe(true);
  await close(opened);
});

test("--counter opens the page with a counter", async () => {
  const own = await start([KERNEL], ["--counter", "sched_stat_runtime.runtime"]);
  const opened = await open(own.address);
  await opened.page.waitForSelector('[data-counter="sched_stat_runtime.runtime"][data-high]');
  await close(opened);
  await own.stop();
});
