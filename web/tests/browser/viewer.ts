// Starts `hodo view` and a browser; fails on any message of the console.

import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";

import { type Browser, type Page, chromium } from "playwright-core";
import { expect } from "vitest";

const root = resolve(import.meta.dirname, "../../..");
export const HODO = process.env.HODO ?? join(root, "target/debug/hodo");
/** A page that is served instead of the one that hodo embeds. */
const PAGE = process.env.PAGE;
export const fixture = (name: string) => join(root, "fixtures", name);

let browser: Browser | undefined;

/** Debian's chromium, once for all tests of a file. */
export async function launch(): Promise<Browser> {
  browser ??= await chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-dev-shm-usage"],
  });
  return browser;
}

export async function closeBrowser(): Promise<void> {
  await browser?.close();
  browser = undefined;
}

/** A running `hodo view`. */
export interface Viewer {
  address: string;
  process: ChildProcess;
  folder: string;
  stop(): Promise<void>;
}

/** Starts `hodo view` on inputs, with a store of its own. */
export async function start(inputs: string[], options: string[] = []): Promise<Viewer> {
  const folder = mkdtempSync(join(tmpdir(), "hodo-view-"));
  const store = options.includes("--store") ? [] : ["--store", join(folder, "store")];
  const all = ["view", "--no-open", "-q", ...store, ...options, ...inputs];
  const child = spawn(HODO, all, { stdio: ["ignore", "pipe", "inherit"] });
  const address = await new Promise<string>((found, failed) => {
    let text = "";
    child.stdout?.on("data", (data: Buffer) => {
      text += data.toString();
      if (text.includes("\n")) found(text.trim());
    });
    child.on("exit", (code) => failed(new Error(`hodo view ended with ${code}`)));
  });
  const stop = () =>
    new Promise<void>((done) => {
      const end = () => {
        rmSync(folder, { recursive: true, force: true });
        done();
      };
      if (child.exitCode !== null || child.signalCode !== null) return end();
      child.removeAllListeners("exit");
      child.on("exit", end);
      child.kill("SIGINT");
    });
  return { address, process: child, folder, stop };
}

/** Opens a page; `messages` gets errors and warnings of its console. */
export async function open(
  address: string,
  { dark = false, width = 1280, height = 720 } = {},
): Promise<{ page: Page; messages: string[] }> {
  const context = await (await launch()).newContext({
    viewport: { width, height },
    colorScheme: dark ? "dark" : "light",
    permissions: address.startsWith("http") ? ["clipboard-read", "clipboard-write"] : [],
  });
  const page = await context.newPage();
  const messages: string[] = [];
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) messages.push(message.text());
  });
  page.on("pageerror", (error) => messages.push(String(error)));
  if (PAGE && address.startsWith("http")) {
    // The newest page, without building hodo again. The content security policy is that of the embedded one, so it goes.
    const root = new URL(address);
    await page.route((url) => url.pathname === root.pathname, (route) => route.fulfill({ path: resolve(PAGE), contentType: "text/html" }));
  }
  await page.goto(address);
  return { page, messages };
}

/** Closes a page, which must have printed nothing. */
export async function close(opened: { page: Page; messages: string[] }): Promise<void> {
  await opened.page.context().close();
  expect(opened.messages).toEqual([]);
}

/** What `hodo` prints as JSON. Integers beyond doubles stay text. */
export function printed(...words: string[]): {
  summary: Record<string, unknown>;
  columns: { name: string }[];
  rows: unknown[][];
} {
  const text = execFileSync(HODO, [...words, "-q", "--format", "json"], { maxBuffer: 1 << 28 }).toString();
  // Integers that a double does not hold become text, exactly.
  const exact = text.replace(/(?<=[[,:\s])-?\d{16,}(?=[\s,\]}])/g, '"$&"');
  return JSON.parse(exact) as ReturnType<typeof printed>;
}
