// Keys: one listener for the page, and the list of keys behind `?`.

import { useEffect, useRef } from "preact/hooks";

/** Whether a key goes into a field of text, and so is not a command. */
export function typing(event: KeyboardEvent): boolean {
  const target = event.target;
  return (
    target instanceof HTMLInputElement ||
    target instanceof HTMLTextAreaElement ||
    target instanceof HTMLSelectElement ||
    (target instanceof HTMLElement && target.isContentEditable)
  );
}

/** Calls `act` for keys outside of fields; it returns whether it knew the key. */
export function useKeys(act: (event: KeyboardEvent) => boolean): void {
  const latest = useRef(act);
  latest.current = act;
  useEffect(() => {
    const listen = (event: KeyboardEvent) => {
      // Alt belongs to the browser, except with arrows up and down.
      const alt = event.altKey && !["ArrowUp", "ArrowDown"].includes(event.key);
      // Esc closes one thing: a dialog closes itself.
      if (document.querySelector("dialog[open]")) return;
      if (typing(event) || event.ctrlKey || event.metaKey || alt || event.defaultPrevented) return;
      if (latest.current(event)) event.preventDefault();
    };
    addEventListener("keydown", listen);
    return () => removeEventListener("keydown", listen);
  }, []);
}

/** The list of keys, as a dialog. */
export function KeyHelp({ keys, close }: { keys: [string, string][]; close: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current?.showModal(), []);
  return (
    <dialog ref={dialog} class="keys" onClose={close} onClick={(event) => event.target === dialog.current && close()}>
      <h2>Keys</h2>
      <dl>
        {keys.map(([key, does]) => (
          <div key={key}>
            <dt>
              {key.split(" ").map((one) => (
                <kbd key={one}>{one}</kbd>
              ))}
            </dt>
            <dd>{does}</dd>
          </div>
        ))}
      </dl>
      <button type="button" onClick={close}>
        Close
      </button>
    </dialog>
  );
}
