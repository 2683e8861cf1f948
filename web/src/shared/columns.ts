// Tables with some of their columns, in another order.

import { type Model, columnOf } from "./model";

/** A table with the columns of these names that it has. */
export function picked(model: Model, names: string[]): Model {
  const places = names.flatMap((name) => columnOf(model, name) ?? []);
  const columns = places.flatMap((place) => model.columns[place] ?? []);
  return { ...model, columns, cell: (row, column) => model.cell(row, places[column] ?? 0) };
}
