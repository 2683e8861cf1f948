// Numbers of events as counters above the rows: the address names them, and the server is asked for those of the seen span.

import { answers } from "../../shared/answers";
import { useAnswer, useLast } from "../../shared/ask";
import { type Model, fetchModel, raw } from "../../shared/model";
import { select, selection } from "../../shared/selection";
import { shown } from "../../shared/text";
import { quoted } from "../sql/quoted";
import { type Scene, type Seen, type Span, drawCounter, paintGrid, prepare } from "./draw";
import type { Store } from "./store";

/** Cells of time of a counter. */
const CELLS = 800;
/** Counters, at most. */
const MOST = 12;
/** The height of a counter in pixels, as that of a row of counters. */
export const COUNTER_HEIGHT = 44;
/** The parameter of the address: a list of `EVENT.FIELD`. */
export const COUNTERS = "plots";

/** A counter: an event and one of its fields. */
export interface Counter {
  /** As the address has it. */
  name: string;
  event: string;
  field: string;
}

/** What is known of a counter in a span. */
export interface Counted extends Counter {
  /** Its values, each until the next one; `low` and `high` of a cell that has several. */
  seen: Seen[];
  /** The ends of its scale; undefined without a value. */
  scale: [low: number, high: number] | undefined;
  error: string | undefined;
}

/** The counters of the address. A field may have dots, the name of an event may not end in one. */
export function countersOf(text: string | undefined): Counter[] {
  try {
    const names: unknown = JSON.parse(text ?? "[]");
    if (!Array.isArray(names)) return [];
    const split = (name: string) => ({ name, event: name.slice(0, name.indexOf(".")), field: name.slice(name.indexOf(".") + 1) });
    return names.map(String).filter((name) => name.indexOf(".") > 0).map(split).slice(0, MOST);
  } catch {
    return [];
  }
}

/** Adds a counter to the address, or removes it. */
export function turnCounter(name: string): void {
  const known = countersOf(selection.value[COUNTERS]).map((one) => one.name);
  const next = known.includes(name) ? known.filter((one) => one !== name) : [...known, name];
  select({ [COUNTERS]: next.length > 0 ? JSON.stringify(next) : undefined });
}

/** The statement that asks for the cells of a counter in a span of absolute times: their bounds, and the last value of each. The
 * value from before the span is a cell of its own, before all. */
export function statementOf({ event, field }: Counter, from: bigint, until: bigint): string {
  const [table, value] = [quoted(event), quoted(field)];
  const width = (until - from) / BigInt(CELLS) + 1n;
  return `with cells as (
  select (time_ns - ${from}) / ${width} as cell, min(${value}) as low, max(${value}) as high, min(time_ns) as begins, max(time_ns) as ends
  from ${table} where time_ns >= ${from} and time_ns < ${until} and ${value} is not null group by 1)
select cell, low, high, begins, ends, max(${value}) as last from cells join ${table} on time_ns = ends where ${value} is not null group by cell
union all
select -1, v, v, t, t, v from (select time_ns as t, ${value} as v from ${table} where time_ns < ${from} and ${value} is not null order by time_ns desc limit 1)
order by 1`;
}

/** The values of a counter as slices: a cell has its bounds from its first to its last event, and its last value holds until the
 * next cell. */
function seenOf(model: Model, origin: bigint, end: number): Seen[] {
  const number = (row: number, column: number) => Number(raw(model.cell(row, column)));
  const time = (row: number, column: number) => Number(BigInt(raw(model.cell(row, column))) - origin);
  const slice = (begin: number, end: number, low: number, high: number): Seen => ({
    slice: { begin, end, records: 1, weight: 1, parts: [], missing: 0, low, high },
    begin,
    end,
  });
  return Array.from({ length: model.rows }, (_, row) => row).flatMap((row) => {
    const [begins, ends, last] = [time(row, 3), time(row, 4), number(row, 5)];
    const next = row + 1 < model.rows ? time(row + 1, 3) : end;
    const several = ends > begins ? [slice(begins, ends, number(row, 1), number(row, 2))] : [];
    return [...several, slice(ends, next, last, last)];
  });
}

/** The counters of the address in a span. A page that is a file has none. */
export function useCounters(store: Store, span: Span): Counted[] {
  const counters = answers ? [] : countersOf(selection.value[COUNTERS]);
  const origin = BigInt(store.origin);
  const from = origin + BigInt(Math.floor(span.begin));
  const until = origin + BigInt(Math.ceil(span.begin + span.length));
  const names = JSON.stringify(counters);
  const key = counters.length > 0 ? `${names} ${from} ${until}` : undefined;
  const ask = async (signal: AbortSignal): Promise<Counted[]> => {
    const all: Counted[] = [];
    for (const counter of counters) {
      try {
        const model = await fetchModel("sql", { query: statementOf(counter, from, until) }, signal);
        const seen = seenOf(model, origin, Number(until - origin));
        const bounds = seen.flatMap(({ slice }) => [slice.low ?? 0, slice.high ?? 0]);
        const scale: [number, number] | undefined = bounds.length > 0 ? [Math.min(0, ...bounds), Math.max(...bounds)] : undefined;
        all.push({ ...counter, seen, scale, error: undefined });
      } catch (error) {
        if (signal.aborted) throw error;
        all.push({ ...counter, seen: [], scale: undefined, error: error instanceof Error ? error.message : String(error) });
      }
    }
    return all;
  };
  const asked = useLast(useAnswer(key, ask), names);
  const waiting = counters.map((counter) => ({ ...counter, seen: [], scale: undefined, error: undefined }));
  return counters.length > 0 ? (asked.value ?? waiting) : [];
}

/** Draws counters below each other. */
export function drawCounters(canvas: HTMLCanvasElement, counters: Counted[], scene: Scene): void {
  const prepared = prepare(canvas);
  if (!prepared) return;
  const { context, width, height } = prepared;
  const { span } = scene;
  const x = (at: number) => ((at - span.begin) / span.length) * width;
  paintGrid(context, scene, width, height);
  for (const [number, { seen }] of counters.entries()) {
    drawCounter(context, seen, { top: number * COUNTER_HEIGHT, height: COUNTER_HEIGHT }, x, scene.theme);
    context.fillStyle = scene.theme.line;
    context.fillRect(0, (number + 1) * COUNTER_HEIGHT - 1, width, 1);
  }
  if (scene.at === undefined) return;
  context.fillStyle = scene.theme.accent;
  context.fillRect(x(scene.at) - 0.5, 0, 1, height);
}

/** Numbers of scales: 43.98M. */
const SCALED = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 4 });

/** The name of a counter, and the ends of its scale. */
export function CounterLabel({ counter, top }: { counter: Counted; top: number }) {
  const { name, event, field, scale, error } = counter;
  return (
    <div class="row-label counter-label" style={{ top: `${top}px`, height: `${COUNTER_HEIGHT}px` }} data-counter={name} data-low={scale?.[0]} data-high={scale?.[1]}>
      <span class="name" title={shown(error ?? name, 500)}>
        <b>{shown(field, 40)}</b> <span>{shown(event, 40)}</span>
        {error && <em class="problem">{shown(error, 200)}</em>}
      </span>
      {scale && (
        <span class="scale">
          <span>{SCALED.format(scale[1])}</span>
          <span>{SCALED.format(scale[0])}</span>
        </span>
      )}
      <button type="button" class="quiet" onClick={() => turnCounter(name)} aria-label={`No counter ${shown(name, 60)}`} title="Remove">
        ×
      </button>
    </div>
  );
}
