// A picture of rows and a span as a file: SVG or PNG, drawn by what draws on the screen.

import { duration, time } from "../../shared/format";
import { shown } from "../../shared/text";
import { type Scene, type Span, paintAxis, paintRows } from "./draw";
import { Places } from "./overlays";
import { type Row, titleOf } from "./rows";

/** Kinds of files. */
export type Kind = "svg" | "png";

const WIDTH = 1200;
const NAMES = 230;
const AXIS = 26;
const MARGIN = 10;
const FONT = '12px system-ui, "DejaVu Sans", sans-serif';
/** Pixels of a PNG for each of the picture's. */
const SCALE = 2;
/** Rows of a picture, at most. */
const MOST_ROWS = 400;
/** How long tiles are waited for, and between two looks, in ms. */
const PATIENCE = 15_000;
const LOOK = 60;

/** Something to draw on, whose parts clip what is drawn in them. */
interface Surface {
  context: CanvasRenderingContext2D;
  part(x: number, y: number, width: number, height: number, draw: (context: CanvasRenderingContext2D) => void): void;
}

const escaped = (text: string) => text.replace(/[&<>"']/g, (letter) => `&#${letter.charCodeAt(0)};`);

/** What the drawing uses of a canvas, written as SVG. */
export class SvgContext {
  fillStyle: unknown = "#000000";
  strokeStyle: unknown = "#000000";
  globalAlpha = 1;
  lineWidth = 1;
  font = FONT;
  textBaseline = "middle";
  private readonly parts: string[] = [];
  private path = "";

  constructor(
    private readonly measuring: CanvasRenderingContext2D,
    private readonly hatch: string,
    private readonly accent: string,
  ) {}

  fillRect(x: number, y: number, width: number, height: number): void {
    if (width > 0 && height > 0) this.add(`<rect ${place(x, y)} ${size(width, height)} fill="${this.paint(this.fillStyle)}"`, "/>");
  }

  strokeRect(x: number, y: number, width: number, height: number): void {
    this.add(`<rect ${place(x, y)} ${size(Math.max(0, width), Math.max(0, height))} fill="none" stroke="${this.paint(this.strokeStyle)}"`, "/>");
  }

  fillText(text: string, x: number, y: number): void {
    this.add(`<text ${place(x, y)} fill="${this.paint(this.fillStyle)}" font-size="12" dominant-baseline="central"`, `>${escaped(text)}</text>`);
  }

  measureText(text: string): TextMetrics {
    this.measuring.font = this.font;
    return this.measuring.measureText(text);
  }

  beginPath(): void {
    this.path = "";
  }

  moveTo(x: number, y: number): void {
    this.path += `M${round(x)} ${round(y)}`;
  }

  lineTo(x: number, y: number): void {
    this.path += `L${round(x)} ${round(y)}`;
  }

  stroke(): void {
    this.add(`<path d="${this.path}" fill="none" stroke="${this.paint(this.strokeStyle)}" stroke-width="${this.lineWidth}"`, "/>");
  }

  fill(): void {
    this.add(`<path d="${this.path}" fill="${this.paint(this.fillStyle)}"`, "/>");
  }

  createPattern(): string {
    return "url(#hatch)";
  }

  createLinearGradient(): { addColorStop: () => void; toString: () => string } {
    return { addColorStop: () => {}, toString: () => this.accent };
  }

  part(x: number, y: number, width: number, height: number, draw: (context: CanvasRenderingContext2D) => void): void {
    this.parts.push(`<svg ${place(x, y)} ${size(width, height)}>`);
    draw(this as unknown as CanvasRenderingContext2D);
    this.parts.push("</svg>");
  }

  text(width: number, height: number): string {
    const hatch = `<defs><pattern id="hatch" width="8" height="8" patternUnits="userSpaceOnUse"><path d="M-2 10L10 -2" stroke="${this.hatch}" stroke-width="1.6"/></pattern></defs>`;
    return `<svg xmlns="http://www.w3.org/2000/svg" ${size(width, height)} viewBox="0 0 ${width} ${height}" font-family="system-ui, DejaVu Sans, sans-serif">${hatch}${this.parts.join("")}</svg>`;
  }

  private paint(style: unknown): string {
    return escaped(String(style));
  }

  private add(begin: string, end: string): void {
    const alpha = this.globalAlpha < 1 ? ` opacity="${this.globalAlpha}"` : "";
    this.parts.push(`${begin}${alpha}${end}`);
  }
}

const round = (value: number) => Math.round(value * 100) / 100;
const place = (x: number, y: number) => `x="${round(x)}" y="${round(y)}"`;
const size = (width: number, height: number) => `width="${round(width)}" height="${round(height)}"`;

/** Draws rows below each other, with their names, a title and the axis. */
function paint(surface: Surface, rows: Row[], height: number, scene: Scene): void {
  const { context } = surface;
  const { theme, span } = scene;
  context.fillStyle = theme.paper;
  context.fillRect(0, 0, WIDTH, height);
  context.font = FONT;
  context.textBaseline = "middle";
  context.fillStyle = theme.ink;
  context.fillText(`${time(span.begin)}, ${duration(span.length)}`, MARGIN, MARGIN + AXIS / 2);
  const wide = WIDTH - NAMES - MARGIN;
  const top = MARGIN + AXIS;
  surface.part(NAMES, MARGIN, wide, AXIS, (context) => paintAxis({ context, width: wide, height: AXIS }, scene));
  surface.part(MARGIN, top, NAMES - MARGIN, height - top, (context) => {
    for (const row of rows) {
      context.fillStyle = row.isThin ? theme.soft : theme.ink;
      if (!row.isThin || !/^\d+$/.test(row.name)) context.fillText(shown(`${row.under} ${row.name}`.trim(), 34), 0, row.top + row.height / 2);
    }
  });
  surface.part(NAMES, top, wide, height - top - MARGIN, (context) => {
    context.font = FONT;
    context.textBaseline = "middle";
    paintRows({ context, width: wide, height: height - top - MARGIN }, "pinned", new Places(rows), 0, scene);
  });
}

/** Makes a picture of rows in a span. Tiles that are missing are waited for. */
export async function picture(kind: Kind, from: Row[], span: Span, scene: Omit<Scene, "span" | "chosen">): Promise<Blob> {
  let top = 0;
  const rows = from.slice(0, MOST_ROWS).map((row) => {
    const placed = { ...row, top };
    top += row.height;
    return placed;
  });
  const height = top + AXIS + 2 * MARGIN;
  const whole: Scene = { ...scene, span, chosen: undefined, summaries: [] };
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [WIDTH * SCALE, height * SCALE];
  const context = canvas.getContext("2d");
  if (!context) throw new Error("the browser draws no canvas of this size");
  const surface: Surface = {
    context,
    part: (x, y, width, height, draw) => {
      context.save();
      context.translate(x, y);
      context.beginPath();
      context.rect(0, 0, width, height);
      context.clip();
      draw(context);
      context.restore();
    },
  };
  const draw = () => {
    context.setTransform(SCALE, 0, 0, SCALE, 0, 0);
    paint(surface, rows, height, whole);
  };
  // Drawing asks for tiles.
  const begun = performance.now();
  for (draw(); scene.tiles.waiting && performance.now() - begun < PATIENCE; draw()) await new Promise((later) => setTimeout(later, LOOK));
  draw();
  if (kind === "png") {
    const made = await new Promise<Blob | null>((done) => canvas.toBlob(done, "image/png"));
    if (!made) throw new Error("the browser makes no PNG of this size");
    return made;
  }
  const svg = new SvgContext(context, scene.theme.hatch, scene.theme.accent);
  paint({ context: svg as unknown as CanvasRenderingContext2D, part: svg.part.bind(svg) }, rows, height, whole);
  return new Blob([svg.text(WIDTH, height)], { type: "image/svg+xml" });
}

/** Saves a picture as a file of the browser. */
export function save(blob: Blob, kind: Kind, rows: Row[]): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  const name = rows.length === 1 && rows[0] ? titleOf(rows[0]).replace(/[^\w.-]+/g, "-").slice(0, 60) : "timeline";
  link.download = `${name}.${kind}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
