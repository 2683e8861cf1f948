// The tree of the store's lanes. Its paths come from the tables' schemas: a thread's states, system calls and calls are
// below each other, whichever tables hold them. Source: `crates/store/src/naming.rs`.

import type { Store, StoreTable } from "./store";

/** A lane of a table. */
export interface Lane {
  table: StoreTable;
  /** The number of its table. */
  number: number;
  lane: number;
  /** What the filter of rows looks at, in lower case. */
  text: string;
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
}

/** The first root. The threads are what most people look for. */
const FIRST = "Threads";

const collator = new Intl.Collator("en", { numeric: true });

/** A path as a text. */
export function pathText(parts: readonly string[]): string {
  return parts.join(" › ");
}

/** The path of a lane as a text. */
export function pathOf(table: StoreTable, lane: number): string {
  return pathText(table.paths[lane] ?? []);
}

/** Builds the tree of a store: its roots, in the store's order. */
export function treeOf(store: Store): Node[] {
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
      if (isLinks(table) && (parts[0] === FIRST || known.get(pathText(parts))?.lanes.length)) continue;
      let [siblings, node]: [Node[], Node | undefined] = [roots, undefined];
      for (const [depth, name] of parts.entries()) {
        node = child(siblings, name, pathText(parts.slice(0, depth + 1)));
        siblings = node.below;
      }
      const text = `${table.name} ${table.title} ${pathText(parts)}`.toLowerCase();
      node?.lanes.push({ table, number, lane, text });
    }
  }
  for (const node of known.values()) node.below.sort((one, other) => collator.compare(one.name, other.name));
  return roots.sort((one, other) => Number(other.name === FIRST) - Number(one.name === FIRST));
}
