// The colour of a function, the same in all views: a hue for its module, and a shade for its name.

/** Blue for programs, orange for the kernel; hues of colours that colour-blind people tell apart. */
const HUES = [205, 165, 55, 320, 235];
const KERNEL = 32;
const SHADES = 5;
/** Letters of a name that decide on its colour. */
const MOST = 200;

const number = (text: string) => [...text.slice(0, MOST)].reduce((sum, letter) => (sum * 31 + letter.charCodeAt(0)) >>> 0, 7);

/** A colour as `#rrggbb`, of a hue in degrees, a saturation and a lightness from 0 to 1. */
function hexadecimal(hue: number, saturation: number, lightness: number): string {
  const reach = saturation * Math.min(lightness, 1 - lightness);
  const channel = (offset: number) => {
    const place = (offset + hue / 30) % 12;
    const value = lightness - reach * Math.max(-1, Math.min(place - 3, 9 - place, 1));
    return Math.round(255 * value)
      .toString(16)
      .padStart(2, "0");
  };
  return `#${channel(0)}${channel(8)}${channel(4)}`;
}

/** The colour of a function of a module. */
export function functionColour(name: string, module: string, dark: boolean): string {
  const hue = module.includes("kernel") ? KERNEL : (HUES[number(module) % HUES.length] as number);
  const shade = number(name) % SHADES;
  // Names are written on it: in the dark the lightest shade is as light as pale letters allow.
  return dark ? hexadecimal(hue, 0.38, 0.21 + 0.03 * shade) : hexadecimal(hue, 0.58, 0.7 + 0.04 * shade);
}

/** The modules of the functions that answers have named so far. */
const modules = new Map<string, string>();

/** Keeps the module of a function, if an answer knows it. */
export function learnModule(name: string | null | undefined, module: string | null | undefined): void {
  if (name && module) modules.set(name, module);
}

/** The module of a function, as far as it is known. */
export function moduleOf(name: string): string | undefined {
  return modules.get(name);
}
