// What the server says of the inputs.

import { signal } from "@preact/signals";

import { answers } from "./answers";
import { Refusal, json } from "./api";

/** A report that the inputs provide. */
export interface Report {
  name: string;
  help: string;
  /** Values of `by`, the default first. */
  views: string[];
}

/** How far the store is. */
export type Index =
  | { state: "building"; done: number; total: number }
  | { state: "ready" }
  | { state: "absent"; why: string; failed: boolean };

/** What the server says of the inputs. */
export interface Session {
  version: string;
  inputs: string[];
  reports: Report[];
  index: Index;
  /** Inputs whose clock is related to no other, and what is missing. */
  unrelated: string[];
  /** Says that an input was changed. */
  changed: string | null;
  /** A page that is a file: what was left out of it. */
  left_out: string[];
}

/** Time between questions, in ms: while the store grows, and later. */
const SOON = 500;
const LATER = 4000;

/** What was last said; undefined before. */
export const session = signal<Session | undefined>(undefined);
/** Why the server does not answer. */
export const silence = signal<string | undefined>(undefined);

/** Ends the building of the store; the next answer says so. */
export function stopIndexing() {
  json<Session>("session/stop").catch((error) => (silence.value = String(error)));
}

/** Asks again and again; returns how to stop. */
export function follow(): () => void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  let stopped = false;
  const next = async () => {
    try {
      session.value = await json<Session>("session");
      silence.value = undefined;
    } catch (error) {
      silence.value = error instanceof Refusal ? error.message : String(error);
    }
    if (stopped || answers) return;
    timer = setTimeout(next, session.value?.index.state === "building" ? SOON : LATER);
  };
  void next();
  return () => {
    stopped = true;
    clearTimeout(timer);
  };
}
