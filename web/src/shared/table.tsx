// A table: sorted by its headings, filtered by text, drawn as far as it is seen, copied as CSV.

import { type ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import { duration, grouped, instant } from "./format";
import { type Cell, type Column, type Model, compare, csv, raw } from "./model";
import { shown } from "./text";

/** Height of a row in pixels; as in the style sheet. */
const ROW = 24;
/** Rows drawn above and below those that are seen. */
const BEYOND = 12;
/** Rows from which a table scrolls in a frame of its own. */
const TALL = 24;

/** Names of columns with instants, which are not durations. */
const INSTANT = /^(begin|end|at|first|last|start)(_.*)?_ns$/;

/** A name for people, without the unit if the values show it. */
function shownName(name: string, unit: string): string {
  return (unit === "ns" ? shown(name).replace(/_ns$/, "") : shown(name)).replaceAll("_", " ");
}

/** A cell for people, whose texts have `most` characters. */
export function shownCell(cell: Cell, column: Pick<Column, "name" | "unit" | "isInstant">, most?: number): string {
  if (cell === null) return "–";
  if (Array.isArray(cell)) return cell.map((item) => shownCell(item, column)).join(" ");
  if (typeof cell === "string") return shown(cell, most);
  if (typeof cell === "boolean") return cell ? "yes" : "no";
  if (column.unit === "ns" && !column.isInstant && !INSTANT.test(column.name)) return duration(Number(cell));
  if (column.unit === "ns") return instant(BigInt(cell));
  if (column.unit === "share") return `${(Number(cell) * 100).toFixed(2)} %`;
  if (typeof cell === "number" && !Number.isInteger(cell)) return cell.toPrecision(5);
  return ["tid", "pid", "id", "cpu"].includes(column.name) ? raw(cell) : grouped(cell as bigint);
}

/** How a table is sorted. */
export interface Sort {
  column: number;
  down: boolean;
}

interface Properties {
  model: Model;
  /** A link of a row, such as to the timeline. */
  linkOf?: ((row: number) => string | undefined) | undefined;
  /** More buttons. */
  children?: ComponentChildren;
  /** Whether rows describe instead of measure, so that none is the worst. */
  describes?: boolean;
  /** A row that is marked and scrolled into sight. */
  marked?: number | undefined;
  /** Receives a row that was clicked. */
  choose?: ((row: number) => void) | undefined;
}

/** The rows that contain a text, in order. */
function ordered(model: Model, filter: string, sort: Sort | undefined): Uint32Array {
  const wanted = filter.toLowerCase();
  const has = (row: number) =>
    model.columns.some((_, column) => raw(model.cell(row, column)).toLowerCase().includes(wanted));
  const rows = Array.from({ length: model.rows }, (_, row) => row).filter((row) => !wanted || has(row));
  if (sort) {
    const sign = sort.down ? -1 : 1;
    const cells = new Map(rows.map((row) => [row, model.cell(row, sort.column)]));
    const cell = (row: number) => cells.get(row) ?? null;
    const absent = (row: number) => Number(cell(row) === null);
    rows.sort((a, b) => absent(a) - absent(b) || sign * compare(cell(a), cell(b)) || a - b);
  }
  return Uint32Array.from(rows);
}

/** The column by which rows are bad: the one they are sorted by, else the first duration or share, else a number. */
function worstColumn(model: Model, sort: Sort | undefined): number {
  const is = (test: (column: Column) => boolean) => model.columns.findIndex((column) => column.numeric && test(column));
  if (sort && model.columns[sort.column]?.numeric) return sort.column;
  const named = is((column) => /max|worst|longest/.test(column.name));
  const timed = is((column) => column.unit === "ns" && !INSTANT.test(column.name));
  const counted = is((column) => column.unit !== "" && !INSTANT.test(column.name));
  return [named, timed, counted].find((column) => column >= 0) ?? -1;
}

/** A table with its tools. */
export function DataTable({ model, linkOf, children, describes = false, marked: given, choose }: Properties) {
  const [sort, setSort] = useState<Sort>();
  const [filter, setFilter] = useState("");
  const [marked, setMarked] = useState<number>();
  const [copied, setCopied] = useState("");
  const scroller = useRef<HTMLDivElement>(null);
  const rows = useMemo(() => ordered(model, filter, sort), [model, filter, sort]);
  useEffect(() => {
    setSort(undefined);
    setFilter("");
    setMarked(undefined);
    setCopied("");
  }, [model]);

  useEffect(() => {
    setMarked(given);
    const place = given === undefined ? -1 : rows.indexOf(given);
    const element = scroller.current;
    if (!element || place < 0) return;
    const reveal = () => {
      const [top, bottom] = [element.scrollTop, element.scrollTop + element.clientHeight - 3 * ROW];
      if (place * ROW < top || place * ROW > bottom) element.scrollTo({ top: Math.max(0, place * ROW - element.clientHeight / 2) });
    };
    // The table has its height once what is above it is drawn.
    const watch = new ResizeObserver(reveal);
    watch.observe(element);
    return () => watch.disconnect();
  }, [given, rows]);

  const turn = (column: number) =>
    setSort((before) => {
      const first = model.columns[column]?.numeric ?? false;
      if (before?.column !== column) return { column, down: first };
      return before.down === first ? { column, down: !first } : undefined;
    });
  const worst = worstColumn(model, sort);
  const jump = () => {
    let place = -1;
    rows.forEach((row, at) => {
      const cell = model.cell(row, worst);
      const best = place < 0 ? null : model.cell(rows[place] as number, worst);
      if (cell !== null && (best === null || compare(cell, best) > 0)) place = at;
    });
    if (place < 0) return;
    setMarked(rows[place]);
    scroller.current?.scrollTo({ top: Math.max(0, place * ROW - scroller.current.clientHeight / 2) });
    if (model.rows < TALL) scroller.current?.querySelector("tr.marked")?.scrollIntoView({ block: "nearest" });
  };
  const copy = async () => {
    const text = csv(model, rows);
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      legacyCopy(text);
    }
    setCopied(`${grouped(rows.length)} rows copied`);
  };
  return (
    <section class="table">
      <div class="tools">
        <input
          type="search"
          placeholder="Filter rows"
          aria-label="Filter rows"
          value={filter}
          onInput={(event) => setFilter(event.currentTarget.value)}
        />
        <span class="count">
          {filter ? `${grouped(rows.length)} of ${grouped(model.rows)}` : grouped(model.rows)} {model.rows === 1 ? "row" : "rows"}
          {model.leftOut > 0 && `; ${grouped(model.leftOut)} more are left out of this page`}
        </span>
        {worst >= 0 && model.rows > 1 && !describes && (
          <button type="button" onClick={jump} title={`The row with most ${model.columns[worst]?.name}`}>
            Go to the worst
          </button>
        )}
        <button type="button" onClick={copy}>
          Copy as CSV
        </button>
        <span role="status">{copied}</span>
        {children}
      </div>
      <Rows {...{ model, rows, sort, turn, marked, linkOf, choose, scroller }} />
    </section>
  );
}

/** Copies where the page may not use the clipboard of the system by itself. */
function legacyCopy(text: string): void {
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

interface RowsProperties {
  model: Model;
  rows: Uint32Array;
  sort: Sort | undefined;
  turn: (column: number) => void;
  marked: number | undefined;
  linkOf: Properties["linkOf"];
  choose: Properties["choose"];
  scroller: { current: HTMLDivElement | null };
}

function Rows({ model, rows, sort, turn, marked, linkOf, choose, scroller }: RowsProperties) {
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(600);
  useEffect(() => {
    const element = scroller.current;
    if (!element) return;
    const watch = new ResizeObserver(() => setHeight(element.clientHeight));
    watch.observe(element);
    return () => watch.disconnect();
  }, []);
  const first = Math.max(0, Math.floor(top / ROW) - BEYOND);
  const last = Math.min(rows.length, Math.ceil((top + height) / ROW) + BEYOND);
  const spacer = (count: number) => count > 0 && <tr class="spacer" style={{ height: `${count * ROW}px` }} />;
  return (
    <div
      class="rows"
      ref={scroller}
      tabIndex={0}
      role="region"
      aria-label={`Rows of ${model.name}`}
      onScroll={(event) => setTop(event.currentTarget.scrollTop)}
    >
      <table data-table={model.name} aria-rowcount={rows.length}>
        <thead>
          <tr>
            {linkOf && (
              <th>
                <span class="unseen">link</span>
              </th>
            )}
            {model.columns.map((column, number) => (
              <th
                key={column.name}
                class={column.numeric ? "number" : ""}
                aria-sort={sort?.column === number ? (sort.down ? "descending" : "ascending") : "none"}
              >
                <button type="button" onClick={() => turn(number)} title={column.unit && `in ${column.unit}`}>
                  {shownName(column.name, column.unit)}
                  {sort?.column === number ? (sort.down ? " ↓" : " ↑") : ""}
                </button>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {spacer(first)}
          {Array.from(rows.subarray(first, last), (row) => (
            <tr key={row} data-row={row} class={`${row === marked ? "marked" : ""} ${choose ? "choosable" : ""}`} onClick={choose && (() => choose(row))}>
              {linkOf && <td>{seen(linkOf(row))}</td>}
              {model.columns.map((column, number) => (
                <td key={column.name} class={column.numeric ? "number" : ""} title={title(model.cell(row, number))}>
                  {shownCell(model.cell(row, number), column)}
                </td>
              ))}
            </tr>
          ))}
          {spacer(rows.length - last)}
        </tbody>
      </table>
    </div>
  );
}

/** The link of a row. */
function seen(address: string | undefined) {
  return address && <a href={address}>see</a>;
}

/** Exact numbers and longer texts, when the pointer rests. */
function title(cell: Cell): string {
  return shown(raw(cell), 2000);
}

/** The figures of a table's summary, and what it lacks. */
export function Summary({ model }: { model: Model }) {
  return (
    <>
      {model.summary.length > 0 && (
        <dl class="summary">
          {model.summary.map(([name, value]) => (
            <div key={name} title={title(value)}>
              <dt>{shownName(name, "ns")}</dt>
              <dd data-figure={name}>{shownCell(value, { name, unit: name.endsWith("_ns") ? "ns" : "" }, 4000)}</dd>
            </div>
          ))}
        </dl>
      )}
      {model.loss.length > 0 && (
        <ul class="loss">
          {model.loss.slice(0, 50).map((loss, number) => (
            <li key={number}>
              Lost: {grouped(loss.count)} × {shown(loss.cause)}
              {loss.stream && `, ${shown(loss.stream)}`}
              {loss.detail && `: ${shown(loss.detail, 500)}`}
            </li>
          ))}
          {model.loss.length > 50 && <li>… and {grouped(model.loss.length - 50)} more</li>}
        </ul>
      )}
    </>
  );
}
