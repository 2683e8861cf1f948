// Rows that were found are shown: what hides them is undone, and they are scrolled into sight.

import { useEffect, useLayoutEffect, useRef } from "preact/hooks";

import { type Choice, MOST_DEPTHS, type Row, allDepths, isStack, pattern } from "./rows";
import { type Node, textOf, wayTo } from "./tree";

/** What changes so that a row is among those that are shown: folded nodes open, and hiding and a filter that leaves it out end. */
export function uncovered(tree: Node[], id: string, choice: Choice): Partial<Choice> {
  const isIt = (node: Node) => node.lanes.some((lane) => lane.id === id);
  const way = wayTo(tree, isIt);
  const [own] = way.slice(-1);
  if (!own || choice.pins.includes(id)) return {};
  const changes: Partial<Choice> = {};
  const paths = new Set(way.map(({ path }) => path));
  // What is below the row itself may stay folded.
  const above = way.slice(0, -1);
  if (above.some(({ path }) => choice.collapsed.has(path))) {
    changes.collapsed = new Set([...choice.collapsed].filter((path) => path === own.path || !paths.has(path)));
  }
  const closed = above.filter(({ path, isFolded }) => isFolded && !choice.opened.has(path));
  if (closed.length > 0) changes.opened = new Set([...choice.opened, ...closed.map(({ path }) => path)]);
  const stack = above.at(-1);
  if (stack && isStack(stack) && stack.below.indexOf(own) >= MOST_DEPTHS) changes.opened = new Set([...(changes.opened ?? choice.opened), allDepths(stack.path)]);
  if (choice.hidden.some((path) => paths.has(path))) changes.hidden = choice.hidden.filter((path) => !paths.has(path));
  const lane = own.lanes.find((lane) => lane.id === id);
  if (choice.filter && lane && !pattern(choice.filter).passes(textOf(lane))) changes.filter = "";
  return changes;
}

/** Scrolls a row into sight once it is drawn, and again if room becomes less, until the reader scrolls. */
export function useReveal(rows: Row[], scroller: { current: HTMLDivElement | null }): { current: string | undefined } {
  const wanted = useRef<string | undefined>(undefined);
  const at = useRef(0);
  const reveal = useRef(() => {});
  reveal.current = () => {
    const [element, row] = [scroller.current, rows.find(({ id }) => id === wanted.current)];
    if (!element || !row) return;
    if (row.top < element.scrollTop) element.scrollTop = row.top;
    const below = row.top + row.height - element.clientHeight;
    if (below > element.scrollTop) element.scrollTop = below;
    at.current = element.scrollTop;
  };
  useLayoutEffect(() => reveal.current());
  useEffect(() => {
    const element = scroller.current;
    if (!element) return;
    const watch = new ResizeObserver(() => reveal.current());
    watch.observe(element);
    // The reader scrolled, and this did not.
    const end = () => {
      if (Math.abs(element.scrollTop - at.current) > 1) wanted.current = undefined;
    };
    element.addEventListener("scroll", end);
    return () => {
      watch.disconnect();
      element.removeEventListener("scroll", end);
    };
  }, []);
  return wanted;
}
