// Draws rows of slices, the axis and the overview on canvases.

import { time } from "../../shared/format";
import { fitted, shown } from "../../shared/text";
import { Bars, ContextBars, PixelBars } from "./bars";
import { type Colours, inkOn } from "./colours";
import { load } from "./load";
import { type Arrow, LOSSES, type Piece, type Places, type Sheet, concerns, drawArrows, drawPath, lossLanes } from "./overlays";
import type { Row, SummaryRow } from "./rows";
import { LANES, type Slice, type Tiles } from "./store";
import { type Ticks, ticksOf } from "./ticks";

/** The span that is seen, in nanoseconds from the origin. */
export interface Span {
  begin: number;
  length: number;
}

/** A record that a search found. */
export interface Match {
  /** The id of its row. */
  row: string;
  begin: number;
  end: number;
  value: string;
}

/** What a drawing shows besides slices. */
export interface Scene {
  span: Span;
  tiles: Tiles;
  colours: Map<string, Colours>;
  matches: Map<string, Match[]>;
  /** The selected instant, and the row. */
  at: number | undefined;
  row: string | undefined;
  /** Marks between which is measured. */
  marks: number[];
  /** A span that is being chosen. */
  chosen: [number, number] | undefined;
  /** Its first row and its last; without these, all rows. */
  area: [string, string] | undefined;
  notes: { time: number; text: string }[];
  /** Links between rows. */
  arrows: Arrow[];
  /** The critical path of a thread. */
  path: Piece[];
  /** Summaries of groups. */
  summaries: SummaryRow[];
  /** Events that are marked. */
  ticks: Ticks | undefined;
  theme: Theme;
}

/** Colours of the theme, as the style sheet has them. */
export interface Theme {
  paper: string;
  raised: string;
  line: string;
  ink: string;
  soft: string;
  accent: string;
  selected: string;
  hatch: string;
  /** Calls that are too short for a colour. */
  short: string;
  bad: string;
}

/** Reads the colours of the theme. */
export function theme(): Theme {
  const style = getComputedStyle(document.documentElement);
  const of = (name: string) => style.getPropertyValue(`--${name}`).trim();
  return {
    paper: of("paper"),
    raised: of("raised"),
    line: of("line"),
    ink: of("ink"),
    soft: of("soft"),
    accent: of("accent"),
    selected: of("selected"),
    hatch: of("hatch"),
    short: of("short"),
    bad: of("bad"),
  };
}

/** Prepares a canvas for its size on the screen; returns its context and size in CSS pixels. */
export function prepare(canvas: HTMLCanvasElement): Paper | undefined {
  const { clientWidth: width, clientHeight: height } = canvas;
  const scale = devicePixelRatio;
  const [columns, lines] = [Math.round(width * scale), Math.round(height * scale)];
  if (canvas.width !== columns) canvas.width = columns;
  if (canvas.height !== lines) canvas.height = lines;
  const context = canvas.getContext("2d");
  if (!context || width === 0) return undefined;
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  const size = Math.round(0.86 * Number.parseFloat(getComputedStyle(document.documentElement).fontSize));
  context.font = `${size}px system-ui, "DejaVu Sans", sans-serif`;
  context.textBaseline = "middle";
  return { context, width, height };
}

/** A slice and the part of its time that its tile shows. */
export interface Seen {
  slice: Slice;
  begin: number;
  end: number;
}

/** The slices of a row in a span: the finest that are here, and whether finer ones were asked for. */
export function slicesOf(row: Pick<Row, "table" | "lane">, { span, tiles }: Pick<Scene, "span" | "tiles">, width: number): Seen[] {
  const digits = tiles.digits((2 * span.length) / width);
  const first = row.lane - (row.lane % LANES);
  const seen: Seen[] = [];
  const drawn = tiles.draw(row.table.name, first, digits, span.begin, span.begin + span.length);
  if (drawn.some(({ tile }) => !tile)) {
    // Of a store that has grown, what it had before stays until newer tiles are here.
    const before = tiles.before(row.table, row.lane);
    const old = before && slicesOf(before, { tiles: before.tiles, span: { ...span, begin: span.begin - before.later } }, width);
    if (before && old && old.length > 0) return old.map((one) => laterBy(one, before.later));
  }
  for (const { from, to, tile } of drawn) {
    for (const slice of tile?.get(row.lane) ?? []) {
      const [begin, end] = [Math.max(slice.begin, from), Math.min(slice.end, to)];
      if (end < from || begin > to || (begin === to && slice.begin !== from)) continue;
      const before = seen[seen.length - 1];
      // A record that crosses the border of tiles is one.
      const isSame = before && before.slice.begin === slice.begin && before.slice.end === slice.end;
      if (isSame && before.end >= begin && slice.end > slice.begin) before.end = end;
      else seen.push({ slice, begin, end });
    }
  }
  return seen;
}

function laterBy({ slice, begin, end }: Seen, later: number): Seen {
  if (later === 0) return { slice, begin, end };
  return { slice: { ...slice, begin: slice.begin + later, end: slice.end + later }, begin: begin + later, end: end + later };
}

/** The cells that hatched areas repeat, by colour. */
const cells = new Map<string, HTMLCanvasElement>();

function hatched(context: CanvasRenderingContext2D, colour: string): CanvasPattern | string {
  const cell = cells.get(colour) ?? hatchedCell(colour);
  if (!cell) return colour;
  cells.set(colour, cell);
  return context.createPattern(cell, "repeat") ?? colour;
}

function hatchedCell(colour: string): HTMLCanvasElement | undefined {
  const cell = document.createElement("canvas");
  [cell.width, cell.height] = [8, 8];
  const inner = cell.getContext("2d");
  if (!inner) return undefined;
  inner.strokeStyle = colour;
  inner.lineWidth = 1.6;
  inner.beginPath();
  for (const at of [-8, 0, 8]) {
    inner.moveTo(at, 8);
    inner.lineTo(at + 8, 0);
  }
  inner.stroke();
  return cell;
}

/** Draws rows, which are `scroll` pixels above. */
export function drawRows(canvas: HTMLCanvasElement, list: "rows" | "pinned", places: Places, scroll: number, scene: Scene): void {
  const prepared = prepare(canvas);
  if (prepared) paintRows({ ...prepared, pixels: PixelBars.of(canvas, devicePixelRatio) }, list, places, scroll, scene);
}

/** Something to draw on, and its size in pixels. */
export interface Paper {
  context: CanvasRenderingContext2D;
  width: number;
  height: number;
  /** Bars of a whole canvas; others are drawn as rectangles. */
  pixels?: PixelBars;
}

/** As `drawRows`, on any paper. */
export function paintRows({ context, width, height, pixels }: Paper, list: "rows" | "pinned", places: Places, scroll: number, scene: Scene): void {
  const { rows } = places;
  const { span } = scene;
  const x = (at: number) => ((at - span.begin) / span.length) * width;
  paintGrid(context, scene, width, height);
  const hatch = hatched(context, scene.theme.hatch);
  const losses = lossSpans(scene, width);
  const bars = new Bars(pixels ?? new ContextBars(context));
  const visible = rows.filter(({ top, height: high }) => top - scroll <= height && top - scroll + high >= 0);
  for (const row of visible) {
    const top = row.top - scroll;
    if (row.id === scene.row) {
      context.fillStyle = scene.theme.selected;
      context.fillRect(0, top, width, row.height);
    }
    const colours = scene.colours.get(row.table.name);
    const seen = row.table.shape === "links" ? [] : slicesOf(row, scene, width);
    if (row.table.shape === "counters") drawCounter(context, seen, { top, height: row.height }, x, scene.theme);
    else if (colours) {
      for (const one of seen) drawSlice(context, one, row, { top, x, width, colours, hatch, scene, bars });
      bars.finish();
    }
  }
  // The pinned rows have none.
  for (const { group, summary, top, height: high } of list === "rows" ? scene.summaries : []) {
    const colours = scene.colours.get(group.table.name);
    if (!colours || top - scroll > height || top - scroll + high < 0) continue;
    const row = { table: group.table, height: high, isThin: false };
    for (const slice of summary?.slices ?? []) {
      drawSlice(context, { slice, begin: slice.begin, end: slice.end }, row, { top: top - scroll, x, width, colours, hatch, scene, bars });
    }
    bars.finish();
  }
  pixels?.finish(context);
  for (const row of visible) {
    const top = row.top - scroll;
    context.fillStyle = hatch;
    // What is below stays readable.
    context.globalAlpha = 0.6;
    for (const { stream, begin, end } of row.table.name === LOSSES ? [] : losses) {
      const [left, right] = [Math.max(-2, x(begin)), Math.min(width + 2, x(end))];
      if (right < -1 || left > width || !concerns(stream, row)) continue;
      context.fillRect(left, top, Math.max(3, right - left), row.height);
    }
    context.globalAlpha = 1;
    if (scene.ticks) drawTicks(context, ticksOf(scene.ticks, row), x, { top, height: row.height, width }, scene.theme);
    context.fillStyle = scene.theme.bad;
    for (const match of scene.matches.get(row.id) ?? []) {
      const left = x(match.begin);
      const right = x(match.end);
      if (right < 0 || left > width) continue;
      context.fillRect(left, top + row.height - 4, Math.max(2, right - left), 3);
    }
  }
  const sheet: Sheet = { context, x, scroll, width, height, theme: scene.theme };
  if (scene.path.length > 0) drawPath(sheet, places, scene.path);
  if (scene.arrows.length > 0) drawArrows(sheet, places, scene.arrows, rows.find((row) => row.id === scene.row));
  const area = scene.area?.map((id) => rows.find((row) => row.id === id));
  const band = area && area[0] && area[1] && bandOf(area[0], area[1], scroll);
  lines(context, scene, x, height, band);
}

/** Draws events as ticks that hang from the top of their row: one for each pixel that has any. */
function drawTicks(context: CanvasRenderingContext2D, instants: number[], x: (at: number) => number, row: { top: number; height: number; width: number }, theme: Theme): void {
  let last = Number.NEGATIVE_INFINITY;
  context.fillStyle = theme.ink;
  for (const at of instants) {
    const left = Math.round(x(at));
    if (left === last || left < 0 || left > row.width) continue;
    last = left;
    context.fillRect(left, row.top, 1, Math.min(7, row.height));
    context.fillRect(left - 1, row.top, 3, 2);
  }
}

/** The place of rows on a canvas, from one to another. */
function bandOf(one: Row, other: Row, scroll: number): [top: number, bottom: number] {
  const bottom = Math.max(one.top + one.height, other.top + other.height);
  return [Math.min(one.top, other.top) - scroll, bottom - scroll];
}

/** Losses that have a place in time, which lie across the rows that they concern. */
function lossSpans(scene: Scene, width: number): { stream: string; begin: number; end: number }[] {
  const { store } = scene.tiles;
  return lossLanes(store).flatMap(({ stream, ...place }) =>
    slicesOf(place, scene, width)
      // The store gives a loss without a place all of the time.
      .filter(({ slice }) => slice.begin > 0 || slice.end < store.length)
      .map(({ begin, end }) => ({ stream, begin, end })),
  );
}

interface Where {
  top: number;
  x: (at: number) => number;
  width: number;
  colours: Colours;
  hatch: CanvasPattern | string;
  scene: Scene;
  bars: Bars;
}

/** The value of tables of calls. */
export const FUNCTION = "function";
/** The width in pixels from which a single call has the colour of its function. */
const SHORT = 2;

/** Whether a slice of calls is too short for a colour: a short call, or a cell of time of which no function has half. */
function isMixed(slice: Slice, pixels: number): boolean {
  if (slice.records === null) return pixels < SHORT;
  return (slice.parts[0]?.weight ?? 0) < slice.weight / 2;
}

/** Space above and below a bar: strips of a track lie close together. */
const SPACE = 2;
const SPACE_OF_THIN = 0.5;

function drawSlice(context: CanvasRenderingContext2D, seen: Seen, row: Pick<Row, "table" | "height" | "isThin">, where: Where): void {
  const { slice } = seen;
  const space = row.isThin ? SPACE_OF_THIN : SPACE;
  const [top, high] = [where.top + space, row.height - 2 * space];
  const left = Math.max(-2, where.x(seen.begin));
  const right = Math.min(where.width + 2, where.x(seen.end));
  if (right < -1 || left > where.width) return;
  const wide = Math.max(1, right - left);
  if (row.table.name === LOSSES) {
    context.fillStyle = where.hatch;
    context.fillRect(left, top, Math.max(4, wide), high);
    context.strokeStyle = where.scene.theme.hatch;
    context.strokeRect(left + 0.5, top + 0.5, Math.max(4, wide) - 1, high - 1);
    return;
  }
  // Many short calls of many functions would be a noise of colours.
  const isShort = row.table.value === FUNCTION && isMixed(slice, wide);
  if (slice.records === null) {
    const colour = isShort ? where.scene.theme.short : where.colours.of(slice.parts[0]?.value ?? null);
    context.fillStyle = colour;
    context.fillRect(left, top, wide > 3 ? wide - 0.5 : wide, high);
    if (wide > 26) label(context, slice.parts[0]?.value ?? "–", colour, left, right, top + high / 2, where.width);
    return;
  }
  const whole = row.table.shape === "points" ? Math.max(slice.weight, 1) : Math.max(slice.end - slice.begin, 1);
  let bottom = top + high;
  if (isShort) {
    const share = Math.max(2, Math.round(Math.min(1, slice.weight / whole) * high));
    where.bars.add(0, { left, right, top: Math.max(top, bottom - share), bottom, colour: where.scene.theme.short });
    return;
  }
  for (const [number, part] of slice.parts.entries()) {
    // Nothing vanishes: the smallest share is a line.
    const share = Math.max(2, Math.round(Math.min(1, part.weight / whole) * high));
    const from = Math.max(top, bottom - share);
    where.bars.add(number, { left, right, top: from, bottom, colour: where.colours.of(part.value) });
    bottom = from;
  }
  const rest = slice.weight - slice.parts.reduce((sum, part) => sum + part.weight, 0);
  if (rest > 0 && bottom > top) {
    const share = Math.min(bottom - top, Math.round((rest / whole) * high));
    where.bars.add(slice.parts.length, { left, right, top: bottom - share, bottom, colour: where.scene.theme.soft });
  }
}

function label(
  context: CanvasRenderingContext2D,
  text: string,
  colour: string,
  left: number,
  right: number,
  middle: number,
  width: number,
): void {
  // Arrows point at begins, and are half as wide as this.
  const from = Math.max(left, 0) + 7;
  const room = Math.min(right, width) - from - 3;
  if (room < 12) return;
  const fits = fitted(text, room, context);
  context.fillStyle = inkOn(colour);
  context.fillText(fits, from, middle);
}

/** Draws a counter: its values as steps over what they are at least. */
export function drawCounter(
  context: CanvasRenderingContext2D,
  seen: Seen[],
  { top, height }: { top: number; height: number },
  x: (at: number) => number,
  theme: Theme,
): void {
  const bounds = seen.flatMap(({ slice }) => [slice.low, slice.high]).filter((value) => value !== null);
  if (bounds.length === 0) return;
  const low = Math.min(0, ...bounds);
  const high = Math.max(low + 1e-9, ...bounds);
  const y = (value: number) => top + height - 3 - ((value - low) / (high - low)) * (height - 6);
  context.fillStyle = theme.accent;
  for (const [place, { slice, begin, end }] of seen.entries()) {
    if (slice.low === null || slice.high === null) continue;
    const next = slice.records === null ? (seen[place + 1]?.begin ?? end) : end;
    const [left, right] = [x(begin), x(next)];
    context.globalAlpha = 0.35;
    context.fillRect(left, y(slice.low), Math.max(1, right - left), top + height - 3 - y(slice.low));
    context.globalAlpha = 1;
    context.fillRect(left, y(slice.high), Math.max(1, right - left), Math.max(1.5, y(slice.low) - y(slice.high)));
  }
}

/** Steps of an axis: 1, 2 or 5 times a power of ten, at least `pixels` apart. */
export function steps(span: Span, width: number, pixels = 110): { step: number; from: number; count: number } {
  const least = (span.length / width) * pixels;
  const power = 10 ** Math.floor(Math.log10(least));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= least) ?? least;
  const from = Math.ceil(span.begin / step) * step;
  return { step, from, count: Math.floor((span.begin + span.length - from) / step) + 1 };
}

/** Draws the lines of the axis' steps. */
export function paintGrid(context: CanvasRenderingContext2D, { span, theme }: Scene, width: number, height: number): void {
  const { step, from, count } = steps(span, width);
  context.fillStyle = theme.line;
  context.globalAlpha = 0.6;
  for (let number = 0; number < count; number++) {
    context.fillRect(Math.round(((from + number * step - span.begin) / span.length) * width), 0, 1, height);
  }
  context.globalAlpha = 1;
}

function lines(context: CanvasRenderingContext2D, scene: Scene, x: (at: number) => number, height: number, band?: [number, number]): void {
  if (scene.chosen) {
    const [from, to] = scene.chosen.map(x) as [number, number];
    context.fillStyle = scene.theme.selected;
    const [top, bottom] = band ?? [0, height];
    context.fillRect(Math.min(from, to), top, Math.abs(to - from), bottom - top);
    context.fillStyle = scene.theme.accent;
    for (const at of [from, to]) context.fillRect(at - 0.5, top, 1, bottom - top);
  }
  for (const at of [...scene.marks, ...(scene.at === undefined ? [] : [scene.at])]) softEdges(context, scene, x, at, height);
  if (scene.at !== undefined) {
    context.fillStyle = scene.theme.accent;
    context.fillRect(x(scene.at) - 0.5, 0, 1, height);
  }
  context.fillStyle = scene.theme.bad;
  for (const mark of scene.marks) context.fillRect(x(mark) - 0.75, 0, 1.5, height);
}

/** Draws how far an instant may be off in rows of another clock: a band that fades. */
function softEdges(context: CanvasRenderingContext2D, scene: Scene, x: (at: number) => number, at: number, height: number): void {
  const half = scene.tiles.store.half_width;
  const [left, right] = [x(at - half), x(at + half)];
  if (right - left < 2) return;
  const fade = context.createLinearGradient(left, 0, right, 0);
  fade.addColorStop(0, "transparent");
  fade.addColorStop(0.5, scene.theme.accent);
  fade.addColorStop(1, "transparent");
  context.globalAlpha = 0.45;
  context.fillStyle = fade;
  context.fillRect(left, 0, right - left, height);
  context.globalAlpha = 1;
}

/** Draws the axis: times, marks and what lies between them, notes. */
export function drawAxis(canvas: HTMLCanvasElement, scene: Scene): void {
  const prepared = prepare(canvas);
  if (prepared) paintAxis(prepared, scene);
}

/** As `drawAxis`, on any paper. */
export function paintAxis({ context, width, height }: Paper, scene: Scene): void {
  const { span, theme } = scene;
  const x = (at: number) => ((at - span.begin) / span.length) * width;
  const { step, from, count } = steps(span, width);
  for (let number = 0; number < count; number++) {
    const at = from + number * step;
    const left = Math.round(x(at));
    context.fillStyle = theme.line;
    context.fillRect(left, height - 8, 1, 8);
    context.fillStyle = theme.soft;
    const text = time(at, step);
    if (left + 4 + context.measureText(text).width < width) context.fillText(text, left + 4, height / 2 + 1);
  }
  lines(context, scene, x, height);
  for (const note of scene.notes) {
    const left = x(note.time);
    if (left < -200 || left > width) continue;
    const text = shown(note.text, 40);
    const wide = context.measureText(text).width + 10;
    context.fillStyle = theme.accent;
    context.fillRect(left, 1, 2, height - 2);
    context.fillRect(left, 1, wide, 15);
    context.fillStyle = theme.paper;
    context.fillText(text, left + 5, 9);
  }
}

/** Draws the whole time: how busy the system was, where the span lies, and where matches, marks and notes are. */
export function drawOverview(canvas: HTMLCanvasElement, whole: number, scene: Scene): void {
  const prepared = prepare(canvas);
  if (!prepared) return;
  const { context, width, height } = prepared;
  const { span, theme } = scene;
  const x = (at: number) => (at / whole) * width;
  context.fillStyle = theme.raised;
  context.fillRect(0, 0, width, height);
  context.fillStyle = theme.accent;
  context.globalAlpha = 0.35;
  const busy = load(scene.tiles, whole, Math.max(1, Math.floor(width)));
  for (const [column, share] of busy.entries()) {
    const high = share > 0 ? Math.max(1, share * (height - 2)) : 0;
    context.fillRect(column, height - high, 1, high);
  }
  context.globalAlpha = 1;
  const columns = new Set<number>();
  for (const matches of scene.matches.values()) {
    for (const match of matches) columns.add(Math.round(x(match.begin)));
  }
  if (scene.ticks) drawTicks(context, scene.ticks.all, x, { top: 0, height, width }, theme);
  context.fillStyle = theme.bad;
  for (const column of columns) context.fillRect(column - 0.5, 3, 1.5, height - 6);
  lines(context, { ...scene, chosen: undefined }, x, height);
  context.fillStyle = theme.accent;
  for (const note of scene.notes) context.fillRect(x(note.time) - 2, 0, 4, 4);
  const [left, wide] = [x(span.begin), Math.max(3, x(span.length))];
  context.fillStyle = theme.selected;
  context.fillRect(left, 0, wide, height);
  context.strokeStyle = theme.accent;
  context.strokeRect(left + 0.5, 0.5, wide - 1, height - 1);
}
