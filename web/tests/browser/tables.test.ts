import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { type Viewer, close, closeBrowser, fixture, open, printed, start } from "./viewer";

const KERNEL = fixture("ctf/lttng2.13-kernel");
let viewer: Viewer;

beforeAll(async () => {
  viewer = await start([KERNEL]);
});

afterAll(async () => {
  await closeBrowser();
  await viewer.stop();
});

describe("tables", () => {
  test("each report has the numbers that hodo report prints", async () => {
    const opened = await open(`${viewer.address}#view=tables`);
    const { page } = opened;
    await page.waitForSelector(".side a");
    const names = await page.locator(".side a").allTextContents();
    expect(names).toContain("cpu");
    for (const name of names) {
      await page.click(`.side a:text-is("${name}")`);
      await page.waitForSelector(`.content h1:text-is("${name}")`);
      const table = page.locator(".content table");
      await table.waitFor();
      const expected = printed("report", name, KERNEL);
      expect(await table.getAttribute("aria-rowcount")).toBe(String(expected.rows.length));
      for (const [row, cells] of expected.rows.slice(0, 15).entries()) {
        const shown = await page.locator(`.content tr[data-row="${row}"] td:not(:has(a))`).all();
        const titles = await Promise.all(shown.map((cell) => cell.getAttribute("title")));
        expect(titles.slice(-cells.length), `${name}, row ${row}`).toEqual(
          cells.map((cell) => (cell === null ? "" : Array.isArray(cell) ? cell.join(";") : String(cell))),
        );
      }
    }
    await close(opened);
  });

  test.each([false, true])("a question that takes long can be given up and asked again (dark: %s)", async (dark) => {
    const opened = await open(`${viewer.address}#view=about`, { dark });
    const { page } = opened;
    // An answer that does not come.
    await page.route(/api\/table/, () => {});
    // Leaving the first view may end its question too.
    const failed = page.waitForEvent("requestfailed", (request) => request.url().includes("report=cpu"));
    await page.goto(`${viewer.address}#view=tables&report=cpu`);
    await page.click("[data-stop]");
    await failed;
    await page.waitForSelector('.content .waiting:has-text("Stopped.")');
    expect(await page.locator(".content table").count()).toBe(0);
    await page.unroute(/api\/table/);
    await page.click("[data-again]");
    await page.waitForSelector(`.content table[aria-rowcount="${printed("report", "cpu", KERNEL).rows.length}"]`);
    await close(opened);
  });

  test("sorts, filters, goes to the worst and copies", async () => {
    const opened = await open(`${viewer.address}#view=tables&report=cpu`);
    const { page } = opened;
    const expected = printed("report", "cpu", KERNEL);
    const column = expected.columns.findIndex((column) => column.name === "tid");
    await page.click('.content th button:has-text("tid")');
    await page.waitForSelector('th[aria-sort="descending"]');
    const most = Math.max(...expected.rows.map((row) => Number(row[column])));
    expect(await page.locator(`.content tbody tr[data-row]`).first().locator("td").nth(column).getAttribute("title")).toBe(
      String(most),
    );
    await page.click('button:text-is("Go to the worst")');
    await page.waitForSelector("tr.marked");
    const comm = String(expected.rows[0]?.[expected.columns.findIndex((column) => column.name === "comm")]);
    await page.fill('.content input[type="search"]', comm);
    await page.waitForSelector(`.count:has-text(" of ")`);
    await page.click('button:text-is("Copy as CSV")');
    await page.waitForSelector('.tools [role="status"]:has-text("copied")');
    const copied = await page.evaluate(() => navigator.clipboard.readText());
    const lines = copied.trimEnd().split("\n");
    expect(lines[0]).toBe(expected.columns.map((column) => column.name).join(","));
    expect(lines.length - 1).toBe(expected.rows.filter((row) => JSON.stringify(row).includes(comm)).length);
    await close(opened);
  });

  test("another kind of rows is in the address", async () => {
    const opened = await open(`${viewer.address}#view=tables&report=syscalls`);
    const { page } = opened;
    await page.selectOption(".heading select", { index: 1 });
    await page.waitForFunction(() => location.hash.includes("by="));
    const by = new URLSearchParams(new URL(page.url()).hash.slice(1)).get("by") ?? "";
    const expected = printed("report", "syscalls", "--by", by, KERNEL);
    await page.waitForSelector(`table[aria-rowcount="${expected.rows.length}"]`);
    await close(opened);
  });
});
