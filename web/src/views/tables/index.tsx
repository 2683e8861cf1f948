// Tables: every report, as `hodo report` makes it.

import { useAnswer } from "../../shared/ask";
import { fetchModel } from "../../shared/model";
import { RecordingChoice, part } from "../../shared/part";
import { link, select, selection } from "../../shared/selection";
import { type Report, session } from "../../shared/session";
import { DataTable, Summary } from "../../shared/table";
import { timeOf } from "../../shared/times";
import { Waiting } from "../../shared/waiting";
import type { View } from "../../views";

function Page() {
  const reports = session.value?.reports ?? [];
  const { report: name, by = "" } = selection.value;
  const report = reports.find((report) => report.name === name) ?? reports[0];
  const { recording } = part();
  const chosen = recording === undefined ? {} : { recording };
  const key = report && `${report.name} ${by} ${recording}`;
  const asked = useAnswer(key, (signal) => fetchModel("table", { report: report?.name ?? "", by, ...chosen }, signal));
  return (
    <div class="split">
      <nav class="side" aria-label="Reports">
        {reports.map((one) => (
          <a
            key={one.name}
            href={link({ view: "tables", report: one.name, ...(recording === undefined ? {} : { recording: String(recording) }) })}
            aria-current={one === report ? "page" : undefined}
            title={one.help}
          >
            {one.name}
          </a>
        ))}
      </nav>
      <div class="content">
        {report && <Heading report={report} by={by} />}
        <RecordingChoice />
        <Waiting asked={asked} />
        {asked.value && (
          <>
            <Summary model={asked.value} />
            <DataTable model={asked.value} linkOf={timeOf(asked.value)} />
          </>
        )}
      </div>
    </div>
  );
}

function Heading({ report, by }: { report: Report; by: string }) {
  return (
    <header class="heading">
      <h1>{report.name}</h1>
      <p>{report.help}</p>
      {report.views.length > 1 && (
        <label>
          by{" "}
          <select
            value={by || report.views[0]}
            onChange={(event) => {
              const chosen = event.currentTarget.value;
              select({ view: "tables", report: report.name, by: chosen === report.views[0] ? undefined : chosen });
            }}
          >
            {report.views.map((view) => (
              <option key={view}>{view}</option>
            ))}
          </select>
        </label>
      )}
    </header>
  );
}

export const tables: View = {
  name: "tables",
  title: "Tables",
  keys: [],
  has: (session) => session.reports.length > 0,
  Page,
};
