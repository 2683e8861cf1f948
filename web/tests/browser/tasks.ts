// How long the page's main thread computes at a time, as the browser's own trace tells.

import type { Page } from "playwright-core";

import { launch } from "./viewer";

/** A task of a thread, of Chromium's trace. */
interface TraceEvent {
  name: string;
  ph: string;
  pid: number;
  tid: number;
  ts: number;
  dur?: number;
  tdur?: number;
  args: { name?: string };
}

/** Milliseconds of a task: of the wall clock, and of the processor, which other programs do not lengthen. */
export interface Task {
  wall: number;
  processor: number;
}

/** The tasks of the page's main thread while `act` runs: between two frames, it does one or several. */
export async function tasksWhile(page: Page, act: () => Promise<void>): Promise<Task[]> {
  const browser = await launch();
  await browser.startTracing(page, { categories: ["toplevel", "disabled-by-default-devtools.timeline"] });
  await act();
  const { traceEvents } = JSON.parse((await browser.stopTracing()).toString()) as { traceEvents: TraceEvent[] };
  const mains = traceEvents.filter(({ name, ph, args }) => ph === "M" && name === "thread_name" && args.name === "CrRendererMain");
  const isMain = ({ pid, tid }: TraceEvent) => mains.some((main) => main.pid === pid && main.tid === tid);
  const tasks = traceEvents.filter((event) => event.ph === "X" && /RunTask$/.test(event.name) && isMain(event));
  return tasks.map(({ dur = 0, tdur = 0 }) => ({ wall: dur / 1000, processor: tdur / 1000 }));
}

/** The value that this share of all does not exceed. */
export function percentile(all: number[], share: number): number {
  const sorted = [...all].sort((one, other) => one - other);
  return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? 0;
}
