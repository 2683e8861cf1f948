// The view of SQL: statements by keys, tables and columns beside, results as table, bars and lines, all in the address.

import { afterAll, beforeAll, expect, test } from "vitest";

import { KERNEL } from "./kernel";
import { type Viewer, close, closeBrowser, open, printed, start } from "./viewer";

let viewer: Viewer;

beforeAll(async () => {
  viewer = await start([KERNEL]);
});

afterAll(async () => {
  await closeBrowser();
  await viewer.stop();
});

const SUMS = "select call, count(*) as n, sum(duration_ns) as total_ns from syscalls_interval group by 1 order by 3 desc";

for (const dark of [false, true]) {
  test(`statements run by keys, and their result is that of hodo sql, ${dark ? "dark" : "light"}`, async () => {
    const opened = await open(`${viewer.address}#view=sql`, { dark });
    const { page } = opened;
    await page.click("textarea[name=sql]");
    await page.keyboard.type(`create view sums as ${SUMS}; select * from sums`);
    await page.keyboard.press("Control+Enter");
    const expected = printed("sql", KERNEL, SUMS).rows.map((row) => row.map(String));
    const shown = async () => {
      await page.waitForSelector(`.content table[aria-rowcount="${expected.length}"]`);
      const rows = await page.locator(".content tbody tr[data-row]").all();
      return Promise.all(rows.map(async (row) => Promise.all((await row.locator("td").all()).map((cell) => cell.getAttribute("title")))));
    };
    expect(expected.length).toBeGreaterThan(3);
    expect(await shown()).toEqual(expected);
    // The address has it all.
    const again = await open(page.url(), { dark });
    await again.page.waitForSelector(`.content table[aria-rowcount="${expected.length}"]`);
    expect(await again.page.inputValue("textarea[name=sql]")).toContain("create view sums");
    await close(again);
    // As bars, of the column that is chosen; Back leads to the table.
    await page.click('button[data-value="plot"]');
    expect(await page.locator("[data-bar]").count()).toBe(expected.length);
    await page.click('input[name="y-n"]');
    await page.click('input[name="y-total_ns"]');
    await page.waitForFunction(() => new URLSearchParams(location.hash.slice(1)).get("y") === "total_ns");
    const width = (bar: number) => page.locator(`[data-bar="${bar}"] i`).evaluate((bar) => bar.getBoundingClientRect().width);
    const [first, second] = [await width(0), await width(1)];
    expect(second / first).toBeCloseTo(Number(expected[1]?.[2]) / Number(expected[0]?.[2]), 1);
    await close(opened);
  });
}

test("numbers over a time are lines", async () => {
  const query = "select time_ns, runtime, tid from sched_stat_runtime order by 1";
  const opened = await open(`${viewer.address}#view=sql&show=plot&sql=${encodeURIComponent(query)}&x=time_ns`);
  const { page } = opened;
  const { rows } = printed("sql", KERNEL, query);
  await page.waitForSelector(`.plot[data-plot="runtime"][data-points="${rows.length}"] canvas`);
  await page.click('input[name="y-tid"]');
  await page.waitForSelector('.plot[data-plot="runtime tid"]');
  // The pointer on the plot shows values of a row.
  const box = await page.locator(".plot .u-over").boundingBox();
  if (!box) throw new Error("the plot is not drawn");
  await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
  await page.waitForFunction(() => /\d/.test(document.querySelector(".plot .u-series:nth-child(2) .u-value")?.textContent ?? ""));
  await close(opened);
});

test("a wrong statement says where, and nothing writes", async () => {
  const opened = await open(`${viewer.address}#view=sql`);
  const { page } = opened;
  const run = async (text: string) => {
    await page.fill("textarea[name=sql]", text);
    await page.click('.statement button[type="submit"]');
  };
  await run("select nix\nfrom syscalls");
  await page.waitForSelector('.problem:has-text("no such column: nix, at line 1, character 8")');
  await run("delete from syscalls");
  await page.waitForSelector('.problem:has-text("traces are never written")');
  await run("select '<b>bold</b>' as html");
  await page.waitForSelector('.content td:text-is("<b>bold</b>")');
  // The refused questions are messages of the browser, not of the page.
  opened.messages.splice(0, opened.messages.length, ...opened.messages.filter((message) => !message.includes("Failed to load resource")));
  await close(opened);
});

test("tables show their columns, which a click inserts", async () => {
  const opened = await open(`${viewer.address}#view=sql`);
  const { page } = opened;
  const listed = new Set(printed("sql", KERNEL, "--tables").rows.map(([table]) => String(table)));
  await page.waitForSelector("[data-sql-table]");
  const names = await page.locator("[data-sql-table]").evaluateAll((all) => all.map((one) => one.getAttribute("data-sql-table")));
  for (const name of listed) expect(names).toContain(name);
  await page.fill('input[name="tables"]', "syscalls_int");
  expect(await page.locator("[data-sql-table]").count()).toBe(1);
  await page.click('[data-sql-table="syscalls_interval"] summary');
  await page.waitForSelector('[data-sql-table="syscalls_interval"] li:has-text("duration_ns") span:text-is("ns")');
  await page.click('[data-sql-table="syscalls_interval"] li button:text-is("duration_ns")');
  expect(await page.inputValue("textarea[name=sql]")).toBe("duration_ns");
  await page.click('[data-sql-table="syscalls_interval"] button:text-is("first 1,000 rows")');
  await page.waitForSelector(".content table");
  expect(await page.inputValue("textarea[name=sql]")).toBe("select * from syscalls_interval limit 1000");
  // Rows lead to the timeline.
  await page.locator(".content td a").first().click();
  await page.waitForSelector(".timeline");
  await close(opened);
});
