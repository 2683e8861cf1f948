// Numbers over a number or a time, as lines with scales.

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";

import { duration, grouped, time } from "./format";
import { type Model, raw } from "./model";
import { shown } from "./text";
import { dark } from "./theme";

/** Okabe and Ito's colours that are read on both papers. */
const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];
/** Lines of a plot, at most: as many as there are colours. */
export const MOST_LINES = COLOURS.length;
const HEIGHT = 300;
/** Points from which single ones are not drawn. */
const DENSE = 400;

interface Properties {
  model: Model;
  /** The column of the horizontal axis, and those of the lines. */
  x: number;
  ys: number[];
  /** Whether a value holds until the next one, as that of a counter does. */
  steps: boolean;
  /** A place of the horizontal axis that is marked. */
  at?: bigint | undefined;
  /** Receives the row that was clicked. */
  pick?: ((row: number) => void) | undefined;
}

/** Whether a column holds instants. */
const isTime = (model: Model, column: number) => model.columns[column]?.unit === "ns";

function number(text: string, unit: string): string {
  const value = Number(text);
  if (unit === "ns") return duration(value);
  return Number.isInteger(value) ? grouped(value) : value.toPrecision(4);
}

/** The plot, with the values at the pointer below it. */
export function Plot({ model, x, ys, steps, at, pick }: Properties) {
  const place = useRef<HTMLDivElement>(null);
  const latest = useRef(pick);
  latest.current = pick;
  const name = (column: number) => shown(model.columns[column]?.name ?? "", 60);
  const label = `${ys.map(name).join(", ")} over ${name(x)}, ${grouped(model.rows)} rows`;
  useEffect(() => {
    const element = place.current;
    if (!element) return;
    const style = getComputedStyle(document.documentElement);
    const [ink, line, accent] = ["--soft", "--line", "--accent"].map((variable) => style.getPropertyValue(variable));
    const rows = Array.from({ length: model.rows }, (_, row) => row).filter((row) => model.cell(row, x) !== null);
    const value = (row: number, column: number) => {
      const cell = model.cell(row, column);
      return cell === null ? null : Number(raw(cell));
    };
    // Doubles do not hold instants since 1970 exactly, but they do from the first one on.
    const isInstant = isTime(model, x) && /^(begin|end|at|time)(_|$)/.test(model.columns[x]?.name ?? "");
    const exact = (row: number) => BigInt(raw(model.cell(row, x)));
    const first = isInstant ? rows.map(exact).reduce((least, one) => (one < least ? one : least), exact(rows[0] ?? 0)) : 0n;
    const across = (row: number) => (isInstant ? Number(exact(row) - first) : (value(row, x) ?? 0));
    rows.sort((a, b) => across(a) - across(b));
    const xs = rows.map(across);
    const unit = model.columns[x]?.unit ?? "";
    const shownAcross = (value: number, step = 1) => (isInstant ? time(value, step) : number(String(value), unit));
    const mark = (plot: uPlot) => {
      if (at === undefined || !isInstant) return;
      const left = plot.valToPos(Number(at - first), "x", true);
      plot.ctx.fillStyle = accent ?? "";
      if (left >= plot.bbox.left && left <= plot.bbox.left + plot.bbox.width) plot.ctx.fillRect(left - 1, plot.bbox.top, 2, plot.bbox.height);
    };
    const axis = { stroke: ink ?? "", grid: { stroke: line ?? "", width: 1 }, ticks: { stroke: line ?? "", width: 1 } };
    const unitOf = (column: number) => model.columns[column]?.unit ?? "";
    const stepped = uPlot.paths.stepped?.({ align: 1 });
    const plot = new uPlot(
      {
        width: element.clientWidth,
        height: HEIGHT,
        scales: { x: { time: false } },
        cursor: { drag: { x: true, y: false } },
        axes: [
          { ...axis, space: 110, values: (_, splits, __, ___, step) => splits.map((split) => shownAcross(split, step)) },
          { ...axis, size: 80, values: (_, splits) => splits.map((split) => number(String(split), unitOf(ys[0] ?? 0))) },
        ],
        series: [
          { label: name(x), value: (_, value) => (value === null ? "–" : shownAcross(value)) },
          ...ys.map((column, place) => ({
            label: name(column),
            stroke: COLOURS[place % COLOURS.length] as string,
            width: 1.5,
            points: { show: xs.length < DENSE },
            value: (_: uPlot, value: number | null) => (value === null ? "–" : number(String(value), unitOf(column))),
            ...(steps && stepped ? { paths: stepped } : {}),
          })),
        ],
        hooks: { draw: [mark] },
      },
      [xs, ...ys.map((column) => rows.map((row) => value(row, column)))],
      element,
    );
    const click = () => {
      const row = plot.cursor.idx;
      if (row !== null && row !== undefined && plot.select.width === 0) latest.current?.(rows[row] as number);
    };
    plot.over.addEventListener("click", click);
    const watch = new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height: HEIGHT }));
    watch.observe(element);
    return () => {
      watch.disconnect();
      plot.destroy();
    };
  }, [model, x, ys.join(), steps, String(at), dark.value]);
  return <div class="plot" ref={place} role="img" aria-label={label} data-plot={ys.map(name).join(" ")} data-points={model.rows} />;
}
