import type { Asked } from "./ask";
import { shown } from "./text";

/** Says that an answer is on its way, or why there is none: in lines, as the command line does. */
export function Waiting({ asked }: { asked: Asked<unknown> }) {
  if (!asked.error) return asked.waiting ? <p class="waiting" role="status">Reading…</p> : null;
  const lines = asked.error.slice(0, 4000).split("\n").slice(0, 30);
  return (
    <div class={asked.waiting ? "waiting" : "problem"} role={asked.waiting ? "status" : "alert"}>
      {lines.map((line, number) => (
        <p key={number}>{shown(line, 500)}</p>
      ))}
    </div>
  );
}
