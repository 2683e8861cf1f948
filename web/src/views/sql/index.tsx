// SQL: statements over the tables of the inputs, as `hodo sql` runs them. The statements are in the address.

import { useEffect, useRef, useState } from "preact/hooks";

import { json } from "../../shared/api";
import { answers } from "../../shared/answers";
import { useAnswer } from "../../shared/ask";
import { type Model, columnOf, fetchModel, ofEvents, raw } from "../../shared/model";
import { MOST_LINES, Plot } from "../../shared/plot";
import { select, selection } from "../../shared/selection";
import { Switch } from "../../shared/switch";
import { DataTable, Summary } from "../../shared/table";
import { shown } from "../../shared/text";
import { timeOf } from "../../shared/times";
import { Waiting } from "../../shared/waiting";
import type { View } from "../../views";
import { Bars } from "./bars";
import { quoted } from "./quoted";
import "./sql.css";

/** A table that statements can name. */
export interface SqlTable {
  name: string;
  is_event: boolean;
}

/** Nanoseconds of a year: longer than any recording. */
const YEAR = 365n * 86_400n * 1_000_000_000n;

/** `time_ns` of events is an instant, and that of reports is a duration. */
function timed(model: Model): Model {
  const time = columnOf(model, "time_ns");
  const first = time === undefined || model.rows === 0 ? null : model.cell(0, time);
  return first !== null && BigInt(raw(first)) > YEAR ? ofEvents(model) : model;
}

function Page() {
  const { sql: query = "", show = "table" } = selection.value;
  const tables = useAnswer("tables", (signal) => json<SqlTable[]>("sql/tables", {}, signal));
  const asked = useAnswer(query ? `sql ${query}` : undefined, async (signal) => timed(await fetchModel("sql", { query }, signal)));
  const field = useRef<HTMLTextAreaElement>(null);
  const [typed, setTyped] = useState(query);
  useEffect(() => setTyped(query), [query]);
  const run = (text: string) => text.trim() && select({ sql: text, x: undefined, y: undefined });
  const insert = (text: string) => {
    const area = field.current;
    if (!area) return;
    area.setRangeText(text, area.selectionStart, area.selectionEnd, "end");
    setTyped(area.value);
    area.focus();
  };
  return (
    <div class="split sql">
      <nav class="side wide" aria-label="Tables">
        <Waiting asked={tables} />
        {tables.value && <TableList tables={tables.value} insert={insert} run={run} />}
      </nav>
      <div class="content">
        <form
          class="statement"
          onSubmit={(event) => {
            event.preventDefault();
            run(typed);
          }}
        >
          <textarea
            ref={field}
            name="sql"
            rows={6}
            spellcheck={false}
            aria-label="SQL statements"
            placeholder="select * from …"
            value={typed}
            onInput={(event) => setTyped(event.currentTarget.value)}
            onKeyDown={(event) => {
              if (event.key === "Escape") event.currentTarget.blur();
              if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
              event.preventDefault();
              run(typed);
            }}
          />
          <div class="tools">
            <button type="submit" title="Ctrl+Enter">
              Run
            </button>
            <Switch
              label="Result"
              values={[
                ["table", "Table"],
                ["plot", "Plot"],
              ]}
              chosen={show}
              choose={(show) => select({ show })}
            />
            <span class="count">SELECT, CREATE VIEW, DESCRIBE; the result is that of the last statement</span>
          </div>
        </form>
        {query && <Waiting asked={asked} />}
        {query && asked.value && <Summary model={asked.value} />}
        {query && asked.value && (show === "plot" ? <Plotted model={asked.value} /> : <DataTable model={asked.value} linkOf={timeOf(asked.value)} />)}
      </div>
    </div>
  );
}

interface ListProperties {
  tables: SqlTable[];
  insert: (text: string) => void;
  run: (text: string) => void;
}

/** The tables, each with its columns. */
function TableList({ tables, insert, run }: ListProperties) {
  const [filter, setFilter] = useState("");
  const wanted = filter.toLowerCase();
  const has = (table: SqlTable) => table.name.toLowerCase().includes(wanted);
  return (
    <>
      <input type="search" name="tables" placeholder="Filter tables" aria-label="Filter tables" value={filter} onInput={(event) => setFilter(event.currentTarget.value)} />
      {[false, true].map((isEvent) => {
        const own = tables.filter((table) => table.is_event === isEvent && has(table));
        return own.length === 0 ? null : (
          <section key={String(isEvent)}>
            <h2>{isEvent ? "Events" : "Reports"}</h2>
            {own.map((table) => (
              <TableColumns key={table.name} name={table.name} insert={insert} run={run} />
            ))}
          </section>
        );
      })}
    </>
  );
}

/** A table; its columns are asked for when it is opened. */
function TableColumns({ name, insert, run }: { name: string } & Pick<ListProperties, "insert" | "run">) {
  const [open, setOpen] = useState(false);
  const query = `describe ${quoted(name)}`;
  const asked = useAnswer(open ? query : undefined, (signal) => fetchModel("sql", { query }, signal));
  return (
    <details data-sql-table={name} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{shown(name, 60)}</summary>
      {open && (
        <>
          <button type="button" class="quiet" onClick={() => run(`select * from ${quoted(name)} limit 1000`)}>
            first 1,000 rows
          </button>
          <Waiting asked={asked} />
          <ul>
            {Array.from({ length: asked.value?.rows ?? 0 }, (_, row) => {
              const [column, kind, unit] = [1, 2, 3].map((cell) => raw(asked.value?.cell(row, cell) ?? null)) as [string, string, string];
              return (
                <li key={column}>
                  <button type="button" class="quiet" onClick={() => insert(quoted(column))} title={`Insert ${shown(column, 60)}`}>
                    {shown(column, 60)}
                  </button>{" "}
                  <span>{unit || kind}</span>
                </li>
              );
            })}
          </ul>
        </>
      )}
    </details>
  );
}

/** The result as lines over a number, or as bars of texts. */
function Plotted({ model }: { model: Model }) {
  const columns = model.columns.map((_, column) => column);
  const numeric = columns.filter((column) => model.columns[column]?.numeric);
  const named = (name: string | undefined) => columns.find((column) => model.columns[column]?.name === name);
  const x = named(selection.value.x) ?? columns.find((column) => !numeric.includes(column)) ?? 0;
  const chosen = (selection.value.y ?? "").split(",").flatMap((name) => named(name) ?? []);
  const isChosen = selection.value.y !== undefined;
  const ys = (isChosen ? chosen : numeric.filter((column) => column !== x).slice(0, 1)).slice(0, MOST_LINES);
  const name = (column: number) => model.columns[column]?.name ?? "";
  return (
    <section class="plotted">
      <div class="tools">
        <label>
          over{" "}
          <select name="x" value={name(x)} onChange={(event) => select({ x: event.currentTarget.value })}>
            {columns.map((column) => (
              <option key={column}>{name(column)}</option>
            ))}
          </select>
        </label>
        <span role="group" aria-label="Lines">
          {numeric
            .filter((column) => column !== x)
            .map((column) => (
              <label key={column}>
                <input
                  type="checkbox"
                  name={`y-${name(column)}`}
                  checked={ys.includes(column)}
                  onChange={(event) => {
                    const next = event.currentTarget.checked ? [...ys, column] : ys.filter((one) => one !== column);
                    select({ y: next.map(name).join(",") });
                  }}
                />{" "}
                {shown(name(column), 40)}
              </label>
            ))}
        </span>
      </div>
      {model.rows === 0 && <p class="waiting">No rows.</p>}
      {model.rows > 0 && ys.length === 0 && <p class="problem">A plot needs a column of numbers; {numeric.length === 0 ? "the result has none" : "choose one"}.</p>}
      {model.rows > 0 && ys.length > 0 && (numeric.includes(x) ? <Plot {...{ model, x, ys }} steps={false} /> : <Bars {...{ model, x }} y={ys[0] ?? 0} />)}
    </section>
  );
}

export const sql: View = {
  name: "sql",
  title: "SQL",
  keys: [["Ctrl+Enter", "run the statements"]],
  has: () => !answers,
  Page,
};
