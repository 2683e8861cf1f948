// The bars of cells: a timeline of a large trace has a hundred thousand of them in a frame.

interface Bar {
  left: number;
  right: number;
  top: number;
  bottom: number;
  colour: string;
}

/** Something that bars are drawn on. */
export interface BarPaper {
  bar(bar: Bar): void;
}

/** The bars of a row's cells, by their number from the bottom. Those that touch and look the same are drawn as one. */
export class Bars {
  private open: Bar[] = [];

  constructor(private readonly paper: BarPaper) {}

  add(number: number, bar: Bar): void {
    const last = this.open[number];
    const isSame = last && last.colour === bar.colour && last.top === bar.top && last.bottom === bar.bottom;
    if (isSame && bar.left - last.right < 0.01) last.right = bar.right;
    else {
      if (last) this.paper.bar(last);
      this.open[number] = bar;
    }
  }

  finish(): void {
    for (const bar of this.open) if (bar) this.paper.bar(bar);
    this.open = [];
  }
}

/** Half a pixel more on the right, which the next bar covers: otherwise the paper is seen between them. */
const MORE = 0.5;

/** Draws bars on any context, such as that of a file. */
export class ContextBars implements BarPaper {
  constructor(private readonly context: CanvasRenderingContext2D) {}

  bar({ left, right, top, bottom, colour }: Bar): void {
    this.context.fillStyle = colour;
    this.context.fillRect(left, top, Math.max(1, right - left + MORE), bottom - top);
  }
}

/** Writes bars into memory, and then all of them on a canvas at once: as rectangles of the canvas, they would take several times a
 * frame's time. */
export class PixelBars implements BarPaper {
  private static readonly known = new WeakMap<HTMLCanvasElement, PixelBars>();
  private readonly copy = document.createElement("canvas");
  private image = new ImageData(1, 1);
  private pixels = new Uint32Array(this.image.data.buffer);
  private readonly numbers = new Map<string, number>();
  private scale = 1;
  private isEmpty = true;

  /** Those of a canvas, of which nothing is drawn yet. */
  static of(canvas: HTMLCanvasElement, scale: number): PixelBars {
    const bars = PixelBars.known.get(canvas) ?? new PixelBars();
    PixelBars.known.set(canvas, bars);
    bars.begin(canvas, scale);
    return bars;
  }

  private begin({ width, height }: HTMLCanvasElement, scale: number): void {
    this.scale = scale;
    this.isEmpty = true;
    if (this.image.width === width && this.image.height === height) this.pixels.fill(0);
    else {
      this.image = new ImageData(Math.max(1, width), Math.max(1, height));
      this.pixels = new Uint32Array(this.image.data.buffer);
      [this.copy.width, this.copy.height] = [this.image.width, this.image.height];
    }
  }

  bar({ left, right, top, bottom, colour }: Bar): void {
    const { image, pixels, scale } = this;
    const number = this.numbers.get(colour) ?? this.numberOf(colour);
    const from = Math.max(0, Math.round(left * scale));
    const until = Math.min(image.width, Math.max(Math.round(right * scale), from + 1));
    const lowest = Math.min(image.height, Math.round(bottom * scale));
    for (let line = Math.max(0, Math.round(top * scale)); line < lowest; line++) {
      const begin = line * image.width;
      // Most bars are a pixel or two wide, for which `fill` takes longer.
      if (until - from < 8) for (let at = begin + from; at < begin + until; at++) pixels[at] = number;
      else pixels.fill(number, begin + from, begin + until);
    }
    this.isEmpty = false;
  }

  /** Draws the bars over what the canvas has. */
  finish(context: CanvasRenderingContext2D): void {
    if (this.isEmpty) return;
    this.copy.getContext("2d")?.putImageData(this.image, 0, 0);
    context.drawImage(this.copy, 0, 0, this.image.width / this.scale, this.image.height / this.scale);
  }

  /** The number of a pixel of a colour: whatever the style sheet or the system calls it, a canvas knows its parts. */
  private numberOf(colour: string): number {
    const pixel = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
    if (!pixel) return 0;
    pixel.fillStyle = colour;
    pixel.fillRect(0, 0, 1, 1);
    const [number = 0] = new Uint32Array(pixel.getImageData(0, 0, 1, 1).data.buffer);
    this.numbers.set(colour, number);
    return number;
  }
}
