// Reads what `columns.py` packs: one deflate stream of a length, JSON, and columns whose bytes lie grouped by place.

const WIDTHS = { u1: 1, u2: 2, u4: 4, f8: 8 };
const STORED = { u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, f8: Float64Array };

// Returns { head, columns }: plain data, and by name a function that unpacks one column into an array of a type.
export async function unpack(base64) {
  const bytes = await inflate(bytesOf(base64));
  const length = new DataView(bytes.buffer).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length)));
  const columns = {};
  let offset = 4 + length;
  for (const entry of head.columns) {
    const begin = offset;
    offset += entry.length * WIDTHS[entry.type];
    columns[entry.name] = (Type) => column(entry, bytes.subarray(begin, begin + entry.length * WIDTHS[entry.type]), Type);
  }
  return { head, columns };
}

function bytesOf(base64) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(base64);
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

async function inflate(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

function column(entry, raw, Type) {
  const { length, base, scale } = entry;
  const stored = regrouped(raw, length, entry.type);
  const out = new Type(length);
  if (entry.order === "deltas") {
    let value = 0;
    for (let i = 0; i < length; i++) {
      const coded = stored[i];
      // The lowest bit is the sign. Halving keeps what 32-bit shifts would lose.
      value += coded % 2 ? -(coded + 1) / 2 : coded / 2;
      out[i] = value * scale;
    }
  } else {
    for (let i = 0; i < length; i++) out[i] = (stored[i] + base) * scale;
  }
  return out;
}

// Puts the bytes of each number together again.
function regrouped(raw, length, type) {
  const width = WIDTHS[type];
  if (width === 1) return raw;
  const bytes = new Uint8Array(length * width);
  for (let place = 0; place < width; place++) {
    const begin = place * length;
    for (let i = 0, at = place; i < length; i++, at += width) bytes[at] = raw[begin + i];
  }
  return new STORED[type](bytes.buffer);
}
