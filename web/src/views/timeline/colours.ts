// Colours of values: Okabe and Ito's, which colour-blind people tell apart, then lighter and darker ones of these.
// Values that say that nothing happens are quiet: grey. Functions have the colours of the flame graph.

import { functionColour, moduleOf } from "../../shared/function-colour";

const BASE = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b8a800", "#7f7f7f"];

function mixed(colour: string, other: number, share: number): string {
  const channel = (at: number) => {
    const own = Number.parseInt(colour.slice(at, at + 2), 16);
    return Math.round(own * (1 - share) + other * share)
      .toString(16)
      .padStart(2, "0");
  };
  return `#${channel(1)}${channel(3)}${channel(5)}`;
}

const ALL = [
  ...BASE,
  ...BASE.map((colour) => mixed(colour, 255, 0.45)),
  ...BASE.map((colour) => mixed(colour, 0, 0.4)),
];

/** Values in which nothing happens, and their colours in the light and in the dark. */
const QUIET: Record<string, [light: string, dark: string]> = {
  idle: ["#d5d9de", "#2c333b"],
  interruptible: ["#b4bcc5", "#434d58"],
  sleeping: ["#b4bcc5", "#434d58"],
  stopped: ["#8d96a0", "#5d6874"],
};

/** Whether nothing happens while a row has this value. */
export function quiet(value: string | null): boolean {
  return value !== null && Object.hasOwn(QUIET, value);
}

/** States of threads have the same colours in every trace: green runs, orange waits for a CPU, red waits for a device. */
const STATES: Record<string, string> = {
  running: "#009e73",
  runnable: "#e69f00",
  uninterruptible: "#d55e00",
};

function hash(text: string): number {
  let sum = 2166136261;
  for (let at = 0; at < text.length; at++) sum = Math.imul(sum ^ text.charCodeAt(at), 16777619);
  return sum >>> 0;
}

/** Gives each value of a table a colour: the heaviest ones in order, others by their text. */
export class Colours {
  private known: Map<string, string>;
  private next: number;

  /** With the colours of the table before it grew, which its values keep. */
  constructor(
    heaviest: (string | null)[],
    private readonly dark: boolean,
    /** Whether the values are functions. */
    private readonly areFunctions: boolean,
    before?: Colours | undefined,
  ) {
    const kept = before?.dark === dark ? before : undefined;
    this.known = new Map(kept?.known);
    this.next = kept?.next ?? 0;
    for (const value of heaviest) {
      const text = value ?? "";
      if (!this.known.has(text)) this.known.set(text, this.usual(text) ?? (ALL[this.next++ % ALL.length] as string));
    }
  }

  private usual(text: string): string | undefined {
    if (this.areFunctions) {
      const module = moduleOf(text);
      return module === undefined ? undefined : functionColour(text, module, this.dark);
    }
    if (Object.hasOwn(STATES, text)) return STATES[text];
    return Object.hasOwn(QUIET, text) ? QUIET[text]?.[Number(this.dark)] : undefined;
  }

  of(value: string | null): string {
    const text = value ?? "";
    const known = this.known.get(text);
    if (known) return known;
    const usual = this.usual(text);
    const colour = usual ?? (ALL[hash(text) % ALL.length] as string);
    // The module of a function may become known later.
    if (usual || !this.areFunctions) this.known.set(text, colour);
    return colour;
  }
}

/** Black or white, whichever is read better on a colour. */
export function inkOn(colour: string): string {
  const linear = (at: number) => (Number.parseInt(colour.slice(at, at + 2), 16) / 255) ** 2.2;
  // At this luminance the contrast to both is the same.
  return 0.2126 * linear(1) + 0.7152 * linear(3) + 0.0722 * linear(5) > 0.179 ? "#000000" : "#ffffff";
}
