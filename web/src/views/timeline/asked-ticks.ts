// The ticks of the events that the address names, which the server is asked for.

import { useMemo } from "preact/hooks";

import { answers } from "../../shared/answers";
import { useAnswer } from "../../shared/ask";
import { type Model, columnOf, fetchModel, raw } from "../../shared/model";
import { selection } from "../../shared/selection";
import { statementOf } from "../events/statement";
import type { Store } from "./store";
import type { Ticks } from "./ticks";

/** The context with the thread of an event, which LTTng adds. */
const THREAD = "vtid";

/** Instants of a table of events: all, and by the values of a column. */
function instantsOf(model: Model, origin: bigint, name: string | undefined): { all: number[]; by: Map<string, number[]> } {
  const [time, column] = [columnOf(model, "time_ns"), name === undefined ? undefined : columnOf(model, name)];
  const [all, by]: [number[], Map<string, number[]>] = [[], new Map()];
  for (let row = 0; time !== undefined && row < model.rows; row++) {
    const at = Number(BigInt(raw(model.cell(row, time))) - origin);
    all.push(at);
    if (column === undefined) continue;
    const key = raw(model.cell(row, column));
    const own = by.get(key);
    if (own) own.push(at);
    else by.set(key, [at]);
  }
  return { all, by };
}

/** The ticks of the events of the address; undefined if it has none. */
export function useTicks(store: Store): Ticks | undefined {
  const { ticks, event, where = "" } = selection.value;
  const isOn = Boolean(ticks && event) && !answers;
  const query = isOn && event ? statementOf(event, [], { where }) : undefined;
  const asked = useAnswer(query, (signal) => fetchModel("sql", { query: query ?? "" }, signal));
  return useMemo(() => {
    if (!isOn || event === undefined) return undefined;
    const model = asked.value;
    const origin = BigInt(store.origin);
    const none = { all: [], by: new Map<string, number[]>() };
    const ofThreads = model && columnOf(model, THREAD) !== undefined ? instantsOf(model, origin, THREAD) : none;
    const ofCpus = model ? instantsOf(model, origin, "cpu") : none;
    return { name: event, where, asked, byThread: ofThreads.by, byCpu: ofCpus.by, all: ofCpus.all };
  }, [isOn, event, where, asked.value, asked.error, store.origin]);
}
