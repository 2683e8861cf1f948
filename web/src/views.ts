// The list of views: a folder each, and a line here. The first one that the inputs have something for is shown first.

import type { ComponentType } from "preact";

import type { Session } from "./shared/session";
import { about } from "./views/about";
import { diff } from "./views/diff";
import { events } from "./views/events";
import { execution } from "./views/execution";
import { findings } from "./views/findings";
import { flame } from "./views/flame";
import { latency } from "./views/latency";
import { source } from "./views/source";
import { sql } from "./views/sql";
import { tables } from "./views/tables";
import { timeline } from "./views/timeline";

/** A view of the page. */
export interface View {
  /** Its name in the address; stable. */
  name: string;
  /** Its name for people. */
  title: string;
  /** What its own keys do, for the list of keys. */
  keys: [key: string, does: string][];
  /** Whether the inputs have something for it. */
  has(session: Session): boolean;
  /** What it draws. */
  Page: ComponentType;
}

export const views: View[] = [timeline, findings, flame, latency, diff, source, execution, events, tables, sql, about];
