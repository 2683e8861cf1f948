// The statement that asks for events.

import { quoted } from "../sql/quoted";

export const TIME = "time_ns";
/** Events of a page, at most. */
export const MOST = 20_000;

/** A list of names in the address. */
export const listed = (names: string | undefined) => (names ?? "").split(",").filter((name) => name !== "");

/** The statement that asks for the events of the address. */
export function statementOf(name: string, columns: string[], { where, t0, t1, span }: Record<string, string | undefined>): string {
  const chosen = columns.length > 0 ? [TIME, ...columns.filter((column) => column !== TIME)].map(quoted).join(", ") : "*";
  const conditions = [
    ...(where?.trim() ? [`(${where})`] : []),
    ...(span && t0 && t1 ? [`${TIME} >= ${BigInt(t0)}`, `${TIME} < ${BigInt(t1)}`] : []),
  ];
  const filter = conditions.length > 0 ? ` where ${conditions.join(" and ")}` : "";
  return `select ${chosen} from ${quoted(name)}${filter} order by ${TIME} limit ${MOST}`;
}
