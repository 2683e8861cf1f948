// What lies across rows: losses, the critical path of a thread, wake-ups and other links as arrows.

import type { Theme } from "./draw";
import { type Row, keyCell } from "./rows";
import type { Store, StoreTable } from "./store";

/** A link between two lanes, which are named by their paths. */
export interface Arrow {
  from: string;
  to: string;
  begin: number;
  end: number;
}

/** A piece of a critical path. */
export interface Piece {
  begin: number;
  end: number;
  tid: string;
  comm: string;
  cause: string;
  /** Number of waits that lead to it; 0 for the thread itself. */
  depth: number;
}

/** The name of the table of losses. */
export const LOSSES = "losses";

/** Whether a loss in a stream concerns a row: that of its CPU or thread, or one that depends on all streams. */
export function concerns(stream: string, row: Pick<Row, "table" | "lane">): boolean {
  const cell = (name: string) => keyCell(row.table, row.lane, name);
  const tid = /^tid (\d+)$/.exec(stream)?.[1];
  if (tid !== undefined) return cell("tid") === tid;
  // `cpu 3` of perf; LTTng's file `channel0_3` of a channel on CPU 3, or `channel0_3_0` if its files are rotated.
  const cpu = /(?:^cpu |_)(\d+)(?:_\d+)?$/.exec(stream)?.[1];
  const own = cell("cpu");
  return cpu === undefined || own === undefined || own === null || own === cpu;
}

/** The lanes of losses, with their streams. */
export function lossLanes(store: Store): { table: StoreTable; lane: number; stream: string }[] {
  const table = store.tables.find((table) => table.name === LOSSES);
  return (table?.lanes ?? []).map((_, lane) => ({ table: table as StoreTable, lane, stream: keyCell(table as StoreTable, lane, "stream") ?? "" }));
}

/** Where rows are, for what is drawn between them. */
export class Places {
  private byPath: Map<string, Row> | undefined;
  private byThread: Map<string, Row> | undefined;

  constructor(readonly rows: Row[]) {}

  /** The row of a path. */
  path(path: string): Row | undefined {
    this.byPath ??= firsts(this.rows.map((row) => [row.path, row]));
    return this.byPath.get(path);
  }

  /** The row of a thread; the name decides between several. A thread's own row comes before those below it. */
  thread(tid: string, comm: string): Row | undefined {
    this.byThread ??= firsts(
      this.rows.flatMap((row) => {
        const [tid, comm] = [keyCell(row.table, row.lane, "tid"), keyCell(row.table, row.lane, "comm")];
        return tid === undefined || tid === null ? [] : [[tid, row], [`${tid} ${comm}`, row]];
      }),
    );
    return this.byThread.get(`${tid} ${comm}`) ?? this.byThread.get(tid);
  }
}

/** A map with the first value of each key. */
function firsts<T>(entries: [string, T][]): Map<string, T> {
  return new Map(entries.reverse());
}

/** The length of an arrow that comes from nowhere, in pixels. */
const STUB = 11;

/** A canvas with its scale of time. */
export interface Sheet {
  context: CanvasRenderingContext2D;
  x: (at: number) => number;
  /** Pixels above. */
  scroll: number;
  width: number;
  height: number;
  theme: Theme;
}

function bottomOf(row: Row, { scroll }: Sheet): number {
  return row.top - scroll + row.height;
}

/** Draws links as arrows; those of the selected row are stronger. One from a lane without a row here, such as an idle CPU, is
 * a short arrow from above. */
export function drawArrows(sheet: Sheet, places: Places, arrows: Arrow[], selected: Row | undefined): void {
  const { context, x, width, height, theme } = sheet;
  const middle = (row: Row) => bottomOf(row, sheet) - row.height / 2;
  const own = selected?.path;
  context.strokeStyle = theme.ink;
  context.fillStyle = theme.ink;
  for (const { from, to, begin, end } of arrows) {
    const [one, other] = [places.path(from), places.path(to)];
    if (!other || one === other) continue;
    const right = x(end);
    const bottom = one ? middle(other) : bottomOf(other, sheet) - other.height / 3;
    const [left, top] = one ? [x(begin), middle(one)] : [right, bottom - STUB];
    if (right < -8 || left > width + 8 || Math.max(top, bottom) < 0 || Math.min(top, bottom) > height) continue;
    const isOwn = own === from || own === to;
    context.globalAlpha = isOwn ? 0.95 : own ? 0.25 : 0.55;
    context.lineWidth = isOwn ? 1.6 : 1;
    const way = Math.sign(bottom - top);
    context.beginPath();
    context.moveTo(left, top);
    context.lineTo(right, bottom - 5 * way);
    context.stroke();
    context.beginPath();
    context.moveTo(right, bottom);
    context.lineTo(right - 3.5, bottom - 7 * way);
    context.lineTo(right + 3.5, bottom - 7 * way);
    context.fill();
  }
  context.globalAlpha = 1;
  context.lineWidth = 1;
}

/** Draws a critical path: a bar below each piece's thread, solid where it runs, and lines from piece to piece. */
export function drawPath(sheet: Sheet, places: Places, pieces: Piece[]): void {
  const { context, x, width, theme } = sheet;
  let last: { piece: Piece; row: Row } | undefined;
  context.fillStyle = theme.bad;
  for (const piece of pieces) {
    const row = places.thread(piece.tid, piece.comm);
    if (!row) continue;
    const [left, right] = [x(piece.begin), x(piece.end)];
    const bottom = bottomOf(row, sheet);
    if (right >= 0 && left <= width) {
      const from = Math.max(left, -2);
      const wide = Math.max(1.5, Math.min(right, width + 2) - from);
      context.globalAlpha = piece.cause === "running" ? 1 : 0.4;
      context.fillRect(from, bottom - 5, wide, 5);
      context.globalAlpha = 1;
      if (last && last.row !== row) {
        const other = bottomOf(last.row, sheet);
        context.fillRect(left - 0.75, Math.min(bottom, other) - 5, 1.5, Math.abs(bottom - other) + 5);
      }
    }
    last = { piece, row };
  }
}
