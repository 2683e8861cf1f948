// Findings: what `hodo explain` says, worst first, each with a link to its table or executions.

import { useAnswer } from "../../shared/ask";
import { type Model, columnOf, fetchModel, raw } from "../../shared/model";
import { link } from "../../shared/selection";
import { session } from "../../shared/session";
import { shown, unbroken } from "../../shared/text";
import { Waiting } from "../../shared/waiting";
import type { View } from "../../views";

function Page() {
  const asked = useAnswer("findings", (signal) => fetchModel("findings", {}, signal));
  return (
    <div class="findings">
      <h1>Findings</h1>
      <Waiting asked={asked} />
      {asked.value && <List model={asked.value} />}
    </div>
  );
}

function List({ model }: { model: Model }) {
  if (model.rows === 0) return <p class="good">Nothing stands out: no number passes a threshold of a rule.</p>;
  const text = (row: number, name: string) => raw(model.cell(row, columnOf(model, name) ?? 0));
  const inputs = session.value?.inputs.join(" ") ?? "";
  return (
    <ol>
      {Array.from({ length: model.rows }, (_, row) => {
        const command = text(row, "command");
        const to = tableOf(command);
        const executions = executionsOf(command);
        const instant = text(row, "link");
        return (
          <li key={row} data-finding={row}>
            <p class="sentence">{unbroken(shown(text(row, "finding"), 2000))}</p>
            <p class="evidence">
              <span class="weight" title="The share of the run that it explains">
                {(Number(text(row, "weight")) * 100).toFixed(1)} %
              </span>
              <span class="rule">{shown(text(row, "rule"))}</span>
              {to && <a href={to}>See the table</a>}
              {executions && <a href={executions}>See the executions</a>}
              {instant.startsWith("#view=timeline&") && <a href={instant}>See the slowest in the timeline</a>}
              <code>
                hodo {shown(command, 500)} {shown(inputs, 200)}
              </code>
            </p>
          </li>
        );
      })}
    </ol>
  );
}

/** The address of the table that a command shows; undefined if the page has none. */
export function tableOf(command: string): string | undefined {
  const [verb, report, ...options] = command.split(" ");
  if (verb !== "report" || !session.value?.reports.some((known) => known.name === report)) return undefined;
  const place = options.indexOf("--by");
  const by = place < 0 ? undefined : options[place + 1];
  return link({ view: "tables", report: report ?? "", ...(by ? { by } : {}) });
}

/** The address of the executions of a function that a command measures; undefined if it measures no function. */
function executionsOf(command: string): string | undefined {
  const words = command.split(" ");
  const place = words.indexOf("--function");
  const name = place < 0 ? undefined : words[place + 1];
  return words[0] === "latency" && name ? link({ view: "latency", function: name }) : undefined;
}

export const findings: View = {
  name: "findings",
  title: "Findings",
  keys: [],
  has: (session) => session.reports.length > 0,
  Page,
};
