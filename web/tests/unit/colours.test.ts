import { expect, test } from "vitest";

import { functionColour, learnModule } from "../../src/shared/function-colour";
import { Colours, inkOn } from "../../src/views/timeline/colours";

/** Red, green and blue from 0 to 1. */
const channels = (colour: string) => [1, 3, 5].map((at) => Number.parseInt(colour.slice(at, at + 2), 16) / 255) as [number, number, number];

function hue(colour: string): number {
  const [red, green, blue] = channels(colour);
  const [most, least] = [Math.max(red, green, blue), Math.min(red, green, blue)];
  const part = most === red ? (green - blue) / (most - least) : most === green ? 2 + (blue - red) / (most - least) : 4 + (red - green) / (most - least);
  return (60 * part + 360) % 360;
}

/** The contrast of two colours. Source: Web Content Accessibility Guidelines 2.2, "contrast ratio". */
function contrast(one: string, other: string): number {
  const luminance = (colour: string) => {
    const [red, green, blue] = channels(colour).map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4)) as [number, number, number];
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const [light, dark] = [luminance(one), luminance(other)].sort((one, other) => other - one) as [number, number];
  return (light + 0.05) / (dark + 0.05);
}

const MODULES = ["gzip", "libc.so.6", "cc1", "ld-linux-x86-64.so.2", "sqlite3", "[kernel.kallsyms]", "libstdc++.so.6", "python3"];
const NAMES = Array.from({ length: 40 }, (_, number) => `function_${number * 7919}`);

test("functions of a module have one hue in several shades, and names on them can be read", () => {
  for (const dark of [false, true]) {
    for (const module of MODULES) {
      const colours = NAMES.map((name) => functionColour(name, module, dark));
      expect(new Set(colours).size).toBeGreaterThan(2);
      const [first = 0] = colours.map(hue);
      for (const colour of colours) {
        expect(Math.abs(hue(colour) - first)).toBeLessThan(4);
        expect(contrast(colour, inkOn(colour)), `${module} ${colour}`).toBeGreaterThan(4.5);
      }
    }
    expect(Math.abs(hue(functionColour("schedule", "[kernel.kallsyms]", dark)) - 32)).toBeLessThan(3);
  }
});

test("a function has the colour of its module as soon as that is known; other values have colours of their own", () => {
  const functions = new Colours(["main"], false, true);
  const before = functions.of("late");
  learnModule("late", "libc.so.6");
  expect(functions.of("late")).toBe(functionColour("late", "libc.so.6", false));
  expect(functions.of("late")).not.toBe(before);
  // A system call has the name of a function.
  learnModule("running", "libc.so.6");
  expect(new Colours(["running"], false, false).of("running")).toBe("#009e73");
});
