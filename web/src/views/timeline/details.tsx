// What is at the selected place: each record with all of its cells.

import { answers } from "../../shared/answers";
import { json } from "../../shared/api";
import { useAnswer, useLast } from "../../shared/ask";
import { duration, grouped, time } from "../../shared/format";
import { link, selection } from "../../shared/selection";
import { session } from "../../shared/session";
import { shown } from "../../shared/text";
import { Waiting } from "../../shared/waiting";
import type { Arrow } from "./overlays";
import { type Row, titleOf } from "./rows";
import type { Slice, Store } from "./store";

/** Links of a record that are listed. */
const MOST_LINKS = 6;

/** A further cell of a record. */
export interface Cell {
  name: string;
  unit: string;
  value: string | null;
}

/** A record with its cells. */
export interface StoreRecord {
  lane: number;
  begin: number;
  end: number;
  /** Its begin in nanoseconds of the timeline, exactly. */
  absolute: string;
  value: string | null;
  cells: Cell[];
}

interface Properties {
  store: Store;
  row: Row;
  at: number;
  /** The cell of time there, if it holds several records. */
  slice: Slice | undefined;
  arrows: Arrow[];
  /** Shows the critical path of the row's thread. */
  follow: (() => void) | undefined;
  /** The thread whose execution can be stepped through. */
  step: string | undefined;
  /** Goes to an instant of the row of a path. */
  go: (path: string, at: number) => void;
  show: (record: StoreRecord) => void;
  close: () => void;
}

/** What a page that is a file knows of a record: what its slice has. */
async function inSlice(store: Store, row: Row, slice: Slice | undefined): Promise<{ records: StoreRecord[] }> {
  if (!slice || slice.records !== null) return { records: [] };
  const { begin, end, parts } = slice;
  const absolute = String(BigInt(store.origin) + BigInt(begin));
  return { records: [{ lane: row.lane, begin, end, absolute, value: parts[0]?.value ?? null, cells: [] }] };
}

/** The panel of details. */
export function Details({ store, row, at, slice, arrows, follow, step, go, show, close }: Properties) {
  const table = row.table.name;
  const parameters = { generation: store.generation, table, lane: row.lane, time: Math.max(0, Math.floor(at)) };
  const now = useAnswer(`${JSON.stringify(parameters)} ${answers ? slice?.begin : ""}`, (signal) =>
    answers ? inSlice(store, row, slice) : json<{ records: StoreRecord[] }>("timeline/at", parameters, signal),
  );
  const asked = useLast(now, `${store.origin} ${row.id} ${parameters.time}`);
  return (
    <aside class="details" aria-label="Details">
      <header>
        <strong>{shown(titleOf(row))}</strong>
        <span>
          at {time(at)}
          {store.half_width > 0 && (
            <span data-figure="half_width" title={`${store.half_width} ns: half of the widest interval in which a time of another clock lies`}>
              {" "}
              ± {duration(store.half_width)}
            </span>
          )}
        </span>
        {follow && (
          <button type="button" onClick={follow} title="What this thread waited for, and what that waited for (K)">
            Critical path
          </button>
        )}
        {step && session.value?.reports.some((report) => report.name === "functions") && (
          <a
            data-link="execution"
            href={link({ ...selection.value, view: "execution", thread: step, at: String(BigInt(store.origin) + BigInt(parameters.time)), number: "" })}
            title="Call stack, source and code at this instant; step from there"
          >
            Execution
          </a>
        )}
        <button type="button" class="quiet" onClick={close} aria-label="Close details">
          ×
        </button>
      </header>
      {slice?.records != null && <Mix slice={slice} unit={row.table.shape === "points" ? "points" : "ns"} />}
      <Waiting asked={asked} />
      {asked.value?.records.length === 0 && !slice && <p class="waiting">No record of this row is at this instant.</p>}
      {asked.value?.records.map((record, number) => (
        <dl key={number} class="record" data-record={record.absolute}>
          <Entry name={row.table.value} value={record.value} />
          <Entry name="begin" value={`${time(record.begin)} (${record.absolute})`} />
          {record.end > record.begin && <Entry name="duration" value={duration(record.end - record.begin)} exact={record.end - record.begin} />}
          {record.cells.map((cell) => (
            <Entry key={cell.name} name={cell.name} value={cell.value} unit={cell.unit} />
          ))}
          <Touching {...{ row, record, arrows, go }} />
          {record.end > record.begin && (
            <div>
              <button type="button" onClick={() => show(record)}>
                Zoom to it
              </button>
            </div>
          )}
        </dl>
      ))}
    </aside>
  );
}

/** Links that begin or end in a record. */
function Touching({ row, record, arrows, go }: Pick<Properties, "row" | "arrows" | "go"> & { record: StoreRecord }) {
  const inside = (at: number) => at >= record.begin && at <= record.end;
  const touching = arrows.filter(
    ({ from, to, begin, end }) => (from === row.path && inside(begin)) || (to === row.path && inside(end)),
  );
  return (
    <>
      {touching.slice(0, MOST_LINKS).map(({ from, to, begin, end }) => {
        const isTo = to === row.path;
        const other = isTo ? from : to;
        return (
          <div key={`${from} ${to} ${begin}`}>
            <dt>{isTo ? "← from" : "→ to"}</dt>
            <dd data-link={isTo ? "from" : "to"}>
              <button type="button" class="quiet" onClick={() => go(other, isTo ? begin : end)} title={shown(other)}>
                {shown(other.split(" › ").at(-1) ?? "", 40)} at {time(isTo ? end : begin)}
              </button>
            </dd>
          </div>
        );
      })}
      {touching.length > MOST_LINKS && <div>and {grouped(touching.length - MOST_LINKS)} more arrows</div>}
    </>
  );
}

function Entry({ name, value, unit = "", exact }: { name: string; value: string | null; unit?: string; exact?: number }) {
  const text =
    value === null ? "–"
    : unit === "ns" ? duration(Number(value))
    : (unit === "count" || unit === "instructions") && /^\d+$/.test(value) ? grouped(BigInt(value))
    : shown(value, 400);
  return (
    <div>
      <dt>{shown(name).replaceAll("_", " ")}</dt>
      <dd data-cell={name} title={String(exact ?? value ?? "")}>
        {text}
      </dd>
    </div>
  );
}

/** What a cell of several records holds. */
function Mix({ slice, unit }: { slice: Slice; unit: string }) {
  const amount = (weight: number) => (unit === "ns" ? duration(weight) : grouped(Math.round(weight)));
  return (
    <p class="mix">
      {grouped(slice.records ?? 0)} records begin in {duration(slice.end - slice.begin)} here:{" "}
      {slice.parts.map((part) => `${shown(part.value ?? "–", 60)} ${amount(part.weight)}`).join(", ")}
      {slice.missing > 0 && `; each up to ${amount(slice.missing)} more`}
    </p>
  );
}
