// Fast, typical and slow executions: two sliders divide the bins of a histogram.

import { answers } from "../../shared/answers";
import { type Parameters, json, question } from "../../shared/api";
import { useAnswer } from "../../shared/ask";
import { grouped } from "../../shared/format";
import { select, selection } from "../../shared/selection";
import type { Bin } from "./histogram";

/** Names of the groups, in the order of their bins. */
export const GROUPS = ["fast", "typical", "slow"] as const;

/** The bins at which the typical and the slow executions begin. */
export interface Borders {
  typical: number;
  slow: number;
}

/** The borders of the address. At first fast is below the bin of the median, and slow begins with the bin of the 99th percentile,
 * or behind the median's if that is the same. */
export function bordersOf(bins: Bin[], percentile: (name: string) => number | undefined): Borders {
  const { fast, slow } = selection.value;
  const at = (text: string | undefined, usual: number | undefined) => {
    const value = text !== undefined && /^\d{1,19}$/.test(text) ? Number(text) : usual;
    const found = value === undefined ? -1 : bins.findIndex((bin) => value < bin.until);
    return found < 0 ? bins.length : found;
  };
  const median = at(undefined, percentile("p50"));
  const typical = at(fast, percentile("p50"));
  const usual = Math.max(at(undefined, percentile("p99")), median + 1);
  return { typical, slow: Math.max(typical, slow === undefined ? usual : at(slow, undefined)) };
}

/** The group of a bin. */
export function groupOf({ typical, slow }: Borders, bin: number): (typeof GROUPS)[number] {
  if (bin < typical) return "fast";
  return bin < slow ? "typical" : "slow";
}

interface Properties {
  what: Parameters;
  measure: string;
  bins: Bin[];
  borders: Borders;
  text: (value: number) => string;
}

interface Sum {
  count: number;
  sum: number;
}

/** The sliders, and what is on each side of them. */
export function Groups({ what, measure, bins, borders, text }: Properties) {
  const edge = (bin: number) => bins[bin]?.from ?? bins.at(-1)?.until ?? 0;
  const [fast, slow] = [edge(borders.typical), edge(borders.slow)];
  const parameters = { ...what, measure, fast, slow };
  // A page that is a file knows the counts of bins only.
  const asked = useAnswer(answers ? undefined : question("latency/groups", parameters), (signal) =>
    json<Record<(typeof GROUPS)[number], Sum>>("latency/groups", parameters, signal),
  );
  const ranges = { fast: [0, borders.typical], typical: [borders.typical, borders.slow], slow: [borders.slow, bins.length] } as const;
  const count = (group: (typeof GROUPS)[number]) =>
    bins.slice(...ranges[group]).reduce((sum, bin) => sum + bin.count, 0);
  const all = bins.reduce((sum, bin) => sum + bin.count, 0);
  const sums = asked.value;
  const total = sums && GROUPS.reduce((sum, group) => sum + sums[group].sum, 0);
  const share = (part: number, of: number) => (of > 0 ? `${((100 * part) / of).toFixed(1)} %` : "–");
  const slider = (name: "fast" | "slow", bin: number, label: string) => (
    <label class="slider">
      {label} <output>{text(edge(bin))}</output>
      <input
        type="range"
        name={name}
        min={0}
        max={bins.length}
        value={bin}
        onInput={(event) => {
          const chosen = Number(event.currentTarget.value);
          const other = name === "fast" ? { slow: String(edge(Math.max(chosen, borders.slow))) } : { fast: String(edge(Math.min(chosen, borders.typical))) };
          select({ ...other, [name]: String(edge(chosen)) }, "silent");
        }}
      />
    </label>
  );
  return (
    <>
      <div class="sliders">
        {slider("fast", borders.typical, "Fast: below")}
        {slider("slow", borders.slow, "Slow: from")}
      </div>
      <table class="plain" data-table="groups">
        <thead>
          <tr>
            <th class="text">executions</th>
            <th>count</th>
            <th>of all</th>
            {total !== undefined && <th>sum</th>}
            {total !== undefined && <th>of the sum</th>}
            <th><span class="unseen">more</span></th>
          </tr>
        </thead>
        <tbody>
          {GROUPS.map((group) => (
            <tr key={group} data-group={group} data-count={count(group)} data-sum={sums?.[group].sum}>
              <td class="text">
                <i class={`swatch ${group}`} /> {group}
              </td>
              <td>{grouped(count(group))}</td>
              <td>{share(count(group), all)}</td>
              {sums && <td>{text(sums[group].sum)}</td>}
              {sums && total !== undefined && <td>{share(sums[group].sum, total)}</td>}
              <td>
                <button
                  type="button"
                  disabled={count(group) === 0}
                  onClick={() => select({ low: String(edge(ranges[group][0])), high: String(edge(ranges[group][1])), nth: undefined })}
                  title="List them"
                >
                  list
                </button>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </>
  );
}
