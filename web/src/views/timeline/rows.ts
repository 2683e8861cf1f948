// The rows of the timeline: a group for each table of the store, a row for each lane.

import type { Store, StoreTable } from "./store";

/** A row. */
export interface Row {
  /** Its name in the address: table and key. */
  id: string;
  table: StoreTable;
  /** The number of its table. */
  number: number;
  lane: number;
  pinned: boolean;
  top: number;
  height: number;
}

/** The heading of a group. */
export interface Heading {
  table: StoreTable;
  collapsed: boolean;
  /** Rows of it that pass the filter. */
  rows: number;
  top: number;
  height: number;
}

/** Rows and headings, from the top. */
export interface Layout {
  pinned: Row[];
  pinnedHeight: number;
  headings: Heading[];
  rows: Row[];
  height: number;
}

/** What the user chose. */
export interface Choice {
  filter: string;
  collapsed: ReadonlySet<string>;
  pins: readonly string[];
  /** Groups in an order of the user; others follow in the store's. */
  order: readonly string[];
}

const ROW = 22;
const COUNTER = 44;
const HEADING = 24;

/** The name of a row in the address. */
export function idOf(table: StoreTable, lane: number): string {
  return `${table.name}:${(table.lanes[lane] ?? []).map((cell) => cell ?? "").join(",")}`;
}

/** The key of a lane for people. */
export function keyOf(table: StoreTable, lane: number): string {
  const cells = table.lanes[lane] ?? [];
  return table.key.map((name, place) => `${name} ${cells[place] || "–"}`).join(", ");
}

/** Puts rows below each other. `labels` finds the text of a lane. */
export function layout(store: Store, choice: Choice, labels: (table: StoreTable, lane: number) => string): Layout {
  const wanted = choice.filter.toLowerCase();
  const height = (table: StoreTable) => (table.shape === "counters" ? COUNTER : ROW);
  const result: Layout = { pinned: [], pinnedHeight: 0, headings: [], rows: [], height: 0 };
  const place = (table: StoreTable) => {
    const at = choice.order.indexOf(table.name);
    // The states of threads come first, unless the user has moved them.
    const usual = table.name === "states" ? -1 : store.tables.indexOf(table);
    return at < 0 ? choice.order.length + 1 + usual : at;
  };
  const drawn = store.tables.filter((table) => table.lanes.length > 0 && table.shape !== "links");
  for (const table of drawn.sort((a, b) => place(a) - place(b))) {
    const number = store.tables.indexOf(table);
    const collapsed = choice.collapsed.has(table.name);
    const heading = { table, collapsed, rows: 0, top: result.height, height: HEADING };
    result.headings.push(heading);
    result.height += HEADING;
    for (let lane = 0; lane < table.lanes.length; lane++) {
      const id = idOf(table, lane);
      const pinned = choice.pins.includes(id);
      const text = `${table.name} ${keyOf(table, lane)} ${labels(table, lane)}`.toLowerCase();
      if (pinned) {
        result.pinned.push({ id, table, number, lane, pinned, top: 0, height: height(table) });
      }
      if (wanted && !text.includes(wanted)) continue;
      heading.rows++;
      if (collapsed || pinned) continue;
      result.rows.push({ id, table, number, lane, pinned, top: result.height, height: height(table) });
      result.height += height(table);
    }
  }
  result.pinned.sort((a, b) => choice.pins.indexOf(a.id) - choice.pins.indexOf(b.id));
  for (const row of result.pinned) {
    row.top = result.pinnedHeight;
    result.pinnedHeight += row.height;
  }
  return result;
}
