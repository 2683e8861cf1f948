import type { Asked } from "./ask";
import { shown } from "./text";

/** Says that an answer is on its way, or why there is none. */
export function Waiting({ asked }: { asked: Asked<unknown> }) {
  if (asked.error && !asked.waiting) return <p class="problem" role="alert">{shown(asked.error, 2000)}</p>;
  return asked.waiting ? <p class="waiting" role="status">{asked.error ? shown(asked.error, 500) : "Reading…"}</p> : null;
}
