// The answers inside a page that is a file: compressed, by question.

interface Kept {
  /** Base64 of the gzip of the answer. */
  data: string;
  left_out: number;
}

function place(): Map<string, Kept> | undefined {
  if (typeof document === "undefined") return undefined;
  const element = document.getElementById("answers");
  if (!element?.textContent) return undefined;
  return new Map(Object.entries(JSON.parse(element.textContent) as Record<string, Kept>));
}

const kept = place();

async function unpack(text: string): Promise<Uint8Array> {
  const packed = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** Looks an answer up; undefined where the page has a server. */
export const answers =
  kept &&
  (async (question: string): Promise<{ bytes: Uint8Array; leftOut: number } | undefined> => {
    const found = kept.get(question);
    return found && { bytes: await unpack(found.data), leftOut: found.left_out };
  });
