// An answer as state of a component: asked for when its question changes, and given up when the component goes.

import { useEffect, useRef, useState } from "preact/hooks";

import { Refusal } from "./api";

/** The state of an answer. */
export interface Asked<T> {
  value?: T;
  error?: string;
  waiting: boolean;
  /** Gives the question up; undefined if it is not under way. */
  stop?: (() => void) | undefined;
  /** Asks the question again, after it was given up. */
  again?: (() => void) | undefined;
}

/** Time before a question is asked again that has no answer yet, in ms. */
const AGAIN = 700;

/** Asks when `key` changes; undefined asks for nothing. */
export function useAnswer<T>(key: string | undefined, ask: (signal: AbortSignal) => Promise<T>): Asked<T> {
  const [state, setState] = useState<Asked<T> & { key?: string | undefined }>({ waiting: true });
  const [attempts, setAttempts] = useState(0);
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
        setState({ key, error: error instanceof Error ? error.message : String(error), waiting: later, stop: later ? stop : undefined });
        if (later) timer = setTimeout(attempt, AGAIN);
      }
    };
    const stop = () => {
      clearTimeout(timer);
      control.abort();
      const again = () => {
        setState({ key, waiting: true });
        setAttempts((attempts) => attempts + 1);
      };
      setState({ key, error: "Stopped.", waiting: false, again });
    };
    setState({ key, waiting: true, stop });
    void attempt();
    return () => {
      clearTimeout(timer);
      control.abort();
    };
  }, [key, attempts]);
  return state.key === key ? state : { waiting: true };
}

/** An answer that stays until a newer one to the same question is here, such as of a store that has grown; `of` names the question. */
export function useLast<T>(asked: Asked<T>, of: string): Asked<T> {
  const last = useRef<{ of: string; value: T }>(undefined);
  if (asked.value !== undefined) last.current = { of, value: asked.value };
  const stays = asked.waiting && asked.value === undefined && last.current?.of === of;
  return stays && last.current ? { value: last.current.value, waiting: true } : asked;
}
