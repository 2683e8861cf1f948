// Pointer and wheel on a canvas of rows.

import type { Span } from "./draw";
import { limited, moved, zoomed } from "./state";
import type { Store } from "./store";

/** What the pointer does. */
export interface Hands {
  span: () => Span;
  go: (span: Span) => void;
  store: () => Store;
  /** A click at a place in CSS pixels. */
  pick: (x: number, y: number, twice: boolean) => void;
  /** The pointer rests on a place, in CSS pixels of the canvas; undefined if it drags or is elsewhere. */
  hover: (place: PointerEvent | undefined) => void;
  /** A span is being chosen, over rows between two places in CSS pixels; `done` when the pointer is released. */
  choose: (chosen: [number, number] | undefined, rows: [number, number], done: boolean) => void;
}

/** Pixels that a pointer moves before it drags. */
const STILL = 4;

/** Listens to a canvas; returns how to stop. */
export function pointer(canvas: HTMLCanvasElement, hands: Hands): () => void {
  let from: { x: number; y: number; span: Span; choosing: boolean; dragged: boolean } | undefined;
  const timeOf = (x: number, span = hands.span()) => span.begin + (x / canvas.clientWidth) * span.length;
  const down = (event: PointerEvent) => {
    if (event.button !== 0) return;
    canvas.setPointerCapture(event.pointerId);
    hands.hover(undefined);
    from = { x: event.offsetX, y: event.offsetY, span: hands.span(), choosing: event.shiftKey, dragged: false };
  };
  const choose = (event: PointerEvent, done: boolean) => {
    if (!from) return;
    const inside = Math.min(Math.max(event.offsetX, 0), canvas.clientWidth);
    hands.choose([timeOf(from.x, from.span), timeOf(inside, from.span)], [from.y, event.offsetY], done);
  };
  const move = (event: PointerEvent) => {
    if (!from) return hands.hover(event);
    const by = event.offsetX - from.x;
    if (Math.abs(by) > STILL) from.dragged = true;
    if (!from.dragged) return;
    if (from.choosing) choose(event, false);
    else {
      const begin = from.span.begin - (by / canvas.clientWidth) * from.span.length;
      hands.go(limited({ begin, length: from.span.length }, hands.store()));
    }
  };
  const up = (event: PointerEvent) => {
    if (from && !from.dragged) hands.pick(event.offsetX, event.offsetY, event.detail > 1);
    else if (from?.choosing) choose(event, true);
    from = undefined;
  };
  const double = (event: MouseEvent) => hands.pick(event.offsetX, event.offsetY, true);
  const wheel = (event: WheelEvent) => {
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      hands.go(zoomed(hands.span(), Math.exp(event.deltaY / 300), timeOf(event.offsetX), hands.store()));
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      hands.go(moved(hands.span(), (event.deltaX || event.deltaY) / canvas.clientWidth, hands.store()));
    }
  };
  const cancel = () => {
    from = undefined;
    hands.hover(undefined);
  };
  const leave = () => hands.hover(undefined);
  canvas.addEventListener("pointerdown", down);
  canvas.addEventListener("pointermove", move);
  canvas.addEventListener("pointerup", up);
  canvas.addEventListener("pointercancel", cancel);
  canvas.addEventListener("pointerleave", leave);
  canvas.addEventListener("dblclick", double);
  canvas.addEventListener("wheel", wheel, { passive: false });
  return () => {
    canvas.removeEventListener("pointerdown", down);
    canvas.removeEventListener("pointermove", move);
    canvas.removeEventListener("pointerup", up);
    canvas.removeEventListener("pointercancel", cancel);
    canvas.removeEventListener("pointerleave", leave);
    canvas.removeEventListener("dblclick", double);
    canvas.removeEventListener("wheel", wheel);
  };
}
