// The rows of the timeline: the nodes of the tree of lanes, below each other.

import type { StoreTable } from "./store";
import type { Group, Summary } from "./summary";
import { type Lane, type Node, THREADS, idOf, pathOf, textOf } from "./tree";

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
  /** How far its name is indented. */
  depth: number;
  /** The last part of its path. */
  name: string;
  /** The parts before it that no row or heading above shows. */
  under: string;
  /** Its path as a text, which folds what is below it. */
  path: string;
  /** What a key folds that is meant for this row: itself, or the next heading above. */
  folds: string;
  /** The root of its path. */
  root: string;
  /** Whether a row, rather than a heading, is above it in the tree. */
  isBelow: boolean;
  /** Whether rows are below it in the tree. */
  hasBelow: boolean;
  collapsed: boolean;
  /** Whether it is a strip of the track above: a depth of a call stack, or a thread's system calls. */
  isThin: boolean;
}

/** The depths of a call stack that are left out until they are asked for. */
export interface Deeper {
  /** The path of the stack. */
  path: string;
  rows: number;
  depth: number;
  top: number;
  height: number;
}

/** The heading of a node that has no row of its own. */
export interface Heading {
  path: string;
  name: string;
  depth: number;
  collapsed: boolean;
  /** Tracks in it with a row that passes the filter: CPUs, threads, or the depths of a call stack. */
  tracks: number;
  /** Of a root: the tables in it. */
  tables: StoreTable[];
  top: number;
  height: number;
}

/** The row of a group's summary. */
export interface SummaryRow {
  group: Group;
  summary: Summary | undefined;
  depth: number;
  /** Whether the group's rows that differ most are first. */
  worstFirst: boolean;
  top: number;
  height: number;
}

/** Rows and headings, from the top. */
export interface Layout {
  pinned: Row[];
  pinnedHeight: number;
  headings: Heading[];
  summaries: SummaryRow[];
  deeper: Deeper[];
  rows: Row[];
  height: number;
}

/** What the user chose. */
export interface Choice {
  filter: string;
  /** Whether only rows are shown that do something in the seen span. */
  onlyActive: boolean;
  /** Paths of nodes. */
  collapsed: ReadonlySet<string>;
  /** Paths of nodes that were opened, of those that are folded otherwise. */
  opened: ReadonlySet<string>;
  pins: readonly string[];
  /** Paths of nodes that are not shown, nor what is below them. */
  hidden: readonly string[];
  /** Roots in an order of the user; others follow in the store's. */
  order: readonly string[];
  /** Paths of groups whose rows that differ most come first. */
  worst: ReadonlySet<string>;
}

const ROW = 22;
const COUNTER = 44;
const HEADING = 24;
const THIN = 15;
/** Depths of a call stack that are shown until the user asks for all. */
export const MOST_DEPTHS = 24;
/** A depth of a call stack. */
const IS_DEPTH = /^\d+$/;

/** Whether what is below a node are the depths of a call stack. */
export const isStack = ({ below }: Node) => below.length > 0 && below.every(({ name }) => IS_DEPTH.test(name));

/** What `opened` has of a call stack whose depths are all shown. */
export const allDepths = (path: string) => `${path} *`;

export { idOf };

/** The cell of a lane's key; undefined if the key has none of this name. */
export function keyCell(table: StoreTable, lane: number, name: string): string | null | undefined {
  const place = table.key.indexOf(name);
  return place < 0 ? undefined : table.lanes[lane]?.[place];
}

/** Where a node is placed. */
interface Place {
  /** Whether the user hid what it is in: only pinned rows are left of it. */
  isHidden: boolean;
  depth: number;
  /** Parts of the path that are not shown above. */
  under: string[];
  root: string;
  folds: string;
  isBelow: boolean;
  /** Whether the node is a strip of the track above. */
  isThin: boolean;
}

/** Puts rows below each other; only those of `active`, if it is there: ids of rows. */
export function layout(roots: Node[], choice: Choice, groups: Group[], summaries: ReadonlyMap<string, Summary>, active?: ReadonlySet<string>): Layout {
  return new Placing(choice, new Map(groups.map((group) => [group.path, group])), summaries, active).all(roots);
}

/** What a filter means: a regular expression, and the text itself, so that a name with brackets can be typed as it is. Text that is
 * no regular expression has the reason in `wrong`. */
export function pattern(filter: string): { passes: (text: string) => boolean; wrong?: string } {
  const text = filter.toLowerCase();
  try {
    const expression = new RegExp(filter, "i");
    return { passes: (name) => expression.test(name) || name.includes(text) };
  } catch (error) {
    return { passes: (name) => name.includes(text), wrong: error instanceof Error ? error.message : String(error) };
  }
}

/** Whether what is below a node is folded. Filters look into what was not folded by the user. */
export function isFolded({ path, isFolded }: Node, { collapsed, opened, filter, onlyActive }: Choice): boolean {
  return isFolded ? !filter && !onlyActive && !opened.has(path) : collapsed.has(path);
}

class Placing {
  private readonly result: Layout = { pinned: [], pinnedHeight: 0, headings: [], summaries: [], deeper: [], rows: [], height: 0 };
  private readonly passing: ((text: string) => boolean) | undefined;
  private readonly hidden: ReadonlySet<string>;
  private readonly pins: Set<string>;
  /** Rows at and below each node that pass the filter. */
  private readonly counts = new Map<Node, number>();

  constructor(
    private readonly choice: Choice,
    private readonly groups: ReadonlyMap<string, Group>,
    private readonly summaries: ReadonlyMap<string, Summary>,
    private readonly active: ReadonlySet<string> | undefined,
  ) {
    // Most of the time there is no filter, and stores have ten thousand lanes.
    this.passing = choice.filter ? pattern(choice.filter).passes : undefined;
    this.hidden = new Set(choice.hidden);
    this.pins = new Set(choice.pins);
  }

  all(roots: Node[]): Layout {
    const { result, choice } = this;
    const order = (node: Node) => {
      const at = choice.order.indexOf(node.name);
      return at < 0 ? choice.order.length + roots.indexOf(node) : at;
    };
    for (const root of [...roots].sort((a, b) => order(a) - order(b))) {
      // A filter leaves out groups without a row.
      const isEmpty = this.count(root) === 0 && (choice.filter || this.active || this.hidden.has(root.path));
      if (isEmpty && !this.hasPins(root)) continue;
      this.place(root, { isHidden: false, depth: 0, under: [], root: root.name, folds: root.path, isBelow: false, isThin: false });
    }
    result.pinned.sort((a, b) => choice.pins.indexOf(a.id) - choice.pins.indexOf(b.id));
    for (const row of result.pinned) {
      row.top = result.pinnedHeight;
      result.pinnedHeight += row.height;
    }
    return result;
  }

  private passes(lane: Lane): boolean {
    if (this.active && !this.active.has(lane.id)) return false;
    return !this.passing || this.passing(textOf(lane));
  }

  private count(node: Node): number {
    if (this.hidden.has(node.path)) return 0;
    let count = node.lanes.filter((lane) => this.passes(lane)).length;
    for (const one of node.below) count += this.count(one);
    this.counts.set(node, count);
    return count;
  }

  /** The number of tracks at and below a node: a row is one with all that is below it, and so are the depths of a call stack. */
  private tracks(node: Node): number {
    if (!this.counts.get(node)) return 0;
    if (node.lanes.length > 0 || isStack(node)) return 1;
    return node.below.reduce((sum, one) => sum + this.tracks(one), 0);
  }

  private place(node: Node, place: Place): void {
    const { result } = this;
    const isRoot = place.depth === 0;
    const isHidden = place.isHidden || this.hidden.has(node.path);
    const group = this.groups.get(node.path);
    const below = this.inOrder(node, group).filter((one) => this.counts.get(one) || this.hasPins(one));
    const collapsed = isFolded(node, this.choice);
    const rows = node.lanes.map((lane) => this.row(node, lane, place, collapsed, below.length > 0));
    if (this.pins.size > 0) result.pinned.push(...rows.filter((row) => row.pinned).map((row) => ({ ...row, depth: 0, under: "" })));
    const own = rows.filter((row, number) => !row.pinned && !isHidden && this.passes(node.lanes[number] as Lane));
    const seen = below.filter((one) => this.counts.get(one));
    // A call stack below a thread's states belongs to its track.
    const isStrip = isStack(node) && place.isBelow;
    const isHeading = (isRoot && !isHidden) || (own.length === 0 && node.lanes.length === 0 && seen.length > 1 && !isStrip);
    if (isHeading) {
      const tables = isRoot ? tablesOf(node) : [];
      const { depth } = place;
      const name = headingOf([...place.under, node.name], node);
      const tracks = isStack(node) ? seen.length : this.tracks(node);
      result.headings.push({ path: node.path, name, depth, collapsed, tracks, tables, top: result.height, height: HEADING });
      result.height += HEADING;
      if (group) this.summary(group, depth + 1);
    }
    for (const row of own) {
      row.top = result.height;
      result.height += row.height;
      result.rows.push(row);
    }
    const isShown = isHeading || own.length > 0;
    const next = {
      isHidden,
      depth: place.depth + Number(isShown),
      under: isShown ? [] : [...place.under, node.name],
      root: place.root,
      folds: isShown ? node.path : place.folds,
      isBelow: place.isBelow || own.length > 0,
      isThin: false,
    };
    if (collapsed && isShown && this.pins.size === 0) return;
    // What is folded has no rows; pinned ones are above anyway.
    const height = result.height;
    const [headings, count, summaries, deeper] = [result.headings.length, result.rows.length, result.summaries.length, result.deeper.length];
    this.below(node, below, next);
    if (!collapsed || !isShown) return;
    result.height = height;
    result.headings.length = headings;
    result.rows.length = count;
    result.summaries.length = summaries;
    result.deeper.length = deeper;
  }

  /** Places what is below a node: strips of a thread's track, and the first depths of a call stack. */
  private below(node: Node, below: Node[], next: Place): void {
    const { result, choice } = this;
    const areDepths = isStack(node);
    const isCut = areDepths && !choice.filter && !choice.opened.has(allDepths(node.path)) && below.length > MOST_DEPTHS + 1;
    for (const one of isCut ? below.slice(0, MOST_DEPTHS) : below) {
      const isLeaf = next.root === THREADS && next.isBelow && one.below.length === 0;
      this.place(one, { ...next, isThin: areDepths || isLeaf });
    }
    if (!isCut) return;
    const rows = below.length - MOST_DEPTHS;
    for (const one of below.slice(MOST_DEPTHS)) if (this.hasPins(one)) this.place(one, { ...next, isHidden: true });
    result.deeper.push({ path: node.path, rows, depth: next.depth, top: result.height, height: ROW });
    result.height += ROW;
  }

  /** What is below a node; the rows that differ most from the others of their group first, if the user wants that. */
  private inOrder(node: Node, group: Group | undefined): Node[] {
    const summary = group && this.choice.worst.has(node.path) ? this.summaries.get(node.path) : undefined;
    if (!summary) return node.below;
    const distance = ({ lanes }: Node) =>
      Math.max(0, ...lanes.map(({ table, lane }) => (table === group?.table ? (summary.distance.get(lane) ?? 0) : 0)));
    return [...node.below].sort((one, other) => distance(other) - distance(one));
  }

  private summary(group: Group, depth: number): void {
    const { result } = this;
    const worstFirst = this.choice.worst.has(group.path);
    result.summaries.push({ group, summary: this.summaries.get(group.path), depth, worstFirst, top: result.height, height: ROW });
    result.height += ROW;
  }

  private hasPins(node: Node): boolean {
    if (this.pins.size === 0) return false;
    return node.lanes.some(({ id }) => this.pins.has(id)) || node.below.some((one) => this.hasPins(one));
  }

  private row(node: Node, { table, number, lane, id }: Lane, place: Place, collapsed: boolean, hasBelow: boolean): Row {
    const pinned = this.pins.has(id);
    const isThin = place.isThin && !pinned && table.shape === "intervals";
    const height = isThin ? THIN : table.shape === "counters" ? COUNTER : ROW;
    const [under, folds] = [place.under.join(" › "), hasBelow ? node.path : place.folds];
    const { depth, root, isBelow } = place;
    return { id, table, number, lane, collapsed, hasBelow, isThin, pinned, top: 0, height, depth, name: node.name, under, path: node.path, folds, root, isBelow };
  }
}

/** The text of a heading. A process has the name of its first thread, or that of all its threads; its number is left out where the
 * name of the first thread has it. */
function headingOf(parts: string[], node: Node): string {
  const numberOf = (name: string | undefined) => /^process (\d+)$/.exec(name ?? "")?.[1];
  const isSaid = (part: string, at: number) => numberOf(part) !== undefined && (parts[at + 1]?.endsWith(` (${numberOf(part)})`) ?? false);
  const text = parts.filter((part, at) => !isSaid(part, at)).join(" › ");
  const process = numberOf(node.name);
  if (process === undefined) return text;
  const threads = node.below.flatMap((one) => (one.isFolded && one.lanes.length === 0 ? one.below : [one])).map(({ name }) => name);
  const nameOf = (thread: string) => thread.replace(/ \(\d+\)$/, "");
  const first = threads.find((thread) => thread.endsWith(` (${process})`));
  const names = new Set(first === undefined ? threads.map(nameOf) : [nameOf(first)]);
  return names.size === 1 ? `${text} · ${[...names][0]}` : text;
}

function tablesOf(node: Node): StoreTable[] {
  const tables = new Set(node.lanes.map((lane) => lane.table));
  for (const one of node.below) for (const table of tablesOf(one)) tables.add(table);
  return [...tables];
}

/** The path of a row for people. */
export function titleOf(row: Row): string {
  return `${row.table.title || row.table.name} · ${pathOf(row.table, row.lane)}`;
}
