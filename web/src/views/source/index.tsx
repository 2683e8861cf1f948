// Source and disassembly with exact counts; a line or an instruction leads to its executions.
// Source: `crates/server/src/endpoints/source`.

import { json, question } from "../../shared/api";
import { useAnswer } from "../../shared/ask";
import "../../shared/flow.css";
import { grouped } from "../../shared/format";
import { Functions } from "../../shared/functions";
import { useKeys } from "../../shared/keys";
import { PartTools, part } from "../../shared/part";
import { link, select, selection } from "../../shared/selection";
import { shown } from "../../shared/text";
import { Waiting } from "../../shared/waiting";
import type { View } from "../../views";
import { Passages, step } from "./passages";

/** Instructions that are drawn. */
const MOST = 3000;

interface Line {
  file: string;
  line: number;
  executions: number;
  instructions: number;
  source: string | null;
}

interface Instruction {
  address: number;
  executions: number;
  taken: number | null;
  not_taken: number | null;
  time_ns: number;
  instruction: string;
  line: number | null;
}

/** A function as `hodo annotate --format json` writes it. */
interface Code {
  function: string;
  module: string;
  instructions: number;
  time_ns: number;
  lines: Line[];
  code: Instruction[];
  missing_sources: string[];
}

function Page() {
  const { function: name } = selection.value;
  const asked = name ? { ...part(), function: name } : undefined;
  const code = useAnswer(asked && question("source", asked), (signal) => json<Code>("source", asked ?? {}, signal));
  useKeys((event) => {
    if (event.key === ".") step(1);
    else if (event.key === ",") step(-1);
    else if (event.key === "Escape") select(selection.value.place ? { place: undefined, pass: undefined } : { function: undefined });
    else return false;
    return true;
  });
  return (
    <div class="flow">
      <div class="tools">
        {name && (
          <button type="button" onClick={() => select({ function: undefined, place: undefined, pass: undefined })}>
            All functions
          </button>
        )}
        <PartTools />
      </div>
      {asked ? (
        <Waiting asked={code} />
      ) : (
        <Functions says="The code of which function?" linkOf={(name) => link({ ...selection.value, view: "source", function: name })} />
      )}
      {asked && code.value && (
        <div class="beside">
          <div class="drawing" tabIndex={0} role="region" aria-label="Drawing">
            <Listing code={code.value} />
          </div>
          <div class="aside">
            {selection.value.place ? (
              <Passages place={selection.value.place} />
            ) : (
              <p class="waiting">Click a line or an instruction: its executions appear here.</p>
            )}
          </div>
        </div>
      )}
    </div>
  );
}

function Listing({ code }: { code: Code }) {
  const most = Math.max(1, ...code.code.map((one) => one.executions));
  const choose = (place: string) => select({ place, pass: undefined });
  const count = (number: number | null) => (number === null ? "" : grouped(number));
  let before: number | null = null;
  return (
    <>
      <p>
        <strong>{shown(code.function)}</strong> in {shown(code.module)}:{" "}
        <span data-figure="instructions">{grouped(code.instructions)}</span> instructions
        {code.missing_sources.length > 0 && `; source not found: ${code.missing_sources.map((name) => shown(name, 80)).join(", ")}`}
      </p>
      {code.code.length === 0 && <p class="waiting">It never ran in what is looked at.</p>}
      <table class="plain code">
        <thead>
          <tr>
            {["executions", "", "taken", "not taken", "time, ns", "address"].map((name, number) => (
              <th key={number}>{name || <span class="unseen">line</span>}</th>
            ))}
            <th class="text">instruction</th>
          </tr>
        </thead>
        <tbody>
          {code.code.slice(0, MOST).flatMap((one) => {
            const line = one.line !== null && one.line !== before ? code.lines[one.line] : undefined;
            before = one.line;
            const hex = one.address.toString(16);
            const row = (
              <tr
                key={hex}
                data-address={hex}
                data-executions={one.executions}
                class={one.executions === 0 ? "never" : selection.value.place === `0x${hex}` ? "marked" : ""}
                onClick={() => one.executions > 0 && choose(`0x${hex}`)}
              >
                <td>{grouped(one.executions)}</td>
                <td class="text">
                  <span class="heat" style={{ width: `${(4 * one.executions) / most}rem` }} />
                </td>
                <td>{count(one.taken)}</td>
                <td>{count(one.not_taken)}</td>
                <td>{one.executions > 0 ? grouped(one.time_ns) : ""}</td>
                <td>{hex}</td>
                <td class="text">{shown(one.instruction, 120)}</td>
              </tr>
            );
            return line ? [<LineRow key={`line ${hex}`} line={line} choose={choose} />, row] : [row];
          })}
        </tbody>
      </table>
      {code.code.length > MOST && <p>{grouped(code.code.length - MOST)} more instructions are not drawn.</p>}
    </>
  );
}

function LineRow({ line, choose }: { line: Line; choose: (place: string) => void }) {
  const place = `${line.file}:${line.line}`;
  return (
    <tr
      class={selection.value.place === place ? "line marked" : "line"}
      data-line={line.line}
      data-executions={line.executions}
      onClick={() => line.executions > 0 && choose(place)}
      title={`${shown(line.file, 500)}:${line.line}`}
    >
      <td>{grouped(line.executions)}</td>
      <td class="text" colSpan={6}>
        {shown(line.file.split("/").at(-1) ?? "", 60)}:{line.line} {line.source !== null && shown(line.source, 200)}
      </td>
    </tr>
  );
}

export const source: View = {
  name: "source",
  title: "Source",
  keys: [
    ["click", "the executions of a line or an instruction"],
    [", .", "the execution before, after"],
    ["Esc", "close the executions; all functions"],
  ],
  has: (session) => session.reports.some((report) => report.name === "functions"),
  Page,
};
