import { execFileSync } from "node:child_process";
import { chmodSync, cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";

import { grouped } from "../../src/shared/format";
import type { Store } from "../../src/views/timeline/store";
import { KERNEL, box, rowOf, settled, spanAfter, states } from "./kernel";
import { HODO, type Viewer, close, closeBrowser, fixture, open, printed, start } from "./viewer";

let viewer: Viewer;

beforeAll(async () => {
  viewer = await start([KERNEL]);
});

afterAll(async () => {
  await closeBrowser();
  await viewer.stop();
});

async function openTimeline(parameters = "", size = {}) {
  const opened = await open(`${viewer.address}#view=timeline${parameters}`, size);
  await settled(opened.page);
  return opened;
}

/** The paths of the rows of threads, by what the server says of its tables. */
async function threadRows(): Promise<string[]> {
  const { tables } = (await (await fetch(`${viewer.address}api/timeline`)).json()) as Store;
  const paths = tables.filter(({ shape }) => shape !== "links").flatMap((table) => table.paths);
  return paths.filter(([root]) => root === "Threads").map((path) => path.join(" "));
}

test("there is a row for each thread, with its name", async () => {
  const opened = await openTimeline("", { height: 1800 });
  const { page } = opened;
  const threads = new Map(states().map((state) => [state.tid, state.comm]));
  await page.waitForSelector(".row-label b");
  expect(await page.locator('[data-row-id^="states:"]').count()).toBe(threads.size);
  for (const [tid, name] of threads) {
    expect(await page.locator(`${rowOf(tid)} b`).allTextContents(), tid).toEqual([`${name} (${tid})`]);
  }
  // The heading of a group counts threads and CPUs, not the rows below them.
  expect(await page.locator('[data-row-id^="syscalls:"]').count()).toBeGreaterThan(0);
  expect(await page.textContent('[data-group="Threads"] .fold span')).toBe(String(threads.size));
  expect(await page.textContent('[data-group="CPUs"] .fold span')).toBe(String(await page.locator('[data-row-id^="cpu:"]').count()));
  await page.waitForSelector('[data-group="Threads › process 236"]:has-text("process 236 · lttng-consumerd")');
  await close(opened);
});

test("a thread's system calls are below it, and fold with it", async () => {
  const opened = await openTimeline("", { height: 1800 });
  const { page } = opened;
  const calls = page.locator('[data-row-id^="syscalls:"][data-row-id*=",336,"]');
  const [thread, below] = [await box(page, rowOf("336")), await calls.boundingBox()];
  expect(below?.y).toBe(thread.y + thread.height);
  await page.click(`${rowOf("336")} .fold`);
  await calls.waitFor({ state: "detached" });
  await page.click(`${rowOf("336")} .name`);
  await page.keyboard.press("c");
  await calls.waitFor();
  await close(opened);
});

test("a click shows the record with its exact numbers", async () => {
  const opened = await openTimeline("", { height: 1800 });
  const { page } = opened;
  const all = states();
  const origin = all.reduce((least, state) => (state.begin < least ? state.begin : least), all[0]?.begin ?? 0n);
  const end = all.reduce((most, state) => (state.begin + state.duration > most ? state.begin + state.duration : most), 0n);
  const long = all.filter((state) => state.duration > (end - origin) / 50n).slice(0, 6);
  expect(long.length).toBeGreaterThan(3);
  const picture = await box(page, ".picture");
  for (const state of long) {
    const row = await box(page, rowOf(state.tid));
    const middle = Number(state.begin + state.duration / 2n - origin) / Number(end - origin);
    await page.mouse.click(picture.x + middle * picture.width, row.y + row.height / 2);
    const record = page.locator(`.record[data-record="${state.begin}"]`);
    await record.waitFor();
    expect(await record.locator('[data-cell="state"]').textContent()).toBe(state.state);
    expect(await record.locator('[data-cell="duration"]').getAttribute("title")).toBe(String(state.duration));
    await page.keyboard.press("Escape");
    await page.waitForSelector(".details", { state: "detached" });
  }
  await close(opened);
});

test("keys, wheel and drags move the time", async () => {
  const opened = await openTimeline();
  const { page } = opened;
  const closer = await spanAfter(page, () => page.keyboard.press("w"));
  const later = await spanAfter(page, () => page.keyboard.press("d"));
  expect(later[0]).toBeGreaterThan(closer[0]);
  expect(Number(later[1] - later[0])).toBeCloseTo(Number(closer[1] - closer[0]), -2);
  const earlier = await spanAfter(page, async () => {
    await page.keyboard.press("a");
    await page.keyboard.press("a");
  });
  expect(earlier[0]).toBeLessThan(later[0]);
  const picture = await box(page, ".picture");
  const [x, y] = [picture.x + picture.width / 2, picture.y + 100];
  await page.mouse.move(x, y);
  const wheeled = await spanAfter(page, async () => {
    await page.keyboard.down("Control");
    await page.mouse.wheel(0, -300);
    await page.keyboard.up("Control");
  });
  expect(wheeled[1] - wheeled[0]).toBeLessThan(closer[1] - closer[0]);
  const dragged = await spanAfter(page, async () => {
    await page.mouse.down();
    await page.mouse.move(x - 200, y, { steps: 5 });
    await page.mouse.up();
  });
  expect(dragged[0]).toBeGreaterThan(wheeled[0]);
  // A drag goes on after the address has followed it.
  await page.mouse.move(x, y);
  await spanAfter(page, async () => {
    await page.mouse.down();
    await page.mouse.move(x - 50, y, { steps: 3 });
  });
  const further = await spanAfter(page, async () => {
    await page.mouse.move(x - 150, y, { steps: 3 });
    await page.mouse.up();
  });
  const [length, whole] = [Number(dragged[1] - dragged[0]), picture.width];
  expect(Number(further[0] - dragged[0]) / length).toBeCloseTo(150 / whole, 2);
  expect(await page.locator(".details").count()).toBe(0);
  const [begin, end] = await spanAfter(page, () => page.keyboard.press("0"));
  await page.keyboard.down("Shift");
  await page.mouse.move(picture.x + 0.25 * picture.width, y);
  await page.mouse.down();
  await page.mouse.move(picture.x + 0.5 * picture.width, y, { steps: 5 });
  await page.mouse.up();
  await page.keyboard.up("Shift");
  const chosen = await spanAfter(page, () => page.keyboard.press("f"));
  expect(Number(chosen[1] - chosen[0]) / Number(end - begin)).toBeCloseTo(0.25, 2);
  await close(opened);
});

test("groups fold, rows are pinned and filtered, and the address has it all", async () => {
  const opened = await openTimeline("", { height: 1800 });
  const { page } = opened;
  await page.click(`${rowOf("35")} .pin`);
  await page.waitForSelector(`.pinned ${rowOf("35")}`);
  const all = await page.locator(".space .row-label").count();
  await page.fill('input[name="rows"]', "kworker");
  await page.waitForFunction((all) => document.querySelectorAll(".space .row-label").length < all, all);
  const workers = (await threadRows()).filter((path) => path.includes("kworker"));
  expect(await page.locator(".space .row-label").count()).toBe(workers.length - 1);
  await page.click('[data-group="Threads"] > .fold');
  await page.waitForFunction(() => document.querySelectorAll(".space .row-label").length === 0);
  const again = await open(page.url());
  await again.page.waitForSelector(`.pinned ${rowOf("35")}`);
  expect(await again.page.locator(".space .row-label").count()).toBe(0);
  await close(again);
  await page.click(`${rowOf("35")} .pin`);
  await page.waitForSelector(".pinned", { state: "detached" });
  await close(opened);
});

test("search counts and visits matches", async () => {
  const opened = await openTimeline();
  const { page } = opened;
  const expected = states().filter((state) => state.state === "uninterruptible");
  await page.keyboard.press("/");
  await page.keyboard.type("uninterr");
  await page.keyboard.press("Enter");
  await page.waitForSelector(`.matches:has-text("${expected.length} matches")`);
  await page.keyboard.press("Enter");
  const first = expected.reduce((least, state) => (state.begin < least.begin ? state : least));
  await page.waitForSelector(`.record[data-record="${first.begin}"]`);
  // A regular expression; one that is none is looked for as it is.
  const some = states().filter((state) => /^(un|run)/.test(state.state)).length;
  await page.fill('input[name="find"]', "^(UN|run)[a-z]+$");
  await page.press('input[name="find"]', "Enter");
  await page.waitForSelector(`.matches:has-text("${grouped(some)} matches")`);
  await page.fill('input[name="find"]', "(un");
  expect(await page.getAttribute('input[name="find"]', "aria-invalid")).toBe("true");
  await page.press('input[name="find"]', "Enter");
  await page.waitForSelector('.matches:has-text("0 matches")');
  await close(opened);
});

test("marks measure, notes stay, changes are visited", async () => {
  const opened = await openTimeline("", { height: 1800 });
  const { page } = opened;
  await page.click(`${rowOf("336")} .name`);
  await page.keyboard.press("0");
  await page.keyboard.press(".");
  const [first] = states().filter((state) => state.tid === "336");
  await page.waitForSelector(`.record[data-record="${first?.begin}"]`);
  await page.keyboard.press("m");
  await page.waitForSelector('.measure:has-text("mark at")');
  await page.keyboard.press(".");
  await page.waitForFunction((begin) => !new URLSearchParams(location.hash.slice(1)).get("at")?.startsWith(begin), String(first?.begin));
  await page.keyboard.press("m");
  await page.waitForSelector('.measure:has-text("between marks")');
  const marks = JSON.parse(new URLSearchParams(new URL(page.url()).hash.slice(1)).get("marks") ?? "[]") as string[];
  const changes = states().filter((state) => state.tid === "336").flatMap((state) => [state.begin, state.begin + state.duration]);
  const next = [...new Set(changes)].sort((a, b) => Number(a - b)).slice(0, 2);
  expect(marks.map(BigInt)).toEqual(next);
  await page.keyboard.press("n");
  await page.keyboard.type("here <b>it</b> begins");
  await page.keyboard.press("Enter");
  await page.waitForSelector('.note:has-text("here <b>it</b> begins")');
  const again = await open(page.url());
  await again.page.waitForSelector('.note:has-text("here")');
  await close(again);
  await page.click(".note");
  await page.waitForSelector(".note", { state: "detached" });
  await close(opened);
});

test("wake-ups are arrows: as many as the report has, and details name both sides", async () => {
  const opened = await openTimeline("", { height: 1800 });
  const { page } = opened;
  const { columns, rows } = printed("report", "wakers", "--by", "wakeup", KERNEL);
  const place = (name: string) => columns.findIndex((column) => column.name === name);
  const links = page.locator('[data-links="wake-ups"]');
  await page.waitForSelector(`[data-links="wake-ups"][data-count="${rows.length}"][data-drawn="${rows.length}"]`);
  // A wake-up lies at the border of two states of the woken thread.
  const woken = rows.find((row) => row[place("woken_tid")] === 335) as unknown[];
  const [waker, wakerTid] = [String(woken[place("waker")]), String(woken[place("waker_tid")])];
  await page.goto(`${page.url()}&row=${encodeURIComponent(await idOf(page, "335"))}&at=${woken[place("at_ns")]}`);
  await page.waitForSelector(`.record [data-link="from"]:has-text("${waker} (${wakerTid})")`);
  await page.click('.record [data-link="from"] button');
  await page.waitForFunction((tid) => new URLSearchParams(location.hash.slice(1)).get("row")?.includes(`,${tid},`), wakerTid);
  // Of a part of the time, those that begin in it.
  const times = rows.map((row) => BigInt(String(row[place("at_ns")]))).sort((one, other) => Number(one - other));
  const [t0, t1] = [times[20] as bigint, times[40] as bigint];
  await page.goto(`${viewer.address}#view=timeline&t0=${t0}&t1=${t1}`);
  const inside = times.filter((time) => time >= t0 && time < t1).length;
  await page.waitForSelector(`[data-links="wake-ups"][data-count="${inside}"]`);
  await page.keyboard.press("r");
  await links.waitFor({ state: "detached" });
  await close(opened);
});

async function idOf(page: Page, tid: string): Promise<string> {
  return (await page.getAttribute(rowOf(tid), "data-row-id")) ?? "";
}

test("the critical path of a thread has the numbers of hodo path", async () => {
  const opened = await openTimeline("", { height: 1800 });
  const { page } = opened;
  for (const tid of ["335", "243"]) {
    await page.click(`${rowOf(tid)} .name`);
    await page.keyboard.press("k");
    const { summary } = printed("path", "--thread", tid, "--by", "piece", KERNEL);
    await page.waitForSelector(`.critical:has-text("(${tid})")`);
    expect(await page.getAttribute('[data-figure="path_total"]', "title")).toBe(String(summary.total_ns));
    expect(await page.getAttribute('[data-figure="path_own"]', "title")).toBe(String(summary.own_ns));
    expect(await page.textContent('[data-figure="path_pieces"]')).toBe(String(summary.pieces));
    await page.keyboard.press("k");
    await page.waitForSelector(".critical", { state: "detached" });
  }
  await close(opened);
});

test("a critical path that is cut says of how many pieces", async () => {
  const opened = await openTimeline("", { height: 1800 });
  const { page } = opened;
  await page.route("**/api/timeline/path*", async (route) => {
    const response = await route.fetch();
    await route.fulfill({ response, headers: { ...response.headers(), "x-hodo-left-out": "1000000" } });
  });
  await page.click(`${rowOf("335")} .name`);
  await page.keyboard.press("k");
  const drawn = await page.textContent('[data-figure="path_drawn"]');
  const { summary } = printed("path", "--thread", "335", "--by", "piece", KERNEL);
  expect(drawn).toBe(String(summary.pieces));
  expect(await page.textContent(".critical")).toContain(`of which the first ${drawn} are drawn`);
  await close(opened);
});

/** A copy of the trace to whose CPU 1 a packet without events is added, 20 ms later, after which 7 events were discarded. */
function withLoss(): { folder: string; trace: string; from: bigint; to: bigint } {
  const folder = mkdtempSync(join(tmpdir(), "hodo-loss-"));
  const trace = join(folder, "trace");
  cpSync(KERNEL, trace, { recursive: true });
  const file = join(trace, "k_1");
  const bytes = readFileSync(file);
  // The header and the context of an LTTng packet: times at 32 and 40, sizes in bits at 48 and 56, its number at 64, the
  // count of discarded events at 72, the CPU at 80.
  const packet = Buffer.from(bytes.subarray(0, 84));
  const end = bytes.readBigUInt64LE(40);
  for (const at of [32, 40]) packet.writeBigUInt64LE(end + 20_000_000n, at);
  for (const at of [48, 56]) packet.writeBigUInt64LE(84n * 8n, at);
  packet.writeBigUInt64LE(1n, 64);
  packet.writeBigUInt64LE(7n, 72);
  chmodSync(file, 0o644);
  writeFileSync(file, Buffer.concat([bytes, packet]));
  const info = printed("info", KERNEL) as unknown as { traces: { clocks: { offset_seconds: number; offset_cycles: number }[] }[] };
  const clock = info.traces[0]?.clocks[0];
  const offset = BigInt(clock?.offset_seconds ?? 0) * 1_000_000_000n + BigInt(clock?.offset_cycles ?? 0);
  return { folder, trace, from: end + offset, to: end + offset + 20_000_000n };
}

test("a loss is hatched across the rows that it concerns, and has its count", async () => {
  const { folder, trace, from, to } = withLoss();
  const own = await start([trace]);
  const opened = await open(`${own.address}#view=timeline&t0=${from - 20_000_000n}&t1=${to}`, { height: 2000 });
  const { page } = opened;
  await settled(page);
  const picture = await box(page, ".picture");
  const label = await box(page, '[data-row-id="losses:k_1"]');
  await page.mouse.click(picture.x + 0.9 * picture.width, label.y + label.height / 2);
  await page.waitForSelector(`.record[data-record="${from}"] [data-cell="count"][title="7"]`);
  expect(printed("report", "count", trace).summary.events_lost).toBe(7);
  await page.keyboard.press("Escape");
  await page.waitForSelector(".details", { state: "detached" });
  await settled(page);
  // Pixels of a row, in the loss and before it.
  const drawn = (row: { y: number; height: number }, from: number, to: number) =>
    page.locator(".picture").evaluate(
      (element, [top, high, from, to]) => {
        const canvas = element as HTMLCanvasElement;
        const [scale, width] = [devicePixelRatio, canvas.width];
        const area = [from * width, top * scale, (to - from) * width, high * scale] as const;
        const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
        copy?.drawImage(canvas, 0, 0);
        const data = copy?.getImageData(...area).data ?? [];
        return data.filter((_, at) => at % 4 === 3).filter((alpha) => alpha > 0).length;
      },
      [row.y - picture.y + 3, row.height - 6, from, to] as const,
    );
  const cpu = async (number: number) => box(page, `[data-row-id="cpu:${number}"]`);
  // No CPU has a record there, so that nothing but the loss is drawn. A line of the axis may be.
  const few = 60;
  expect(await drawn(await cpu(1), 0.75, 0.98)).toBeGreaterThan(few);
  expect(await drawn(await cpu(0), 0.75, 0.98)).toBeLessThan(few);
  await close(opened);
  await own.stop();
  rmSync(folder, { recursive: true, force: true });
});

test("the uncertainty of synchronised clocks lies around a selected instant", async () => {
  const folder = mkdtempSync(join(tmpdir(), "hodo-clocks-"));
  const experiment = join(folder, "board.toml");
  const traces = ["master", "slave-0", "slave-1", "slave-2"].map((name) => fixture(`ctf/board/${name}`));
  execFileSync(HODO, ["sync", "-q", "-o", experiment, ...traces]);
  const info = printed("info", experiment) as unknown as { clocks: { half_width_ns: number }[] };
  const widest = Math.max(...info.clocks.map((clock) => clock.half_width_ns));
  expect(widest).toBeGreaterThan(0);
  // The timeline of a board has no rows yet; a kernel's has.
  const own = await start([experiment, KERNEL]);
  // Beside a board that began decades before it, what ran first seems to have run for all of that time, and others are idle.
  const idle = encodeURIComponent(JSON.stringify(["Threads › idle threads"]));
  const opened = await open(`${own.address}#view=timeline&opened=${idle}`, { height: 1800 });
  const { page } = opened;
  await settled(page);
  await page.click(`${rowOf("336")} .name`);
  await page.keyboard.press(".");
  await page.waitForSelector(`[data-figure="half_width"][title^="${widest} ns"]`);
  await close(opened);
  await own.stop();
  rmSync(folder, { recursive: true, force: true });
});
