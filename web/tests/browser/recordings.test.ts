// Two recordings: rows and tables by recording, begins together; and inputs whose clocks are not related.

import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { tableFromIPC } from "@uwdata/flechette";
import { afterAll, expect, test } from "vitest";

import { KERNEL, settled } from "./kernel";
import { HODO, type Viewer, close, closeBrowser, fixture, open, printed, start } from "./viewer";

const folder = mkdtempSync(join(tmpdir(), "hodo-recordings-"));
const viewers: Viewer[] = [];

afterAll(async () => {
  await closeBrowser();
  for (const viewer of viewers) await viewer.stop();
  rmSync(folder, { recursive: true });
});

async function view(...words: string[]): Promise<Viewer> {
  const viewer = await start(words);
  viewers.push(viewer);
  return viewer;
}

/** Records a program; two recordings follow each other in time. */
function record(name: string): string {
  const file = join(folder, name, "perf.data");
  execFileSync("mkdir", ["-p", join(folder, name)]);
  execFileSync(HODO, ["record", "-q", "--engine", "native", "-o", file, "--", "/bin/true"], { stdio: "pipe" });
  return file;
}

for (const dark of [false, true]) {
  test(`rows are by recording, begin together, and tables choose the recording, ${dark ? "dark" : "light"}`, async () => {
    const files = [record(`first-${dark}`), record(`second-${dark}`)];
    const viewer = await view(...files);
    const opened = await open(`${viewer.address}#view=timeline`, { dark, height: 1400 });
    const { page } = opened;
    await settled(page);
    const names = files.map((file) => file.split("/").slice(-2).join("/"));
    for (const name of names) await page.waitForSelector(`.group:has-text("${name}")`);
    const store = (await (await fetch(`${viewer.address}api/timeline`)).json()) as { length: number; tables: { name: string; key: string[]; lanes: string[][] }[] };
    const calls = store.tables.find(({ name }) => name === "calls");
    expect(calls?.key).toContain("recording");
    expect(new Set(calls?.lanes.map((lane) => lane.at(-1)))).toEqual(new Set(names));
    // Together they last as long as the longer one, not from the first begin to the last end.
    const lasts = files.map((file) => {
      const [[from, until] = []] = printed("sql", file, "select min(begin_ns), max(end_ns) from calls").rows;
      return Number(BigInt(String(until)) - BigInt(String(from)));
    });
    expect(store.length).toBeLessThan(1.5 * Math.max(...lasts));
    // The table of each.
    await page.goto(`${viewer.address}#view=tables&report=functions`);
    const rowsOf = (file: string) => printed("report", "functions", file).rows.length;
    await page.waitForSelector(`.content table[aria-rowcount="${rowsOf(files[0] ?? "")}"]`);
    await page.selectOption('[data-choice="recording"]', "1");
    await page.waitForFunction(() => location.hash.includes("recording=1"));
    const instructions = printed("report", "functions", files[1] ?? "").rows[0]?.[1];
    await page.waitForSelector(`.content tr[data-row="0"] td[title="${instructions}"]`);
    // The views of control flow read a recording without the other one, from which its time was counted.
    for (const number of [0, 1]) {
      const { instructions } = printed("report", "functions", files[number] ?? "").summary;
      await page.goto(`${viewer.address}#view=flame&recording=${number}`);
      await page.waitForSelector(`[title="${instructions}"] > [data-figure="instructions"]`);
      await page.goto(`${viewer.address}#view=execution&recording=${number}`);
      await page.waitForSelector('.where[data-number="0"]');
    }
    await page.goto(`${viewer.address}#view=diff`);
    await page.getByText("Orange paths").waitFor();
    await close(opened);
  });
}

test("recordings are placed so that a function begins at the same instant", async () => {
  // Two runs of a program that does more before the function the second time.
  const folderOf = (name: string) => join(folder, name, "perf.data");
  const program = join(folder, "waits");
  const source = `#include <stdlib.h>
__attribute__((noinline)) int work(int n) { int sum = 0; for (int i = 0; i < n; i++) sum += i ^ n; return sum; }
__attribute__((noinline)) int target(int n) { return work(n); }
int main(int count, char **words) { volatile int sum = 0; for (int i = 0; i < atoi(words[1]); i++) sum += work(i % 99); return (sum += target(50)) == 1; }`;
  execFileSync("gcc", ["-O1", "-x", "c", "-", "-o", program], { input: source });
  const files = ["align-few", "align-many"].map((name, number) => {
    execFileSync("mkdir", ["-p", join(folder, name)]);
    execFileSync(HODO, ["record", "-q", "--engine", "native", "-o", folderOf(name), "--", program, String(10 + 20_000 * number)], { stdio: "pipe" });
    return folderOf(name);
  });
  const viewer = await view("--align", "target", ...files);
  const opened = await open(`${viewer.address}#view=timeline`);
  const { page } = opened;
  await settled(page);
  const ask = async (path: string) => (await fetch(`${viewer.address}api/${path}`)).json();
  const store = (await ask("timeline")) as { generation: number; length: number; tables: { name: string; lanes: string[][] }[] };
  // The search finds the call in each recording.
  await page.keyboard.press("/");
  await page.keyboard.type("^target$");
  await page.keyboard.press("Enter");
  await page.waitForSelector('.matches:has-text("2 matches")');
  const answer = await fetch(`${viewer.address}api/timeline/search?generation=${store.generation}&text=${encodeURIComponent("^target$")}`);
  const found = tableFromIPC(new Uint8Array(await answer.arrayBuffer()));
  const [lanes, begins] = ["lane", "begin"].map((name) => Array.from(found.getChild(name)?.toArray() as ArrayLike<number>));
  const calls = store.tables.find(({ name }) => name === "calls");
  expect(new Set(lanes?.map((lane) => calls?.lanes[lane]?.at(-1))).size).toBe(2);
  expect(begins?.[0]).toBe(begins?.[1]);
  await close(opened);
  // A function that one of them never calls is refused.
  expect(() => execFileSync(HODO, ["view", "-q", "-o", join(folder, "none.html"), "--align", "nothing_like_this", ...files], { stdio: "pipe" })).toThrow(/no call of it/);
});

test("unrelated clocks are said, with the remedy", async () => {
  const viewer = await view("--symfs", fixture("perf/symfs"), fixture("perf/tiny.data"), KERNEL);
  const opened = await open(viewer.address);
  const { page } = opened;
  await page.waitForSelector('[data-unrelated] summary:has-text("hodo sync")');
  await page.click("[data-unrelated] summary");
  await page.waitForSelector("[data-unrelated] li");
  await close(opened);
  // One input, or clocks that are known to be one, have nothing to say.
  const one = await view(KERNEL);
  const alone = await open(one.address);
  await settled(alone.page);
  expect(await alone.page.locator("[data-unrelated]").count()).toBe(0);
  await close(alone);
});
