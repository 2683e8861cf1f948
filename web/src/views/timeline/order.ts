// The order of rows: CPUs first, then threads by what they did; threads that did next to nothing are below one heading.

import type { Node } from "./tree";

/** Roots that come first, in this order. Others follow in the store's. */
const CPUS = "CPUs";
/** The nodes below this root are in order of what they did. */
const THREADS = "Threads";
const FIRST = [CPUS, THREADS];
/** The heading of threads that did next to nothing. */
const IDLE = "idle threads";
/** A thread is idle with less than this share of the time on a CPU of the thread that has most of it. */
const LEAST = 0.001;
/** Idle threads, or processes of such, that are put together, at least. */
const FEWEST = 4;

const collator = new Intl.Collator("en", { numeric: true });

/** What the threads of a node did. */
export interface Load {
  /** Nanoseconds on a CPU. */
  running: number;
  instructions: number;
}

/** What the lanes at and below each node did, as far as the store says. */
function loadOf(node: Node, loads: Map<Node, Load>): Load {
  const load: Load = { running: 0, instructions: 0 };
  for (const { table, lane } of node.lanes) {
    if (table.value === "state") {
      const place = table.values.findIndex(([value]) => value === "running");
      load.running += table.weights[lane]?.find(([value]) => value === place)?.[1] ?? 0;
    }
    load.instructions += table.instructions[lane] ?? 0;
  }
  for (const one of node.below) {
    const { running, instructions } = loadOf(one, loads);
    load.running += running;
    load.instructions += instructions;
  }
  loads.set(node, load);
  return load;
}

/** The order of an earlier tree. While a store grows, what a reader has seen stays in its order, and new rows follow. */
export type Earlier = ReadonlyMap<string, number>;

/** Puts the roots and what is below them in order. */
export function inOrder(roots: Node[], earlier: Earlier): Node[] {
  const rank = ({ name }: Node) => (FIRST.includes(name) ? FIRST.indexOf(name) : FIRST.length);
  const byName = (one: Node, other: Node) => collator.compare(one.name, other.name);
  const names = (node: Node) => {
    // Depths of stacks are in order already, and a collator takes long.
    const areInOrder = node.below.every(({ name }, place) => place === 0 || Number(node.below[place - 1]?.name) < Number(name));
    if (!areInOrder) node.below.sort(byName);
    node.below.forEach(names);
  };
  roots.forEach(names);
  // What is below a CPU, such as its interrupts, is folded, so that threads are on the first screen too.
  for (const { name, below } of roots) if (name === CPUS) for (const cpu of below) cpu.isFolded = cpu.below.length > 0;
  const threads = roots.find(({ name }) => name === THREADS);
  if (threads) {
    const loads = new Map<Node, Load>();
    loadOf(threads, loads);
    const busy = (node: Node) => loads.get(node) ?? { running: 0, instructions: 0 };
    const least = LEAST * [...loads].reduce((most, [{ lanes }, { running }]) => (lanes.length > 0 ? Math.max(most, running) : most), 0);
    const known = ({ path }: Node) => earlier.get(path) ?? Number.POSITIVE_INFINITY;
    const place = (one: Node, other: Node) => (known(one) < known(other) ? -1 : Number(known(one) > known(other)));
    // Sorting is stable, so that what did the same stays in order of names.
    const byLoad = (one: Node, other: Node) =>
      place(one, other) || busy(other).running - busy(one).running || busy(other).instructions - busy(one).instructions;
    threads.below.sort(byLoad);
    for (const process of threads.below) {
      if (process.lanes.length > 0) continue;
      process.below.sort(byLoad);
      process.below = folded(process, busy, least);
    }
    threads.below = folded(threads, busy, least);
  }
  return [...roots].sort((one, other) => rank(one) - rank(other));
}

/** What is below the threads or a process, where threads without work are below a heading of their own, which is folded. */
function folded(threads: Node, busy: (node: Node) => Load, least: number): Node[] {
  // Without states, such as in a recording of control flow, each thread ran.
  if (busy(threads).running === 0) return threads.below;
  const isIdle = (node: Node) => busy(node).running < least && busy(node).instructions === 0;
  const idle = threads.below.filter(isIdle);
  if (idle.length < FEWEST || idle.length === threads.below.length) return threads.below;
  const heading: Node = { name: IDLE, path: `${threads.path} › ${IDLE}`, lanes: [], below: idle, isFolded: true };
  return [...threads.below.filter((node) => !isIdle(node)), heading];
}

/** The order of a tree, for the next one. */
export function orderOf(roots: Node[]): Earlier {
  const order = new Map<string, number>();
  const walk = (node: Node) => {
    order.set(node.path, order.size);
    node.below.forEach(walk);
  };
  roots.forEach(walk);
  return order;
}
