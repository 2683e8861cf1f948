// The tools above the timeline: the span, search, filter, what marks measure, notes.

import { useEffect, useState } from "preact/hooks";

import { answers } from "../../shared/answers";
import { duration, grouped, time } from "../../shared/format";
import { link, select, selection } from "../../shared/selection";
import { shown } from "../../shared/text";
import type { Asked } from "../../shared/ask";
import type { Span } from "./draw";
import { type CriticalPath, type Links, hasLinks } from "./links";
import type { Kind } from "./picture";
import { pattern } from "./rows";
import type { Search } from "./search";
import { type State, whole, write, zoomed } from "./state";
import type { Store } from "./store";
import type { Ticks } from "./ticks";

interface Properties {
  store: Store;
  state: State;
  search: Search;
  span: Span;
  go: (span: Span) => void;
  links: Links[];
  path: Asked<CriticalPath>;
  /** Goes to the next match, or to the one before. */
  step: (by: number) => void;
  /** Selects the first row. */
  first: () => void;
  /** Saves a picture of the chosen span and its rows, or of what is seen. */
  keep: (kind: Kind) => Promise<void>;
  ticks: Ticks | undefined;
}

/** The tools. */
export function Tools({ store, state, search, span, go, links, path, step, first, keep, ticks }: Properties) {
  const middle = span.begin + span.length / 2;
  const [one, other] = state.marks;
  return (
    <div class="tools">
      <button type="button" onClick={() => go(zoomed(span, 0.5, middle, store))} title="Closer (W)" aria-label="Closer">
        +
      </button>
      <button type="button" onClick={() => go(zoomed(span, 2, middle, store))} title="Farther (S)" aria-label="Farther">
        −
      </button>
      <button type="button" onClick={() => go(whole(store))} title="All of the time (0)">
        All
      </button>
      {!answers && <Find {...{ store, state, search, step }} />}
      <RowFilter {...{ store, state, first }} />
      <input
        type="text"
        name="note"
        placeholder="Note (N)"
        aria-label="Note at the selected instant"
        onKeyDown={(event) => {
          const field = event.currentTarget;
          if (event.key === "Escape") field.blur();
          if (event.key !== "Enter" || !field.value) return;
          const at = Number(field.dataset.time ?? state.at ?? middle);
          write(store, { notes: [...state.notes, { time: at, text: field.value }] });
          field.value = "";
          field.blur();
        }}
      />
      {state.notes.map((note) => (
        <button
          key={`${note.time} ${note.text}`}
          type="button"
          class="note"
          title={`Remove the note at ${time(note.time)}`}
          onClick={() => write(store, { notes: state.notes.filter((kept) => kept !== note) })}
        >
          {shown(note.text, 24)} ×
        </button>
      ))}
      <span class="switch" role="group" aria-label="Save a picture">
        {(["svg", "png"] as const).map((kind) => (
          <button key={kind} type="button" data-picture={kind} onClick={() => void keep(kind)} title={`Save ${state.chosen ? "the chosen span" : "what is seen"} as a picture`}>
            {kind.toUpperCase()}
          </button>
        ))}
      </span>
      {store.tables.some(hasLinks) && <LinkTools {...{ store, state, links }} />}
      {ticks && <TickTools ticks={ticks} />}
      {state.path && <PathTools {...{ store, path }} />}
      {one !== undefined && (
        <span class="measure" role="status">
          {other === undefined ? `mark at ${time(one)}: M sets another` : `between marks: ${duration(Math.abs(other - one))}`}
        </span>
      )}
    </div>
  );
}

/** The filter of rows, and how many are hidden. */
function RowFilter({ store, state, first }: Pick<Properties, "store" | "state" | "first">) {
  const { filter, hidden, onlyActive } = state.choice;
  const { wrong } = pattern(filter);
  return (
    <>
      <input
        type="search"
        name="rows"
        placeholder="Filter rows"
        aria-label="Filter rows by a regular expression"
        aria-invalid={wrong !== undefined}
        title={wrong ? `${wrong}: the text itself is looked for` : "A regular expression; Enter selects the first row"}
        value={filter}
        onInput={(event) => write(store, { filter: event.currentTarget.value })}
        onKeyDown={(event) => {
          if (event.key === "Escape" && !filter) event.currentTarget.blur();
          if (event.key !== "Enter") return;
          event.currentTarget.blur();
          first();
        }}
      />
      {wrong && <span class="problem">no regular expression: taken as text</span>}
      {!answers && (
        <button type="button" data-only-active aria-pressed={onlyActive} onClick={() => write(store, { onlyActive: !onlyActive })} title="Only rows that do something in the seen span (V)">
          Active
        </button>
      )}
      {hidden.length > 0 && (
        <button type="button" data-hidden={hidden.length} onClick={() => write(store, { hidden: [] })} title={hidden.map((path) => shown(path, 80)).slice(0, 20).join("\n")}>
          {hidden.length} hidden: show
        </button>
      )}
    </>
  );
}

/** Turns arrows on and off, and says how many there are. */
function LinkTools({ store, state, links }: Pick<Properties, "store" | "state" | "links">) {
  return (
    <>
      <button type="button" aria-pressed={state.arrows} onClick={() => write(store, { arrows: !state.arrows })} title="Arrows (R)">
        Arrows
      </button>
      {links.map(({ title, count, arrows }) => (
        <span key={title} class="matches" role="status">
          <span data-links={title} data-count={count} data-drawn={arrows.length}>
            {grouped(count)}
          </span>{" "}
          {shown(title, 30)}
          {count > arrows.length && ": too many to draw, go closer"}
        </span>
      ))}
    </>
  );
}

/** Which events are marked, and how many. */
function TickTools({ ticks: { name, where, asked, all } }: { ticks: Ticks }) {
  return (
    <span class="matches" role="status" data-ticks={asked.value ? all.length : undefined}>
      {asked.error ? (
        <span class="problem">{shown(asked.error, 200)}</span>
      ) : (
        <a href={link({ ...selection.value, view: "events" })} title={shown(where, 500)}>
          {asked.value ? grouped(all.length) : "…"} {shown(name, 40)}
        </a>
      )}
      <button type="button" class="quiet" onClick={() => select({ ticks: undefined })} aria-label={`No ticks of ${shown(name, 40)}`}>
        ×
      </button>
    </span>
  );
}

/** The critical path that is drawn, in numbers. */
function PathTools({ store, path }: Pick<Properties, "store" | "path">) {
  const { value, error } = path;
  return (
    <span class="critical" role="status">
      {error && <span class="problem">{shown(error, 200)}</span>}
      {!value && !error && <span class="waiting">critical path…</span>}
      {value && (
        <>
          critical path of {shown(value.thread, 40)}:{" "}
          <span data-figure="path_total" title={String(value.total)}>
            {duration(value.total)}
          </span>{" "}
          in <span data-figure="path_pieces">{grouped(value.pieces.length + value.leftOut)}</span> pieces
          {value.leftOut > 0 && (
            <strong>
              , of which the first <span data-figure="path_drawn">{grouped(value.pieces.length)}</span> are drawn
            </strong>
          )}
          ,{" "}
          <span data-figure="path_own" title={String(value.own)}>
            {duration(value.own)}
          </span>{" "}
          its own
          {value.unknown > 0 && `, ${duration(value.unknown)} unknown`}
        </>
      )}
      <button type="button" class="quiet" onClick={() => write(store, { path: undefined })} aria-label="No critical path">
        ×
      </button>
    </span>
  );
}

/** The field of the search, and what was found. A page that is a file has none. */
function Find({ store, state, search, step }: Pick<Properties, "store" | "state" | "search" | "step">) {
  // What is typed is not yet in the address, and stays when the page is drawn again.
  const [typed, setTyped] = useState(state.find);
  useEffect(() => setTyped(state.find), [state.find]);
  const { wrong } = pattern(typed);
  return (
    <>
      <input
        type="search"
        name="find"
        placeholder="Search values (/)"
        aria-label="Search values by a regular expression"
        aria-invalid={wrong !== undefined}
        title={wrong ? `${wrong}: the text itself is looked for` : "A regular expression; Enter visits what is found"}
        value={typed}
        onInput={(event) => setTyped(event.currentTarget.value)}
        onChange={(event) => write(store, { find: event.currentTarget.value })}
        onKeyDown={(event) => {
          if (event.key === "Escape" && !typed) event.currentTarget.blur();
          if (event.key !== "Enter") return;
          if (event.currentTarget.value === state.find) step(event.shiftKey ? -1 : 1);
          else write(store, { find: event.currentTarget.value });
        }}
      />
      {state.find && <Matches search={search} step={step} />}
    </>
  );
}

/** How many records match. */
function Matches({ search, step }: { search: Search; step: (by: number) => void }) {
  const { asked } = search;
  if (asked.error) return <span class="problem">{shown(asked.error, 200)}</span>;
  if (!asked.value) return <span class="waiting">searching…</span>;
  return (
    <span class="matches">
      {asked.value.cut ? "the first " : ""}
      {grouped(asked.value.matches.length)} matches
      <button type="button" onClick={() => step(-1)} aria-label="Previous match" title="Previous match (Shift+Enter)">
        ‹
      </button>
      <button type="button" onClick={() => step(1)} aria-label="Next match" title="Next match (Enter)">
        ›
      </button>
    </span>
  );
}
