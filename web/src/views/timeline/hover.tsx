// The hint at the pointer: what a cell of the picture is. It shows what the picture has, so it asks for nothing; only the
// arguments of a single record are asked for, once the pointer rests.

import type { Signal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";

import { answers } from "../../shared/answers";
import { json } from "../../shared/api";
import { useAnswer } from "../../shared/ask";
import { duration, grouped, time } from "../../shared/format";
import { shown } from "../../shared/text";
import type { Colours } from "./colours";
import type { Cell, StoreRecord } from "./details";
import { LOSSES } from "./overlays";
import type { Slice, StoreTable } from "./store";

/** Time for which the pointer rests before the arguments of a record are asked for, in ms. */
const RESTS = 80;
/** Values of a cell of several records, and arguments of one. */
const MOST = 6;
/** Pixels between the pointer and the hint. */
const BESIDE = 14;
/** Pixels by which the pointer may miss a record. */
const NEAR = 3;

/** What the pointer is on. */
export interface Hover {
  /** The pointer in the window. */
  x: number;
  y: number;
  /** The row, for people: what its records are, and whose. */
  title: string;
  table: StoreTable;
  /** The number of its lane; undefined of a summary. */
  lane: number | undefined;
  slice: Slice;
}

/** The slice at an instant; a record that is narrower than a few pixels is found from beside it too. */
export function sliceUnder(slices: { slice: Slice; begin: number; end: number }[], at: number, pixel: number): Slice | undefined {
  let nearest: Slice | undefined;
  let least = NEAR * pixel;
  for (const { slice, begin, end } of slices) {
    if (begin <= at && at < Math.max(end, begin + pixel)) return slice;
    const distance = at < begin ? begin - at : at - end;
    if (distance < least) [nearest, least] = [slice, distance];
  }
  return nearest;
}

interface Properties {
  hover: Signal<Hover | undefined>;
  generation: number;
  colours: Map<string, Colours>;
}

/** The hint. It alone follows the pointer, so that nothing else is drawn again. */
export function Hint({ hover, generation, colours }: Properties) {
  const on = hover.value;
  const element = useRef<HTMLDivElement>(null);
  // A record by itself has arguments, if its table has any.
  const single = on && on.lane !== undefined && on.slice.records === null && on.table.columns.length > 0 && !answers ? on : undefined;
  const parameters = single && {
    ...{ generation, table: single.table.name, lane: single.lane ?? 0 },
    time: Math.max(0, single.slice.begin),
  };
  const cells = useAnswer(parameters && JSON.stringify(parameters), async (signal) => {
    await new Promise((rested) => setTimeout(rested, RESTS));
    if (signal.aborted || !parameters || !single) return [];
    const { records } = await json<{ records: StoreRecord[] }>("timeline/at", parameters, signal);
    return records.find(({ begin, end }) => begin === single.slice.begin && end === single.slice.end)?.cells ?? [];
  });
  // The hint stays in the window, and off the pointer.
  useLayoutEffect(() => {
    const box = element.current;
    if (!box || !on) return;
    const { offsetWidth: width, offsetHeight: height } = box;
    const left = on.x + BESIDE + width > innerWidth ? on.x - BESIDE - width : on.x + BESIDE;
    const top = on.y + BESIDE + height > innerHeight ? on.y - BESIDE - height : on.y + BESIDE;
    box.style.transform = `translate(${Math.max(2, left)}px, ${Math.max(2, top)}px)`;
  });
  if (!on) return null;
  const { slice, table, title } = on;
  return (
    <div class="hint" role="tooltip" ref={element} data-begin={slice.begin} data-end={slice.end}>
      {slice.records === null ? (
        <Single {...{ slice, table }} colour={colours.get(table.name)} cells={single ? (cells.value ?? []) : []} />
      ) : (
        <Several {...{ slice, table }} colours={colours.get(table.name)} isSummary={on.lane === undefined} />
      )}
      <p class="of">{shown(title, 160)}</p>
    </div>
  );
}

function Swatch({ table, colour }: { table: StoreTable; colour: string | undefined }) {
  if (table.name === LOSSES) return <i class="hatch" />;
  return table.shape === "counters" ? null : <i style={{ background: colour }} />;
}

/** A record: its value, begin and duration, and its arguments when they are here. */
function Single({ slice, table, colour, cells }: { slice: Slice; table: StoreTable; colour: Colours | undefined; cells: Cell[] }) {
  const value = slice.parts[0]?.value ?? null;
  const said = cells.filter((cell) => cell.value !== null);
  const isCounter = table.shape === "counters";
  const length = slice.end - slice.begin;
  return (
    <>
      <p>
        <Swatch table={table} colour={colour?.of(value)} />
        <b data-hint="value">{shown((isCounter ? slice.high?.toString() : value) ?? "–", 120)}</b>
      </p>
      <p>
        begin <span data-hint="begin">{time(slice.begin)}</span>
        {length > 0 && (
          <>
            , duration{" "}
            <span data-hint="duration" data-exact={length}>
              {duration(length)}
            </span>
          </>
        )}
      </p>
      {said.slice(0, MOST).map(({ name, unit, value }) => (
        <p key={name} data-hint="argument">
          {shown(name, 40).replaceAll("_", " ")} {unit === "ns" ? duration(Number(value)) : shown(value ?? "", 120)}
        </p>
      ))}
      {said.length > MOST && <p>and {said.length - MOST} more: click</p>}
    </>
  );
}

/** A cell of time that holds several records: its heaviest values. */
function Several({ slice, table, colours, isSummary }: { slice: Slice; table: StoreTable; colours: Colours | undefined; isSummary: boolean }) {
  const { records, begin, end, parts, low, high, missing } = slice;
  const amount = (weight: number) => (table.shape === "intervals" ? duration(weight) : grouped(Math.round(weight)));
  return (
    <>
      <p>
        <span data-hint="begin">{time(begin)}</span>, for <span data-hint="duration">{duration(end - begin)}</span>
        {isSummary ? ", of all rows a mean one:" : <>: <span data-hint="records">{grouped(records ?? 0)}</span> records begin</>}
      </p>
      {table.shape === "counters" ? (
        <p>
          from {low} to <b data-hint="value">{high}</b>
        </p>
      ) : (
        parts.slice(0, MOST).map(({ value, weight }) => (
          <p key={value}>
            <Swatch table={table} colour={colours?.of(value)} />
            <b data-hint="value">{shown(value ?? "–", 80)}</b> {amount(weight)}
          </p>
        ))
      )}
      {missing > 0 && <p>each up to {amount(missing)} more</p>}
    </>
  );
}
