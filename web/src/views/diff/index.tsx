// Diff: two recordings, or two executions of a function: call paths by what grew and what shrank, and where they diverge.
// Source: `crates/server/src/endpoints/diff`.

import { useMemo, useState } from "preact/hooks";

import { type Parameters, json, question } from "../../shared/api";
import { useAnswer } from "../../shared/ask";
import { picked } from "../../shared/columns";
import "../../shared/flow.css";
import { grouped } from "../../shared/format";
import { Functions } from "../../shared/functions";
import { Icicle, type Placed } from "../../shared/icicle";
import { useKeys } from "../../shared/keys";
import { type Model, fetchModel, raw } from "../../shared/model";
import { link, select, selection } from "../../shared/selection";
import { Switch } from "../../shared/switch";
import { DataTable, Summary } from "../../shared/table";
import { shown } from "../../shared/text";
import { dark } from "../../shared/theme";
import { type Path, treeOf } from "../../shared/tree";
import { Waiting } from "../../shared/waiting";
import type { View } from "../../views";

const COUNT = /^[1-9]\d{0,14}$/;

/** What is compared, as the address says; undefined if nothing can be. */
function compared(recordings: number): Parameters | undefined {
  const { of: name, n = "", m = "" } = selection.value;
  if (name && COUNT.test(n) && COUNT.test(m)) return { function: name, n, m };
  return recordings > 1 ? {} : undefined;
}

/** The amounts by which the drawing is wide. */
const WIDTHS: [name: string, title: string, amount: (path: Path) => number][] = [
  ["b", "B", (path) => path.own[1] ?? 0],
  ["a", "A", (path) => path.own[0] ?? 0],
  ["grown", "Grown", (path) => Math.max(0, (path.own[1] ?? 0) - (path.own[0] ?? 0))],
  ["shrunk", "Shrunk", (path) => Math.max(0, (path.own[0] ?? 0) - (path.own[1] ?? 0))],
  ["new", "New", (path) => (path.change === "new" ? (path.own[1] ?? 0) : 0)],
  ["vanished", "Vanished", (path) => (path.change === "vanished" ? (path.own[0] ?? 0) : 0)],
];

function Page() {
  const { width = "b", shape = "flame" } = selection.value;
  const recordings = useAnswer("recordings", (signal) => json<{ name: string }[]>("recordings", {}, signal));
  const what = recordings.value && compared(recordings.value.length);
  const key = what && question("diff/paths", what);
  const paths = useAnswer(key, (signal) => fetchModel("diff/paths", what ?? {}, signal));
  const functions = useAnswer(key, (signal) => fetchModel("diff/functions", what ?? {}, signal));
  const setWidth = (name: string) => select({ width: name === "b" ? undefined : name, focus: undefined });
  useKeys((event) => {
    const number = WIDTHS.findIndex(([name]) => name === width);
    if (event.key === "g") setWidth(WIDTHS[(number + 1) % WIDTHS.length]?.[0] ?? "b");
    else if (event.key === "b") select({ shape: shape === "flame" ? "sunburst" : undefined });
    else if (event.key === "Escape") select({ focus: undefined });
    else return false;
    return true;
  });
  return (
    <div class="flow">
      <div class="tools">
        <Executions key={`${selection.value.of} ${selection.value.n} ${selection.value.m}`} />
        {what && (
          <>
            <Switch label="Width" values={WIDTHS.map(([name, title]) => [name, title])} chosen={width} choose={setWidth} />
            <Switch
              label="Shape"
              values={[["flame", "Flame graph"], ["sunburst", "Sunburst"]]}
              chosen={shape}
              choose={(value) => select({ shape: value === "flame" ? undefined : value })}
            />
          </>
        )}
      </div>
      {what ? (
        <Waiting asked={paths} />
      ) : (
        recordings.value && (
          <Functions
            says="What with what? hodo view A B compares two recordings. Here, choose a function, whose first two executions are compared, or write other ones above."
            linkOf={(name, calls) => (calls > 1 ? link({ ...selection.value, view: "diff", of: name, n: "1", m: "2" }) : undefined)}
          />
        )
      )}
      {what && paths.value && functions.value && (
        <Drawing what={what} paths={paths.value} functions={functions.value} width={width} round={shape === "sunburst"} />
      )}
    </div>
  );
}

/** Fields for two executions of a function. */
function Executions() {
  const { of: name = "", n = "1", m = "2" } = selection.value;
  const [fields, setFields] = useState({ name, n, m });
  const field = (which: keyof typeof fields, label: string, size: number) => (
    <input
      type="text"
      name={which}
      size={size}
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
        select({ of: fields.name || undefined, n: fields.n, m: fields.m, focus: undefined });
      }}
    >
      Executions {field("n", "of A", 4)} and {field("m", "of B", 4)} of {field("name", "Function", 16)}
      <button type="submit">Compare</button>
    </form>
  );
}

interface Chosen {
  what: Parameters;
  paths: Model;
  functions: Model;
  width: string;
  round: boolean;
}

/** The amounts of each path with its callees: A, B. */
function sums(tree: Path): Map<Path, [number, number]> {
  const found = new Map<Path, [number, number]>();
  const order: Path[] = [tree];
  for (let place = 0; place < order.length; place++) order.push(...(order[place]?.children ?? []));
  for (const path of order.reverse()) {
    const sum: [number, number] = [path.own[0] ?? 0, path.own[1] ?? 0];
    for (const child of path.children) {
      const below = found.get(child) ?? [0, 0];
      sum[0] += below[0];
      sum[1] += below[1];
    }
    found.set(path, sum);
  }
  return found;
}

/** Orange for what grew, blue for what shrank, stronger by the share; grey for what is equal. */
function colour([a, b]: [number, number], isDark: boolean): string {
  const share = Math.min(1, Math.abs(b - a) / Math.max(a, b, 1));
  if (share === 0) return isDark ? "#3a414a" : "#dfe3e8";
  const hue = b > a ? 28 : 212;
  const strength = Math.sqrt(share);
  return isDark ? `hsl(${hue} ${30 + 45 * strength}% ${26 + 10 * strength}%)` : `hsl(${hue} ${45 + 45 * strength}% ${86 - 20 * strength}%)`;
}

function Drawing({ what, paths, functions, width, round }: Chosen) {
  const tree = useMemo(() => treeOf(paths, ["a_self_instructions", "b_self_instructions"]), [paths]);
  const both = useMemo(() => sums(tree), [tree]);
  const amount = WIDTHS.find(([name]) => name === width)?.[2] ?? (() => 0);
  const table = useMemo(() => picked(functions, COLUMNS), [functions]);
  const verdict = functions.summary.find(([name]) => name === "verdict")?.[1] ?? "";
  const number = (value: number) => grouped(Number.isInteger(value) ? value : Number(value.toFixed(2)));
  const says = ({ data }: Placed) => {
    const [a, b] = both.get(data) ?? [0, 0];
    return `${shown(data.name)}${data.change && `, ${data.change}`}: A ${number(a)}, B ${number(b)} instructions (${b >= a ? "+" : "−"}${number(Math.abs(b - a))})`;
  };
  return (
    <div class="beside">
      <div class="drawing">
        <p data-figure="verdict">{shown(raw(verdict), 500)}</p>
        <p class="waiting">
          Orange paths ran more instructions in B than in A, blue ones fewer; grey ones are equal.
        </p>
        <Icicle
          tree={tree}
          amount={amount}
          focus={selection.value.focus ?? ""}
          setFocus={(focus) => select({ focus: focus || undefined })}
          round={round}
          fill={(placed) => colour(both.get(placed.data) ?? [0, 0], dark.value)}
          says={says}
        />
      </div>
      <div class="aside">
        <Divergence what={what} />
        <DataTable model={table} />
      </div>
    </div>
  );
}

/** The columns of the table, the most telling first. */
const COLUMNS = [
  "function",
  "change",
  "delta_instructions",
  "growth",
  "a_instructions",
  "b_instructions",
  "delta_calls",
  "delta_time_ns",
  "matched",
  "module",
];

/** The first branch at which the executions part, when it is asked for: it takes further passes over the traces. */
function Divergence({ what }: { what: Parameters }) {
  const key = question("diff/divergence", what);
  const [wanted, setWanted] = useState("");
  const asked = useAnswer(wanted === key ? key : undefined, (signal) => fetchModel("diff/divergence", what, signal));
  if (wanted !== key) {
    return (
      <p>
        <button type="button" onClick={() => setWanted(key)}>
          Find the first divergence
        </button>
      </p>
    );
  }
  return (
    <section class="first-divergence">
      <h2>First divergence</h2>
      <Waiting asked={asked} />
      {asked.value && <Summary model={asked.value} />}
      {asked.value && asked.value.rows > 0 && (
        <DataTable model={picked(asked.value, ["where", "function", "line", "instruction", "offset", "module"])} describes />
      )}
    </section>
  );
}

export const diff: View = {
  name: "diff",
  title: "Diff",
  keys: [
    ["G", "width by B, A, what grew, shrank, is new, vanished"],
    ["B", "flame graph or sunburst"],
    ["click", "zoom to a call path; again: back"],
    ["Esc", "all call paths"],
  ],
  has: (session) => session.reports.some((report) => report.name === "paths"),
  Page,
};
