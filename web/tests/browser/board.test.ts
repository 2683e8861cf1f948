// A board of a master and three slaves, whose clocks `hodo sync` related.

import { execFileSync } from "node:child_process";
import { cpSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { afterAll, beforeAll, expect, test } from "vitest";

import { HODO, type Viewer, close, closeBrowser, fixture, open, printed, start } from "./viewer";

const folder = mkdtempSync(join(tmpdir(), "hodo-board-"));
const BOARD = join(folder, "board.toml");
let viewer: Viewer;

beforeAll(async () => {
  const traces = ["master", "slave-0", "slave-1", "slave-2"].map((name) => fixture(`ctf/board/${name}`));
  execFileSync(HODO, ["sync", "-q", "-o", BOARD, ...traces]);
  viewer = await start([BOARD]);
});

afterAll(async () => {
  await closeBrowser();
  await viewer.stop();
  rmSync(folder, { recursive: true });
});

/** The rows of a report, by the names of columns. */
function rowsOf(...words: string[]): Record<string, unknown>[] {
  const { columns, rows } = printed("report", ...words, BOARD);
  return rows.map((row) => Object.fromEntries(columns.map(({ name }, place) => [name, row[place]])));
}

const spanOf = (row: Record<string, unknown>) => {
  const begin = BigInt(String(row.begin_ns));
  return { begin, end: begin + BigInt(String(row.duration_ns)) };
};

test("messages are arrows between the rows of boards, and details name both sides", async () => {
  const opened = await open(`${viewer.address}#view=timeline`);
  const { page } = opened;
  const messages = rowsOf("messages", "--by", "message");
  expect(messages.length).toBeGreaterThan(10);
  await page.waitForSelector(`[data-links="messages"][data-count="${messages.length}"][data-drawn="${messages.length}"]`);
  // The board has no wake-ups of threads, so there is nothing to say of them.
  expect(await page.locator("[data-links]").count()).toBe(1);
  // The master has no tasks, and a row for its messages.
  await page.waitForSelector('[data-row-id="messages:master"] b:text-is("master")');
  for (const slave of [0, 1, 2]) await page.waitForSelector(`[data-row-id="tasks:slave-${slave}"]`);
  expect(await page.locator('[data-row-id^="messages:"]').count()).toBe(1);
  // A message that arrives while a task runs.
  const runs = rowsOf("tasks", "--by", "interval");
  const arrives = messages.find((message) => {
    const { end } = spanOf(message);
    return message.from === "master" && runs.some((run) => run.host === message.to && spanOf(run).begin <= end && end < spanOf(run).end);
  }) as Record<string, unknown>;
  const { begin, end } = spanOf(arrives);
  await page.goto(`${viewer.address}#view=timeline&row=${encodeURIComponent(`tasks:${arrives.to}`)}&at=${end}`);
  await page.waitForSelector('.record [data-link="from"]:has-text("master")');
  await page.locator('.record [data-link="from"] button').first().click();
  await page.waitForFunction(() => new URLSearchParams(location.hash.slice(1)).get("row") === "messages:master");
  expect(begin).toBeLessThanOrEqual(end);
  await page.keyboard.press("r");
  await page.waitForSelector("[data-links]", { state: "detached" });
  await close(opened);
});

test("a group of many boards has a summary, and its outliers come first", async () => {
  // Copies of a slave, and one in which an urgent task runs too.
  const names = Array.from({ length: 40 }, (_, number) => join(folder, `slave-${String(number).padStart(2, "0")}`));
  for (const name of names) cpSync(fixture(`ctf/board/slave-${name.endsWith("17") ? 1 : 2}`), name, { recursive: true });
  const many = await start(names);
  try {
    const opened = await open(`${many.address}#view=timeline`, { height: 1800 });
    const { page } = opened;
    await page.waitForSelector('[data-summary="Boards"]:has-text("all 40")');
    const rows = async () => {
      const labels = await page.locator('[data-row-id^="tasks:"]').evaluateAll((all) => all.map((one) => [one.getBoundingClientRect().top, one.getAttribute("data-row-id")] as const));
      return labels.sort(([one], [other]) => one - other).map(([, id]) => id);
    };
    expect((await rows())[0]).toBe("tasks:slave-00");
    await page.click('[data-summary="Boards"] button');
    await page.waitForFunction(() => location.hash.includes("worst="));
    await expect.poll(async () => (await rows()).slice(0, 3)).toEqual(["tasks:slave-17", "tasks:slave-00", "tasks:slave-01"]);
    // Folded, the group is its summary.
    await page.click('[data-group="Boards"] .fold');
    await page.waitForSelector('[data-row-id^="tasks:"]', { state: "detached" });
    await page.waitForSelector('[data-summary="Boards"]');
    await close(opened);
  } finally {
    await many.stop();
  }
});
