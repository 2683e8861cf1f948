import { useEffect, useState } from "preact/hooks";

import type { Asked } from "./ask";
import { shown } from "./text";

/** Time before a question can be given up, in ms: a button that comes and goes at once is in the way. */
const LONG = 600;

/** Whether something has been going on for a while. */
export function useLong(isGoing: boolean): boolean {
  const [isLong, setLong] = useState(false);
  useEffect(() => {
    setLong(false);
    if (!isGoing) return;
    const timer = setTimeout(() => setLong(true), LONG);
    return () => clearTimeout(timer);
  }, [isGoing]);
  return isLong && isGoing;
}

/** Says that an answer is on its way, or why there is none: in lines, as the command line does. A long question can be given up. */
export function Waiting({ asked }: { asked: Asked<unknown> }) {
  const isLong = useLong(asked.waiting && asked.stop !== undefined);
  if (!asked.error && !asked.waiting) return null;
  const lines = (asked.error ?? "Reading…").slice(0, 4000).split("\n").slice(0, 30);
  return (
    <div class={asked.waiting || asked.again ? "waiting" : "problem"} role={asked.waiting || asked.again ? "status" : "alert"}>
      {lines.map((line, number) => (
        <p key={number}>{shown(line, 500)}</p>
      ))}
      {isLong && (
        <button type="button" data-stop onClick={asked.stop}>
          Stop
        </button>
      )}
      {asked.again && (
        <button type="button" data-again onClick={asked.again}>
          Ask again
        </button>
      )}
    </div>
  );
}
