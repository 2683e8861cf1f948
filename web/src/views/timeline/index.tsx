// The timeline: rows of the store over time.

import { useRef } from "preact/hooks";

import { answers } from "../../shared/answers";
import { useAnswer } from "../../shared/ask";
import { link, selection } from "../../shared/selection";
import { session } from "../../shared/session";
import { dark } from "../../shared/theme";
import { Waiting } from "../../shared/waiting";
import type { View } from "../../views";
import { fetchActive } from "./active";
import { Board } from "./board";
import { type Store, fetchStore } from "./store";
import "./timeline.css";

/** Asks for the tables; at first also for the part of the time in which something happens, unless the address says what is seen. */
async function fetchFirst(isGrowing: boolean, signal: AbortSignal): Promise<Store> {
  const store = await fetchStore(signal);
  if (isGrowing || answers || selection.value.t0) return store;
  const active = await fetchActive(store, signal).catch(() => undefined);
  return { ...store, active };
}

/** Asks for the tables, and again while the store grows. */
function Page() {
  const index = session.value?.index;
  const percent = index?.state === "building" && index.total ? Math.floor((10 * index.done) / index.total) : 10;
  // While a newer picture is on its way, the last one stays.
  const last = useRef<Store>(undefined);
  const isGrowing = index?.state !== "ready" || last.current !== undefined;
  const asked = useAnswer(`timeline ${index?.state} ${percent}`, (signal) => fetchFirst(isGrowing, signal));
  if (asked.value) last.current = asked.value;
  const store = last.current;
  // The drawing follows the address and the theme.
  void selection.value;
  void dark.value;
  if (!store) return <div class="about"><Waiting asked={asked} /></div>;
  if (store.tables.every((table) => table.lanes.length === 0)) {
    return <NoRows />;
  }
  return <Board store={store} />;
}

/** Says why nothing is drawn, and which view has the events: those of a program that traces itself begin and end nothing. */
function NoRows() {
  const hasEvents = !answers && session.value?.reports.some(({ name }) => name === "count");
  return (
    <p class="about waiting" data-none="rows">
      There are no rows: nothing in these inputs has a begin and an end in time, such as states of threads or calls.
      {hasEvents && (
        <>
          {" "}
          <a href={link({ view: "events" })}>Events</a> shows what they have, with fields and counters.
        </>
      )}
    </p>
  );
}

export const timeline: View = {
  name: "timeline",
  title: "Timeline",
  keys: [
    ["W S", "closer, farther"],
    ["A D", "earlier, later"],
    ["Ctrl+wheel", "closer, farther at the pointer"],
    ["Shift+wheel", "earlier, later"],
    ["drag", "move the time; with Shift choose a span of some rows"],
    ["click", "details; twice: zoom to a record"],
    ["F", "zoom to the selected record or the chosen span"],
    ["G E", "flame graph, latency of the chosen span"],
    ["0", "all of the time"],
    ["↑ ↓", "row above, below"],
    [", .", "change before, after in the row"],
    ["L", "the longest record that is seen"],
    ["/", "search; Enter and Shift+Enter: next, previous"],
    ["M", "mark; two marks measure, the third removes them"],
    ["R", "arrows on or off"],
    ["V", "only rows that do something in the seen span, or all"],
    ["K", "critical path of the row's thread, on or off"],
    ["N", "note at the selected instant"],
    ["P C", "pin the row; fold what is below it, or its group"],
    ["H", "hide the row and what is below it"],
    ["Alt+↑ Alt+↓", "move the group of the row"],
    ["Esc", "close the span, details, critical path"],
  ],
  has: (session) => session.index.state !== "absent",
  Page,
};
