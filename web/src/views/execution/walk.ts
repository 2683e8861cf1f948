// Positions in the execution of a thread, and the questions that lead from one to another.
// Source: `crates/server/src/endpoints/execution`.

import { type Parameters, json } from "../../shared/api";
import { select, selection } from "../../shared/selection";

export interface Thread {
  pid: number;
  tid: number;
  name: string;
  last: number;
}

export interface Frame {
  function: string;
  inlined: string[];
  module: string;
  entered_by: string;
  address: string | null;
  file: string | null;
  line: number | null;
  begin: number;
}

export interface Instruction {
  address: string;
  instruction: string;
  file: string | null;
  line: number | null;
  module: number;
  offset: string;
}

/** What is seen at a position. */
export interface Seen {
  threads: Thread[];
  gap: boolean;
  /** What a step or a search did not find. */
  missed: string | null;
  /** In nanoseconds of the timeline. */
  time: string | null;
  scene: {
    pid: number;
    tid: number;
    number: number;
    instructions: number;
    gap: string[];
    returned: boolean;
    instruction: string;
    taken: boolean | null;
    frames: Frame[];
    depth: number;
  };
  source: { file: string; line: number; first: number; lines: string[] | null } | null;
  code: Instruction[] | null;
}

const NUMBER = /^\d{1,19}$/;

/** The position of the address, as parameters of a question; without one the instant of the timeline's cursor, or the begin. */
export function position(): Parameters {
  const { recording, thread, number, gap, at, frame } = selection.value;
  const known: Parameters = {};
  if (recording && NUMBER.test(recording) && recording !== "0") known.recording = recording;
  if (thread && NUMBER.test(thread)) known.thread = thread;
  if (number && NUMBER.test(number)) {
    known.number = number;
    if (gap) known.gap = 1;
  } else if (at && NUMBER.test(at)) known.time = at;
  if (frame && NUMBER.test(frame)) known.frame = frame;
  return known;
}

/** Asks what is seen after a step or a search from a position. */
export function ask(from: Parameters, to: Parameters, signal?: AbortSignal): Promise<Seen> {
  return json<Seen>("execution", { ...from, ...to }, signal);
}

/** Writes a position into the address. The timeline's cursor is there too. */
export function write(seen: Seen, how: "step" | "silent"): void {
  const { tid, number } = seen.scene;
  const changes: Record<string, string | undefined> = {
    thread: String(tid),
    number: String(number),
    gap: seen.gap ? "1" : undefined,
    frame: undefined,
  };
  if (seen.time !== null) changes.at = seen.time;
  select(changes, how);
}

/** Whether an answer is of the position of the address. */
export function isOf(seen: Seen, asked: Parameters): boolean {
  const { tid, number } = seen.scene;
  return asked.thread === String(tid) && asked.number === String(number) && Boolean(asked.gap) === seen.gap;
}
