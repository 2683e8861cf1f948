// The panel of a chosen span: how long it is, what its rows hold, and what leads on from it.

import { answers } from "../../shared/answers";
import { useAnswer, useLast } from "../../shared/ask";
import { duration, grouped, time } from "../../shared/format";
import { select } from "../../shared/selection";
import { session } from "../../shared/session";
import { Switch } from "../../shared/switch";
import { shown } from "../../shared/text";
import { Waiting } from "../../shared/waiting";
import type { Colours } from "./colours";
import { type Row, keyCell } from "./rows";
import type { Store } from "./store";
import { type Line, type TableSum, fetchSums } from "./sums";

/** Lines of a sum that are listed. */
const MOST = 12;

/** The views that a span leads to: the report that they need. */
const LEADS: [view: string, report: string, title: string, key: string][] = [
  ["flame", "paths", "Flame graph", "g"],
  ["latency", "functions", "Latency", "e"],
];

/** Goes to a view of control flow that shows the span and, if the rows are of one thread, this thread. */
export function lead(key: string, store: Store, [begin, end]: [number, number], rows: Row[], more = {}): void {
  const known = session.value?.reports.map(({ name }) => name) ?? [];
  const found = LEADS.find(([, report, , own]) => own === key && known.includes(report));
  if (!found) return;
  const threads = new Set(rows.map((row) => keyCell(row.table, row.lane, "tid")));
  const [thread] = threads.size === 1 ? [...threads] : [];
  const absolute = (time: number) => String(BigInt(store.origin) + BigInt(time));
  select({ view: found[0], t0: absolute(begin), t1: absolute(end), thread: thread ?? undefined, focus: undefined, ...more });
}

interface Properties {
  store: Store;
  span: [number, number];
  /** The rows that the span covers, and all rows that are here. */
  rows: Row[];
  all: Row[];
  colours: Map<string, Colours>;
  /** Chooses all rows instead. */
  widen: () => void;
  zoom: () => void;
  close: () => void;
}

/** The panel. */
export function ChosenSpan({ store, span, rows, all, colours, widen, zoom, close }: Properties) {
  const [begin, end] = span;
  const ids = rows.map(({ id }) => id);
  const absolute = `${BigInt(store.origin) + BigInt(begin)} ${end - begin}`;
  const asked = useAnswer(answers ? undefined : JSON.stringify([store.generation, span, ids]), (signal) => fetchSums(store, rows, span, signal));
  const kept = useLast(asked, JSON.stringify([absolute, ids]));
  const known = session.value?.reports.map(({ name }) => name) ?? [];
  const isAll = rows.length === all.length;
  return (
    <aside class="details chosen" aria-label="Chosen span">
      <header>
        <strong data-figure="chosen" data-exact={end - begin}>
          {duration(end - begin)}
        </strong>
        <span>
          from {time(begin, (end - begin) / 1000)} to {time(end, (end - begin) / 1000)}, in {grouped(rows.length)} {rows.length === 1 ? "row" : "rows"}
        </span>
        {!isAll && (
          <Switch label="Rows" values={[["", "These rows"], ["all", "All rows", `All ${all.length} rows that are not folded`]]} chosen="" choose={(value) => value && widen()} />
        )}
        <button type="button" onClick={zoom} title="Show only this span (F)">
          Zoom
        </button>
        {LEADS.filter(([, report]) => known.includes(report)).map(([view, , title, key]) => (
          <button type="button" key={view} data-lead={view} onClick={() => lead(key, store, span, rows)} title={`${title} of this span (${key.toUpperCase()})`}>
            {title}
          </button>
        ))}
        <button type="button" class="quiet" onClick={close} aria-label="Close the span" title="No span (Esc)">
          ×
        </button>
      </header>
      {answers && <p class="waiting">This page is a file, which has no sums.</p>}
      {!answers && !kept.value && <Waiting asked={kept} />}
      {kept.value?.length === 0 && <p class="waiting">These rows hold nothing that can be summed.</p>}
      <div class="sums">
        {kept.value?.map((sum) => (
          <Sums key={sum.table.name} {...{ store, span, rows, sum }} colours={colours.get(sum.table.name)} />
        ))}
      </div>
    </aside>
  );
}

type SumProperties = Pick<Properties, "store" | "span" | "rows"> & { sum: TableSum; colours: Colours | undefined };

/** The sums of a table. */
function Sums({ store, span, rows, sum, colours }: SumProperties) {
  const { table, values, owners, missing, records, leftOut } = sum;
  const isTime = table.shape === "intervals";
  const text = (weight: number) => (isTime ? duration(weight) : grouped(weight));
  const isCall = table.value === "function";
  const own = rows.filter((row) => row.table === table || row.table.name === table.name);
  const measure = (line: Line) =>
    isCall ? (
      <button type="button" class="quiet" title={`Latency of ${shown(line.name, 80)} in this span`} onClick={() => lead("e", store, span, own, { function: line.name })}>
        {shown(line.name, 60)}
      </button>
    ) : (
      shown(line.name, 60)
    );
  const byOwner = table.value === "state" ? "running" : isTime ? "busy" : "number";
  return (
    <section data-sum={table.name} data-records={records}>
      <h3>
        {shown(table.title || table.name, 60)} <span>{grouped(records)} begin here</span>
      </h3>
      <div class="pair">
        <Lines title={isCall ? "by function, with callees at each depth" : `by ${table.value}`} kind="value" lines={values} all={isCall ? 0 : sum.weight} text={text} name={measure} colour={(line) => colours?.of(line.name)} />
        {owners.length > 1 && (
          <Lines title={`by ${ownerName(table.key)}: ${byOwner}`} kind="owner" lines={owners} all={0} text={text} name={(line) => shown(line.name, 60)} />
        )}
      </div>
      {missing > 0 && <p class="waiting">Each value may have up to {text(missing)} more.</p>}
      {leftOut > 0 && <p class="problem">{grouped(leftOut)} more rows are not in these sums.</p>}
    </section>
  );
}

function ownerName(key: string[]): string {
  return key.includes("tid") || key.includes("thread") ? "thread" : key.includes("cpu") ? "CPU" : "row";
}

interface LinesProperties {
  title: string;
  kind: string;
  lines: Line[];
  /** What a share is of; 0 for no shares. */
  all: number;
  text: (weight: number) => string;
  name: (line: Line) => preact.ComponentChildren;
  colour?: (line: Line) => string | undefined;
}

/** Lines of a sum, the heaviest first. */
function Lines({ title, kind, lines, all, text, name, colour }: LinesProperties) {
  const rest = lines.slice(MOST);
  return (
    <table>
      <caption>{title}</caption>
      <tbody>
        {lines.slice(0, MOST).map((line) => (
          <tr key={line.name} data-line={kind} data-name={line.name} data-exact={line.weight}>
            <td>
              {colour && <i style={{ background: colour(line) }} />}
              {name(line)}
            </td>
            <td title={`${line.weight}`}>{text(line.weight)}</td>
            {all > 0 && <td>{((100 * line.weight) / all).toFixed(1)} %</td>}
          </tr>
        ))}
        {rest.length > 0 && (
          <tr>
            <td>and {grouped(rest.length)} more</td>
            <td>{text(rest.reduce((sum, { weight }) => sum + weight, 0))}</td>
          </tr>
        )}
      </tbody>
    </table>
  );
}
