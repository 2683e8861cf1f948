// Steps through the execution of a thread, forwards and backwards: source, code and call stack at an instant.

import { useEffect, useRef, useState } from "preact/hooks";

import { answers } from "../../shared/answers";
import type { Parameters } from "../../shared/api";
import { grouped, instant } from "../../shared/format";
import { useKeys } from "../../shared/keys";
import { RecordingChoice, around } from "../../shared/part";
import { link, select, selection } from "../../shared/selection";
import { shown } from "../../shared/text";
import { Waiting, useLong } from "../../shared/waiting";
import type { View } from "../../views";
import "../../shared/flow.css";
import "./execution.css";
import { Code, Source, Stack } from "./panes";
import { markBeside, marks, withMark } from "./marks";
import { type Seen, ask, isOf, position, write } from "./walk";

/** Moves by key: forwards by the small letter, backwards by the large one. */
const STEPS: [key: string, name: string, title: string, to: Parameters][] = [
  ["s", "Into", "to the next line, into calls", { step: "into", by: "line" }],
  ["n", "Over", "to the next line, over calls", { step: "over", by: "line" }],
  ["o", "Out", "out of the function", { step: "out", by: "line" }],
  ["i", "Instruction", "one instruction", { step: "into", by: "instruction" }],
  ["u", "Over instruction", "one instruction, over calls", { step: "over", by: "instruction" }],
];

/** Moves that wait, at most: a key that is held must not go on after it is released. */
const MOST_WAITING = 2;
/** Nanoseconds of the timeline around an instant. */
const AROUND = 200;

interface Walker {
  seen: Seen | undefined;
  error: string | undefined;
  busy: boolean;
  go: (to: Parameters, from?: Parameters) => void;
  /** Gives up what is under way. */
  stop: () => void;
}

/** Follows the position of the address, and moves it. */
function useWalk(): Walker {
  const [state, setState] = useState<{ seen?: Seen; frame?: string | undefined; error?: string; busy: boolean }>({ busy: true });
  const waiting = useRef(0);
  const queue = useRef(Promise.resolve());
  const current = useRef<AbortController>(undefined);
  const asked = position();
  const key = JSON.stringify(asked);
  useEffect(() => {
    if (state.seen && isOf(state.seen, asked) && state.frame === selection.value.frame) return;
    run({}, asked, "silent");
  }, [key]);
  useEffect(() => () => current.current?.abort(), []);
  const run = (to: Parameters, from: Parameters | undefined, how: "step" | "silent") => {
    if (waiting.current >= MOST_WAITING) return;
    waiting.current++;
    queue.current = queue.current.then(async () => {
      const control = new AbortController();
      current.current = control;
      setState((state) => ({ ...state, busy: true }));
      try {
        const frame = Object.keys(to).length === 0 ? selection.value.frame : undefined;
        const seen = await ask(from ?? position(), to, control.signal);
        setState({ seen, frame, busy: false });
        if (selection.value.view === "execution") {
          write(seen, how);
          if (frame !== undefined) select({ frame }, "silent");
        }
      } catch (error) {
        if (!control.signal.aborted) {
          setState((state) => ({ ...state, error: error instanceof Error ? error.message : String(error), busy: false }));
        }
      }
      waiting.current--;
    });
  };
  return {
    seen: state.seen,
    error: state.error,
    busy: state.busy,
    stop: () => {
      current.current?.abort();
      setState((state) => ({ ...state, error: "Stopped.", busy: false }));
    },
    // Steps are one entry for Back; a search or a jump is one of its own.
    go: (to, from) => run(to, from, "step" in to && to.step !== "gap" ? "silent" : "step"),
  };
}

function Page() {
  const walk = useWalk();
  const isLong = useLong(walk.busy);
  const { seen, go } = walk;
  const find = useRef<HTMLInputElement>(null);
  const top = seen?.scene.frames[0];
  const here = seen?.code?.find((one) => one.address === top?.address);
  const frame = Number(selection.value.frame ?? 0);
  const chosen = seen?.scene.frames[frame];
  const places: Record<string, Parameters | undefined> = {
    l: top?.file && top.line ? { line: `${top.file}:${top.line}` } : undefined,
    f: top && { function: `${top.function}@${top.module}` },
    x: here && { module: here.module, offset: here.offset },
    b: here && seen?.scene.taken !== null ? { module: here.module, offset: here.offset, taken: seen?.scene.taken ? 1 : 0 } : undefined,
    g: { step: "gap" },
  };
  const turn = (by: number) => {
    const next = Math.min(Math.max(0, frame + by), (seen?.scene.frames.length ?? 1) - 1);
    select({ frame: next ? String(next) : undefined }, "silent");
  };
  useKeys((event) => {
    const low = event.key.toLowerCase();
    const back: Parameters = event.key === low ? {} : { back: 1 };
    const step = STEPS.find(([key]) => key === low);
    if (step) go({ ...step[3], ...back });
    else if (low in places) {
      const place = places[low];
      if (place) go({ ...place, ...back });
    } else if (event.key === "ArrowDown") turn(1);
    else if (event.key === "ArrowUp") turn(-1);
    else if (event.key === "Home") jump({ from: "begin" });
    else if (event.key === "End") jump({ from: "end" });
    else if (event.key === "/") find.current?.focus();
    else if (event.key === "Escape" && walk.busy) walk.stop();
    else if (low === "m") mark();
    else if (low === "j") toMark(event.key === "j" ? 1 : -1);
    else return false;
    return true;
  });
  const jump = (to: Parameters) => {
    const { number: _, gap: __, time: ___, frame: ____, ...of } = position();
    go({}, { ...of, ...to });
  };
  const mark = () => seen?.time && select({ marks: withMark(seen.time) }, "silent");
  // The position of a mark is before the last instruction that began by then, so it may be a little earlier.
  const [going, reached] = [useRef<string>(undefined), useRef<{ mark: string; number: number }>(undefined)];
  useEffect(() => {
    if (going.current && seen) reached.current = { mark: going.current, number: seen.scene.number };
    going.current = undefined;
  }, [seen]);
  const toMark = (by: number) => {
    if (!seen?.time) return;
    const time = markBeside(reached.current?.number === seen.scene.number ? reached.current.mark : seen.time, by);
    going.current = time;
    if (time) jump({ time });
  };
  return (
    <div class="flow execution">
      <Tools {...{ walk, places, jump, find, mark }} />
      {walk.error && <Waiting asked={{ error: walk.error, waiting: false }} />}
      {!seen && !walk.error && <p class="waiting" role="status">Reading the recording once…</p>}
      {isLong && (
        <p class="waiting">
          <button type="button" data-stop onClick={walk.stop} title="Esc">
            Stop
          </button>
        </p>
      )}
      {seen && (
        <>
          <Where seen={seen} busy={walk.busy} />
          <div class="panes">
            <Source source={seen.source} go={go} />
            <Code code={seen.code} address={chosen?.address ?? null} go={go} />
            <Stack seen={seen} frame={frame} />
          </div>
        </>
      )}
    </div>
  );
}

/** The moves as buttons. */
function Tools({
  walk: { seen, go },
  places,
  jump,
  find,
  mark,
}: {
  walk: Walker;
  places: Record<string, Parameters | undefined>;
  jump: (to: Parameters) => void;
  find: { current: HTMLInputElement | null };
  mark: () => void;
}) {
  const steps = (back: boolean) => (
    <span class="switch" role="group" aria-label={back ? "Backwards" : "Forwards"}>
      {STEPS.map(([key, name, title, to]) => (
        <button
          type="button"
          key={key}
          data-move={back ? `back ${key}` : key}
          title={`${back ? "Back " : ""}${title} (${back ? key.toUpperCase() : key})`}
          onClick={() => go(back ? { ...to, back: 1 } : to)}
        >
          {back ? `◂ ${name}` : `${name} ▸`}
        </button>
      ))}
    </span>
  );
  return (
    <div class="tools">
      <RecordingChoice />
      <label>
        thread{" "}
        <select
          data-choice="thread"
          value={String(seen?.scene.tid ?? "")}
          onChange={(event) => jump({ thread: event.currentTarget.value, ...(seen?.time ? { time: seen.time } : {}) })}
        >
          {seen?.threads.map((one) => (
            <option key={one.tid} value={String(one.tid)}>
              {shown(`${one.name} ${one.pid}/${one.tid}`, 40)}
            </option>
          ))}
        </select>
      </label>
      {steps(true)}
      {steps(false)}
      <span class="searches">
        {SEARCHES.map(([key, name]) => (
          <span class="switch" key={key} role="group" aria-label={`Executions of ${name}`}>
            <button
              type="button"
              disabled={!places[key]}
              data-search={`back ${key}`}
              title={`The last time before: ${name} (${key.toUpperCase()})`}
              aria-label={`${name}, before`}
              onClick={() => go({ ...places[key], back: 1 })}
            >
              ◂
            </button>
            <button
              type="button"
              disabled={!places[key]}
              data-search={key}
              title={`The next time: ${name} (${key})`}
              onClick={() => go(places[key] ?? {})}
            >
              {name} ▸
            </button>
          </span>
        ))}
      </span>
      <input
        ref={find}
        type="search"
        placeholder="function, FILE:LINE"
        title="Enter: its next execution; Shift+Enter: the one before (/)"
        aria-label="Find an execution"
        onKeyDown={(event) => {
          const text = event.currentTarget.value.trim();
          if (event.key !== "Enter" || !text) return;
          const place: Parameters = /:\d+$/.test(text) && !text.includes("::") ? { line: text } : { function: text };
          go(event.shiftKey ? { ...place, back: 1 } : place);
        }}
      />
      <input
        type="search"
        placeholder="instant: 1.5, +3ms, 50%, #N"
        title="Enter: go to the instant"
        aria-label="Go to an instant"
        onKeyDown={(event) => {
          const text = event.currentTarget.value.trim();
          if (event.key === "Enter" && text) jump({ instant: text });
        }}
      />
      <span class="switch" role="group" aria-label="Marks">
        <button type="button" disabled={!seen?.time} onClick={mark} title="Mark this instant, or remove its mark (M); the timeline has the same two marks">
          Mark
        </button>
        {marks().map((time, number) => (
          <button key={time} type="button" data-mark={time} aria-pressed={seen?.time === time} onClick={() => jump({ time })} title={`Go to ${instant(BigInt(time))} (J: next mark, Shift+J: the one before)`}>
            {number + 1}
          </button>
        ))}
      </span>
    </div>
  );
}

/** What is searched, by key. */
const SEARCHES: [key: string, name: string][] = [
  ["l", "line"],
  ["f", "function"],
  ["x", "instruction"],
  ["b", "same branch"],
  ["g", "loss"],
];

/** Where the execution is. */
function Where({ seen, busy }: { seen: Seen; busy: boolean }) {
  const { scene, time } = seen;
  return (
    <p class="where" role="status" data-number={scene.number} data-gap={seen.gap ? 1 : 0} data-time={time ?? ""} data-busy={busy ? 1 : 0}>
      {time === null ? "time unknown" : (
        <a href={link({ ...selection.value, ...around(time, AROUND) })} title="See it in the timeline">
          {instant(BigInt(time))}
        </a>
      )}
      <span>
        instruction {grouped(scene.number)} of {grouped(scene.instructions)}
      </span>
      {scene.instruction && <code>{shown(scene.instruction, 120)}</code>}
      {scene.taken !== null && <span class={scene.taken ? "taken" : ""}>{scene.taken ? "taken" : "not taken"}</span>}
      {scene.returned && <span>back from code that is not recorded</span>}
      {seen.missed && <strong>{seen.missed}</strong>}
      {scene.gap.map((why) => (
        <strong key={why} class="gap">Flow is missing here: {shown(why, 300)}</strong>
      ))}
    </p>
  );
}

export const execution: View = {
  name: "execution",
  title: "Execution",
  keys: [
    ["s n o", "step by line: into calls, over calls, out of the function; backwards with Shift"],
    ["i u", "step by instruction: into calls, over calls; backwards with Shift"],
    ["l f x", "next execution of the line, the function, the instruction; the one before with Shift"],
    ["b", "the branch the same way; the time before with Shift"],
    ["g", "next loss; the one before with Shift"],
    ["m", "mark this instant, or remove its mark: the marks of the timeline"],
    ["j", "next mark; the one before with Shift"],
    ["↑ ↓", "frame above, below"],
    ["Home End", "begin, end of the thread"],
    ["click", "next execution of a line or an instruction; the one before with Shift"],
    ["/", "find a function or a line"],
  ],
  has: (session) => !answers && session.reports.some((report) => report.name === "functions"),
  Page,
};
