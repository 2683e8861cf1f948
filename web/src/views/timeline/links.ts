// Links of the visible span, and the critical path of a thread, as the server knows them.

import { useRef } from "preact/hooks";

import { answers } from "../../shared/answers";
import { arrow } from "../../shared/api";
import { type Asked, useAnswer, useLast } from "../../shared/ask";
import { type Model, columnOf, fetchModel, modelOf, raw } from "../../shared/model";
import type { Span } from "./draw";
import type { Arrow, Piece } from "./overlays";
import { whole } from "./state";
import type { Store, StoreTable } from "./store";
import { pathOf } from "./tree";

/** The links of a table. */
export interface Links {
  /** What they are. */
  title: string;
  /** How many begin in the span. */
  count: number;
  /** They, or none if they are too many. */
  arrows: Arrow[];
}

/** Whether a table has links to draw. */
export function hasLinks(table: StoreTable): boolean {
  return table.shape === "links" && table.rows > 0;
}

async function fetchLinks(store: Store, { begin, length }: Span, signal: AbortSignal): Promise<Links[]> {
  const tables = store.tables.filter(hasLinks);
  const span = { begin: Math.floor(begin), end: Math.ceil(begin + length) };
  const of = async (table: (typeof tables)[number]): Promise<Links> => {
    const asked = { generation: store.generation, table: table.name, ...span };
    const answer = await arrow("timeline/links", asked, false, signal);
    const model = modelOf(answer.arrow, answer.leftOut);
    const cell = (row: number, name: string) => Number(model.cell(row, columnOf(model, name) ?? 0));
    const arrows = Array.from({ length: model.rows }, (_, row) => ({
      from: pathOf(table, cell(row, "from")),
      to: pathOf(table, cell(row, "to")),
      begin: cell(row, "begin"),
      end: cell(row, "end"),
    }));
    return { title: table.title || table.name, count: figure(model, "count"), arrows };
  };
  return Promise.all(tables.map(of));
}

/** A number of a table's summary. */
export function figure(model: Model, name: string): number {
  return Number(model.summary.find(([known]) => known === name)?.[1] ?? 0);
}

/** The links of a span; those of the span before until they are there. A page that is a file has those of all of the time. */
export function useLinks(store: Store, span: Span, wanted: boolean): Links[] {
  const asked = answers ? whole(store) : span;
  const key = wanted ? `${store.generation} ${asked.begin} ${asked.length}` : undefined;
  const found = useAnswer(key, (signal) => fetchLinks(store, asked, signal));
  const last = useRef<Links[]>([]);
  if (found.value) last.current = found.value;
  return wanted ? last.current : [];
}

/** A thread's critical path. */
export interface CriticalPath {
  /** Its first pieces, in order of time. */
  pieces: Piece[];
  /** Pieces after them, which the answer leaves out. */
  leftOut: number;
  /** The thread, as `hodo path` names it. */
  thread: string;
  total: number;
  own: number;
  unknown: number;
}

async function fetchPath(store: Store, tid: string, signal: AbortSignal): Promise<CriticalPath> {
  const model = await fetchModel("timeline/path", { tid }, signal);
  const cell = (row: number, name: string) => model.cell(row, columnOf(model, name) ?? 0);
  const origin = BigInt(store.origin);
  const pieces = Array.from({ length: model.rows }, (_, row): Piece => {
    const begin = Number(BigInt(raw(cell(row, "begin_ns"))) - origin);
    return {
      begin,
      end: begin + Number(cell(row, "duration_ns")),
      tid: raw(cell(row, "tid")),
      comm: raw(cell(row, "comm")),
      cause: raw(cell(row, "cause")),
      depth: Number(cell(row, "depth")),
    };
  });
  const thread = raw(model.summary.find(([name]) => name === "thread")?.[1] ?? null);
  return { pieces, leftOut: model.leftOut, thread, total: figure(model, "total_ns"), own: figure(model, "own_ns"), unknown: figure(model, "unknown_ns") };
}

/** The critical path of a thread, if one is chosen. */
export function useCriticalPath(store: Store, tid: string | undefined): Asked<CriticalPath> {
  const asked = useAnswer(tid && `path ${store.generation} ${tid}`, (signal) => fetchPath(store, tid ?? "", signal));
  return useLast(asked, `${store.origin} ${tid}`);
}
