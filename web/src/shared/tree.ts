// Trees of call paths from tables whose rows are depth first.

import { type Model, columnOf, raw } from "./model";

/** A function on a call path. */
export interface Path {
  name: string;
  module: string;
  /** The row of the table; -1 if it has none. */
  row: number;
  /** Its own amounts, without callees. */
  own: number[];
  /** Its amounts with callees, which are rounded less often; empty if the table has none. */
  total: number[];
  children: Path[];
  /** How its amount changed, in a comparison. */
  change: string;
}

/** A path that stands for all roots. */
export function everything(children: Path[]): Path {
  return { name: "all", module: "", row: -1, own: [], total: [], children, change: "" };
}

/** Reads the tree of a table; `own` and `total` are the columns of amounts without callees and with them. */
export function treeOf(model: Model, own: string[], total: string[] = []): Path {
  const at = (name: string) => columnOf(model, name) ?? -1;
  const [depths, names, modules, changes] = [at("depth"), at("function"), at("module"), at("change")];
  const [owns, totals] = [own.map(at), total.map(at)];
  const root = everything([]);
  const open: Path[] = [root];
  for (let row = 0; row < model.rows; row++) {
    const path: Path = {
      name: raw(model.cell(row, names)) || "-",
      module: raw(model.cell(row, modules)),
      row,
      own: owns.map((column) => Number(model.cell(row, column) ?? 0)),
      total: totals.map((column) => Number(model.cell(row, column) ?? 0)),
      children: [],
      change: changes < 0 ? "" : raw(model.cell(row, changes)),
    };
    open.length = Math.min(open.length, Number(model.cell(row, depths)) + 1);
    open.at(-1)?.children.push(path);
    open.push(path);
  }
  return root;
}

/** The tree from the functions that ran to their callers: each function's own amounts, by who called it. */
export function inverted(tree: Path): Path {
  const root = everything([]);
  const known = new Map<Path, Map<string, Path>>();
  const child = (parent: Path, like: Path): Path => {
    const of = known.get(parent) ?? new Map<string, Path>();
    known.set(parent, of);
    const key = JSON.stringify([like.name, like.module]);
    const found = of.get(key) ?? { ...like, row: -1, own: like.own.map(() => 0), total: [], children: [] };
    if (!of.has(key)) {
      of.set(key, found);
      parent.children.push(found);
    }
    return found;
  };
  const walk: [Path, Path[]][] = tree.children.map((one) => [one, []]);
  for (let next = walk.pop(); next; next = walk.pop()) {
    const [path, callers] = next;
    if (path.own.some((amount) => amount > 0)) {
      // The amount lies at the end of the chain of callers, so that the widths of all in it contain it.
      const last = [path, ...callers].reduce((parent, one) => child(parent, one), root);
      last.own = last.own.map((amount, measure) => amount + (path.own[measure] ?? 0));
    }
    for (const one of path.children) walk.push([one, [path, ...callers]]);
  }
  return root;
}
