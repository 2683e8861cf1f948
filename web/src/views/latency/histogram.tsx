// A histogram: bars of bins, percentiles as lines; a drag chooses whole bins.

import { useEffect, useRef, useState } from "preact/hooks";

import { grouped } from "../../shared/format";

/** A bin: values from `from` to below `until`. */
export interface Bin {
  from: number;
  until: number;
  count: number;
  cumulated: number;
}

interface Properties {
  bins: Bin[];
  cumulated: boolean;
  logarithmic: boolean;
  /** Percentiles by name. */
  marks: [name: string, value: number][];
  chosen: [number, number] | undefined;
  text: (value: number) => string;
  /** The group of a bin, which colours it. */
  groupOf: (bin: number) => string;
  choose: (range: [number, number]) => void;
}

/** The share of the window that the drawing is high, and its bounds in pixels. */
const [SHARE, LEAST, MOST] = [0.42, 240, 640];
const MARGIN = { left: 56, right: 14, top: 22, bottom: 26 };

/** The drawing. Bins are equally wide; a value lies in its bin as the scale says. */
export function Histogram({ bins, cumulated, logarithmic, marks, chosen, text, groupOf, choose }: Properties) {
  const element = useRef<SVGSVGElement>(null);
  const [width, setWidth] = useState(800);
  const high = Math.round(Math.min(MOST, Math.max(LEAST, SHARE * innerHeight)));
  const [drag, setDrag] = useState<[number, number]>();
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => entry && setWidth(Math.max(320, entry.contentRect.width)));
    if (element.current) observer.observe(element.current);
    return () => observer.disconnect();
  }, []);
  const inside = width - MARGIN.left - MARGIN.right;
  const step = inside / bins.length;
  const tall = high - MARGIN.top - MARGIN.bottom;
  const height = (bin: Bin) => (cumulated ? bin.cumulated : bin.count);
  const most = Math.max(1, ...bins.map(height));
  // Few among many stay visible.
  const pixels = (bin: Bin) => (height(bin) > 0 ? Math.max(2, (tall * height(bin)) / most) : 0);
  const x = (value: number) => {
    const number = bins.findIndex((bin) => value < bin.until);
    const bin = bins[number];
    if (!bin) return MARGIN.left + inside;
    const share =
      logarithmic && bin.from > 0
        ? Math.log2(Math.max(value, bin.from) / bin.from)
        : (value - bin.from) / (bin.until - bin.from);
    return MARGIN.left + step * (number + Math.min(1, Math.max(0, share)));
  };
  const binAt = (event: PointerEvent) => {
    const left = element.current?.getBoundingClientRect().left ?? 0;
    return Math.min(bins.length - 1, Math.max(0, Math.floor((event.clientX - left - MARGIN.left) / step)));
  };
  const shown = drag ?? (chosen && chosenBins(bins, chosen));
  const every = Math.ceil(74 / step);
  return (
    <svg
      ref={element}
      class="histogram"
      height={high}
      role="img"
      aria-label="Histogram"
      onPointerDown={(event) => {
        event.currentTarget.setPointerCapture(event.pointerId);
        setDrag([binAt(event), binAt(event)]);
      }}
      onPointerMove={(event) => drag && setDrag([drag[0], binAt(event)])}
      onPointerUp={() => {
        if (!drag) return;
        const [first, last] = [Math.min(...drag), Math.max(...drag)];
        setDrag(undefined);
        choose([bins[first]?.from ?? 0, bins[last]?.until ?? 0]);
      }}
    >
      {[0, 0.5, 1].map((share) => (
        <g key={share}>
          <line class="axis-line" x1={MARGIN.left} x2={width - MARGIN.right} y1={MARGIN.top + tall * (1 - share)} y2={MARGIN.top + tall * (1 - share)} />
          <text x={MARGIN.left - 6} y={MARGIN.top + tall * (1 - share) + 4} text-anchor="end">
            {grouped(Math.round(most * share))}
          </text>
        </g>
      ))}
      {shown && (
        <rect
          class="chosen"
          x={MARGIN.left + step * Math.min(...shown)}
          width={step * (Math.abs(shown[1] - shown[0]) + 1)}
          y={MARGIN.top}
          height={tall}
        />
      )}
      {bins.map((bin, number) => (
        <g key={bin.from} data-bin={bin.from} data-count={bin.count} data-cumulated={bin.cumulated}>
          <title>{`${text(bin.from)} to ${text(bin.until)}: ${grouped(bin.count)}, with all below ${grouped(bin.cumulated)}`}</title>
          <rect class={`bar-of-bin ${groupOf(number)}`} x={MARGIN.left + step * number + 1} width={Math.max(1, step - 2)} y={MARGIN.top + tall - pixels(bin)} height={pixels(bin)} />
          <rect fill="transparent" x={MARGIN.left + step * number} width={step} y={MARGIN.top} height={tall} />
          {number % every === 0 && (
            <text x={MARGIN.left + step * number} y={high - 8} text-anchor="middle">
              {text(bin.from)}
            </text>
          )}
        </g>
      ))}
      {spaced(marks.map(([name, value]) => [name, x(value)])).map(([name, place, isNamed]) => (
        <g key={name}>
          <line class="percentile" x1={place} x2={place} y1={MARGIN.top} y2={MARGIN.top + tall} />
          {isNamed && (
            <text x={place} y={14} text-anchor="middle">
              {name}
            </text>
          )}
        </g>
      ))}
    </svg>
  );
}

/** Which lines have room for their names. */
function spaced(lines: [string, number][]): [string, number, boolean][] {
  let last = -Infinity;
  return lines.map(([name, place]) => {
    const isNamed = place - last > 38;
    if (isNamed) last = place;
    return [name, place, isNamed];
  });
}

function chosenBins(bins: Bin[], [from, until]: [number, number]): [number, number] | undefined {
  const first = bins.findIndex((bin) => bin.from >= from);
  const last = bins.findLastIndex((bin) => bin.until <= until);
  return first < 0 || last < first ? undefined : [first, last];
}
