// Flame graph and sunburst of call paths, with their table beside.

import { useMemo, useState } from "preact/hooks";

import { question } from "../../shared/api";
import { useAnswer } from "../../shared/ask";
import { picked } from "../../shared/columns";
import "../../shared/flow.css";
import { duration, grouped } from "../../shared/format";
import { Icicle, type Placed, moduleColour } from "../../shared/icicle";
import { useKeys } from "../../shared/keys";
import { merged } from "../../shared/merged";
import { type Model, fetchModel } from "../../shared/model";
import { PartTools, part } from "../../shared/part";
import { select, selection } from "../../shared/selection";
import { Switch } from "../../shared/switch";
import { DataTable, Summary } from "../../shared/table";
import { shown } from "../../shared/text";
import { dark } from "../../shared/theme";
import { type Path, inverted, treeOf } from "../../shared/tree";
import { Waiting } from "../../shared/waiting";
import type { View } from "../../views";

/** The columns of amounts. */
const OWN = ["self_instructions", "self_time_ns"];
const TOTAL = ["total_instructions", "total_time_ns"];

function Page() {
  const { shape = "flame", measure = "instructions", order = "callees" } = selection.value;
  const asked = useAnswer(question("paths", part()), (signal) => fetchModel("paths", part(), signal));
  const set = (name: string, value: string, usual: string) => select({ [name]: value === usual ? undefined : value });
  const turn = () => select({ order: order === "callees" ? "callers" : undefined, focus: undefined });
  useKeys((event) => {
    const key = event.key.toLowerCase();
    if (key === "b") set("shape", shape === "flame" ? "sunburst" : "flame", "flame");
    else if (key === "i") turn();
    else if (key === "m") set("measure", measure === "time" ? "instructions" : "time", "instructions");
    else if (event.key === "Escape") select({ focus: undefined });
    else return false;
    return true;
  });
  return (
    <div class="flow">
      <div class="tools">
        <Switch
          label="Shape"
          values={[["flame", "Flame graph"], ["sunburst", "Sunburst"]]}
          chosen={shape}
          choose={(value) => set("shape", value, "flame")}
        />
        <Switch
          label="Measure"
          values={[["instructions", "Instructions"], ["time", "Time"]]}
          chosen={measure}
          choose={(value) => set("measure", value, "instructions")}
        />
        <Switch
          label="Order"
          values={[["callees", "Callers first"], ["callers", "Inverted", "What ran, by who called it"]]}
          chosen={order}
          choose={turn}
        />
        <PartTools />
      </div>
      <Waiting asked={asked} />
      {asked.value && <Drawing model={asked.value} {...{ shape, measure, order }} />}
    </div>
  );
}

/** The columns of the table, the most telling first. */
const COLUMNS = [
  "function",
  "share",
  "total_instructions",
  "self_instructions",
  "total_time_ns",
  "self_time_ns",
  "entries",
  "depth",
  "outside_time_ns",
  "entered_by",
  "module",
];

interface Chosen {
  model: Model;
  shape: string;
  measure: string;
  order: string;
}

const instructionsOf = (path: Path) => path.own[0] ?? 0;
const timeOf = (path: Path) => path.own[1] ?? 0;
const allInstructions = (path: Path) => path.total[0];
const allTime = (path: Path) => path.total[1];

function Drawing({ model, shape, measure, order }: Chosen) {
  const [wanted, setWanted] = useState("");
  const calls = useMemo(() => treeOf(model, OWN, TOTAL), [model]);
  const tree = useMemo(() => (order === "callers" ? inverted(calls) : calls), [calls, order]);
  const { rows = "paths" } = selection.value;
  const table = useMemo(() => (rows === "functions" ? merged(calls, model) : picked(model, COLUMNS)), [model, calls, rows]);
  const amount = measure === "time" ? timeOf : instructionsOf;
  const text = (value: number) => (measure === "time" ? duration(value) : `${grouped(value)} instructions`);
  const says = (placed: Placed) => {
    const [value, all] = [placed.value ?? 0, placed.ancestors().at(-1)?.value ?? 0];
    const own = order === "callers" ? "" : `, ${text(amount(placed.data))} of it without callees`;
    const share = all ? ((100 * value) / all).toFixed(2) : "0";
    return `${shown(placed.data.name)}${placed.data.module && ` in ${shown(placed.data.module)}`}: ${text(value)} (${share} %)${own}`;
  };
  const isWanted = (path: Path) => wanted !== "" && path.name.toLowerCase().includes(wanted.toLowerCase());
  return (
    <div class="beside">
      <div class="drawing">
        <Icicle
          tree={tree}
          amount={amount}
          total={measure === "time" ? allTime : allInstructions}
          focus={selection.value.focus ?? ""}
          setFocus={(focus) => select({ focus: focus || undefined })}
          round={shape === "sunburst"}
          fill={(placed) => moduleColour(placed.data, dark.value)}
          says={says}
          marked={isWanted}
        />
      </div>
      <div class="aside">
        <input
          type="search"
          placeholder="Mark functions in the drawing"
          aria-label="Mark functions"
          value={wanted}
          onInput={(event) => setWanted(event.currentTarget.value)}
        />
        <Switch
          label="Rows of the table"
          values={[["paths", "Call paths"], ["functions", "Merged by function"]]}
          chosen={rows}
          choose={(value) => select({ rows: value === "paths" ? undefined : value })}
        />
        <Summary model={model} />
        <DataTable model={table} />
      </div>
    </div>
  );
}

export const flame: View = {
  name: "flame",
  title: "Flame graph",
  keys: [
    ["B", "flame graph or sunburst"],
    ["M", "instructions or time"],
    ["I", "callers first, or inverted"],
    ["click", "zoom to a call path; again: back"],
    ["Esc", "all call paths"],
  ],
  has: (session) => session.reports.some((report) => report.name === "paths"),
  Page,
};
