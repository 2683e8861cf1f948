// The names of rows, at the left: buttons to fold, to pin rows and to change the order of groups.

import { shown } from "../../shared/text";
import type { Colours } from "./colours";
import { LOSSES } from "./overlays";
import { type Deeper, type Heading, type Row, type SummaryRow, titleOf } from "./rows";
import type { StoreTable } from "./store";

/** The indentation of a level, in rem. */
const STEP = 0.8;
/** A name such as that of a depth of a call stack, which says little by itself. */
const IS_NUMBER = /^\d+$/;
/** Values of a legend. */
const MOST_VALUES = 8;

const indented = (depth: number) => ({ paddingLeft: `${0.4 + STEP * Math.max(0, depth - 1)}rem` });

interface RowProperties {
  row: Row;
  selected: boolean;
  choose: () => void;
  pin: () => void;
  hide: () => void;
  fold: () => void;
}

/** Letters of a name that fit beside the rows. */
const MOST_LETTERS = 24;

/** The last parts of a path of files, which tell it from others; other names as they are. */
function endOf(name: string): string {
  const parts = name.split("/");
  if (parts.length < 3 || (!name.startsWith("/") && name.length <= MOST_LETTERS)) return name;
  const end = parts.slice(-2).join("/");
  return `…/${end.length <= MOST_LETTERS ? end : parts.at(-1)}`;
}

/** Whether the name of a row says already what is above it: the first thread of a process has its number. */
function isSaid({ name, under }: Row): boolean {
  const number = /^process (\d+)$/.exec(under)?.[1];
  return number !== undefined && name.endsWith(`(${number})`);
}

/** The name of a row. */
export function RowLabel({ row, selected, choose, pin, hide, fold }: RowProperties) {
  const name = shown(endOf(row.name), 60);
  return (
    <div
      class={`row-label ${selected ? "selected" : ""} ${row.isBelow || IS_NUMBER.test(row.name) ? "below" : ""} ${row.isThin ? "thin" : ""} ${row.isThin && IS_NUMBER.test(row.name) ? "depth" : ""}`}
      style={{ top: `${row.top}px`, height: `${row.height}px`, ...indented(row.depth) }}
      data-row-id={row.id}
    >
      {row.hasBelow && !row.pinned ? (
        <button type="button" class="fold" aria-expanded={!row.collapsed} onClick={fold} title="Fold or unfold (C)" aria-label={`Fold ${name}`}>
          {row.collapsed ? "▸" : "▾"}
        </button>
      ) : (
        <i class="no-fold" />
      )}
      <button type="button" class="name" onClick={choose} title={shown(titleOf(row))}>
        <b>{name}</b> {row.under && !isSaid(row) && <span>{shown(row.under, 60)}</span>}
      </button>
      {!row.pinned && (
        <button type="button" class="hide" onClick={hide} title="Hide it and what is below (H)" aria-label={`Hide ${name}`}>
          ×
        </button>
      )}
      <button
        type="button"
        class="pin"
        aria-pressed={row.pinned}
        onClick={pin}
        title={row.pinned ? "Unpin (P)" : "Pin to the top (P)"}
        aria-label={`${row.pinned ? "Unpin" : "Pin"} ${name}`}
      >
        {row.pinned ? "◆" : "◇"}
      </button>
    </div>
  );
}

/** What shows the depths of a call stack that are left out. */
export function DeeperLabel({ deeper, show }: { deeper: Deeper; show: () => void }) {
  const { path, rows, top, height, depth } = deeper;
  return (
    <div class="row-label group-sum" style={{ top: `${top}px`, height: `${height}px`, ...indented(depth) }} data-deeper={path}>
      <i class="no-fold" />
      <button type="button" class="worst" onClick={show} title={shown(path)}>
        {rows} deeper calls: show
      </button>
    </div>
  );
}

/** The name of a summary, and how the rows below are in order. */
export function SummaryLabel({ row, turn }: { row: SummaryRow; turn: () => void }) {
  const { group, top, height, depth, worstFirst } = row;
  return (
    <div class="row-label group-sum" style={{ top: `${top}px`, height: `${height}px`, ...indented(depth) }} data-summary={group.path}>
      <i class="no-fold" />
      <span class="name" title={`What ${group.lanes.length} rows hold at a time: ${shown(group.table.title || group.table.name)}`}>
        all {group.lanes.length}
      </span>
      <button
        type="button"
        class="worst"
        aria-pressed={worstFirst}
        onClick={turn}
        title="Rows first whose shares of the seen time differ most from the median of the group"
      >
        outliers first
      </button>
    </div>
  );
}

interface HeadingProperties {
  heading: Heading;
  colours: Map<string, Colours>;
  fold: () => void;
  /** Moves a group; undefined for what is within one. */
  move: ((by: number) => void) | undefined;
}

/** The heading of a group or of a node within one; that of a group has the heaviest values of its tables. */
export function GroupHeading({ heading, colours, fold, move }: HeadingProperties) {
  const { path, collapsed, tracks, top, height, depth } = heading;
  const name = shown(heading.name, 60);
  const style = { top: `${top}px`, height: `${height}px`, ...indented(depth) };
  return (
    <div class={`group ${move ? "" : "inner"}`} style={style} data-group={path}>
      <button type="button" class="fold" aria-expanded={!collapsed} onClick={fold} title="Fold or unfold (C)">
        {collapsed ? "▸" : "▾"} {name} <span>{tracks}</span>
      </button>
      {move && (
        <>
          <button type="button" onClick={() => move(-1)} aria-label={`Move ${name} up`} title="Move up">
            ↑
          </button>
          <button type="button" onClick={() => move(1)} aria-label={`Move ${name} down`} title="Move down">
            ↓
          </button>
          <span class="legend">
            {heading.tables.map((table) => (
              <Legend key={table.name} table={table} colours={colours.get(table.name)} />
            ))}
          </span>
        </>
      )}
    </div>
  );
}

/** The heaviest values of a table and their colours. */
function Legend({ table, colours }: { table: StoreTable; colours: Colours | undefined }) {
  const values = table.values.slice(0, MOST_VALUES);
  if ((values.length === 0 && table.name !== LOSSES) || table.shape === "links") return null;
  return (
    <>
      <em>{shown(table.title || table.name, 40)}</em>
      {table.name === LOSSES ? (
        <span>
          <i class="hatch" />
          lost
        </span>
      ) : (
        values.map(([value]) => (
          <span key={value}>
            <i style={{ background: colours?.of(value) }} />
            {shown(value ?? "–", 30)}
          </span>
        ))
      )}
      {table.lanes_left_out > 0 && <em>{table.lanes_left_out} more rows are left out</em>}
    </>
  );
}
