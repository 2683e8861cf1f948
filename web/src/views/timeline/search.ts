// Search: records whose value contains a text, over all of the time.

import { useMemo } from "preact/hooks";

import { arrow } from "../../shared/api";
import { type Asked, useAnswer, useLast } from "../../shared/ask";
import { modelOf } from "../../shared/model";
import type { Match } from "./draw";
import { idOf } from "./rows";
import type { Store } from "./store";

interface Found {
  matches: Match[];
  /** Whether there are more than these. */
  cut: boolean;
}

/** A search and what it found. */
export interface Search {
  asked: Asked<Found>;
  byRow: Map<string, Match[]>;
  /** The match after an instant, or before it with a negative number. */
  step(by: number, at: number): Match | undefined;
}

async function find(store: Store, text: string, signal: AbortSignal): Promise<Found> {
  const answer = await arrow("timeline/search", { generation: store.generation, text }, false, signal);
  const model = modelOf(answer.arrow, answer.leftOut);
  const matches = Array.from({ length: model.rows }, (_, row): Match => {
    const number = (column: number) => Number(model.cell(row, column));
    const table = store.tables[number(0)];
    return { row: table ? idOf(table, number(1)) : "", begin: number(2), end: number(3), value: String(model.cell(row, 4)) };
  });
  return { matches, cut: model.summary.some(([name, value]) => name === "cut" && value === true) };
}

/** Searches when the text changes. */
export function useSearch(store: Store, text: string): Search {
  const now = useAnswer(text ? `${store.generation} ${text}` : undefined, (signal) => find(store, text, signal));
  const asked = useLast(now, `${store.origin} ${text}`);
  const matches = text ? asked.value?.matches : undefined;
  const byRow = useMemo(() => {
    const rows = new Map<string, Match[]>();
    for (const match of matches ?? []) {
      const known = rows.get(match.row);
      if (known) known.push(match);
      else rows.set(match.row, [match]);
    }
    return rows;
  }, [matches]);
  const step = (by: number, at: number) => {
    const all = matches ?? [];
    return by > 0
      ? (all.find((match) => match.begin > Math.floor(at) + 0.5) ?? all[0])
      : (all.findLast((match) => match.begin < Math.floor(at)) ?? all[all.length - 1]);
  };
  return { asked, byRow, step };
}
