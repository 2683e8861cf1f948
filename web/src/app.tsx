import { useEffect, useState } from "preact/hooks";

import { bytes } from "./shared/format";
import { KeyHelp, useKeys } from "./shared/keys";
import { link, select, selection } from "./shared/selection";
import { type Index, follow, session, silence, stopIndexing } from "./shared/session";
import { shown } from "./shared/text";
import { dark, toggleTheme } from "./shared/theme";
import { views } from "./views";

const KEYS: [string, string][] = [
  ["1 … 9", "go to a view"],
  ["T", "light or dark"],
  ["?", "this list"],
];

/** The page: a bar with the views, what is wrong, and one view. */
export function App() {
  const [help, setHelp] = useState(false);
  useEffect(follow, []);
  const known = session.value;
  const present = known ? views.filter((view) => view.has(known)) : [];
  const view = present.find((view) => view.name === selection.value.view) ?? present[0];
  useKeys((event) => {
    const chosen = present[Number(event.key) - 1];
    if (chosen) select({ view: chosen.name });
    else if (event.key === "t" || event.key === "T") toggleTheme();
    else if (event.key === "?") setHelp(true);
    else return false;
    return true;
  });
  const inputs = known?.inputs.map((input) => shown(input, 80)).join(", ") ?? "";
  useEffect(() => {
    document.title = inputs ? `${inputs} – hodo` : "hodo";
  }, [inputs]);
  return (
    <>
      <header class="bar">
        <strong class="brand">hodo</strong>
        <nav aria-label="Views">
          {present.map((one, number) => (
            <a
              key={one.name}
              href={link({ ...selection.value, view: one.name })}
              aria-current={one === view ? "page" : undefined}
              title={`${one.title} (${number + 1})`}
            >
              {one.title}
            </a>
          ))}
        </nav>
        <span class="inputs" title={inputs}>
          {inputs}
        </span>
        {known && <Progress index={known.index} />}
        <button type="button" class="quiet" onClick={toggleTheme} title="Light or dark (T)">
          {dark.value ? "Light" : "Dark"}
        </button>
        <button type="button" class="quiet" onClick={() => setHelp(true)} title="Keys (?)" aria-label="Keys">
          ?
        </button>
      </header>
      {silence.value && <p class="banner" role="alert">{silence.value}</p>}
      {known?.changed && <p class="banner" role="alert">{shown(known.changed, 1000)}</p>}
      {known && known.unrelated.length > 0 && <Unrelated lines={known.unrelated} />}
      {known?.index.state === "absent" && known.index.failed && (
        <p class="banner" role="alert">
          There is no timeline, or not all of it: {shown(known.index.why, 1000)}.
        </p>
      )}
      {known && known.left_out.length > 0 && <LeftOut lines={known.left_out} />}
      <main>
        {view && <h1 class="unseen">{view.title}</h1>}
        {view && <view.Page />}
      </main>
      {help && <KeyHelp keys={[...(view?.keys ?? []), ...KEYS]} close={() => setHelp(false)} />}
    </>
  );
}

/** Inputs whose times can't be compared with those of the others. */
function Unrelated({ lines }: { lines: string[] }) {
  return (
    <details class="banner mild" data-unrelated={lines.length}>
      <summary>
        Unrelated clocks: times of {lines.length === 1 ? "one input are" : `${lines.length} inputs are`} not those of the others. <code>hodo sync -o experiment.toml</code> relates
        them by events that both sides saw
      </summary>
      <ul>
        {lines.map((line) => (
          <li key={line}>{shown(line, 1000)}</li>
        ))}
      </ul>
    </details>
  );
}

/** What a page that is a file does not have. */
function LeftOut({ lines }: { lines: string[] }) {
  return (
    <details class="banner mild">
      <summary>This page is a file without some of the data: {lines.length} remarks</summary>
      <ul>
        {lines.map((line) => (
          <li key={line}>{shown(line, 1000)}</li>
        ))}
      </ul>
    </details>
  );
}

/** How far the store is, while it grows. */
function Progress({ index }: { index: Index }) {
  if (index.state !== "building") return null;
  const share = index.total ? index.done / index.total : 0;
  return (
    <span class="progress" role="status" title={`${bytes(index.done)} of ${bytes(index.total)} read`}>
      indexing {Math.floor(share * 100)} %
      <progress max={1} value={share} />
      <button type="button" class="quiet" onClick={stopIndexing} title="Stop indexing: the timeline keeps what it has">
        Stop
      </button>
    </span>
  );
}
