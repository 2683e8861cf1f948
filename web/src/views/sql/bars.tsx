// A number for each text, as bars.

import { type Model, raw } from "../../shared/model";
import { shownCell } from "../../shared/table";
import { shown } from "../../shared/text";

/** Bars, at most. */
const MOST = 200;

/** The bars of the first rows. */
export function Bars({ model, x, y }: { model: Model; x: number; y: number }) {
  const rows = Array.from({ length: Math.min(model.rows, MOST) }, (_, row) => row);
  const value = (row: number) => Number(raw(model.cell(row, y)) || 0);
  const most = Math.max(...rows.map((row) => Math.abs(value(row))), 1e-300);
  const column = model.columns[y] ?? { name: "", unit: "" };
  return (
    <div class="bars" tabIndex={0} role="region" aria-label={`Bars of ${shown(column.name, 60)}`}>
      <table>
        <tbody>
          {rows.map((row) => (
            <tr key={row} data-bar={row}>
              <th scope="row">{shownCell(model.cell(row, x), model.columns[x] ?? { name: "", unit: "" }, 60)}</th>
              <td class="bar-place">
                <i style={{ width: `${(Math.abs(value(row)) / most) * 100}%` }} />
              </td>
              <td class="number">{shownCell(model.cell(row, y), column)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {model.rows > MOST && <p class="waiting">The first {MOST} of {model.rows} rows.</p>}
    </div>
  );
}
