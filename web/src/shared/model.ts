// A table of hodo as views see it: columns with units, cells, summary, losses. Source: `crates/model/src/table/metadata.rs`.

import type { Table as ArrowTable } from "@uwdata/flechette";

import { arrow, type Parameters } from "./api";

/** A cell. Integers are exact. */
export type Cell = null | string | number | bigint | boolean | Cell[];

/** A column. */
export interface Column {
  name: string;
  /** `ns`, `count`, `bytes`, …; empty for none. */
  unit: string;
  /** Whether its cells are numbers. */
  numeric: boolean;
  /** Whether it holds instants, though its name does not say so. */
  isInstant?: boolean;
}

/** What is missing from a table. */
export interface Loss {
  stream: string;
  cause: string;
  count: number;
  detail: string;
}

/** A table. */
export interface Model {
  name: string;
  columns: Column[];
  rows: number;
  cell(row: number, column: number): Cell;
  summary: [name: string, value: Cell][];
  loss: Loss[];
  /** Further rows, which are not here. */
  leftOut: number;
}

/** Parses JSON; integers that a double does not hold become exact ones. */
export function exactJson(text: string): unknown {
  const revive = (_: string, value: unknown, context?: { source?: string }) =>
    typeof value === "number" && !Number.isSafeInteger(value) && context?.source && /^-?\d+$/.test(context.source)
      ? BigInt(context.source)
      : value;
  return JSON.parse(text, revive);
}

function plain(value: unknown): Cell {
  if (value === null || value === undefined) return null;
  if (typeof value === "object") return Array.from(value as Iterable<unknown>, plain);
  return value as Cell;
}

/** Reads a table of the wire. */
export function modelOf(table: ArrowTable, leftOut: number): Model {
  const about = table.schema.metadata ?? new Map<string, string>();
  const fields = table.schema.fields;
  const children = fields.map((_, column) => table.getChildAt(column));
  const summary = exactJson(about.get("hodo.summary") ?? "{}") as Record<string, Cell>;
  const numeric = (column: number) => {
    const child = children[column];
    for (let row = 0; child && row < table.numRows; row++) {
      const value = child.at(row) as unknown;
      if (value !== null) return typeof value === "number" || typeof value === "bigint";
    }
    return false;
  };
  return {
    name: about.get("hodo.table") ?? "",
    columns: fields.map((field, column) => ({
      name: field.name,
      unit: field.metadata?.get("hodo.unit") ?? "",
      numeric: numeric(column),
    })),
    rows: table.numRows,
    cell: (row, column) => plain(children[column]?.at(row)),
    summary: Object.entries(summary),
    loss: exactJson(about.get("hodo.loss") ?? "[]") as Loss[],
    leftOut,
  };
}

/** Asks for a table. */
export async function fetchModel(path: string, parameters: Parameters, signal?: AbortSignal): Promise<Model> {
  const answer = await arrow(path, parameters, true, signal);
  return modelOf(answer.arrow, answer.leftOut);
}

/** The number of a column. */
export function columnOf(model: Model, name: string): number | undefined {
  const found = model.columns.findIndex((column) => column.name === name);
  return found < 0 ? undefined : found;
}

/** Compares cells: numbers by size, text by code points, null last. */
export function compare(one: Cell, other: Cell): number {
  if (one === null || other === null) return Number(one === null) - Number(other === null);
  if (typeof one === "string" || typeof other === "string") {
    const [a, b] = [String(one), String(other)];
    return a < b ? -1 : Number(a > b);
  }
  return one < other ? -1 : Number(one > other);
}

/** A cell as text without format. */
export function raw(cell: Cell): string {
  if (cell === null) return "";
  return Array.isArray(cell) ? cell.map(raw).join(";") : String(cell);
}

/** Begins of texts that a spreadsheet takes for a formula. */
const FORMULA = /^[=+\-@\t\r]/;

/** Rows as CSV (RFC 4180) with a line of names. A text that a spreadsheet would compute begins with an apostrophe. */
export function csv(model: Model, rows: Iterable<number>): string {
  const quoted = (text: string) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const safe = (cell: Cell) => (typeof cell === "string" && FORMULA.test(cell) ? `'${cell}` : raw(cell));
  const lines = [model.columns.map((column) => quoted(safe(column.name))).join(",")];
  for (const row of rows) lines.push(model.columns.map((_, column) => quoted(safe(model.cell(row, column)))).join(","));
  return `${lines.join("\n")}\n`;
}

/** The same table, in which `time_ns` holds the instants of events, as a table of a class of events has them. */
export function ofEvents(model: Model): Model {
  return { ...model, columns: model.columns.map((column) => (column.name === "time_ns" ? { ...column, isInstant: true } : column)) };
}
