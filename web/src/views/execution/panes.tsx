// The panes of the execution view.

import { useEffect, useRef } from "preact/hooks";

import type { Parameters } from "../../shared/api";
import { grouped } from "../../shared/format";
import { select } from "../../shared/selection";
import { shown } from "../../shared/text";
import type { Frame, Instruction, Seen } from "./walk";

type Go = (to: Parameters) => void;

/** The search of a click: backwards with Shift. */
function clicked(event: MouseEvent, place: Parameters): Parameters {
  return event.shiftKey ? { ...place, back: 1 } : place;
}

/** Keeps the current row in sight. */
function useSight(key: string): { current: HTMLTableRowElement | null } {
  const row = useRef<HTMLTableRowElement>(null);
  useEffect(() => row.current?.scrollIntoView({ block: "nearest" }), [key]);
  return row;
}

/** The source file, or why it is not there. */
export function Source({ source, go }: { source: Seen["source"]; go: Go }) {
  const row = useSight(`${source?.file}:${source?.line}`);
  if (!source) return <section class="pane" tabIndex={0} aria-label="Source"><p class="waiting">The code has no line numbers.</p></section>;
  const name = source.file.split("/").at(-1) ?? "";
  return (
    <section class="pane" tabIndex={0} aria-label="Source">
      <h2 title={shown(source.file, 500)}>{shown(name, 60)}</h2>
      {source.lines === null ? (
        <p class="waiting">Line {source.line}. The file {shown(source.file, 200)} is not here.</p>
      ) : (
        <table class="plain code">
          <tbody>
            {source.lines.map((text, index) => {
              const line = source.first + index;
              const is = line === source.line;
              return (
                <tr
                  key={line}
                  ref={is ? row : null}
                  class={is ? "marked" : ""}
                  data-line={line}
                  data-current={is ? 1 : 0}
                  onClick={(event) => go(clicked(event, { line: `${source.file}:${line}` }))}
                >
                  <td>{line}</td>
                  <td class="text">{shown(text, 300)}</td>
                </tr>
              );
            })}
          </tbody>
        </table>
      )}
    </section>
  );
}

/** The code of the function. */
export function Code({ code, address, go }: { code: Instruction[] | null; address: string | null; go: Go }) {
  const row = useSight(address ?? "");
  const here = code?.find((one) => one.address === address);
  if (!code?.length) return <section class="pane" tabIndex={0} aria-label="Code"><p class="waiting">The code of this frame is unknown.</p></section>;
  return (
    <section class="pane" tabIndex={0} aria-label="Code">
      <h2>Code</h2>
      <table class="plain code">
        <tbody>
          {code.map((one, number) => {
            const is = one.address === address;
            if (isNoCode(one)) return isNoCode(code[number - 1]) ? null : <tr key={one.address} data-no-code><td>…</td><td class="text waiting">code that is not kept</td></tr>;
            return (
              <tr
                key={one.address}
                ref={is ? row : null}
                class={is ? "marked of-line" : isOfLine(one, here) ? "of-line" : ""}
                data-address={one.address}
                data-current={is ? 1 : 0}
                onClick={(event) => go(clicked(event, { module: one.module, offset: one.offset }))}
              >
                <td>{one.address.slice(2)}</td>
                <td class="text">{shown(one.instruction, 120)}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </section>
  );
}

/** Whether an instruction stands for a byte that is none: code that did not run is not kept by every recording. */
function isNoCode(one: Instruction | undefined): boolean {
  return one?.instruction === "(bad)";
}

function isOfLine(one: Instruction, here: Instruction | undefined): boolean {
  return here?.line != null && one.line === here.line && one.file === here.file;
}

/** The call stack, the newest frame first. */
export function Stack({ seen, frame }: { seen: Seen; frame: number }) {
  const { frames, depth } = seen.scene;
  return (
    <section class="pane stack" aria-label="Call stack">
      <h2>Call stack</h2>
      {seen.gap && <p class="waiting">Where flow is missing, the stack is unknown.</p>}
      <ol start={0}>
        {frames.map((one, number) => (
          <li key={number}>
            <button
              type="button"
              class="quiet"
              aria-pressed={number === frame}
              data-frame={number}
              data-function={one.function}
              onClick={() => select({ frame: number ? String(number) : undefined }, "silent")}
              title={`${shown(one.module, 200)}, since instruction ${grouped(one.begin)}`}
            >
              {shown([...one.inlined, one.function].join(" < "), 120)}
              <small>{placeOf(one)}</small>
            </button>
          </li>
        ))}
      </ol>
      {depth > frames.length && <p>{grouped(depth - frames.length)} more frames are not shown.</p>}
      <p class="waiting">A recording holds what was executed: no memory and no registers.</p>
    </section>
  );
}

function placeOf(frame: Frame): string {
  const entered: Record<string, string> = {
    start: "since before the recording or a gap",
    jump: "entered by a jump",
    interrupt: "entered by an interrupt",
  };
  const line = frame.file && frame.line ? `${shown(frame.file.split("/").at(-1) ?? "", 40)}:${frame.line}` : shown(frame.module, 40);
  const how = entered[frame.entered_by];
  return how ? `${line}, ${how}` : line;
}
