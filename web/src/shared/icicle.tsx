// Call paths as a flame graph or a sunburst, with d3's partition.

import { type HierarchyRectangularNode, hierarchy, partition } from "d3-hierarchy";
import { arc } from "d3-shape";
import { useEffect, useId, useMemo, useRef, useState } from "preact/hooks";

import { functionColour } from "./function-colour";
import { fitted } from "./text";
import { type Path } from "./tree";

/** Height of a level in pixels. */
const LEVEL = 20;
/** Levels that are drawn. */
const LEVELS = 200;
/** Rings that are drawn. */
const RINGS = 14;
/** Boxes narrower than this many pixels are not drawn. */
const NARROW = 0.7;
/** Half of the angle that the text of a ring may have. Less than half a turn, so that its ends say which way it goes. */
const HALF = 1.4;
/** Labels narrower than this many pixels are not drawn. */
const SHORT = 20;

/** A path with its place; `value` has callees. */
export type Placed = HierarchyRectangularNode<Path>;

interface Properties {
  tree: Path;
  /** The own amount of a path. */
  amount: (path: Path) => number;
  /** The amount of a path with callees, if it is known better than by its sum. */
  total?: (path: Path) => number | undefined;
  /** The path that fills the width: numbers of children, such as `0.2`. */
  focus: string;
  setFocus: (focus: string) => void;
  /** Whether rings. */
  round: boolean;
  /** The colour of a path. */
  fill: (placed: Placed) => string;
  /** What is said of a path when the pointer rests. */
  says: (placed: Placed) => string;
  /** Whether a path stands out. */
  marked?: (path: Path) => boolean;
}

/** Numbers of children from the root. */
function place(node: Placed): string {
  const numbers: number[] = [];
  for (let at: Placed = node; at.parent; at = at.parent) numbers.unshift(at.parent.children?.indexOf(at) ?? 0);
  return numbers.join(".");
}

function find(root: Placed, focus: string): Placed {
  let at = root;
  for (const number of focus ? focus.split(".") : []) {
    const next = at.children?.[Number(number)];
    if (!next) break;
    at = next;
  }
  return at;
}

/** The size of an element. */
function useSize() {
  const element = useRef<HTMLDivElement>(null);
  const [size, setSize] = useState({ width: 0, height: 0 });
  useEffect(() => {
    if (!element.current) return;
    const observer = new ResizeObserver(([entry]) => {
      if (entry) setSize({ width: entry.contentRect.width, height: entry.contentRect.height });
    });
    observer.observe(element.current);
    return () => observer.disconnect();
  }, []);
  return { element, ...size };
}

/** The drawing. A click makes a path fill it; the focused path or the middle leads back. */
export function Icicle(properties: Properties) {
  const { tree, amount, total, focus, setFocus, round } = properties;
  const { element, width, height } = useSize();
  const root = useMemo(() => {
    const summed = hierarchy(tree);
    summed.eachAfter((node) => {
      const known = total?.(node.data);
      const below = (node.children ?? []).reduce((sum, child) => sum + (child.value ?? 0), 0);
      Object.assign(node, { value: known ?? below + amount(node.data) });
    });
    summed.sort((a, b) => (b.value ?? 0) - (a.value ?? 0));
    return partition<Path>()(summed);
  }, [tree, amount, total]);
  const at = find(root, focus);
  const go = (node: Placed) => setFocus(place(node === at ? (node.parent ?? node) : node));
  const drawing = { ...properties, at, go, width, height };
  const drawn = width > 0 && (root.value ?? 0) > 0;
  return (
    <div class="icicle" ref={element}>
      {drawn && (round ? <Rings {...drawing} /> : <Boxes {...drawing} />)}
      {(root.value ?? 0) <= 0 && <p class="waiting">Nothing to draw.</p>}
    </div>
  );
}

type Drawing = Properties & { at: Placed; go: (node: Placed) => void; width: number; height: number };

/** The paths below one that are wide enough. */
function wide(at: Placed, least: number, levels: number): Placed[] {
  const found: Placed[] = [];
  const waiting = [at];
  for (let node = waiting.pop(); node; node = waiting.pop()) {
    if (node.x1 - node.x0 < least || node.depth - at.depth >= levels) continue;
    found.push(node);
    waiting.push(...(node.children ?? []));
  }
  return found;
}

/** How a path is reached by keys and read aloud. Tab leads to the path that fills the drawing, and arrows from there. */
function reached(node: Placed, at: Placed, says: Drawing["says"]) {
  return { role: "treeitem", "aria-level": node.depth + 1, "aria-label": says(node), "aria-selected": node === at, tabindex: node === at ? 0 : -1 } as const;
}

/** Keys of a drawing: down to the widest callee, up to the caller, to the sides beside it; Enter makes a path fill the drawing. */
function walk(at: Placed, nodes: Placed[], go: (node: Placed) => void) {
  const drawn = new Set(nodes);
  const next = (node: Placed, key: string): Placed | undefined => {
    const siblings = node.parent?.children ?? [];
    const beside = (by: number) => siblings[siblings.indexOf(node) + by];
    if (key === "ArrowDown") return node.children?.[0];
    if (key === "ArrowUp") return node.parent ?? undefined;
    return key === "ArrowRight" ? beside(1) : key === "ArrowLeft" ? beside(-1) : undefined;
  };
  return {
    onKeyDown: (event: KeyboardEvent) => {
      const focused = event.target instanceof Element ? event.target.closest("[data-path]") : null;
      const svg = focused?.closest("svg");
      const node = focused && find(at.ancestors().at(-1) ?? at, focused.getAttribute("data-path") ?? "");
      if (!svg || !node) return;
      if (event.key === "Enter" || event.key === " ") go(node);
      else {
        const to = next(node, event.key);
        if (!to || !(drawn.has(to) || at.ancestors().includes(to))) return;
        svg.querySelector<SVGElement>(`[data-path="${place(to)}"]`)?.focus();
      }
      event.preventDefault();
      event.stopPropagation();
    },
  };
}

/** Measures labels; its font is theirs. */
const measure = document.createElement("canvas").getContext("2d");

function label(name: string, pixels: number): string {
  if (!measure || pixels < SHORT) return "";
  measure.font = `12px ${getComputedStyle(document.body).fontFamily}`;
  return fitted(name, pixels, measure);
}

function Boxes({ at, go, width, fill, says, marked }: Drawing) {
  const scale = width / (at.x1 - at.x0);
  const above = at.ancestors().slice(1).reverse();
  const nodes = wide(at, NARROW / scale, LEVELS);
  const deepest = nodes.reduce((most, node) => Math.max(most, node.depth), 0);
  return (
    <svg class="boxes" width={width} height={(deepest + 1) * LEVEL + 2} role="tree" aria-label="Flame graph" {...walk(at, nodes, go)}>
      {[...above, ...nodes].map((node) => {
        const isAbove = node.depth < at.depth;
        const [x, extent] = isAbove ? [0, width] : [(node.x0 - at.x0) * scale, (node.x1 - node.x0) * scale];
        const name = label(node.data.name, extent - 5);
        return (
          <g
            key={place(node)}
            class={marked?.(node.data) ? "box marked" : isAbove ? "box above" : "box"}
            data-path={place(node)}
            data-value={node.value}
            transform={`translate(${x.toFixed(2)} ${node.depth * LEVEL})`}
            onClick={() => go(node)}
            {...reached(node, at, says)}
          >
            <title>{says(node)}</title>
            <rect width={Math.max(0.5, extent - 0.6).toFixed(2)} height={LEVEL - 1} style={{ fill: fill(node) }} />
            {name && (
              <text x={4} y={LEVEL / 2 + 4}>
                {name}
              </text>
            )}
          </g>
        );
      })}
    </svg>
  );
}

function Rings({ at, go, width, height, fill, says, marked }: Drawing) {
  const id = useId();
  const radius = Math.max(60, Math.min(width, height) / 2 - 6);
  const nodes = wide(at, (at.x1 - at.x0) / 1440, RINGS);
  const rings = nodes.reduce((most, node) => Math.max(most, node.depth - at.depth), 0) + 1;
  const ring = Math.min(radius / (rings + 0.4), 80);
  const turn = (x: number) => ((x - at.x0) / (at.x1 - at.x0)) * 2 * Math.PI;
  const shape = arc<Placed>()
    .startAngle((node) => turn(node.x0))
    .endAngle((node) => turn(node.x1))
    .innerRadius((node) => (node === at ? 0 : (node.depth - at.depth + 0.4) * ring))
    .outerRadius((node) => (node.depth - at.depth + 1.4) * ring - 1);
  return (
    <svg class="rings" width={width} height={Math.max(height - 4, 130)} role="tree" aria-label="Sunburst" {...walk(at, nodes, go)}>
      <g role="none" transform={`translate(${width / 2} ${Math.max(height - 4, 130) / 2})`}>
        {nodes.map((node) => {
          const angle = (turn(node.x0) + turn(node.x1)) / 2;
          const middle = (node.depth - at.depth + 0.9) * ring;
          const along = (turn(node.x1) - turn(node.x0)) * middle;
          // Along the ring, text follows it; across, it has the ring's width.
          const isAlong = node !== at && 0.9 * along > ring;
          const across = along > 13 ? ring - 4 : 0;
          const name = label(node.data.name, node === at ? 2.2 * ring : isAlong ? Math.min(0.9 * along, 2 * HALF * middle) : across);
          const degrees = (angle * 180) / Math.PI;
          const turned = `rotate(${degrees - 90}) translate(${middle} 0) rotate(${degrees < 180 ? 0 : 180})`;
          const line = `${id}-${place(node)}`;
          return (
            <g
              key={place(node)}
              class={marked?.(node.data) ? "box marked" : "box"}
              data-path={place(node)}
              data-value={node.value}
              onClick={() => go(node)}
              {...reached(node, at, says)}
            >
              <title>{says(node)}</title>
              <path d={shape(node) ?? ""} style={{ fill: fill(node) }} />
              {name && isAlong && (
                <defs>
                  <path id={line} d={baseline(angle, along / middle, middle)} />
                </defs>
              )}
              {name && (
                <text text-anchor="middle" dominant-baseline="central" transform={node === at || isAlong ? "" : turned}>
                  {isAlong ? (
                    <textPath href={`#${line}`} startOffset="50%" dominant-baseline="central">
                      {name}
                    </textPath>
                  ) : (
                    name
                  )}
                </text>
              )}
            </g>
          );
        })}
      </g>
    </svg>
  );
}

/** The arc around an angle on which a line of text stands, from left to right. */
function baseline(angle: number, extent: number, radius: number): string {
  const upright = Math.cos(angle) >= 0 ? 1 : -1;
  const half = upright * Math.min(extent / 2, HALF);
  const point = (at: number) => `${(radius * Math.sin(at)).toFixed(2)} ${(-radius * Math.cos(at)).toFixed(2)}`;
  return `M${point(angle - half)}A${radius} ${radius} 0 0 ${upright > 0 ? 1 : 0} ${point(angle + half)}`;
}

/** A colour of a module, lighter or darker by function. */
export function moduleColour(path: Path, dark: boolean): string {
  if (!path.name || path.row === -1 && !path.module) return "var(--raised)";
  return functionColour(path.name, path.module, dark);
}
