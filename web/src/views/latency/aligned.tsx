// The call tree of an execution beside that of a typical one, path by path.

import { type Parameters, question } from "../../shared/api";
import { useAnswer } from "../../shared/ask";
import { grouped } from "../../shared/format";
import { columnOf, fetchModel, raw } from "../../shared/model";
import { shown } from "../../shared/text";
import { Waiting } from "../../shared/waiting";

/** Rows that are drawn. */
const MOST = 500;

/** The table. Rows that ran more instructions than in the typical execution are marked. */
export function Aligned({ what, nth }: { what: Parameters; nth: string }) {
  const parameters = { ...what, nth };
  const asked = useAnswer(question("latency/trees", parameters), (signal) => fetchModel("latency/trees", parameters, signal));
  if (!asked.value) return <Waiting asked={asked} />;
  const model = asked.value;
  const number = (row: number, name: string) => Number(model.cell(row, columnOf(model, name) ?? 0));
  return (
    <>
      <h2>Execution {nth} beside a typical one (the median by instructions)</h2>
      <table class="plain" data-table="aligned">
        <thead>
          <tr>
            <th class="text">call path</th>
            <th>instructions, typical</th>
            <th>this one</th>
            <th>more</th>
            <th>calls, typical</th>
            <th>this one</th>
          </tr>
        </thead>
        <tbody>
          {Array.from({ length: Math.min(model.rows, MOST) }, (_, row) => {
            const [typical, slow] = [number(row, "typical_instructions"), number(row, "slow_instructions")];
            return (
              <tr key={row} class={slow > typical ? "grown" : ""} data-typical={typical} data-slow={slow}>
                <td class="text" style={{ paddingLeft: `${0.6 + Math.min(30, number(row, "depth"))}rem` }}>
                  {shown(raw(model.cell(row, columnOf(model, "function") ?? 0)), 60)}
                </td>
                <td>{grouped(typical)}</td>
                <td>{grouped(slow)}</td>
                <td>{slow === typical ? "" : `${slow > typical ? "+" : "−"}${grouped(Math.abs(slow - typical))}`}</td>
                <td>{grouped(number(row, "typical_calls"))}</td>
                <td>{grouped(number(row, "slow_calls"))}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
      {model.rows > MOST && <p>{grouped(model.rows - MOST + model.leftOut)} more paths are not drawn.</p>}
    </>
  );
}
