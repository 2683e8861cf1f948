// The tree of the store's lanes. Its paths come from the tables' schemas: a thread's states, system calls and calls are
// below each other, whichever tables hold them. Source: `crates/store/src/naming.rs`.

import { type Earlier, inOrder } from "./order";
import type { Store, StoreTable } from "./store";

/** A lane of a table. */
export interface Lane {
  table: StoreTable;
  /** The number of its table. */
  number: number;
  lane: number;
  /** The name of its row in the address. */
  id: string;
}

/** What the filter of rows looks at, in lower case. */
export function textOf({ table, lane }: Pick<Lane, "table" | "lane">): string {
  return `${table.name} ${table.title} ${pathOf(table, lane)}`.toLowerCase();
}

/** A node of the tree. */
export interface Node {
  /** The last part of its path. */
  name: string;
  /** Its path as a text; stable. */
  path: string;
  /** The lanes that have this path, without links, which are drawn between rows. One of links alone is an empty row. */
  lanes: Lane[];
  below: Node[];
  /** Whether it is folded until the user opens it. */
  isFolded?: boolean;
}

/** The root of threads, whose links are drawn between their rows. */
export const THREADS = "Threads";

/** The name of a row in the address. */
export function idOf(table: StoreTable, lane: number): string {
  return `${table.name}:${(table.lanes[lane] ?? []).map((cell) => cell ?? "").join(",")}`;
}

/** A path as a text. */
export function pathText(parts: readonly string[]): string {
  return parts.join(" › ");
}

/** The path of a lane as a text. */
export function pathOf(table: StoreTable, lane: number): string {
  return pathText(table.paths[lane] ?? []);
}

const UNKNOWN_PROCESS = "process ?";
const IS_PROCESS = /^process \d+$/;

/** Names the processes that a table does not know, such as one of events without process numbers: if another table has a thread of
 * the same name and number, they are one thread, and one track. */
export function withProcesses(tables: Pick<StoreTable, "paths">[]): void {
  const processes = new Map<string, Set<string>>();
  for (const { paths } of tables) {
    for (const [root, process, thread] of paths) {
      if (root !== THREADS || thread === undefined || !IS_PROCESS.test(process ?? "")) continue;
      processes.set(thread, (processes.get(thread) ?? new Set()).add(process as string));
    }
  }
  for (const { paths } of tables) {
    for (const path of paths) {
      const [root, process, thread] = path;
      if (root !== THREADS || process !== UNKNOWN_PROCESS) continue;
      const [known, ...others] = processes.get(thread ?? "") ?? [];
      if (known !== undefined && others.length === 0) path[1] = known;
    }
  }
}

/** Builds the tree of a store: its roots in order, where what was in an earlier tree keeps its place. */
export function treeOf(store: Store, earlier: Earlier = new Map()): Node[] {
  const roots: Node[] = [];
  const known = new Map<string, Node>();
  const child = (siblings: Node[], name: string, path: string): Node => {
    const found = known.get(path);
    if (found) return found;
    const node: Node = { name, path, lanes: [], below: [] };
    known.set(path, node);
    siblings.push(node);
    return node;
  };
  const isLinks = ({ shape }: StoreTable) => shape === "links";
  const tables = [...store.tables.entries()];
  for (const [number, table] of [...tables.filter(([, one]) => !isLinks(one)), ...tables.filter(([, one]) => isLinks(one))]) {
    for (const [lane, parts] of table.paths.entries()) {
      // Every program of a board has a row, for its messages. What wakes threads without being one, such as an idle CPU, has none.
      if (isLinks(table) && (parts[0] === THREADS || known.get(pathText(parts))?.lanes.length)) continue;
      let [siblings, node]: [Node[], Node | undefined] = [roots, undefined];
      for (const name of parts) {
        node = child(siblings, name, node ? pathText([node.path, name]) : name);
        siblings = node.below;
      }
      node?.lanes.push({ table, number, lane, id: idOf(table, lane) });
    }
  }
  return inOrder(roots, earlier);
}

/** The nodes from a root to the first one that is wanted; none if there is none. */
export function wayTo(roots: Node[], isWanted: (node: Node) => boolean): Node[] {
  for (const node of roots) {
    if (isWanted(node)) return [node];
    const below = wayTo(node.below, isWanted);
    if (below.length > 0) return [node, ...below];
  }
  return [];
}

/** The node of a path. */
export function nodeOf(roots: Node[], path: string): Node | undefined {
  return wayTo(roots, (node) => node.path === path).at(-1);
}
