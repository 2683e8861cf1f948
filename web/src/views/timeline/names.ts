// Texts of lanes, such as names of threads, block by block.

import { json } from "../../shared/api";
import { LANES, type Store } from "./store";

/** Blocks of a table whose texts are asked for. */
const MOST_BLOCKS = 64;

/** Fills `labels`, by table; calls `changed` after each block. What fails stays without texts. */
export async function fetchLabels(
  store: Store,
  labels: Map<string, (string | null)[]>,
  signal: AbortSignal,
  changed: () => void,
): Promise<void> {
  for (const table of store.tables) {
    const texts: (string | null)[] = [];
    labels.set(table.name, texts);
    for (let first = 0; first < Math.min(table.lanes.length, LANES * MOST_BLOCKS); first += LANES) {
      try {
        const asked = { generation: store.generation, table: table.name, first };
        texts.push(...(await json<(string | null)[]>("timeline/labels", asked, signal)));
      } catch {
        if (signal.aborted) return;
        break;
      }
      changed();
    }
  }
}
