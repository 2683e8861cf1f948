// Events: those of a name with their fields, those of all names, and counters of their fields. What is shown is asked by SQL.

import { useMemo, useState } from "preact/hooks";

import { json } from "../../shared/api";
import { answers } from "../../shared/answers";
import { useAnswer } from "../../shared/ask";
import { duration, grouped, instant } from "../../shared/format";
import { type Model, columnOf, fetchModel, ofEvents, raw } from "../../shared/model";
import { MOST_LINES, Plot } from "../../shared/plot";
import { link, select, selection } from "../../shared/selection";
import { DataTable, Summary } from "../../shared/table";
import { shown } from "../../shared/text";
import { timeOf } from "../../shared/times";
import { Waiting } from "../../shared/waiting";
import type { View } from "../../views";
import type { SqlTable } from "../sql";
import { quoted } from "../sql/quoted";
import { COUNTERS, countersOf, turnCounter } from "../timeline/counters";
import { MOST, TIME, listed, statementOf } from "./statement";

/** The table of the events of all names. */
const ALL = "events";

function Page() {
  const tables = useAnswer("tables", (signal) => json<SqlTable[]>("sql/tables", {}, signal));
  const counted = useAnswer("count", (signal) => fetchModel("table", { report: "count", by: "" }, signal));
  const names = tables.value?.filter((table) => table.is_event).map((table) => table.name) ?? [];
  const name = selection.value.event ?? firstOf(names, counted.value && countsOf(counted.value), counted.waiting);
  return (
    <div class="split events">
      <nav class="side wide" aria-label="Events">
        <Waiting asked={tables} />
        <NameList names={names} counts={counted.value && countsOf(counted.value)} chosen={name} />
      </nav>
      <div class="content">
        {name !== undefined && <Events key={name} name={name} />}
        {name === undefined && tables.value && (counted.waiting ? <Waiting asked={counted} /> : <p>The inputs have no events.</p>)}
      </div>
    </div>
  );
}

/** The name that is shown first: the first one with events, once their numbers are known. */
function firstOf(names: string[], counts: Map<string, number> | undefined, isCounting: boolean): string | undefined {
  if (!counts && isCounting) return undefined;
  const own = names.filter((name) => name !== ALL);
  return own.find((name) => counts?.has(name)) ?? own[0];
}

/** How many events each name has. */
function countsOf(model: Model): Map<string, number> {
  const [event, count] = [columnOf(model, "event"), columnOf(model, "count")];
  if (event === undefined || count === undefined) return new Map();
  return new Map(Array.from({ length: model.rows }, (_, row) => [raw(model.cell(row, event)), Number(raw(model.cell(row, count)))]));
}

interface NameListProperties {
  names: string[];
  /** The number of events by name, once it is known. */
  counts: Map<string, number> | undefined;
  chosen: string | undefined;
}

function NameList({ names, counts, chosen }: NameListProperties) {
  const [filter, setFilter] = useState("");
  const isShown = (name: string) => name === chosen || name === ALL || !counts || counts.size === 0 || counts.has(name);
  const own = [...names.filter((name) => name === ALL), ...names.filter((name) => name !== ALL && isShown(name))];
  return (
    <>
      <input type="search" name="names" placeholder="Filter names" aria-label="Filter names of events" value={filter} onInput={(event) => setFilter(event.currentTarget.value)} />
      {own
        .filter((name) => name.toLowerCase().includes(filter.toLowerCase()))
        .map((name) => (
          <a
            key={name}
            href={link({ ...selection.value, event: name, columns: "", counters: "", where: "" })}
            aria-current={name === chosen ? "page" : undefined}
            data-event={name}
          >
            {name === ALL ? "all events" : <Name text={shown(name, 60)} />} {counts?.has(name) && <span>{grouped(counts.get(name) ?? 0)}</span>}
          </a>
        ))}
    </>
  );
}

/** A name that is broken behind an underscore rather than within a word. */
function Name({ text }: { text: string }) {
  const words = text.split(/(?<=_)/);
  return (
    <div>
      {words.map((word, number) => (
        <>
          {number > 0 && <wbr />}
          {word}
        </>
      ))}
    </div>
  );
}

/** The events of a name. */
function Events({ name }: { name: string }) {
  const described = `describe ${quoted(name)}`;
  const about = useAnswer(described, (signal) => fetchModel("sql", { query: described }, signal));
  const query = statementOf(name, listed(selection.value.columns), selection.value);
  const asked = useAnswer(query, async (signal) => ofEvents(await fetchModel("sql", { query }, signal)));
  const { where = "", span, t0, t1 } = selection.value;
  const [typed, setTyped] = useState(where);
  const apply = () => select({ where: typed.trim() || undefined });
  return (
    <>
      <header class="heading">
        <h1>{name === ALL ? "all events" : shown(name, 80)}</h1>
      </header>
      <form
        class="tools"
        onSubmit={(event) => {
          event.preventDefault();
          apply();
        }}
      >
        <input
          type="search"
          name="where"
          class="where"
          spellcheck={false}
          placeholder="Only those for which…  prev_tid = 42 and comm regexp '^kworker'"
          aria-label="Only events that satisfy this condition, in SQL"
          value={typed}
          onInput={(event) => setTyped(event.currentTarget.value)}
          onKeyDown={(event) => event.key === "Escape" && !typed && event.currentTarget.blur()}
        />
        <button type="submit">Filter</button>
        <label title="The span that the timeline shows">
          <input type="checkbox" name="span" disabled={!t0 || !t1} checked={Boolean(span && t0)} onChange={(event) => select({ span: event.currentTarget.checked ? "seen" : undefined })} /> in
          the seen span{t0 && t1 && ` (${duration(Number(BigInt(t1) - BigInt(t0)))})`}
        </label>
        <button
          type="button"
          aria-pressed={Boolean(selection.value.ticks)}
          title="Marks these events on the rows of the timeline"
          onClick={() => select({ event: name, ticks: selection.value.ticks ? undefined : "1" })}
        >
          Ticks
        </button>
        <a href={link({ view: "sql", sql: query })}>as SQL</a>
      </form>
      {about.value && <Columns event={name} about={about.value} />}
      <Waiting asked={asked} />
      {asked.value && <Found model={asked.value} />}
    </>
  );
}

/** The columns to show, and those to draw as counters. */
function Columns({ event, about }: { event: string; about: Model }) {
  const columns = Array.from({ length: about.rows }, (_, row) => ({ name: raw(about.cell(row, 1)), kind: raw(about.cell(row, 2)) }));
  const choice = (parameter: "columns" | "counters") => {
    const chosen = listed(selection.value[parameter]);
    return (name: string) => ({
      checked: chosen.includes(name),
      turn: (on: boolean) => select({ [parameter]: (on ? [...chosen, name] : chosen.filter((one) => one !== name)).join(",") || undefined }),
    });
  };
  const list = (parameter: "columns" | "counters", title: string, own: typeof columns) => {
    const of = choice(parameter);
    return (
      <details data-choose={parameter}>
        <summary>{title}</summary>
        <span role="group" aria-label={title}>
          {own.map(({ name }) => (
            <label key={name}>
              <input type="checkbox" name={`${parameter}-${name}`} checked={of(name).checked} onChange={(event) => of(name).turn(event.currentTarget.checked)} /> {shown(name, 40)}
            </label>
          ))}
        </span>
      </details>
    );
  };
  const chosen = listed(selection.value.columns).length;
  const numbers = columns.filter(({ name, kind }) => name !== TIME && /integer|real/.test(kind));
  return (
    <div class="tools choices">
      {list("columns", chosen === 0 ? "Columns: all" : `Columns: ${chosen} of ${columns.length}`, columns.filter(({ name }) => name !== TIME))}
      {numbers.length > 0 && list("counters", "Counters", numbers)}
      {listed(selection.value.counters).map((field) => {
        const name = `${event}.${field}`;
        const isThere = countersOf(selection.value[COUNTERS]).some((one) => one.name === name);
        return (
          <button key={field} type="button" aria-pressed={isThere} data-in-timeline={field} onClick={() => turnCounter(name)} title="A row of the timeline">
            {shown(field, 40)} in the timeline
          </button>
        );
      })}
    </div>
  );
}

/** The events, and their counters. The instant of the address is marked, and a click on a row goes there. */
function Found({ model }: { model: Model }) {
  const time = columnOf(model, TIME);
  const at = /^\d+$/.test(selection.value.at ?? "") ? BigInt(selection.value.at ?? 0) : undefined;
  const marked = useMemo(() => (time === undefined || at === undefined ? undefined : rowAt(model, time, at)), [model, time, at]);
  const go = (row: number) => time !== undefined && select({ at: raw(model.cell(row, time)) });
  const counters = listed(selection.value.counters)
    .flatMap((name) => columnOf(model, name) ?? [])
    .slice(0, MOST_LINES);
  return (
    <>
      <Summary model={{ ...model, summary: model.summary.filter(([name]) => name !== "rows") }} />
      {model.rows === MOST && <p class="problem">The first {grouped(MOST)} events: a condition or the seen span finds others.</p>}
      {time !== undefined && counters.length > 0 && model.rows > 0 && <Plot model={model} x={time} ys={counters} steps at={at} pick={go} />}
      <DataTable model={model} linkOf={timeOf(model)} marked={marked} choose={go} describes>
        {at !== undefined && <span data-instant={String(at)}>the instant: {instant(at)}</span>}
      </DataTable>
    </>
  );
}

/** The last row up to an instant; the first one if all are later. Rows are in order of time. */
export function rowAt(model: Pick<Model, "rows" | "cell">, time: number, at: bigint): number | undefined {
  if (model.rows === 0) return undefined;
  let [low, high] = [0, model.rows];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (BigInt(raw(model.cell(middle, time))) <= at) low = middle + 1;
    else high = middle;
  }
  return Math.max(0, low - 1);
}

export const events: View = {
  name: "events",
  title: "Events",
  keys: [],
  has: (session) => !answers && session.reports.some(({ name }) => name === "count"),
  Page,
};
