// About: what is in the traces, and what was lost.

import { json } from "../../shared/api";
import { useAnswer } from "../../shared/ask";
import { grouped } from "../../shared/format";
import { type Model, fetchModel } from "../../shared/model";
import { session } from "../../shared/session";
import { DataTable, Summary } from "../../shared/table";
import { shown } from "../../shared/text";
import { Waiting } from "../../shared/waiting";
import type { View } from "../../views";

async function all(signal: AbortSignal): Promise<Model[]> {
  const { tables } = await json<{ tables: number }>("about", {}, signal);
  const numbers = Array.from({ length: tables }, (_, number) => number);
  return Promise.all(numbers.map((number) => fetchModel("about/table", { number }, signal)));
}

function Page() {
  const asked = useAnswer("about", all);
  const known = session.value;
  return (
    <div class="about">
      <h1>About</h1>
      <ul class="inputs-list">
        {known?.inputs.map((input) => (
          <li key={input}>
            <code>{shown(input, 1000)}</code>
          </li>
        ))}
      </ul>
      <p>
        Read by hodo {known?.version}.{" "}
        {known?.index.state === "absent" && <span>No timeline: {shown(known.index.why, 1000)}.</span>}
      </p>
      <Waiting asked={asked} />
      {asked.value && <Lost tables={asked.value} />}
      {asked.value?.map((model, number) => (
        <section key={number} data-about={model.name}>
          <h2>{shown(model.name)}</h2>
          <Summary model={model} />
          {model.rows > 0 && <DataTable model={model} describes />}
        </section>
      ))}
    </div>
  );
}

/** Whether anything is missing, in a sentence at the top. */
function Lost({ tables }: { tables: Model[] }) {
  const figure = (name: string) =>
    tables
      .flatMap((table) => table.summary.filter(([known]) => known === name))
      .reduce((sum, [, value]) => sum + BigInt((value as number) ?? 0), 0n);
  const [events, packets] = [figure("events_lost"), figure("packets_lost")];
  const losses = tables.reduce((sum, table) => sum + table.loss.length, 0);
  if (events === 0n && packets === 0n && losses === 0) {
    return <p class="good">The traces report no loss. What an analysis could not use is listed with its table.</p>;
  }
  const lost = [
    events > 0n && `${grouped(events)} events by the tracer`,
    packets > 0n && `${grouped(packets)} packets by the tracer`,
    losses > 0 && `${losses} kinds of loss while reading`,
  ].filter(Boolean);
  return <p class="bad">Something was lost: {lost.join(", ")}. Each table shows what it lacks.</p>;
}

export const about: View = { name: "about", title: "About", keys: [], has: () => true, Page };
