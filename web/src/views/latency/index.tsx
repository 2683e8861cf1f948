// Latency: the executions of a function or between two markers, as a histogram; ranges of it, and single executions.
// Source: `crates/server/src/endpoints/latency`.

import { useState } from "preact/hooks";

import { answers } from "../../shared/answers";
import { type Parameters, json, question } from "../../shared/api";
import { useAnswer } from "../../shared/ask";
import "../../shared/flow.css";
import { duration, grouped, instant } from "../../shared/format";
import { Functions } from "../../shared/functions";
import { useKeys } from "../../shared/keys";
import { type Model, columnOf, fetchModel } from "../../shared/model";
import { PartTools, around, part } from "../../shared/part";
import { link, select, selection } from "../../shared/selection";
import { Switch } from "../../shared/switch";
import { shown } from "../../shared/text";
import { Waiting } from "../../shared/waiting";
import type { View } from "../../views";
import { Aligned } from "./aligned";
import { Groups, bordersOf, groupOf } from "./groups";
import { type Bin, Histogram } from "./histogram";

/** What is measured, as the address says; undefined if it does not say. */
function asked(): Parameters | undefined {
  const { function: name, from, to, pair } = selection.value;
  if (name) return { ...part(), function: name };
  if (pair) return { ...part(), pair };
  return from && to ? { ...part(), from, to } : undefined;
}

const MEASURES: [string, string][] = [
  ["time_ns", "Time"],
  ["instructions", "Instructions"],
  ["cycles", "Cycles"],
];

/** Values that another measure does not have. */
const NO_BORDERS = { low: undefined, high: undefined, fast: undefined, slow: undefined };

/** A value of a measure for people. */
function valueText(value: number, measure: string): string {
  return measure === "time_ns" ? duration(value) : grouped(value);
}

function Page() {
  const { measure = "time_ns", bins = "logarithmic", sum = "" } = selection.value;
  const what = asked();
  const key = what && question("latency/histogram", what);
  const histogram = useAnswer(key, (signal) => fetchModel("latency/histogram", what ?? {}, signal));
  const percentiles = useAnswer(key, (signal) => fetchModel("latency/percentiles", what ?? {}, signal));
  const turnScale = () => select({ bins: bins === "linear" ? undefined : "linear" });
  const turnSum = () => select({ sum: sum ? undefined : "1" });
  useKeys((event) => {
    if (event.key === "l") turnScale();
    else if (event.key === "c") turnSum();
    else if (event.key === "Escape") select({ low: undefined, high: undefined, nth: undefined });
    else return false;
    return true;
  });
  return (
    <div class="flow">
      <div class="tools">
        <Asking key={selection.value.function} />
        {what && (
          <>
            <Switch
              label="Measure"
              values={MEASURES}
              chosen={measure}
              choose={(value) => select({ measure: value === "time_ns" ? undefined : value, ...NO_BORDERS })}
            />
            <Switch
              label="Bins"
              values={[["logarithmic", "Logarithmic"], ["linear", "Linear"]]}
              chosen={bins}
              choose={turnScale}
            />
            <Switch
              label="Heights"
              values={[["", "Count"], ["1", "Cumulated"]]}
              chosen={sum}
              choose={turnSum}
            />
          </>
        )}
        <PartTools />
      </div>
      {what ? <Waiting asked={histogram} /> : (
        <Functions
          says="Which executions? Choose a function here, or write one above."
          linkOf={(name) => link({ ...selection.value, view: "latency", function: name })}
        />
      )}
      {what && histogram.value && percentiles.value && (
        <Measured {...{ what, measure, bins, sum, histogram: histogram.value, percentiles: percentiles.value }} />
      )}
    </div>
  );
}

/** Fields for a function, a named pair of markers, or two markers. */
function Asking() {
  const { function: name = "", from = "", to = "", pair = "" } = selection.value;
  const pairs = useAnswer("pairs", (signal) => json<{ name: string; help: string }[]>("latency/pairs", {}, signal));
  const [fields, setFields] = useState({ name, from, to });
  const none = {
    ...{ function: undefined, pair: undefined, from: undefined, to: undefined, low: undefined, high: undefined },
    ...{ nth: undefined, fast: undefined, slow: undefined },
  };
  const field = (which: keyof typeof fields, label: string) => (
    <input
      type="search"
      name={which}
      size={17}
      placeholder={label}
      aria-label={label}
      value={fields[which]}
      onInput={(event) => setFields({ ...fields, [which]: event.currentTarget.value })}
    />
  );
  return (
    <form
      class="tools"
      onSubmit={(event) => {
        event.preventDefault();
        const chosen = fields.name ? { function: fields.name } : { from: fields.from, to: fields.to };
        select({ ...none, ...chosen });
      }}
    >
      {field("name", "Function")} or {field("from", "from a marker")} {field("to", "to a marker")}
      <button type="submit">Measure</button> or
      <select
        name="pair"
        aria-label="Named pair of markers"
        title={pairs.value?.find((one) => one.name === pair)?.help ?? "Named pairs of markers"}
        value={pair}
        onChange={(event) => select({ ...none, pair: event.currentTarget.value || undefined })}
      >
        <option value="">a named pair…</option>
        {(pairs.value ?? []).map((one) => (
          <option key={one.name} value={one.name} title={shown(one.help, 200)}>
            {shown(one.name, 40)}
          </option>
        ))}
      </select>
    </form>
  );
}

interface Chosen {
  what: Parameters;
  measure: string;
  bins: string;
  sum: string;
  histogram: Model;
  percentiles: Model;
}

/** The bins of a measure on a scale. */
function binsOf(model: Model, measure: string, scale: string): Bin[] {
  const at = (row: number, name: string) => model.cell(row, columnOf(model, name) ?? 0);
  return Array.from({ length: model.rows }, (_, row) => row)
    .filter((row) => at(row, "measure") === measure && at(row, "bins") === scale)
    .map((row) => ({
      from: Number(at(row, "from")),
      until: Number(at(row, "until")),
      count: Number(at(row, "count")),
      cumulated: Number(at(row, "cumulated")),
    }));
}

function Measured({ what, measure, bins, sum, histogram, percentiles }: Chosen) {
  const { low, high, nth } = selection.value;
  const drawn = binsOf(histogram, measure, bins);
  const row = Array.from({ length: percentiles.rows }, (_, row) => row).find(
    (row) => percentiles.cell(row, columnOf(percentiles, "measure") ?? 0) === measure,
  );
  const marks = percentiles.columns
    .map((column, number): [string, number] => [column.name, row === undefined ? NaN : Number(percentiles.cell(row, number))])
    .filter(([name, value]) => /^p\d|^min|^max/.test(name) && Number.isFinite(value));
  const named = new Map(marks);
  const borders = bordersOf(drawn, (name) => named.get(name));
  const text = (value: number) => valueText(value, measure);
  const range: [number, number] | undefined = low && high ? [Number(low), Number(high)] : undefined;
  return (
    <div class="beside">
      <div class="drawing">
        {drawn.length > 0 ? (
          <Histogram
            bins={drawn}
            cumulated={sum !== ""}
            logarithmic={bins === "logarithmic"}
            marks={marks}
            chosen={range}
            text={text}
            groupOf={(bin) => groupOf(borders, bin)}
            choose={([from, until]) => select({ low: String(from), high: String(until), nth: undefined })}
          />
        ) : (
          <p class="waiting">The recording does not have this measure, or nothing was measured.</p>
        )}
        {drawn.length > 0 && <Groups {...{ what, measure, bins: drawn, borders, text }} />}
        {drawn.length > 0 && <table class="plain" data-table="percentiles">
          <thead>
            <tr>
              <th class="text">percentile</th>
              {marks.map(([name]) => (
                <th key={name}>{name || <span class="unseen">more</span>}</th>
              ))}
            </tr>
          </thead>
          <tbody>
            <tr>
              <td class="text">{MEASURES.find(([name]) => name === measure)?.[1]}</td>
              {marks.map(([name, value]) => (
                <td key={name} data-percentile={name} title={String(value)}>
                  {valueText(value, measure)}
                </td>
              ))}
            </tr>
          </tbody>
        </table>}
        {nth && <Aligned what={what} nth={nth} />}
      </div>
      <div class="aside">
        <Executions what={what} measure={measure} range={range ?? whole(drawn)} />
      </div>
    </div>
  );
}

function whole(bins: Bin[]): [number, number] {
  return [bins[0]?.from ?? 0, bins.at(-1)?.until ?? 0];
}

/** An execution. */
interface Execution {
  nth: number;
  thread: string;
  begin: string | null;
  time_ns: number | null;
  instructions: number | null;
  caller: string;
}

interface Listed {
  count: number;
  executions: Execution[];
}

/** All executions, as a page that is a file has them: at most the greatest thousand of each measure. */
const EVERYTHING = { from_value: "0", until_value: "18446744073709551615" };

function inside(list: Listed, measure: string, [from, until]: [number, number]): Listed {
  const value = (one: Execution) => one[measure as "time_ns"] ?? -1;
  const executions = list.executions.filter((one) => value(one) >= from && value(one) < until);
  return { count: executions.length, executions };
}

/** The executions of a range, the greatest first. */
function Executions({ what, measure, range }: { what: Parameters; measure: string; range: [number, number] }) {
  const asked = answers ? EVERYTHING : { from_value: range[0], until_value: range[1] };
  const parameters = { ...what, measure, ...asked };
  const list = useAnswer(question("latency/executions", parameters), (signal) =>
    json<Listed>("latency/executions", parameters, signal),
  );
  const { nth } = selection.value;
  if (!list.value) return <Waiting asked={list} />;
  const { count, executions } = answers ? inside(list.value, measure, range) : list.value;
  // One thread needs no column.
  const hasThreads = executions.some((one) => one.thread !== executions[0]?.thread);
  return (
    <>
      <p data-count={count}>
        {grouped(count)} executions from {valueText(range[0], measure)} to {valueText(range[1], measure)}
        {count > executions.length && `; the greatest ${grouped(executions.length)} are listed`}
      </p>
      <div class="scrolls">
        <table class="plain" data-table="executions">
          <thead>
            <tr>
              {["", "begin", "time", "instructions"].map((name) => (
                <th key={name}>{name || <span class="unseen">more</span>}</th>
              ))}
              {hasThreads && <th class="text">thread</th>}
              <th class="text">caller</th>
            </tr>
          </thead>
          <tbody>
            {executions.map((one) => (
              <tr key={one.nth} data-nth={one.nth} class={String(one.nth) === nth ? "marked" : ""}>
                <td>
                  {!answers && (
                    <button type="button" onClick={() => select({ nth: String(one.nth) })} title="Its call tree beside a typical one">
                      compare
                    </button>
                  )}
                </td>
                <td>
                  {one.begin === null ? "–" : (
                    <a href={link(around(one.begin, one.time_ns ?? 0))} title="See it in the timeline">
                      {instant(BigInt(one.begin))}
                    </a>
                  )}
                </td>
                <td title={String(one.time_ns)}>{one.time_ns === null ? "–" : duration(one.time_ns)}</td>
                <td>{one.instructions === null ? "–" : grouped(one.instructions)}</td>
                {hasThreads && <td class="text">{shown(one.thread, 40)}</td>}
                <td class="text">{shown(one.caller, 60)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}

export const latency: View = {
  name: "latency",
  title: "Latency",
  keys: [
    ["drag", "choose a range of the histogram"],
    ["L", "linear or logarithmic bins"],
    ["C", "count or cumulated"],
    ["Esc", "no range, no execution"],
  ],
  has: (session) => session.reports.some((report) => report.name === "functions"),
  Page,
};
