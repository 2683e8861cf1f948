// Events as ticks on the rows that they belong to: those of the thread that their context names, else those of their CPU.

import { useMemo } from "preact/hooks";

import { answers } from "../../shared/answers";
import { type Asked, useAnswer } from "../../shared/ask";
import { type Model, columnOf, fetchModel, raw } from "../../shared/model";
import { selection } from "../../shared/selection";
import { statementOf } from "../events/statement";
import { type Row, keyCell } from "./rows";
import type { Store } from "./store";

/** The context with the thread of an event, which LTTng adds. */
const THREAD = "vtid";

/** The events that the address names, and where they are. */
export interface Ticks {
  /** The name of the events, and their condition. */
  name: string;
  where: string;
  asked: Asked<Model>;
  /** Instants from the origin, in order, by thread, by CPU, and all. */
  byThread: Map<string, number[]>;
  byCpu: Map<string, number[]>;
  all: number[];
}

/** Instants of a table of events: all, and by the values of a column. */
export function instantsOf(model: Model, origin: bigint, name: string | undefined): { all: number[]; by: Map<string, number[]> } {
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

/** The ticks of a row. */
export function ticksOf({ byThread, byCpu }: Ticks, row: Row): number[] {
  if (row.table.name === "cpu") return byCpu.get(keyCell(row.table, row.lane, "cpu") ?? "") ?? [];
  const tid = row.isThin ? undefined : keyCell(row.table, row.lane, "tid");
  return (tid && byThread.get(tid)) || [];
}
