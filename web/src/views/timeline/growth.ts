// What stays when the store has grown: tiles, colours, the order of rows, the seen span, the rows under the reader's eyes.

import { useEffect, useLayoutEffect, useMemo, useRef } from "preact/hooks";

import { selection } from "../../shared/selection";
import { Colours } from "./colours";
import { FUNCTION } from "./draw";
import { type Earlier, orderOf } from "./order";
import type { Layout, Row } from "./rows";
import { type Store, Tiles } from "./store";
import { type Node, treeOf } from "./tree";

/** Whether a reader has begun: who has not sees a store as if it was opened now. */
export function hasBegun(scroller: HTMLElement | null, isPointing: boolean): boolean {
  return isPointing || (scroller?.scrollTop ?? 0) > 0 || Object.keys(selection.peek()).some((name) => name !== "view");
}

/** What is drawn of a store, where what was drawn of it before stays; also the order of rows if `keepsOrder`. */
export function useGrowing(store: Store, dark: boolean, changed: () => void, keepsOrder: () => boolean): { tiles: Tiles; colours: Map<string, Colours>; tree: Node[] } {
  const last = useRef<{ tiles?: Tiles; colours: Map<string, Colours>; order: Earlier }>({ colours: new Map(), order: new Map() });
  const tiles = useMemo(() => new Tiles(store, changed, last.current.tiles), [store]);
  const colours = useMemo(
    () => new Map(store.tables.map(({ name, value, values }) => [name, new Colours(values.map(([value]) => value), dark, value === FUNCTION, last.current.colours.get(name))])),
    [store, dark],
  );
  const tree = useMemo(() => treeOf(store, keepsOrder() ? last.current.order : undefined), [store]);
  useEffect(() => {
    last.current = { tiles, colours, order: orderOf(tree) };
  }, [tiles, colours, tree]);
  useEffect(() => () => tiles.close(), [tiles]);
  return { tiles, colours, tree };
}

/** How much later the times of a store begin than those of the one before; 0 if it is the same. */
export function useShift(store: Store): number {
  const last = useRef(store);
  const shift = Number(BigInt(last.current.origin) - BigInt(store.origin));
  last.current = store;
  return shift;
}

/** Keeps the selected row where it is on the screen, else the first one that is seen, when rows come in above it. Returns what to
 * call after scrolling. */
export function useAnchor(store: Store, rows: Layout, selected: string | undefined, scroller: { current: HTMLDivElement | null }): () => void {
  const anchor = useRef<{ id: string; from: number } | undefined>(undefined);
  const keep = () => {
    const element = scroller.current;
    if (!element) return;
    const { scrollTop, clientHeight } = element;
    const isSeen = ({ top, height }: Row) => top + height > scrollTop && top < scrollTop + clientHeight;
    // At the top, nothing is above the first row that could come in.
    const first = scrollTop > 0 ? rows.rows.find(isSeen) : undefined;
    const row = rows.rows.find((row) => row.id === selected && isSeen(row)) ?? first;
    anchor.current = row && { id: row.id, from: row.top - scrollTop };
  };
  useLayoutEffect(() => {
    const row = rows.rows.find(({ id }) => id === anchor.current?.id);
    if (scroller.current && anchor.current && row) scroller.current.scrollTop = row.top - anchor.current.from;
  }, [store]);
  useEffect(keep);
  return keep;
}
