// All functions, to choose one.

import { useAnswer } from "./ask";
import { picked } from "./columns";
import { type Model, columnOf, fetchModel, raw } from "./model";
import { DataTable } from "./table";
import { Waiting } from "./waiting";

const COLUMNS = ["function", "share", "calls", "self_instructions", "total_instructions", "total_time_ns", "module"];

interface Properties {
  /** What a function is chosen for. */
  says: string;
  /** Where the name of a function leads, which was called this often; undefined: nowhere. */
  linkOf: (name: string, calls: number) => string | undefined;
}

/** A table of all functions, each with a link. */
export function Functions({ says, linkOf }: Properties) {
  const table = useAnswer("functions", (signal) => fetchModel("table", { report: "functions", by: "" }, signal));
  if (!table.value) return <Waiting asked={table} />;
  const model = picked(table.value, COLUMNS);
  const calls = (row: number) => Number(model.cell(row, columnOf(model, "calls") ?? 0));
  return (
    <div class="content">
      <p>{says}</p>
      <DataTable model={model} linkOf={(row) => linkOf(named(model, row), calls(row))} />
    </div>
  );
}

/** The function of a row, with its file: several files may have one of the same name. */
function named(model: Model, row: number): string {
  return `${raw(model.cell(row, columnOf(model, "function") ?? 0))}@${raw(model.cell(row, columnOf(model, "module") ?? 0))}`;
}
