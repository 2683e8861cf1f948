// An answer as state of a component: asked for when its question changes, and given up when the component goes.

import { useEffect, useRef, useState } from "preact/hooks";

import { Refusal } from "./api";

/** The state of an answer. */
export interface Asked<T> {
  value?: T;
  error?: string;
  waiting: boolean;
}

/** Time before a question is asked again that has no answer yet, in ms. */
const AGAIN = 700;

/** Asks when `key` changes; undefined asks for nothing. */
export function useAnswer<T>(key: string | undefined, ask: (signal: AbortSignal) => Promise<T>): Asked<T> {
  const [state, setState] = useState<Asked<T> & { key?: string | undefined }>({ waiting: true });
  useEffect(() => {
    if (key === undefined) return;
    const control = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const attempt = async () => {
      try {
        const value = await ask(control.signal);
        if (!control.signal.aborted) setState({ key, value, waiting: false });
      } catch (error) {
        if (control.signal.aborted) return;
        const later = error instanceof Refusal && error.later;
        setState({ key, error: error instanceof Error ? error.message : String(error), waiting: later });
        if (later) timer = setTimeout(attempt, AGAIN);
      }
    };
    void attempt();
    return () => {
      clearTimeout(timer);
      control.abort();
    };
  }, [key]);
  return state.key === key ? state : { waiting: true };
}

/** An answer that stays until a newer one to the same question is here, such as of a store that has grown; `of` names the question. */
export function useLast<T>(asked: Asked<T>, of: string): Asked<T> {
  const last = useRef<{ of: string; value: T }>(undefined);
  if (asked.value !== undefined) last.current = { of, value: asked.value };
  const stays = asked.waiting && asked.value === undefined && last.current?.of === of;
  return stays && last.current ? { value: last.current.value, waiting: true } : asked;
}
