// The board: tools, overview, axis, pinned rows, rows, details. Pictures are drawn on canvases, once for each frame.

import { type Signal, useSignal } from "@preact/signals";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import { answers } from "../../shared/answers";
import { json } from "../../shared/api";
import { useKeys } from "../../shared/keys";
import { selection } from "../../shared/selection";
import { dark } from "../../shared/theme";
import { useActiveRows } from "./active-rows";
import { useTicks } from "./asked-ticks";
import { ChosenSpan, lead } from "./chosen";
import { COUNTER_HEIGHT, CounterLabel, drawCounters, useCounters } from "./counters";
import { Details, type StoreRecord } from "./details";
import { type Match, type Scene, type Span, drawAxis, drawOverview, drawRows, slicesOf, theme } from "./draw";
import { hasBegun, useAnchor, useGrowing, useShift } from "./growth";
import { DeeperLabel, GroupHeading, RowLabel, SummaryLabel } from "./labels";
import { type Hover, Hint, sliceUnder } from "./hover";
import { useCriticalPath, useLinks } from "./links";
import { Places } from "./overlays";
import { type Kind, picture, save } from "./picture";
import { pointer } from "./pointer";
import { uncovered, useReveal } from "./reveal";
import { type Layout, type Row, allDepths, idOf, keyCell, layout, titleOf } from "./rows";
import { type Search, useSearch } from "./search";
import { limited, moved, ordered, read, whole, write, zoomed } from "./state";
import type { Slice, Store, Tiles } from "./store";
import { groupsOf, useSummaries } from "./summary";
import { Tools } from "./tools";
import { type Node, nodeOf, pathText } from "./tree";

/** Time after which a moved span is written to the address, in ms. */
const SETTLED = 150;
/** Headings and rows beyond the visible ones that have labels, in pixels. */
const BEYOND = 200;

/** What moves faster than the address follows. */
interface Live {
  span: Span;
  /** A span that is being chosen, and its rows. */
  chosen: [number, number] | undefined;
  area: [string, string] | undefined;
  frame: number;
}

interface Properties {
  store: Store;
}

/** The timeline of a store. */
export function Board({ store }: Properties) {
  const state = read(store);
  const [scroll, setScroll] = useState(0);
  const [seenHeight, setSeenHeight] = useState(600);
  const refs = {
    overview: useRef<HTMLCanvasElement>(null),
    axis: useRef<HTMLCanvasElement>(null),
    pinned: useRef<HTMLCanvasElement>(null),
    counters: useRef<HTMLCanvasElement>(null),
    picture: useRef<HTMLCanvasElement>(null),
    scroller: useRef<HTMLDivElement>(null),
    board: useRef<HTMLDivElement>(null),
  };
  const hover = useSignal<Hover | undefined>(undefined);
  const live = useRef<Live>({ span: state.span, chosen: undefined, area: undefined, frame: 0 });
  const { tiles, colours, tree } = useGrowing(store, dark.value, () => later.current(), () => hasBegun(refs.scroller.current, hover.peek() !== undefined));
  const search = useSearch(store, state.find);
  const groups = useMemo(() => groupsOf(tree), [tree]);
  const summaries = useSummaries(store, tiles, groups, state.span);
  const { choice } = state;
  const chosen = JSON.stringify([choice, [...choice.collapsed], [...choice.opened], [...choice.worst]]);
  const active = useActiveRows(choice.onlyActive, tiles, state.span);
  const rows = useMemo(() => layout(tree, choice, groups, summaries, active), [tree, chosen, groups, summaries, active]);
  const places = useMemo(() => ({ rows: new Places(rows.rows), pinned: new Places(rows.pinned) }), [rows]);
  const links = useLinks(store, state.span, state.arrows);
  const arrows = links.flatMap((one) => one.arrows);
  const path = useCriticalPath(store, state.path);
  const ticks = useTicks(store);
  const counters = useCounters(store, state.span);

  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const isMoving = useRef(false);
  // The address was changed by a link or by Back: its span counts. A store that has grown has other times of the same instants.
  const written = useRef("");
  const shift = useShift(store);
  const inAddress = `${selection.value.t0} ${selection.value.t1}`;
  if (written.current !== inAddress || !isMoving.current) {
    if (written.current !== inAddress) clearTimeout(timer.current);
    [written.current, isMoving.current] = [inAddress, false];
    live.current.span = state.span;
  } else live.current.span.begin += shift;
  const go = (span: Span) => {
    live.current.span = span;
    hover.value = undefined;
    isMoving.current = true;
    clearTimeout(timer.current);
    timer.current = setTimeout(() => {
      isMoving.current = false;
      write(latestStore.current, { span: live.current.span });
      written.current = `${selection.value.t0} ${selection.value.t1}`;
    }, SETTLED);
    tiles.forget();
    later.current();
  };
  const latestStore = useRef(store);
  latestStore.current = store;
  const latestGo = useRef(go);
  latestGo.current = go;
  useEffect(() => () => clearTimeout(timer.current), []);

  const sceneNow = (): Scene => ({
    ...state,
    ...{ span: live.current.span, chosen: live.current.chosen ?? state.chosen },
    ...{ area: live.current.chosen ? live.current.area : state.area, tiles, colours, theme: theme() },
    ...{ matches: search.byRow, arrows, path: path.value?.pieces ?? [], summaries: rows.summaries, ticks },
  });
  const draw = () => {
    live.current.frame = 0;
    const scene = sceneNow();
    const { overview, axis, pinned, picture, scroller } = refs;
    if (refs.counters.current) drawCounters(refs.counters.current, counters, scene);
    if (picture.current) drawRows(picture.current, "rows", places.rows, scroller.current?.scrollTop ?? 0, scene);
    if (pinned.current) drawRows(pinned.current, "pinned", places.pinned, 0, scene);
    if (axis.current) drawAxis(axis.current, scene);
    if (overview.current) drawOverview(overview.current, whole(store).length, scene);
    refs.board.current?.setAttribute("data-settled", String(!tiles.waiting));
    tiles.settle();
  };
  const later = useRef(() => {});
  const latest = useRef(draw);
  latest.current = draw;
  later.current = () => {
    if (live.current.frame === 0) live.current.frame = requestAnimationFrame(() => latest.current());
  };
  useEffect(() => later.current());
  useEffect(() => {
    const element = refs.scroller.current;
    if (!element) return;
    const watch = new ResizeObserver(() => {
      setSeenHeight(element.clientHeight);
      refs.board.current?.style.setProperty("--gutter", `${element.offsetWidth - element.clientWidth}px`);
      later.current();
    });
    watch.observe(element);
    return () => {
      watch.disconnect();
      cancelAnimationFrame(live.current.frame);
    };
  }, []);

  const keepAnchor = useAnchor(store, rows, state.row, refs.scroller);
  const all = [...rows.pinned, ...rows.rows];
  const selected = all.find((row) => row.id === state.row);
  const wanted = useReveal(rows.rows, refs.scroller);
  const covered = between(all, state.area);
  const actions = actionsOf({ store, tree, state, all, selected, covered, wanted, live, go, rows: rows.rows, search, tiles, later, hover });
  const choose = useRef<(list: "rows" | "pinned", chosen: [number, number] | undefined, y: [number, number], done: boolean) => void>(() => {});
  choose.current = (list, chosen, [y, otherY], done) => {
    const above = list === "rows" ? (refs.scroller.current?.scrollTop ?? 0) : 0;
    const [from, until] = [Math.min(y, otherY) + above, Math.max(y, otherY) + above];
    const covered = rows[list].filter((row) => row.top <= until && row.top + row.height > from);
    const [first, last] = [covered[0], covered.at(-1)];
    const area: [string, string] | undefined = first && last && [first.id, last.id];
    Object.assign(live.current, done ? { chosen: undefined, area: undefined } : { chosen, area });
    if (done) write(store, { chosen: chosen && ordered(chosen), area, at: undefined });
    later.current();
  };
  const pick = useRef<(list: "rows" | "pinned", x: number, y: number, twice: boolean) => void>(() => {});
  pick.current = (list, x, y, twice) => {
    const above = list === "rows" ? (refs.scroller.current?.scrollTop ?? 0) : 0;
    const width = refs.axis.current?.clientWidth ?? 1;
    actions.pick(rows[list], x, y + above, width, twice);
  };
  const rest = useRef<(list: "rows" | "pinned", place: PointerEvent | undefined) => void>(() => {});
  rest.current = (list, place) => {
    const above = list === "rows" ? (refs.scroller.current?.scrollTop ?? 0) : 0;
    const width = refs.axis.current?.clientWidth ?? 1;
    const { span } = live.current;
    const at = place && { x: place.clientX, y: place.clientY, time: span.begin + (place.offsetX / width) * span.length };
    hover.value = at && hoverAt({ rows: rows[list], summaries: list === "rows" ? rows.summaries : [] }, place.offsetY + above, at, { span, tiles, width });
  };
  // A drag outlives drawings, so listeners stay.
  const hasPinned = rows.pinned.length > 0;
  useEffect(() => {
    const listen = (canvas: HTMLCanvasElement | null, list: "rows" | "pinned") =>
      canvas &&
      pointer(canvas, {
        span: () => live.current.span,
        go: (span) => latestGo.current(span),
        store: () => latestStore.current,
        pick: (x, y, twice) => pick.current(list, x, y, twice),
        hover: (place) => rest.current(list, place),
        choose: (chosen, y, done) => choose.current(list, chosen, y, done),
      });
    const ends = [listen(refs.picture.current, "rows"), listen(refs.pinned.current, "pinned")];
    return () => ends.forEach((end) => end?.());
  }, [hasPinned]);
  useKeys(actions.key);
  const keep = async (kind: Kind) => {
    // The chosen span of its rows, or what is seen.
    const [from, until] = state.chosen ?? [live.current.span.begin, live.current.span.begin + live.current.span.length];
    const seen = rows.rows.filter(({ top, height }) => top + height > scroll && top < scroll + seenHeight);
    const wanted = state.chosen ? covered : [...rows.pinned, ...seen];
    save(await picture(kind, wanted, { begin: from, length: until - from }, sceneNow()), kind, wanted);
  };
  const visible = ({ top, height }: { top: number; height: number }) =>
    top + height > scroll - BEYOND && top < scroll + seenHeight + BEYOND;
  const slice = selected && state.at !== undefined ? sliceAt(selected, state.at, tiles, live.current.span) : undefined;
  return (
    <div class="timeline" ref={refs.board}>
      <Tools {...{ store, state, search, go, links, path, span: live.current.span, keep, ticks }} step={actions.step} first={actions.first} />
      <canvas
        ref={refs.overview}
        class="overview"
        role="img"
        aria-label="How busy the recorded system was over all of the time, and the span that is seen"
        onPointerDown={(event) => actions.overview(event, event.currentTarget)}
        onPointerMove={(event) => event.buttons === 1 && actions.overview(event, event.currentTarget)}
      />
      <canvas ref={refs.axis} class="axis" role="img" aria-label="Times" />
      {counters.length > 0 && (
        <div class="pinned counters" style={{ height: `${counters.length * COUNTER_HEIGHT}px` }}>
          <canvas ref={refs.counters} role="img" aria-label="Counters over time" />
          {counters.map((counter, number) => (
            <CounterLabel key={counter.name} counter={counter} top={number * COUNTER_HEIGHT} />
          ))}
        </div>
      )}
      {rows.pinned.length > 0 && (
        <div class="pinned" style={{ height: `${rows.pinnedHeight}px` }}>
          <canvas ref={refs.pinned} role="img" aria-label="Pinned rows over time" />
          {rows.pinned.map((row) => (
            <RowLabel key={row.id} {...actions.labelOf(row)} />
          ))}
        </div>
      )}
      <div
        class="scroller"
        ref={refs.scroller}
        tabIndex={-1}
        onScroll={(event) => {
          setScroll(event.currentTarget.scrollTop);
          keepAnchor();
          hover.value = undefined;
          later.current();
        }}
      >
        <div class="space" style={{ height: `${rows.height}px` }}>
          <canvas ref={refs.picture} class="picture" style={{ height: `${seenHeight}px` }} role="img" aria-label="Rows over time" />
          {rows.height === 0 && <p class="none waiting">No row passes the filter{choice.onlyActive && ", or those that do are not active here"}{choice.hidden.length > 0 && ", or those that do are hidden"}.</p>}
          {rows.headings.filter(visible).map((heading) => (
            <GroupHeading
              key={heading.path}
              heading={heading}
              colours={colours}
              fold={() => actions.fold(heading.path)}
              move={heading.depth === 0 ? (by) => actions.move(heading.path, by) : undefined}
            />
          ))}
          {rows.summaries.filter(visible).map((row) => (
            <SummaryLabel key={row.group.path} row={row} turn={() => actions.turn(row.group.path)} />
          ))}
          {rows.deeper.filter(visible).map((deeper) => (
            <DeeperLabel key={deeper.path} deeper={deeper} show={() => write(store, { opened: new Set([...choice.opened, allDepths(deeper.path)]) })} />
          ))}
          {rows.rows.filter(visible).map((row) => (
            <RowLabel key={row.id} {...actions.labelOf(row)} />
          ))}
        </div>
      </div>
      <Hint hover={hover} generation={store.generation} colours={colours} />
      {state.chosen && (
        <ChosenSpan
          {...{ store, span: state.chosen, rows: covered, all, colours }}
          widen={() => write(store, { area: undefined })}
          zoom={actions.zoom}
          close={actions.unchoose}
        />
      )}
      {selected && state.at !== undefined && !state.chosen && (
        <Details
          {...{ store, row: selected, at: state.at, slice, arrows }}
          follow={threadOf(selected, store) === undefined ? undefined : actions.follow}
          step={(!answers && keyCell(selected.table, selected.lane, "tid")) || undefined}
          go={actions.place}
          show={(record) => go(around(record, store))}
          close={() => write(store, { at: undefined })}
        />
      )}
    </div>
  );
}

/** A span with a record in its middle. */
function around({ begin, end }: { begin: number; end: number }, store: Store): Span {
  const length = Math.max(end - begin, 20);
  return limited({ begin: begin - length / 4, length: length * 1.5 }, store);
}

/** The thread of a row, if it can have a critical path: that takes states of threads, and a page that is no file. */
function threadOf(row: Row, { tables }: Store): string | undefined {
  const hasPaths = !answers && tables.some(({ name, rows }) => name === "states" && rows > 0);
  return (hasPaths && keyCell(row.table, row.lane, "tid")) || undefined;
}

function sliceAt(row: Row, at: number, tiles: Tiles, span: Span): Slice | undefined {
  const seen = slicesOf(row, { span, tiles }, 1000);
  return seen.find(({ begin, end }) => begin <= at && at < Math.max(end, begin + 1))?.slice;
}

/** The rows from one to another; all of them if these are not here. */
function between(rows: Row[], area: [string, string] | undefined): Row[] {
  const [first, last] = (area ?? []).map((id) => rows.findIndex((row) => row.id === id));
  if (first === undefined || last === undefined || first < 0 || last < 0) return rows;
  return rows.slice(Math.min(first, last), Math.max(first, last) + 1);
}

/** What is at a place of a list of rows, `y` pixels from its top. */
function hoverAt(
  { rows, summaries }: Pick<Layout, "rows" | "summaries">,
  y: number,
  { x, y: windowY, time }: { x: number; y: number; time: number },
  { span, tiles, width }: { span: Span; tiles: Tiles; width: number },
): Hover | undefined {
  const isIn = ({ top, height }: { top: number; height: number }) => y >= top && y < top + height;
  const row = rows.find(isIn);
  const pixel = span.length / width;
  if (row) {
    const slice = row.table.shape === "links" ? undefined : sliceUnder(slicesOf(row, { span, tiles }, width), time, pixel);
    return slice && { x, y: windowY, title: titleOf(row), table: row.table, lane: row.lane, slice };
  }
  const of = summaries.find(isIn);
  const slice = of?.summary && sliceUnder(of.summary.slices.map((slice) => ({ ...slice, slice })), time, pixel);
  return of && slice && { x, y: windowY, title: `${of.group.table.title} · ${of.group.path}`, table: of.group.table, lane: undefined, slice };
}

interface Parts {
  store: Store;
  tree: Node[];
  state: ReturnType<typeof read>;
  all: Row[];
  rows: Row[];
  selected: Row | undefined;
  /** The rows of the chosen span. */
  covered: Row[];
  /** The row that is scrolled into sight. */
  wanted: { current: string | undefined };
  live: { current: Live };
  go: (span: Span) => void;
  search: Search;
  tiles: Tiles;
  later: { current: () => void };
  hover: Signal<Hover | undefined>;
}

/** What the user can do. */
function actionsOf(parts: Parts) {
  const { store, tree, state, all, selected, live, go, search } = parts;
  const { choice } = state;
  const show = (at: number) => {
    const { begin, length } = live.current.span;
    if (at < begin || at > begin + length) go(limited({ begin: at - length / 2, length }, store));
  };
  const place = (id: string, at: number) => {
    parts.wanted.current = id;
    write(store, { row: id, at, chosen: undefined, area: undefined, ...uncovered(tree, id, choice) }, "merged");
    show(at);
  };
  const record = async (row: Row, at: number): Promise<{ begin: number; end: number } | undefined> => {
    const slice = sliceAt(row, at, parts.tiles, live.current.span);
    if (slice?.records === null) return slice;
    const asked = { generation: store.generation, table: row.table.name, lane: row.lane, time: Math.max(0, Math.floor(at)) };
    return (await json<{ records: StoreRecord[] }>("timeline/at", asked)).records[0];
  };
  const zoom = async () => {
    if (state.chosen) go(limited({ begin: state.chosen[0], length: state.chosen[1] - state.chosen[0] }, store));
    else if (selected && state.at !== undefined) {
      const found = await record(selected, state.at);
      if (found) go(around(found, store));
    }
  };
  const change = async (next: boolean) => {
    if (!selected) return;
    const time = Math.max(0, Math.floor(state.at ?? live.current.span.begin));
    const asked = { generation: store.generation, table: selected.table.name, lane: selected.lane, time, next: String(next) };
    const found = await json<{ time: number | null }>("timeline/change", asked);
    if (found.time !== null) place(selected.id, found.time);
  };
  const unchoose = () => write(store, { chosen: undefined, area: undefined });
  const longest = async () => {
    const table = selected?.table ?? store.tables.find((table) => table.shape === "intervals");
    if (!table) return;
    const { begin, length } = live.current.span;
    const asked = { generation: store.generation, table: table.name, begin: Math.floor(begin), end: Math.ceil(begin + length) };
    const found = (await json<{ records: StoreRecord[] }>("timeline/longest", asked)).records[0];
    if (found) place(idOf(table, found.lane), Math.max(found.begin, begin));
  };
  const fold = (path: string) => {
    const isOther = nodeOf(tree, path)?.isFolded;
    const next = new Set(isOther ? choice.opened : choice.collapsed);
    if (!next.delete(path)) next.add(path);
    write(store, isOther ? { opened: next } : { collapsed: next });
  };
  const turn = (path: string) => {
    const next = new Set(choice.worst);
    if (!next.delete(path)) next.add(path);
    write(store, { worst: next });
  };
  const pin = (id: string) =>
    write(store, { pins: choice.pins.includes(id) ? choice.pins.filter((one) => one !== id) : [...choice.pins, id] });
  const move = (name: string, by: number) => {
    const names = tree.map((root) => root.name);
    const order = [...choice.order.filter((one) => names.includes(one)), ...names.filter((one) => !choice.order.includes(one))];
    const [from, to] = [order.indexOf(name), order.indexOf(name) + by];
    if (to < 0 || to >= order.length) return;
    order.splice(from, 1);
    order.splice(to, 0, name);
    write(store, { order });
  };
  const beside = (by: number) => {
    const next = all[Math.min(Math.max((selected ? all.indexOf(selected) : -1) + by, 0), all.length - 1)];
    if (!next) return;
    parts.wanted.current = next.id;
    write(store, { row: next.id }, "merged");
  };
  const hide = (path: string) => {
    // The next row that stays is selected, so that several can be hidden one after the other.
    const isBelow = (row: Row) => row.path === path || row.path.startsWith(pathText([path, ""]));
    const from = all.findIndex(isBelow);
    const next = all.slice(from).find((row) => !isBelow(row)) ?? all.slice(0, from).at(-1);
    write(store, { hidden: [...choice.hidden, path] });
    if (selected && isBelow(selected)) write(store, { row: next?.id, at: undefined }, "silent");
  };
  const follow = () => {
    const tid = selected && threadOf(selected, store);
    if (tid) write(store, { path: state.path === tid ? undefined : tid });
  };
  const mark = () => {
    const at = state.at ?? live.current.span.begin + live.current.span.length / 2;
    write(store, { marks: state.marks.length >= 2 ? [] : [...state.marks, at] });
  };
  const note = () => {
    const at = state.at ?? live.current.span.begin + live.current.span.length / 2;
    const field = document.querySelector<HTMLInputElement>(".timeline input[name=note]");
    if (!field) return;
    field.dataset.time = String(at);
    field.focus();
  };
  const step = (by: number) => {
    const match: Match | undefined = search.step(by, state.at ?? live.current.span.begin);
    if (match) place(match.row, match.begin);
  };
  // Without an answer, such as in a page that is a file, nothing moves.
  const quietly = (work: Promise<void>) => void work.catch(() => {});
  const middle = () => live.current.span.begin + live.current.span.length / 2;
  const keys: Record<string, () => void> = {
    w: () => go(zoomed(live.current.span, 0.7, state.at !== undefined && inside(state.at) ? state.at : middle(), store)),
    s: () => go(zoomed(live.current.span, 1 / 0.7, middle(), store)),
    a: () => go(moved(live.current.span, -0.2, store)),
    d: () => go(moved(live.current.span, 0.2, store)),
    ArrowLeft: () => go(moved(live.current.span, -0.05, store)),
    ArrowRight: () => go(moved(live.current.span, 0.05, store)),
    ArrowUp: () => beside(-1),
    ArrowDown: () => beside(1),
    "0": () => go(whole(store)),
    f: () => quietly(zoom()),
    g: () => state.chosen && lead("g", store, state.chosen, parts.covered),
    e: () => state.chosen && lead("e", store, state.chosen, parts.covered),
    ".": () => quietly(change(true)),
    ",": () => quietly(change(false)),
    l: () => quietly(longest()),
    k: follow,
    r: () => write(store, { arrows: !state.arrows }),
    v: () => write(store, { onlyActive: !choice.onlyActive }),
    m: mark,
    n: note,
    "/": () => document.querySelector<HTMLInputElement>(".timeline input[name=find]")?.focus(),
    p: () => selected && pin(selected.id),
    h: () => selected && hide(selected.path),
    c: () => selected && fold(selected.folds),
    Escape: () => {
      parts.hover.value = undefined;
      if (state.chosen) unchoose();
      else if (state.at !== undefined) write(store, { at: undefined });
      else if (state.path) write(store, { path: undefined });
    },
  };
  const inside = (at: number) => at >= live.current.span.begin && at <= live.current.span.begin + live.current.span.length;
  return {
    step,
    follow,
    unchoose,
    /** Selects the first row that is here. */
    first: () => {
      const [first] = parts.rows;
      if (!first) return;
      parts.wanted.current = first.id;
      write(store, { row: first.id });
    },
    zoom: () => quietly(zoom()),
    /** Selects an instant of the row of a path, if that is here. */
    place: (path: string, at: number) => {
      const [lane] = nodeOf(tree, path)?.lanes ?? [];
      if (lane) place(idOf(lane.table, lane.lane), at);
    },
    fold,
    move,
    turn,
    labelOf: (row: Row) => ({
      row,
      selected: row.id === state.row,
      choose: () => write(store, { row: row.id }),
      pin: () => pin(row.id),
      hide: () => hide(row.path),
      fold: () => fold(row.path),
    }),
    pick: (list: Row[], x: number, y: number, width: number, twice: boolean) => {
      const row = list.find((row) => y >= row.top && y < row.top + row.height);
      if (!row) return;
      const { begin, length } = live.current.span;
      const at = begin + (x / width) * length;
      write(store, { row: row.id, at, chosen: undefined, area: undefined });
      if (twice) quietly(record(row, at).then((found) => found && go(around(found, store))));
    },
    overview: (event: PointerEvent, canvas: HTMLCanvasElement) => {
      canvas.setPointerCapture(event.pointerId);
      const at = (event.offsetX / canvas.clientWidth) * whole(store).length;
      go(limited({ begin: at - live.current.span.length / 2, length: live.current.span.length }, store));
    },
    key: (event: KeyboardEvent) => {
      if (event.altKey) {
        if (selected && event.key === "ArrowUp") move(selected.root, -1);
        if (selected && event.key === "ArrowDown") move(selected.root, 1);
        return selected !== undefined;
      }
      const act = keys[event.key.length === 1 ? event.key.toLowerCase() : event.key];
      act?.();
      return act !== undefined;
    },
  };
}
