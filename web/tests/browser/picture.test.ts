// Pictures as files: what is seen, or a chosen span of some rows, as SVG and PNG.

import { readFileSync } from "node:fs";

import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";

import { KERNEL, box, rowOf, settled } from "./kernel";
import { type Viewer, close, closeBrowser, open, start } from "./viewer";

let viewer: Viewer;

beforeAll(async () => {
  viewer = await start([KERNEL]);
});

afterAll(async () => {
  await closeBrowser();
  await viewer.stop();
});

async function saved(page: Page, kind: "svg" | "png"): Promise<Buffer> {
  const [download] = await Promise.all([page.waitForEvent("download"), page.click(`[data-picture="${kind}"]`)]);
  expect(download.suggestedFilename()).toMatch(new RegExp(`\\.${kind}$`));
  return readFileSync(await download.path());
}

/** Width and height of a PNG. Source: ISO/IEC 15948, IHDR. */
const sizeOf = (png: Buffer) => [png.readUInt32BE(16), png.readUInt32BE(20)] as const;

for (const dark of [false, true]) {
  test(`the seen rows and a chosen span are pictures, ${dark ? "dark" : "light"}`, async () => {
    const opened = await open(`${viewer.address}#view=timeline`, { dark });
    const { page } = opened;
    await settled(page);
    const svg = (await saved(page, "svg")).toString();
    // A browser reads it, and it has names, states and colours.
    const error = await page.evaluate((text) => new DOMParser().parseFromString(text, "image/svg+xml").querySelector("parsererror")?.textContent, svg);
    expect(error).toBeUndefined();
    expect(svg).toContain("CPU 0");
    expect(svg).toContain("#009e73");
    const [width, height] = sizeOf(await saved(page, "png"));
    expect(width).toBe(2400);
    // A chosen span of two rows is lower.
    const [first, canvas] = [await box(page, rowOf("336")), await box(page, "canvas.picture")];
    await page.keyboard.down("Shift");
    await page.mouse.move(canvas.x + 600, first.y + 5);
    await page.mouse.down();
    await page.mouse.move(canvas.x + 900, first.y + 30, { steps: 5 });
    await page.mouse.up();
    await page.keyboard.up("Shift");
    await page.waitForFunction(() => location.hash.includes("c0="));
    const [, lower] = sizeOf(await saved(page, "png"));
    expect(lower).toBeLessThan(height / 2);
    const chosen = (await saved(page, "svg")).toString();
    expect(chosen).toContain("cat (336)");
    expect(chosen).not.toContain("CPU 0");
    await close(opened);
  });
}
