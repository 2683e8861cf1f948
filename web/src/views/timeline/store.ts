// The store behind the timeline: its tables, and tiles of pictures, asked for as they are needed and kept.
// Source: `crates/server/src/endpoints/timeline`.

import { arrow, json } from "../../shared/api";
import { answers } from "../../shared/answers";
import { learnModule } from "../../shared/function-colour";
import type { Span } from "./draw";
import { withProcesses } from "./tree";

/** Cells of time of a tile, and lanes. */
export const CELLS = 256;
export const LANES = 32;
/** Tiles that are kept. */
const MOST_TILES = 600;
/** Tiles asked for at once. */
const AT_ONCE = 4;

/** A table of the store. */
export interface StoreTable {
  name: string;
  /** What its records are, for people; may be empty. */
  title: string;
  shape: "intervals" | "points" | "counters" | "links";
  key: string[];
  value: string;
  unit: string;
  rows: number;
  lanes: (string | null)[][];
  /** The place of each lane in the tree of all lanes, from the root. */
  paths: string[][];
  lanes_left_out: number;
  /** The names of a record's further cells. */
  columns: string[];
  /** The heaviest values, with their weights. */
  values: [string | null, number][];
  /** The modules of these values, if they are functions of control flow. */
  modules: (string | null)[];
  /** For each lane: places in `values`, with the weights in that lane. */
  weights: [number, number][][];
  /** For each lane: the instructions of calls at the bottom of stacks; empty without any. */
  instructions: number[];
}

/** What the store has. */
export interface Store {
  generation: number;
  /** The instant from which times count, in nanoseconds. */
  origin: string;
  length: number;
  /** How far a time of another clock may be off, in nanoseconds; 0 if all clocks are one. */
  half_width: number;
  tables: StoreTable[];
  /** The part of the time that is shown first; all of it without this. */
  active?: Span | null | undefined;
  /** The filter of rows that is used first: a page that is a file may have only rows that pass. */
  filter?: string | null | undefined;
}

/** A value of a slice. */
export interface Part {
  value: string | null;
  weight: number;
}

/** A record, or a cell of time with what its records hold. */
export interface Slice {
  begin: number;
  end: number;
  /** Records that begin in the cell; null for a record by itself. */
  records: number | null;
  /** Nanoseconds that records cover; the number of points. */
  weight: number;
  parts: Part[];
  /** Weight that any one value may have beyond what is said. */
  missing: number;
  low: number | null;
  high: number | null;
}

/** The slices of lanes in a tile, by lane. */
export type Tile = Map<number, Slice[]>;

/** Where a tile lies: 256 cells of 4^(digits/2) ns from a multiple of their width, and 32 lanes. */
export interface Place {
  table: string;
  first: number;
  digits: number;
  tile: bigint;
}

type Held = { tile?: Tile; error?: string; used: number };

/** A place of a picture, and the tile to draw there: its own, or a coarser one that contains it. */
export interface Drawn {
  /** The span of the place. */
  from: number;
  to: number;
  tile: Tile | undefined;
}

/** Pictures whose tiles are remembered, at most: one has some tens. */
const MOST_DRAWN = 1000;

/** Asks for the tables. */
export async function fetchStore(signal?: AbortSignal): Promise<Store> {
  const store = await json<Store>("timeline", {}, signal);
  for (const { values, modules } of store.tables) for (const [at, [value]] of values.entries()) learnModule(value, modules?.[at]);
  withProcesses(store.tables);
  return store;
}

/** Asks for a tile. */
export async function fetchTile(generation: number, place: Place, signal: AbortSignal): Promise<Tile> {
  const { table, first, digits, tile } = place;
  const asked = { generation, table, first, digits, tile: tile.toString() };
  const answer = await arrow("timeline/tile", asked, false, signal);
  const column = <T>(name: string) => answer.arrow.getChild(name)?.toArray() as ArrayLike<T>;
  const [lane, begin, end] = [column<number>("lane"), column<number>("begin"), column<number>("end")];
  const [records, weight, value] = [column<number | null>("records"), column<number>("weight"), column<string | null>("value")];
  const module = answer.arrow.getChild("module")?.toArray() as ArrayLike<string | null> | undefined;
  const [share, missing] = [column<number>("value_weight"), column<number>("missing")];
  const [low, high] = [column<number | null>("low"), column<number | null>("high")];
  const lanes: Tile = new Map();
  let last: Slice | undefined;
  let lastLane = -1;
  for (let row = 0; row < answer.arrow.numRows; row++) {
    const at = lane[row] as number;
    learnModule(value[row], module?.[row]);
    const part = { value: value[row] ?? null, weight: share[row] as number };
    // Rows of one cell follow each other.
    const isCell = records[row] !== null && records[row] !== undefined;
    if (isCell && last?.records != null && lastLane === at && last.begin === begin[row]) {
      last.parts.push(part);
      continue;
    }
    last = {
      begin: begin[row] as number,
      end: end[row] as number,
      records: isCell ? Number(records[row]) : null,
      weight: weight[row] as number,
      parts: [part],
      missing: missing[row] as number,
      low: low[row] ?? null,
      high: high[row] ?? null,
    };
    lastLane = at;
    const slices = lanes.get(at);
    if (slices) slices.push(last);
    else lanes.set(at, [last]);
  }
  return lanes;
}

/** The tiles of a store. */
export class Tiles {
  private held = new Map<string, Held>();
  private queue: [string, Place][] = [];
  private running = 0;
  /** Tiles that have come so far. */
  received = 0;
  private control = new AbortController();
  private clock = 0;
  private isClosed = false;
  /** What was found last for the lanes of a tile in a span. The 32 rows of a tile ask for the same in each frame. */
  private drawn = new Map<string, { drawn: Drawn[]; held: Held[] }>();
  private origin: bigint;
  /** Lanes of this store by table and key. */
  private lanes: Map<string, Map<string, number>> | undefined;

  /** `earlier` are the tiles of the store before it grew: they are shown until newer ones are here. */
  constructor(
    readonly store: Store,
    private readonly changed: () => void,
    private earlier?: Tiles | undefined,
  ) {
    this.origin = BigInt(store.origin);
    // One that grew again before its tiles were here shows those before it; none before that.
    if (earlier?.earlier) earlier.earlier.earlier = undefined;
  }

  /** Ends all questions; what is here stays. */
  close(): void {
    this.isClosed = true;
    this.control.abort();
    this.queue = [];
  }

  /** Tiles of the store before it grew, the place there of a lane of a table of this store, and how much later times begin here. */
  before(table: StoreTable, lane: number): { tiles: Tiles; table: StoreTable; lane: number; later: number } | undefined {
    const tiles = this.earlier;
    const old = tiles?.store.tables.find(({ name }) => name === table.name);
    const found = old && tiles?.laneOf(old, JSON.stringify(table.lanes[lane]));
    if (!tiles || !old || found === undefined) return undefined;
    return { tiles, table: old, lane: found, later: Number(tiles.origin - this.origin) };
  }

  private laneOf(table: StoreTable, key: string): number | undefined {
    this.lanes ??= new Map();
    const known = this.lanes.get(table.name) ?? new Map(table.lanes.map((cells, lane) => [JSON.stringify(cells), lane]));
    this.lanes.set(table.name, known);
    return known.get(key);
  }

  /** Forgets the tiles of the store before it grew, once no question is under way. */
  settle(): void {
    if (!this.waiting) this.earlier = undefined;
  }

  /** Whether a question is under way. */
  get waiting(): boolean {
    return this.running > 0 || this.queue.length > 0;
  }

  /** The width of cells so that one is at most `nanoseconds` wide: the binary logarithm, which is even. */
  digits(nanoseconds: number): number {
    return Math.max(0, 2 * Math.floor(Math.log2(Math.max(nanoseconds, 1)) / 2));
  }

  /** The tiles that a span touches. */
  places(table: string, first: number, digits: number, begin: number, end: number): Place[] {
    const shift = BigInt(digits + 8);
    const at = (time: number) => (this.origin + BigInt(Math.floor(Math.max(time, -Number(this.origin))))) >> shift;
    const [from, to] = [at(Math.max(begin, 0)), at(Math.min(end, this.store.length))];
    const places: Place[] = [];
    for (let tile = from; tile <= to && places.length < 64; tile++) places.push({ table, first, digits, tile });
    return places;
  }

  /** The span of a tile. */
  span(place: Place): [begin: number, end: number] {
    const shift = BigInt(place.digits + 8);
    return [Number((place.tile << shift) - this.origin), Number(((place.tile + 1n) << shift) - this.origin)];
  }

  /** The tiles to draw for 32 lanes of a table in a span; asks for those that are not here. */
  draw(table: string, first: number, digits: number, begin: number, end: number): Drawn[] {
    const key = `${table} ${first} ${digits} ${begin} ${end}`;
    const last = this.drawn.get(key);
    if (last) {
      this.clock++;
      for (const held of last.held) held.used = this.clock;
      return last.drawn;
    }
    const held: Held[] = [];
    const drawn = this.places(table, first, digits, begin, end).map((place) => {
      const best = this.best(place);
      if (best) held.push(best);
      const [from, to] = this.span(place);
      return { from, to, tile: best?.tile };
    });
    if (this.drawn.size >= MOST_DRAWN) this.drawn.clear();
    this.drawn.set(key, { drawn, held });
    return drawn;
  }

  /** The tile of a place, if it is here; asks for it otherwise. */
  private get(place: Place, ask = true): Held | undefined {
    const key = `${place.table} ${place.first} ${place.digits} ${place.tile}`;
    const held = this.held.get(key);
    if (held) {
      held.used = ++this.clock;
      return held.tile && held;
    }
    if (ask && !this.isClosed) {
      this.held.set(key, { used: ++this.clock });
      this.queue.push([key, place]);
      void this.work();
    }
    return undefined;
  }

  /** The tile of a place, or a coarser one that contains it. */
  private best(place: Place): Held | undefined {
    const exact = this.get(place);
    if (exact) return exact;
    // A page that is a file may have only a coarser one, or one that has all records already.
    let wider = place;
    for (let step = 0; step < 31; step++) {
      wider = { ...wider, digits: wider.digits + 2, tile: wider.tile >> 2n };
      const held = this.get(wider, answers !== undefined);
      if (held) return held;
    }
    return undefined;
  }

  /** Forgets questions that nobody asks any more: those of an earlier picture. */
  forget(): void {
    for (const [key] of this.queue) this.held.delete(key);
    this.queue = [];
    this.drawn.clear();
  }

  private async work(): Promise<void> {
    if (this.running >= AT_ONCE) return;
    // The newest first: that is what is looked at.
    const next = this.queue.pop();
    if (!next) return;
    const [key, place] = next;
    this.running++;
    try {
      const tile = await fetchTile(this.store.generation, place, this.control.signal);
      this.held.set(key, { tile, used: ++this.clock });
      this.received++;
    } catch (error) {
      if (this.control.signal.aborted) return;
      this.held.set(key, { error: String(error), used: ++this.clock });
    } finally {
      this.running--;
    }
    this.drawn.clear();
    this.trim();
    this.changed();
    void this.work();
  }

  private trim(): void {
    if (this.held.size <= MOST_TILES) return;
    const oldest = [...this.held].filter(([, held]) => held.tile).sort((a, b) => a[1].used - b[1].used);
    for (const [key] of oldest.slice(0, this.held.size - MOST_TILES)) this.held.delete(key);
  }
}
