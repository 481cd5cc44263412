// The memory at an instant: segments with their blocks at their true places, and what is free between them.

const MOST_GHOSTS = 2000;

// Pieces of a segment in order of place: blocks and gaps. A gap is a hole where something lives in its segment, and cached
// where nothing does.
// With `since`, segments that were given back after that event and before the instant are there too, as ghosts.
export function layoutAt(recording, event, since = null) {
  const segments = new Map();
  const ghosts = [];
  for (let s = 0; s < recording.segmentBirth.length; s++) {
    if (recording.segmentBirth[s] <= event && recording.segmentDeath[s] > event) {
      segments.set(s, { segment: s, size: recording.segmentSize[s], blocks: [], liveBytes: 0, isGhost: false });
    } else if (since !== null && recording.segmentDeath[s] > since && recording.segmentDeath[s] <= event) {
      ghosts.push(ghostOf(recording, s));
    }
  }
  for (const row of recording.activeAt(event)) {
    const found = segments.get(recording.segment[row]);
    if (!found) continue;
    found.blocks.push(row);
    found.liveBytes += recording.size[row];
  }
  for (const one of segments.values()) {
    one.blocks.sort((a, b) => recording.place[a] - recording.place[b]);
    one.pieces = piecesOf(recording, one, event);
  }
  const order = (a, b) => poolRank(recording, a) - poolRank(recording, b) || Number(a.isGhost) - Number(b.isGhost) || b.size - a.size || a.segment - b.segment;
  return [...segments.values(), ...ghosts.slice(-MOST_GHOSTS)].sort(order);
}

function ghostOf(recording, segment) {
  const size = recording.segmentSize[segment];
  return { segment, size, blocks: [], liveBytes: 0, isGhost: true, pieces: [{ kind: "ghost", place: 0, size, row: -1, segment }] };
}

function piecesOf(recording, one, event) {
  const pieces = [];
  let at = 0;
  const gap = (end) => {
    if (end > at) pieces.push({ kind: one.blocks.length ? "hole" : "cached", place: at, size: end - at, row: -1, segment: one.segment });
  };
  for (const row of one.blocks) {
    gap(recording.place[row]);
    const kind = recording.free[row] <= event ? "pending" : "block";
    pieces.push({ kind, place: recording.place[row], size: recording.size[row], row, segment: one.segment });
    at = Math.max(at, recording.place[row] + recording.size[row]);
  }
  gap(one.size);
  return pieces;
}

// Default pools first, the large one before the small one, then private pools.
function poolRank(recording, { segment }) {
  const pool = recording.segmentPool[segment];
  return pool >= 0 ? 10 + pool : [1, 0, 2][recording.segmentPoolSize[segment]];
}

// Lays segments out as lines of text are: in rows of so many bytes, a long one over several.
export class Rows {
  constructor(recording, layout, width, bytesPerRow, rowHeight) {
    this.pieces = [];
    this.frames = [];
    this.headings = [];
    const perPixel = bytesPerRow / width;
    let x = 0;
    let y = 0;
    let pool = null;
    for (const one of layout) {
      const name = recording.poolText(one.segment);
      if (name !== pool) {
        if (pool !== null) y += rowHeight + 6;
        this.headings.push({ name, y, segments: layout.filter((other) => recording.poolText(other.segment) === name) });
        [pool, x, y] = [name, 0, y + 20];
      }
      const wide = one.size / perPixel;
      if (x > 0 && x + Math.min(wide, width / 3) > width) [x, y] = [0, y + rowHeight];
      this.flow(one, x, y, width, perPixel, rowHeight);
      const end = x + wide;
      y += Math.floor(end / width) * rowHeight;
      x = (end % width) + 2;
    }
    this.height = y + rowHeight + 4;
    this.rowHeight = rowHeight;
  }

  flow(one, x, y, width, perPixel, rowHeight) {
    const put = (into, place, size, what) => {
      let from = x + place / perPixel;
      const to = Math.max(from + size / perPixel, from + 0.4);
      while (from < to) {
        const row = Math.floor(from / width);
        const until = Math.min(to, (row + 1) * width);
        if (until <= from) break;
        into.push({ x: from - row * width, y: y + row * rowHeight, width: until - from, what });
        from = until;
      }
    };
    put(this.frames, 0, one.size, one);
    for (const piece of one.pieces) put(this.pieces, piece.place, piece.size, piece);
  }

  // The piece at a place; null of none.
  at(x, y) {
    for (let i = this.pieces.length - 1; i >= 0; i--) {
      const piece = this.pieces[i];
      if (y >= piece.y && y < piece.y + this.rowHeight - 3 && x >= piece.x && x < piece.x + Math.max(piece.width, 1)) return piece.what;
    }
    return null;
  }
}

// What keeps a hole's segment from being given back: its neighbours, and all that lives there by line, least first.
export function pinsOf(recording, layout, hole) {
  const one = layout.find((other) => other.segment === hole.segment);
  const index = one.blocks.findIndex((row) => recording.place[row] >= hole.place);
  const above = index < 0 ? -1 : one.blocks[index];
  const below = index < 0 ? one.blocks[one.blocks.length - 1] : index > 0 ? one.blocks[index - 1] : -1;
  const free = one.size - one.liveBytes;
  const { bytes, counts } = recording.byLine(one.blocks);
  const lines = [...bytes.keys()].filter((line) => counts[line]).sort((a, b) => bytes[a] - bytes[b]);
  return { one, free, above, below, lines: lines.map((line) => ({ line, bytes: bytes[line], count: counts[line] })) };
}
