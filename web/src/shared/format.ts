// Numbers for people.

const UNITS: [factor: number, name: string][] = [
  [1e9, "s"],
  [1e6, "ms"],
  [1e3, "µs"],
  [1, "ns"],
];

/** Groups the digits of an integer by thin spaces. */
export function grouped(number: bigint | number): string {
  return number.toString().replace(/\B(?=(\d{3})+(?!\d))/g, "\u2009");
}

/** A duration in its own unit, with three or more digits. */
export function duration(ns: number): string {
  const [factor, name] = UNITS.find(([factor]) => Math.abs(ns) >= factor) ?? [1, "ns"];
  const scaled = ns / factor;
  const digits = factor === 1 ? 0 : Math.max(0, 3 - Math.floor(Math.log10(Math.max(1, Math.abs(scaled)))));
  return `${scaled.toFixed(Math.min(digits, 3))} ${name}`;
}

/** An instant of the timeline in seconds, exactly, as `hodo report` prints it. */
export function instant(ns: bigint): string {
  const digits = (ns < 0n ? -ns : ns).toString().padStart(10, "0");
  return `${ns < 0n ? "-" : ""}${digits.slice(0, -9)}.${digits.slice(-9)} s`;
}

/** A time from the beginning, with the digits that a step of `step` nanoseconds needs. */
export function time(ns: number, step = 1): string {
  const [factor, name] = UNITS.find(([factor]) => Math.abs(ns) >= factor || step >= factor) ?? [1, "ns"];
  const digits = Math.max(0, Math.ceil(Math.log10(factor / Math.max(step, 1))));
  return `${(ns / factor).toFixed(Math.min(digits, 9))} ${name}`;
}

/** Bytes in a binary unit. */
export function bytes(count: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const power = Math.min(Math.floor(Math.log2(Math.max(count, 1)) / 10), units.length - 1);
  return `${power === 0 ? count : (count / 1024 ** power).toFixed(1)} ${units[power]}`;
}
