// The blocks of a recording as boxes to draw, at every zoom: what is narrower than a pixel is merged, never left out.
//
// A box is x0, x1 (along the axis of time or of events), y and height (in units of `yUnit` bytes), and its paint:
// line | shade << 16 | coverage << 24.
//
// Blocks are grouped by the power of two above their width. Of a group whose blocks are wider than a pixel, each is drawn;
// those that can be seen are a contiguous stretch of it, since a group is in order of birth:
//
//     births in [left - widest, right]      so no box is copied or uploaded again while one pans and zooms.
//
// The narrower groups are merged, once for each power of two, into buckets of that width: in each bucket, cells of the
// stack's height take the line that held most bytes there for the longest, and pale with the time that they stood empty.
// Blocks lower than a cell are merged up to a larger width: there are many of them, and none could be told from the next.

import { lowerBound, upperBound } from "./recording.js";

export const TEXTURE_WIDTH = 2048; // boxes lie in textures of so many a row
const NUM_GROUPS = 33;
const NUM_CELLS = 400; // a stack's height, merged
const LOW_EXTRA = 6; // groups by which low blocks are merged further
const MOST_DRAWN = 12000; // single boxes in view; where there are more, some are merged
const MOST_LEVELS = 8; // kept at a time

// Boxes in a row of memory that grows, whole rows of a texture at a time.
export class BoxArray {
  constructor(room) {
    this.count = 0;
    this.reserve(room);
  }

  reserve(room) {
    const padded = Math.max(1, Math.ceil(room / TEXTURE_WIDTH)) * TEXTURE_WIDTH;
    const places = new Uint32Array(padded * 4);
    const paints = new Uint32Array(padded);
    if (this.places) {
      places.set(this.places);
      paints.set(this.paints);
    }
    Object.assign(this, { places, paints });
  }

  push(x0, x1, y, height, paint) {
    if (this.count === this.paints.length) this.reserve(this.count * 2);
    const at = this.count * 4;
    this.places[at] = x0;
    this.places[at + 1] = x1;
    this.places[at + 2] = y;
    this.places[at + 3] = height;
    this.paints[this.count++] = paint;
  }
}

// The axis that boxes lie along: `at(event)` is where the state after it begins; all of it is [0, end).
export class Axis {
  constructor(recording, kind) {
    this.kind = kind;
    this.recording = recording;
    if (kind === "events") {
      this.unit = 1;
      this.end = recording.numEvents + 1;
    } else {
      this.unit = Math.max(1, recording.spanUs / 2 ** 30);
      this.end = Math.max(1, Math.ceil(recording.spanUs / this.unit));
    }
  }

  at(event) {
    const { recording } = this;
    if (event >= recording.numEvents) return this.end;
    if (this.kind === "events") return event + 1;
    return event < 0 ? 0 : Math.round(recording.time[event] / this.unit);
  }

  // The last event at or left of a place.
  eventAt(x) {
    if (this.kind === "events") return Math.max(-1, Math.min(this.recording.numEvents - 1, Math.floor(x) - 1));
    return this.recording.eventAt((x + 0.5) * this.unit);
  }

  label(x, step) {
    if (this.kind === "events") return Math.round(x - 1).toLocaleString("en");
    const us = x * this.unit;
    const stepUs = step * this.unit;
    const [unit, per] = stepUs >= 1e6 ? ["s", 1e6] : stepUs >= 1000 ? ["ms", 1000] : ["µs", 1];
    const digits = Math.max(0, -Math.floor(Math.log10(stepUs / per) + 1e-9));
    return `${(us / per).toFixed(Math.min(digits, 6))} ${unit}`;
  }
}

export class Boxes {
  constructor(recording, axis) {
    this.recording = recording;
    this.axis = axis;
    this.yUnit = Math.max(512, recording.head.drawn_height / 2 ** 30);
    this.height = Math.max(1, Math.ceil(recording.head.drawn_height / this.yUnit));
    this.cell = Math.max(1, this.height / NUM_CELLS);
    this.levels = new Map();
    this.measure();
    this.group();
  }

  // Each block's place along the axis, and which group it is of: by width, and apart by whether it is low.
  measure() {
    const { recording, axis } = this;
    const count = recording.numBlocks;
    this.x0 = new Uint32Array(count);
    this.x1 = new Uint32Array(count);
    this.groupOf = new Uint8Array(count);
    for (let i = 0; i < count; i++) {
      const x0 = (this.x0[i] = axis.at(recording.birth[i]));
      const x1 = (this.x1[i] = Math.max(x0, axis.at(recording.death[i])));
      const isLow = recording.size[i] / this.yUnit < this.cell ? NUM_GROUPS : 0;
      this.groupOf[i] = 32 - Math.clz32(x1 - x0) + isLow;
    }
  }

  group() {
    const { recording } = this;
    const starts = new Uint32Array(2 * NUM_GROUPS + 1);
    for (const group of this.groupOf) starts[group + 1]++;
    for (let group = 0; group < 2 * NUM_GROUPS; group++) starts[group + 1] += starts[group];
    this.starts = starts;
    const next = starts.slice();
    this.rows = new Uint32Array(recording.numBlocks); // in the order of the groups
    for (let i = 0; i < recording.numBlocks; i++) this.rows[next[this.groupOf[i]]++] = i;
    this.left = new Uint32Array(recording.numBlocks);
    this.single = new BoxArray(recording.numBlocks);
    for (let place = 0; place < this.rows.length; place++) {
      const row = this.rows[place];
      this.left[place] = this.x0[row];
      const y = Math.round(recording.drawn[row] / this.yUnit);
      const height = Math.max(1, Math.round(recording.size[row] / this.yUnit));
      this.single.push(this.x0[row], this.x1[row], y, height, paint(recording.line[row], recording.site[row], 255));
    }
  }

  // The stretches of single boxes, and of those of a merged level, that show [x0, x1) in `pixels` columns.
  inView(x0, x1, pixels) {
    let found = this.stretches(x0, x1, -1);
    if (found.count <= MOST_DRAWN) return { single: found.stretches, merged: null };
    let level = Math.max(0, Math.ceil(Math.log2(Math.max((x1 - x0) / pixels, 1))));
    found = this.stretches(x0, x1, level);
    while (found.count > MOST_DRAWN && level < 31) found = this.stretches(x0, x1, ++level);
    return { single: found.stretches, merged: this.mergedInView(x0, x1, level) };
  }

  // The levels that zooming in from the whole will ask for, coarsest first.
  levelsAhead(pixels) {
    const levels = [];
    for (let width = this.axis.end; width >= 8; width /= 2) {
      const middle = this.axis.end / 2;
      if (this.stretches(middle - width / 2, middle + width / 2, -1).count <= MOST_DRAWN) break;
      levels.push(Math.max(0, Math.ceil(Math.log2(Math.max(width / pixels, 1)))));
    }
    return [...new Set(levels)].slice(0, MOST_LEVELS);
  }

  stretches(x0, x1, level) {
    const stretches = [];
    let count = 0;
    for (let group = 0; group < 2 * NUM_GROUPS; group++) {
      if (isMerged(group, level) || this.starts[group] === this.starts[group + 1]) continue;
      const [begin, end] = this.stretch(group, x0, x1);
      if (begin < end) stretches.push([begin, end]);
      count += end - begin;
    }
    return { stretches, count };
  }

  // The boxes of a group that begin early enough to be seen and not too late.
  stretch(group, x0, x1) {
    const begin = this.starts[group];
    const end = this.starts[group + 1];
    const widest = 2 ** (group % NUM_GROUPS);
    return [
      lowerBound(this.left, Math.max(0, Math.floor(x0 - widest)), begin, end),
      upperBound(this.left, Math.ceil(x1), begin, end),
    ];
  }

  mergedInView(x0, x1, level) {
    const merged = this.level(level);
    const width = 2 ** level;
    const { boxes, left } = merged;
    const begin = lowerBound(left, Math.max(0, Math.floor(x0 - width)), 0, boxes.count);
    const end = upperBound(left, Math.ceil(x1), 0, boxes.count);
    return begin < end ? { boxes, stretch: [begin, end] } : null;
  }

  level(level) {
    let found = this.levels.get(level);
    if (found) this.levels.delete(level);
    else found = this.merge(level);
    this.levels.set(level, found); // the last used comes last
    if (this.levels.size > MOST_LEVELS) {
      const [oldest, dropped] = this.levels.entries().next().value;
      this.levels.delete(oldest);
      dropped.boxes.isDropped = true;
      this.dropped = dropped.boxes;
    }
    return found;
  }

  merge(level) {
    const out = new Merging(level, this.cell);
    const { recording } = this;
    for (let i = 0; i < recording.numBlocks; i++) {
      if (!isMerged(this.groupOf[i], level)) continue;
      const y0 = recording.drawn[i] / this.yUnit;
      out.add(this.x0[i], this.x1[i], y0, y0 + recording.size[i] / this.yUnit, recording.line[i]);
    }
    return out.finish();
  }

  // The block at a place: the row of the one that covers most of [x0, x1) at height y, or -1.
  pick(x0, x1, y) {
    const { recording } = this;
    let best = -1;
    let most = 0;
    for (let group = 0; group < 2 * NUM_GROUPS; group++) {
      const [begin, end] = this.stretch(group, x0, x1);
      for (let place = begin; place < end; place++) {
        const row = this.rows[place];
        const low = recording.drawn[row] / this.yUnit;
        if (y < low || y >= low + recording.size[row] / this.yUnit || this.x1[row] <= x0 || this.x0[row] >= x1) continue;
        const covered = Math.min(this.x1[row], x1) - Math.max(this.x0[row], x0) || 1e-9;
        if (covered > most) [best, most] = [row, covered];
      }
    }
    return best;
  }
}

// Level -1 merges nothing.
function isMerged(group, level) {
  if (level < 0) return false;
  return group < NUM_GROUPS ? group <= level : group - NUM_GROUPS <= level + LOW_EXTRA;
}

export function paint(line, site, coverage) {
  const shade = site < 0 ? 8 : (site * 7 + 5) & 15;
  return ((Math.min(line, 65535) | (shade << 16) | (coverage << 24)) >>> 0);
}

// Merges boxes that come in order of their left ends into buckets along the axis. Open buckets are a ring: a box reaches
// over few of them, and what lies left of the newest box is complete.
class Merging {
  constructor(level, cell) {
    this.width = 2 ** level;
    this.cell = cell;
    this.open = new Map();
    this.spare = [];
    this.boxes = new BoxArray(1 << 14);
    this.left = [];
    this.firstOpen = 0;
  }

  add(x0, x1, y0, y1, line) {
    const first = Math.floor(x0 / this.width);
    const last = Math.floor(Math.max(x0, x1 - 1) / this.width);
    if (first > this.firstOpen) this.close(first);
    const low = Math.min(NUM_CELLS - 1, Math.floor(y0 / this.cell));
    const high = Math.min(NUM_CELLS - 1, Math.max(low, Math.ceil(y1 / this.cell) - 1));
    for (let index = first; index <= last; index++) {
      const bucket = this.bucket(index);
      const begin = index * this.width;
      const time = Math.max(Math.min(x1, begin + this.width) - Math.max(x0, begin), this.width / 64);
      bucket.low = Math.min(bucket.low, low);
      bucket.high = Math.max(bucket.high, high);
      for (let cell = low; cell <= high; cell++) {
        const share = Math.min(y1, (cell + 1) * this.cell) - Math.max(y0, cell * this.cell);
        bucket.add(cell, line, (time * share) / (this.width * this.cell));
      }
    }
  }

  bucket(index) {
    let found = this.open.get(index);
    if (!found) {
      found = this.spare.pop() || new Bucket();
      this.open.set(index, found);
    }
    return found;
  }

  close(before) {
    for (const index of [...this.open.keys()].sort((a, b) => a - b)) {
      if (index >= before) break;
      const bucket = this.open.get(index);
      this.open.delete(index);
      bucket.flush((low, high, color) => this.push(index, low, high, color));
      this.spare.push(bucket);
    }
    this.firstOpen = before;
  }

  push(index, low, high, color) {
    const y = Math.floor(low * this.cell);
    const height = Math.max(1, Math.ceil((high + 1) * this.cell) - y);
    this.boxes.push(index * this.width, (index + 1) * this.width, y, height, color);
    this.left.push(index * this.width);
  }

  finish() {
    this.close(Infinity);
    return { boxes: this.boxes, left: Float64Array.from(this.left) };
  }
}

class Bucket {
  constructor() {
    this.covered = new Float32Array(NUM_CELLS);
    this.most = new Float32Array(NUM_CELLS); // the lead of the line that the cell shows
    this.line = new Int32Array(NUM_CELLS);
    this.low = NUM_CELLS;
    this.high = -1;
  }

  // Keeps the line that covers most, found by letting others cancel it out.
  add(cell, line, amount) {
    this.covered[cell] += amount;
    if (this.line[cell] === line && this.most[cell] > 0) {
      this.most[cell] += amount;
    } else if (amount > this.most[cell]) {
      this.most[cell] = amount - this.most[cell];
      this.line[cell] = line;
    } else {
      this.most[cell] -= amount;
    }
  }

  // Gives each run of cells that look the same, and empties the bucket.
  flush(give) {
    let begin = -1;
    let color = 0;
    for (let cell = this.low; cell <= this.high + 1; cell++) {
      const covered = cell <= this.high ? this.covered[cell] : 0;
      const look = covered > 0 ? paint(this.line[cell], -1, coverage(covered)) : 0;
      if (begin >= 0 && (covered === 0 || look !== color)) {
        give(begin, cell - 1, color);
        begin = -1;
      }
      if (covered > 0 && begin < 0) [begin, color] = [cell, look];
      if (cell <= this.high) {
        this.covered[cell] = 0;
        this.most[cell] = 0;
      }
    }
    this.low = NUM_CELLS;
    this.high = -1;
  }
}

// Three steps of paleness, so that neighbours look the same and join; nothing is too pale to be seen.
function coverage(share) {
  return share > 0.6 ? 255 : share > 0.25 ? 190 : 120;
}
