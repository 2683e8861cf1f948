// Events as ticks on the rows that they belong to: those of the thread that their context names, else those of their CPU.

import type { Asked } from "../../shared/ask";
import type { Model } from "../../shared/model";
import { type Row, keyCell } from "./rows";

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

/** The ticks of a row. */
export function ticksOf({ byThread, byCpu }: Ticks, row: Row): number[] {
  if (row.table.name === "cpu") return byCpu.get(keyCell(row.table, row.lane, "cpu") ?? "") ?? [];
  const tid = row.isThin ? undefined : keyCell(row.table, row.lane, "tid");
  return (tid && byThread.get(tid)) || [];
}
