// What the timeline says under the pointer and of a chosen span, how it begins, and what stays while it grows.

import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";

import type { Session } from "../../src/shared/session";
import type { StoreRecord } from "../../src/views/timeline/details";
import type { Store } from "../../src/views/timeline/store";
import { KERNEL, type State, box, rowOf, settled, spanAfter, states } from "./kernel";
import { type Viewer, close, closeBrowser, fixture, open, printed, start } from "./viewer";

let viewer: Viewer;
let store: Store;

beforeAll(async () => {
  viewer = await start([KERNEL]);
  const ask = async (path: string) => (await fetch(`${viewer.address}api/${path}`)).json();
  while (((await ask("session")) as Session).index.state !== "ready") await new Promise((later) => setTimeout(later, 50));
  store = (await ask("timeline")) as Store;
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

/** States that are wide enough to point at in all of the time. */
function wide(): State[] {
  return states().filter((state) => state.duration > BigInt(store.length) / 50n);
}

/** The place of an instant on the screen, when all of the time is seen. */
async function xOf(page: Page, instant: bigint): Promise<number> {
  const picture = await box(page, ".picture");
  return picture.x + (Number(instant - BigInt(store.origin)) / (store.length + 1)) * picture.width;
}

const ALL = () => `&t0=${store.origin}&t1=${BigInt(store.origin) + BigInt(store.length)}`;

test.each([false, true])("the pointer on a cell shows its value, begin, duration and thread at once (dark: %s)", async (dark) => {
  const opened = await openTimeline(ALL(), { dark });
  const { page } = opened;
  const asked: string[] = [];
  page.on("request", (request) => asked.push(request.url()));
  const some = wide().slice(0, 6);
  expect(some.length).toBeGreaterThan(3);
  for (const { begin, duration, state, tid } of some) {
    const row = await box(page, rowOf(tid));
    await page.mouse.move(await xOf(page, begin + duration / 2n), row.y + row.height / 2);
    const hint = page.locator(`.hint[data-begin="${begin - BigInt(store.origin)}"]`);
    await hint.waitFor();
    expect(await hint.locator('[data-hint="value"]').textContent()).toBe(state);
    expect(await hint.locator('[data-hint="duration"]').getAttribute("data-exact")).toBe(String(duration));
    expect(await hint.locator(".of").textContent()).toContain(`(${tid})`);
  }
  // What the picture has is not asked for again; only further cells of a record are, once the pointer rests.
  expect(asked.filter((url) => !/\/session|\/timeline\/at\?/.test(url))).toEqual([]);
  await page.mouse.move(10, 300);
  await page.locator(".hint").waitFor({ state: "detached" });
  await close(opened);
});

test("the arguments of a record follow when the pointer rests, and the hint stays in the window", async () => {
  const asked = new URLSearchParams({ generation: String(store.generation), table: "syscalls", begin: "0", end: String(store.length) });
  const answer = await fetch(`${viewer.address}api/timeline/longest?${asked}`);
  const [longest] = ((await answer.json()) as { records: StoreRecord[] }).records;
  if (!longest) throw new Error("there are no system calls");
  const table = store.tables.find(({ name }) => name === "syscalls");
  const tid = table?.lanes[longest.lane]?.[table.key.indexOf("tid")];
  const [begin, length] = [BigInt(longest.absolute), BigInt(longest.end - longest.begin)];
  const opened = await openTimeline(`&t0=${begin - length}&t1=${begin + length}`);
  const { page } = opened;
  const picture = await box(page, ".picture");
  const row = await box(page, `[data-row-id^="syscalls:"][data-row-id*=",${tid},"]`);
  await page.mouse.move(picture.x + 0.99 * picture.width, row.y + row.height / 2);
  expect(await page.textContent('.hint [data-hint="value"]')).toBe(longest.value);
  const shown = page.locator('.hint [data-hint="argument"]');
  await shown.first().waitFor();
  const names = longest.cells.filter(({ value }) => value !== null).map(({ name }) => name.replaceAll("_", " "));
  expect((await shown.allTextContents()).map((text, at) => text.startsWith(names[at] ?? ""))).toEqual(names.map(() => true));
  const hint = await box(page, ".hint");
  expect(hint.x + hint.width).toBeLessThanOrEqual(1280);
  await page.keyboard.press("Escape");
  await page.locator(".hint").waitFor({ state: "detached" });
  await close(opened);
});

/** Drags with Shift from one place to another. */
async function chooseSpan(page: Page, from: [x: number, y: number], to: [x: number, y: number]): Promise<void> {
  await page.keyboard.down("Shift");
  await page.mouse.move(...from);
  await page.mouse.down();
  await page.mouse.move(...to, { steps: 4 });
  await page.mouse.up();
  await page.keyboard.up("Shift");
}

/** What an attribute of a line of the sums says, by its name. */
async function lines(page: Page, table: string, kind: string): Promise<Record<string, number>> {
  const all = await page.locator(`[data-sum="${table}"] [data-line="${kind}"]`).evaluateAll((all) =>
    all.map((one) => [one.getAttribute("data-name"), Number(one.getAttribute("data-exact"))] as [string, number]),
  );
  return Object.fromEntries(all);
}

/** Of states in a span: nanoseconds by a key. */
function byKey(all: State[], [from, until]: [bigint, bigint], key: (state: State) => string): Record<string, number> {
  const sums: Record<string, number> = {};
  for (const state of all) {
    const [begin, end] = [state.begin, state.begin + state.duration];
    const inside = (end < until ? end : until) - (begin > from ? begin : from);
    if (inside > 0n) sums[key(state)] = (sums[key(state)] ?? 0) + Number(inside);
  }
  return sums;
}

test.each([false, true])("a chosen span shows its duration and exact sums of the rows it covers (dark: %s)", async (dark) => {
  const opened = await openTimeline(ALL(), { dark });
  const { page } = opened;
  const [picture, row] = [await box(page, ".picture"), await box(page, rowOf("336"))];
  const at = (share: number) => picture.x + share * picture.width;
  await chooseSpan(page, [at(0.3), row.y + 5], [at(0.7), row.y + 9]);
  await page.waitForSelector('[data-sum="states"] [data-line="value"]');
  const known = new URLSearchParams(new URL(page.url()).hash.slice(1));
  const span: [bigint, bigint] = [BigInt(known.get("c0") ?? 0), BigInt(known.get("c1") ?? 0)];
  expect(Number(span[1] - span[0]) / store.length).toBeCloseTo(0.4, 2);
  expect(await page.getAttribute('[data-figure="chosen"]', "data-exact")).toBe(String(span[1] - span[0]));
  const own = states().filter(({ tid }) => tid === "336");
  expect(await lines(page, "states", "value")).toEqual(byKey(own, span, ({ state }) => state));
  const begin = own.filter(({ begin }) => begin >= span[0] && begin < span[1]).length;
  expect(await page.getAttribute('[data-sum="states"]', "data-records")).toBe(String(begin));
  // One row has one thread; all rows have sums by thread and CPU.
  expect(await lines(page, "states", "owner")).toEqual({});
  await page.click('.chosen [data-value="all"]');
  await page.waitForSelector('[data-sum="cpu"] [data-line="owner"]');
  const values = byKey(states(), span, ({ state }) => state);
  expect(await lines(page, "states", "value")).toEqual(values);
  const running = byKey(states().filter(({ state }) => state === "running"), span, ({ comm, tid }) => `${comm} (${tid})`);
  expect(running).toMatchObject(await lines(page, "states", "owner"));
  const cpus = await lines(page, "cpu", "owner");
  expect(Object.keys(cpus).sort()).toEqual(["CPU 0", "CPU 1", "CPU 2", "CPU 3"]);
  // The sums stay in the address, F zooms there, a click or Esc removes them.
  const again = await open(page.url(), { dark, height: 1800 });
  await again.page.waitForSelector('[data-sum="cpu"] [data-line="owner"]');
  await close(again);
  await page.keyboard.press("f");
  await page.waitForFunction((span) => new URLSearchParams(location.hash.slice(1)).get("t0") === span, String(span[0]));
  await page.keyboard.press("Escape");
  await page.locator(".chosen").waitFor({ state: "detached" });
  await close(opened);
});

test("a chosen span leads to its flame graph and its latency", async () => {
  const own = await start([fixture("perf/tiny.data")], ["--symfs", fixture("perf/symfs")]);
  try {
    const opened = await open(`${own.address}#view=timeline`);
    const { page } = opened;
    await settled(page);
    // What orders threads of control flow is their number of instructions.
    const { tables } = (await (await fetch(`${own.address}api/timeline`)).json()) as Store;
    const counted = tables.flatMap(({ instructions }) => instructions).reduce((sum, one) => sum + one, 0);
    expect(counted).toBe(printed("report", "threads", "--symfs", fixture("perf/symfs"), fixture("perf/tiny.data")).summary.instructions);
    const picture = await box(page, ".picture");
    const choose = () => chooseSpan(page, [picture.x + 0.2 * picture.width, picture.y + 30], [picture.x + 0.6 * picture.width, picture.y + 200]);
    await choose();
    await page.waitForSelector('[data-sum="calls"] [data-name="fib"]');
    const known = new URLSearchParams(new URL(page.url()).hash.slice(1));
    const [c0, c1] = [known.get("c0"), known.get("c1")];
    for (const [key, view] of [["g", "flame"], ["e", "latency"]] as const) {
      await page.keyboard.press(key);
      await page.waitForFunction(([view, c0]) => {
        const now = new URLSearchParams(location.hash.slice(1));
        return now.get("view") === view && now.get("t0") === c0;
      }, [view, c0] as const);
      await page.waitForSelector(".chosen-span");
      const now = new URLSearchParams(new URL(page.url()).hash.slice(1));
      expect([now.get("t0"), now.get("t1"), now.get("thread")]).toEqual([c0, c1, "30171"]);
      await page.goBack();
      await page.waitForSelector(".chosen");
    }
    await page.click('.chosen [data-name="fib"] button');
    await page.waitForSelector(".histogram");
    await close(opened);
  } finally {
    await own.stop();
  }
});

test("if CPUs did nearly all of their work in a part of the time, that part is seen first", async () => {
  const opened = await open(`${viewer.address}#view=about`);
  const { page } = opened;
  // As if nothing had happened for nine times as long afterwards.
  await page.route(/\/api\/timeline$/, (route) => route.fulfill({ json: { ...store, length: 10 * store.length } }));
  await page.goto(`${viewer.address}#view=timeline`);
  await page.reload();
  await settled(page);
  const seen = async (act: () => Promise<void>) => spanAfter(page, act);
  const part = await seen(() => page.keyboard.press("w"));
  expect(Number(part[1] - part[0]) / store.length).toBeLessThan(0.7 * 1.1);
  expect(Number(part[1] - part[0]) / store.length).toBeGreaterThan(0.7 * 0.9);
  const whole = await seen(() => page.keyboard.press("0"));
  expect(Number(whole[1] - whole[0]) / store.length).toBeCloseTo(10, 2);
  await close(opened);
});

test("CPUs come first, then threads by their time on a CPU, and idle ones are below one row that opens", async () => {
  const input = fixture("perf/sched-waking.data");
  const own = await start([input]);
  try {
    const opened = await open(`${own.address}#view=timeline`);
    const { page } = opened;
    await settled(page);
    const cpus = await page.locator('[data-row-id^="cpu:"]').count();
    expect(cpus).toBeGreaterThan(0);
    const tops = async (selector: string) => page.locator(selector).evaluateAll((all) => all.map((one) => one.getBoundingClientRect().top));
    const [threads] = await tops('[data-group="Threads"]');
    for (const top of await tops('[data-row-id^="cpu:"]')) expect(top).toBeLessThan(threads ?? 0);
    // The threads that are seen on the first screen, within each process in order of their time on a CPU.
    const running: Record<string, number> = {};
    for (const { tid, state, duration } of states(input)) running[tid] = (running[tid] ?? 0) + (state === "running" ? Number(duration) : 0);
    const seen = await page.locator('[data-row-id^="states:"]').evaluateAll((all) =>
      all
        .map((one) => [one.getBoundingClientRect().top, (one.getAttribute("data-row-id") ?? "").split(":")[1]?.split(",") ?? []] as const)
        .sort(([one], [other]) => one - other)
        .map(([, [pid = "", tid = ""]]) => ({ pid, tid })),
    );
    expect(seen.length).toBeGreaterThan(4);
    for (const [place, { pid, tid }] of seen.entries()) {
      const next = seen[place + 1];
      if (next?.pid === pid) expect(running[next.tid]).toBeLessThanOrEqual(running[tid] ?? 0);
    }
    const group = page.locator('[data-group$="idle threads"] .fold').first();
    await page.evaluate(() => document.querySelector(".scroller")?.scrollTo(0, 1e6));
    await group.waitFor();
    expect(await group.getAttribute("aria-expanded")).toBe("false");
    const before = await box(page, ".space");
    await group.click();
    await page.waitForFunction(() => location.hash.includes("opened="));
    expect((await box(page, ".space")).height).toBeGreaterThan(before.height);
    await close(opened);
  } finally {
    await own.stop();
  }
});
