// Pointer and wheel on a canvas of rows.

import type { Span } from "./draw";
import { limited, moved, zoomed } from "./state";
import type { Store } from "./store";

/** What the pointer does. */
export interface Hands {
  span: () => Span;
  go: (span: Span) => void;
  store: Store;
  /** A click at a place in CSS pixels. */
  pick: (x: number, y: number, twice: boolean) => void;
  /** A span is being chosen. */
  choose: (chosen: [number, number] | undefined) => void;
}

/** Pixels that a pointer moves before it drags. */
const STILL = 4;

/** Listens to a canvas; returns how to stop. */
export function pointer(canvas: HTMLCanvasElement, hands: Hands): () => void {
  let from: { x: number; span: Span; choosing: boolean; dragged: boolean } | undefined;
  const timeOf = (x: number, span = hands.span()) => span.begin + (x / canvas.clientWidth) * span.length;
  const down = (event: PointerEvent) => {
    if (event.button !== 0) return;
    canvas.setPointerCapture(event.pointerId);
    from = { x: event.offsetX, span: hands.span(), choosing: event.shiftKey, dragged: false };
  };
  const move = (event: PointerEvent) => {
    if (!from) return;
    const by = event.offsetX - from.x;
    if (Math.abs(by) > STILL) from.dragged = true;
    if (!from.dragged) return;
    if (from.choosing) hands.choose([timeOf(from.x, from.span), timeOf(event.offsetX, from.span)]);
    else {
      const begin = from.span.begin - (by / canvas.clientWidth) * from.span.length;
      hands.go(limited({ begin, length: from.span.length }, hands.store));
    }
  };
  const up = (event: PointerEvent) => {
    if (from && !from.dragged) {
      hands.choose(undefined);
      hands.pick(event.offsetX, event.offsetY, event.detail > 1);
    }
    from = undefined;
  };
  const double = (event: MouseEvent) => hands.pick(event.offsetX, event.offsetY, true);
  const wheel = (event: WheelEvent) => {
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      hands.go(zoomed(hands.span(), Math.exp(event.deltaY / 300), timeOf(event.offsetX), hands.store));
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      hands.go(moved(hands.span(), (event.deltaX || event.deltaY) / canvas.clientWidth, hands.store));
    }
  };
  const cancel = () => {
    from = undefined;
  };
  canvas.addEventListener("pointerdown", down);
  canvas.addEventListener("pointermove", move);
  canvas.addEventListener("pointerup", up);
  canvas.addEventListener("pointercancel", cancel);
  canvas.addEventListener("dblclick", double);
  canvas.addEventListener("wheel", wheel, { passive: false });
  return () => {
    canvas.removeEventListener("pointerdown", down);
    canvas.removeEventListener("pointermove", move);
    canvas.removeEventListener("pointerup", up);
    canvas.removeEventListener("pointercancel", cancel);
    canvas.removeEventListener("dblclick", double);
    canvas.removeEventListener("wheel", wheel);
  };
}
