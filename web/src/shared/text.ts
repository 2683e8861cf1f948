// Text of traces as people may see it. Preact escapes HTML; what is left are characters that hide or reorder others.

/** Characters of a name that are shown, at most. */
const MOST = 300;

const HIDDEN =
  // Controls, soft hyphen, bidirectional controls and isolates, invisible and unassigned formats, lone surrogates.
  /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff0-\ufffb\u{e0000}-\u{e0fff}]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/gu;

/** Text in which nothing is hidden: each such character as `\u{…}`. */
export function visible(text: string): string {
  return text.replace(HIDDEN, (letter) => `\\u{${(letter.codePointAt(0) ?? 0).toString(16)}}`);
}

/** A sentence in which a number and its unit stay on one line. */
export function unbroken(text: string): string {
  return text.replace(/(\d) (?=(%|[nµm]?s|[kMG]?B)(?!\w))/g, "$1\u00a0");
}

/** Visible text that is cut to at most `room` pixels, with a mark; empty if little would be left. */
export function fitted(text: string, room: number, context: CanvasRenderingContext2D): string {
  const all = shown(text, 200);
  const width = context.measureText(all).width;
  if (width <= room) return all;
  let most = Math.floor((all.length * room) / width);
  while (most > 1 && context.measureText(shown(all, most)).width > room) most--;
  return most > 1 ? shown(all, most) : "";
}

/** Visible text that is cut after `most` characters, with a mark. */
export function shown(text: string, most = MOST): string {
  if (text.length <= most) return visible(text);
  const cut = Array.from(text.slice(0, most * 2)).slice(0, most).join("");
  return cut.length < text.length ? `${visible(cut)}…` : visible(cut);
}
