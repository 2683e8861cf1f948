// Where the rows of a table lie on the timeline.

import { type Model, columnOf, raw } from "./model";
import { link } from "./selection";
import { session } from "./session";

/** Nanoseconds shown around an instant that has no duration. */
const AROUND = 500_000n;

/** Links of rows that have a begin and an end or a duration, or an instant: the timeline there. */
export function timeOf(model: Model): ((row: number) => string | undefined) | undefined {
  if (session.value?.index.state === "absent") return undefined;
  const begin = columnOf(model, "begin_ns");
  const end = columnOf(model, "end_ns");
  const lasts = columnOf(model, "duration_ns") ?? columnOf(model, "time_ns");
  const place = model.columns.findIndex((column) => column.isInstant);
  const instant = place >= 0 ? place : columnOf(model, "at_ns");
  const to = (from: bigint, until: bigint, at: bigint) =>
    link({ view: "timeline", t0: String(from > 0n ? from : 0n), t1: String(until), at: String(at) });
  if (begin === undefined && instant !== undefined) {
    return (row) => {
      const cell = model.cell(row, instant);
      if (cell === null) return undefined;
      const at = BigInt(raw(cell));
      return to(at - AROUND, at + AROUND, at);
    };
  }
  if (begin === undefined || (end === undefined && lasts === undefined)) return undefined;
  return (row) => {
    const from = model.cell(row, begin);
    if (from === null) return undefined;
    const [start, extent] = [BigInt(raw(from)), lasts === undefined ? null : model.cell(row, lasts)];
    const until = extent === null ? (end === undefined ? null : model.cell(row, end)) : null;
    const stop = extent === null ? BigInt(raw(until ?? from)) : start + BigInt(raw(extent));
    const margin = (stop - start) / 4n + 1n;
    return to(start - margin, stop + margin, start);
  };
}
