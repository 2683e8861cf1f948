// The names of rows, at the left: buttons to fold groups, to pin rows and to change the order of groups.

import { shown } from "../../shared/text";
import type { Colours } from "./colours";
import { type Heading, type Row, keyOf } from "./rows";

interface RowProperties {
  row: Row;
  label: string;
  selected: boolean;
  choose: () => void;
  pin: () => void;
}

/** The name of a row. */
export function RowLabel({ row, label, selected, choose, pin }: RowProperties) {
  const key = shown(keyOf(row.table, row.lane), 120);
  return (
    <div class={`row-label ${selected ? "selected" : ""}`} style={{ top: `${row.top}px`, height: `${row.height}px` }} data-row-id={row.id}>
      <button type="button" class="name" onClick={choose} title={`${row.table.name}: ${key} ${shown(label)}`}>
        {label && <b>{shown(label, 60)}</b>} <span>{key}</span>
      </button>
      <button
        type="button"
        class="pin"
        aria-pressed={row.pinned}
        onClick={pin}
        title={row.pinned ? "Unpin (P)" : "Pin to the top (P)"}
        aria-label={`${row.pinned ? "Unpin" : "Pin"} ${key}`}
      >
        {row.pinned ? "◆" : "◇"}
      </button>
    </div>
  );
}

interface HeadingProperties {
  heading: Heading;
  colours: Colours | undefined;
  fold: () => void;
  move: (by: number) => void;
}

/** The heading of a group, with its heaviest values and their colours. */
export function GroupHeading({ heading, colours, fold, move }: HeadingProperties) {
  const { table, collapsed, rows, top, height } = heading;
  const name = shown(table.name);
  return (
    <div class="group" style={{ top: `${top}px`, height: `${height}px` }} data-group={table.name}>
      <button type="button" class="fold" aria-expanded={!collapsed} onClick={fold} title="Fold or unfold (C)">
        {collapsed ? "▸" : "▾"} {name} <span>{rows}</span>
      </button>
      <button type="button" onClick={() => move(-1)} aria-label={`Move ${name} up`} title="Move up">
        ↑
      </button>
      <button type="button" onClick={() => move(1)} aria-label={`Move ${name} down`} title="Move down">
        ↓
      </button>
      <span class="legend">
        {table.name !== "losses" &&
          table.values.slice(0, 8).map(([value]) => (
            <span key={value}>
              <i style={{ background: colours?.of(value) }} />
              {shown(value ?? "–", 30)}
            </span>
          ))}
        {table.name === "losses" && (
          <span>
            <i class="hatch" />
            lost
          </span>
        )}
        {table.lanes_left_out > 0 && <em>{table.lanes_left_out} more rows are left out</em>}
      </span>
    </div>
  );
}
