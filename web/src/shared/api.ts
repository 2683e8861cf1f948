// Questions to the server, or to the answers inside a page that has none.

import { tableFromIPC, type Table as ArrowTable } from "@uwdata/flechette";

import { answers } from "./answers";

/** Parameters of a question. */
export type Parameters = Record<string, string | number>;

/** An answer that is not there: the reason is for people. */
export class Refusal extends Error {
  /** Whether it makes sense to ask again later. */
  later: boolean;

  constructor(why: string, later = false) {
    super(why);
    this.later = later;
  }
}

/** A question as text: its path and its parameters in the order of their names. The file of a page has it as a key. */
export function question(path: string, parameters: Parameters = {}): string {
  const names = Object.keys(parameters).sort();
  const text = new URLSearchParams(names.map((name) => [name, String(parameters[name])])).toString();
  return text ? `${path}?${text}` : path;
}

interface Answer {
  bytes: Uint8Array;
  /** Rows that a table lacks. */
  leftOut: number;
}

async function ask(asked: string, signal?: AbortSignal): Promise<Answer> {
  if (answers) {
    const found = await answers(asked);
    if (!found) throw new Refusal("This page is a file, and this was left out of it.");
    return found;
  }
  let response: Response;
  try {
    response = await fetch(`api/${asked}`, signal ? { signal } : {});
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Refusal("hodo does not answer: its process has ended. Start `hodo view` again.", true);
  }
  const bytes = new Uint8Array(await response.arrayBuffer());
  const isLater = response.status === 202;
  if (!response.ok || isLater) throw new Refusal(new TextDecoder().decode(bytes), isLater);
  return { bytes, leftOut: Number(response.headers.get("x-hodo-left-out") ?? 0) };
}

/** Asks for a small value. */
export async function json<T>(path: string, parameters: Parameters = {}, signal?: AbortSignal): Promise<T> {
  const { bytes } = await ask(question(path, parameters), signal);
  return JSON.parse(new TextDecoder().decode(bytes)) as T;
}

/** Asks for a table. Integers of 64 bits are exact with `exact`, and doubles without. */
export async function arrow(
  path: string,
  parameters: Parameters = {},
  exact = true,
  signal?: AbortSignal,
): Promise<{ arrow: ArrowTable; leftOut: number }> {
  const { bytes, leftOut } = await ask(question(path, parameters), signal);
  return { arrow: tableFromIPC(bytes, { useBigInt: exact }), leftOut };
}
