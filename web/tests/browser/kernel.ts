// The kernel trace of the fixtures: what hodo prints of it, and the timeline's page of it.

import type { Page } from "playwright-core";
import { expect } from "vitest";

import { fixture, printed } from "./viewer";

export const KERNEL = fixture("ctf/lttng2.13-kernel");

/** A row of `hodo report states --by interval`. */
export interface State {
  begin: bigint;
  duration: bigint;
  tid: string;
  state: string;
  comm: string;
}

export function states(input = KERNEL): State[] {
  const { columns, rows } = printed("report", "states", "--by", "interval", input);
  const place = (name: string) => columns.findIndex((column) => column.name === name);
  return rows.map((row) => ({
    begin: BigInt(String(row[place("begin_ns")])),
    duration: BigInt(String(row[place("duration_ns")])),
    tid: String(row[place("tid")]),
    state: String(row[place("state")]),
    comm: String(row[place("comm")]),
  }));
}

export async function settled(page: Page): Promise<void> {
  await page.waitForSelector('.timeline[data-settled="true"]');
  await page.waitForTimeout(250);
  await page.waitForSelector('.timeline[data-settled="true"]');
}

export function span(page: Page): [bigint, bigint] {
  const known = new URLSearchParams(new URL(page.url()).hash.slice(1));
  return [BigInt(known.get("t0") ?? 0), BigInt(known.get("t1") ?? 0)];
}

/** The span in the address after `act` changed it: once it stays the same for a quarter of a second. */
export async function spanAfter(page: Page, act: () => Promise<void>): Promise<[bigint, bigint]> {
  const before = String(span(page));
  let last = before;
  await act();
  const isSettled = () => {
    const [now, previous] = [String(span(page)), last];
    last = now;
    return now !== before && now === previous;
  };
  await expect.poll(isSettled, { interval: 250, timeout: 10_000 }).toBe(true);
  return span(page);
}

/** The row of a thread's states: its key is process, thread, name. */
export function rowOf(tid: string): string {
  return `[data-row-id^="states:"][data-row-id*=",${tid},"]`;
}

export async function box(page: Page, selector: string) {
  const found = await page.locator(selector).boundingBox();
  if (!found) throw new Error(`${selector} is not drawn`);
  return found;
}
