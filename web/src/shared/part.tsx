// The part of the inputs that a view is about: the recording, the span and the thread of the address.
// Source: `crates/server/src/endpoints/paths`.

import { type Parameters, json } from "./api";
import { useAnswer } from "./ask";
import { instant } from "./format";
import { select, selection } from "./selection";
import { shown } from "./text";

/** A recording of control flow. */
interface Recording {
  name: string;
  /** `PID/TID`, and the number that selects the thread. */
  threads: [name: string, tid: number][];
}

const NUMBER = /^\d{1,19}$/;

/** The part that the address names, as parameters of a question. */
export function part(): Parameters {
  const { recording, t0, t1, thread } = selection.value;
  const known: Parameters = {};
  // The first one is not named, so that its questions are always the same.
  if (recording && NUMBER.test(recording) && recording !== "0") known.recording = recording;
  if (thread && NUMBER.test(thread)) known.thread = thread;
  if (t0 && t1 && NUMBER.test(t0) && NUMBER.test(t1)) Object.assign(known, { t0, t1 });
  return known;
}

function useRecordings(): Recording[] {
  return useAnswer("recordings", (signal) => json<Recording[]>("recordings", {}, signal)).value ?? [];
}

/** Chooses the recording, if there are several. */
export function RecordingChoice() {
  const recordings = useRecordings();
  if (recordings.length < 2) return null;
  return (
    <label>
      recording{" "}
      <select
        data-choice="recording"
        value={String(part().recording ?? 0)}
        onChange={(event) => select({ recording: event.currentTarget.value, thread: undefined, focus: undefined, number: undefined })}
      >
        {recordings.map((one, number) => (
          <option key={number} value={String(number)}>
            {shown(one.name, 60)}
          </option>
        ))}
      </select>
    </label>
  );
}

/** Says which part is shown, and changes it. */
export function PartTools() {
  const recordings = useRecordings();
  const chosen = part();
  const threads = recordings[Number(chosen.recording ?? 0)]?.threads ?? [];
  return (
    <>
      <RecordingChoice />
      <label>
        thread{" "}
        <select
          data-choice="thread"
          value={String(chosen.thread ?? "")}
          onChange={(event) => select({ thread: event.currentTarget.value || undefined, focus: undefined })}
        >
          <option value="">all</option>
          {threads.map(([name, tid]) => (
            <option key={name} value={String(tid)}>
              {shown(name, 40)}
            </option>
          ))}
        </select>
      </label>
      {chosen.t0 !== undefined && (
        <span class="chosen-span">
          only {instant(BigInt(chosen.t0))} to {instant(BigInt(chosen.t1 ?? 0))}{" "}
          <button type="button" onClick={() => select({ t0: undefined, t1: undefined, focus: undefined })}>
            All of the time
          </button>
        </span>
      )}
    </>
  );
}

/** The address of the timeline around an instant. */
export function around(begin: string, lasts: number): Record<string, string> {
  const [start, extent] = [BigInt(begin), BigInt(Math.round(lasts))];
  const margin = extent / 4n + 20n;
  const low = start > margin ? start - margin : 0n;
  return { view: "timeline", t0: String(low), t1: String(start + extent + margin), at: begin };
}
