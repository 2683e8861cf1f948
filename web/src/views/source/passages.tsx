// The executions of a place in code, in order of time; one of them is chosen, with the one before and the one after.

import { useEffect, useRef } from "preact/hooks";

import { json, question } from "../../shared/api";
import { useAnswer } from "../../shared/ask";
import { grouped, instant } from "../../shared/format";
import { around, part } from "../../shared/part";
import { link, select, selection } from "../../shared/selection";
import { shown } from "../../shared/text";
import { Waiting } from "../../shared/waiting";

/** Nanoseconds of the timeline around an execution. */
const AROUND = 200;

/** Chooses the execution so many further; the list limits it when it is drawn. */
export function step(by: number): void {
  const { place, pass } = selection.value;
  if (place) select({ pass: String(Math.max(0, (pass === undefined ? -1 : Number(pass)) + by)) }, "silent");
}

/** The list. */
export function Passages({ place }: { place: string }) {
  const parameters = { ...part(), place };
  const asked = useAnswer(question("latency/at", parameters), (signal) =>
    json<{ count: number; executions: { nth: number; thread: string; begin: string }[] }>("latency/at", parameters, signal),
  );
  const marked = useRef<HTMLTableRowElement>(null);
  const { pass } = selection.value;
  const executions = asked.value?.executions ?? [];
  const chosen = pass === undefined ? undefined : Math.min(Number(pass) || 0, executions.length - 1);
  useEffect(() => {
    marked.current?.scrollIntoView({ block: "nearest" });
    if (chosen !== undefined && executions.length > 0 && String(chosen) !== pass) select({ pass: String(chosen) }, "silent");
  }, [chosen, executions.length]);
  if (!asked.value) return <Waiting asked={asked} />;
  const { count } = asked.value;
  return (
    <>
      <p data-count={count}>
        {shown(place, 100)}: {grouped(count)} executions with known times
        {count > executions.length && `; the first ${grouped(executions.length)} are listed`}
      </p>
      <div class="tools">
        <button type="button" disabled={!chosen} onClick={() => step(-1)} title="The one before (,)">
          Before
        </button>
        <button type="button" disabled={chosen === executions.length - 1} onClick={() => step(1)} title="The one after (.)">
          After
        </button>
      </div>
      <div class="scrolls">
        <table class="plain" data-table="passages">
          <tbody>
            {executions.map((one, number) => (
              <tr key={one.nth} ref={number === chosen ? marked : null} class={number === chosen ? "marked" : ""}>
                <td>{grouped(number + 1)}</td>
                <td>
                  <a href={link(around(one.begin, AROUND))} title="See it in the timeline" data-begin={one.begin}>
                    {instant(BigInt(one.begin))}
                  </a>
                </td>
                <td class="text">{shown(one.thread, 40)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}
