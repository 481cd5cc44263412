// One GPU's recording as arrays, and the questions that views ask of it.
//
// Events are numbered from 0; the state "after event e" holds until the next one, and e = -1 is the state before the first.
// A block is allocated from its birth to its free, and active to its death; `numEvents` stands for "not in this recording".

import { plainText, shortFile } from "./words.js";

const PYTHON_RANKS = 3; // frames below this rank are Python's; the rest is native

export class Recording {
  constructor({ head, columns }) {
    this.head = head;
    this.numEvents = head.num_events;
    this.time = columns.event_time(Float64Array);
    this.spanUs = this.numEvents ? this.time[this.numEvents - 1] : 0;
    this.stepStarts = columns.step_starts(Int32Array);
    this.readSites(columns);
    this.readBlocks(columns);
    this.readSegments(columns);
    this.findings = head.findings;
    this.peakEvent = head.peak_event;
    this.peakReserved = this.reservedBytes.reduce((a, b) => Math.max(a, b), 0);
  }

  readSites(columns) {
    const { head } = this;
    this.siteLine = columns.site_line(Int32Array);
    this.siteStarts = columns.site_starts(Int32Array);
    this.siteFrames = columns.site_frames(Int32Array);
    this.frameFile = columns.frame_file(Int32Array);
    this.frameLine = columns.frame_line(Int32Array);
    this.frameFunction = columns.frame_function(Int32Array);
    this.frameRank = columns.frame_rank(Uint8Array);
    this.files = head.files.map(plainText);
    this.functions = head.functions.map(plainText);
    this.lines = head.lines.map((line) => this.named(this.files[line.file], line.line, plainText(line.function)));
    this.noStack = this.lines.push({ name: "(no Python stack)", file: "", line: 0, function: "" }) - 1;
    this.before = this.lines.push({ name: "(before the recording)", file: "", line: 0, function: "" }) - 1;
    this.categories = head.categories.map(plainText);
  }

  named(file, line, name) {
    return { name: line ? `${shortFile(file)}:${line}` : shortFile(file), file, line, function: name };
  }

  readBlocks(columns) {
    const birth = (this.birth = columns.block_birth(Int32Array));
    const count = (this.numBlocks = birth.length);
    const life = columns.block_life(Int32Array);
    const wait = columns.block_wait(Int32Array);
    this.free = new Int32Array(count);
    this.death = new Int32Array(count);
    const kind = columns.block_kind(Int32Array);
    const sizes = columns.kind_size(Float64Array);
    const requested = columns.kind_requested(Float64Array);
    const sites = columns.kind_site(Int32Array);
    const categories = columns.kind_category(Int32Array);
    this.size = new Float64Array(count);
    this.requested = new Float64Array(count);
    this.site = new Int32Array(count);
    this.category = new Int32Array(count); // from 1; 0 is none
    this.line = new Int32Array(count);
    for (let i = 0; i < count; i++) {
      const k = kind[i];
      this.free[i] = birth[i] + life[i];
      this.death[i] = this.free[i] + wait[i];
      this.size[i] = sizes[k];
      this.requested[i] = requested[k];
      const site = (this.site[i] = sites[k]);
      this.category[i] = categories[k];
      this.line[i] = site >= 0 ? this.siteLine[site] : birth[i] < 0 ? this.before : this.noStack;
    }
    this.segment = columns.block_segment(Int32Array);
    this.place = columns.block_place(Float64Array);
    this.drawn = columns.block_drawn(Float64Array);
  }

  readSegments(columns) {
    this.segmentBirth = columns.segment_birth(Int32Array);
    this.segmentDeath = columns.segment_death(Int32Array);
    this.segmentSize = columns.segment_size(Float64Array);
    this.segmentPool = columns.segment_pool(Int32Array);
    this.segmentPoolSize = columns.segment_pool_size(Uint8Array);
    this.segmentStream = columns.segment_stream(Int32Array);
    this.segmentExpandable = columns.segment_expandable(Uint8Array);
    this.segmentLow = columns.segment_address_low(Float64Array);
    this.segmentHigh = columns.segment_address_high(Float64Array);
    this.streams = columns.streams(Float64Array);
    this.reservedEvent = columns.reserved_event(Int32Array);
    this.reservedBytes = columns.reserved_bytes(Float64Array);
  }

  // Microseconds since the first event; the state before it has its time.
  timeOf(event) {
    return event < 0 || !this.numEvents ? 0 : this.time[Math.min(event, this.numEvents - 1)];
  }

  // The last event at or before a time; -1 is before the first.
  eventAt(us) {
    return upperBound(this.time, us) - 1;
  }

  stepOf(event) {
    return upperBound(this.stepStarts, event);
  }

  // The rows of the blocks that are allocated after an event.
  liveAt(event) {
    return this.where((i) => this.birth[i] <= event && this.free[i] > event);
  }

  // The rows of the blocks that hold memory after an event: also those that wait for a stream.
  activeAt(event) {
    return this.where((i) => this.birth[i] <= event && this.death[i] > event);
  }

  // The rows of the blocks born in [begin, end).
  bornIn(begin, end) {
    const rows = [];
    for (let i = lowerBound(this.birth, begin); i < this.numBlocks && this.birth[i] < end; i++) rows.push(i);
    return rows;
  }

  where(holds) {
    const rows = [];
    for (let i = 0; i < this.numBlocks; i++) if (holds(i)) rows.push(i);
    return rows;
  }

  // Bytes and number of blocks by line.
  byLine(rows) {
    const bytes = new Float64Array(this.lines.length);
    const counts = new Int32Array(this.lines.length);
    for (const row of rows) {
      bytes[this.line[row]] += this.size[row];
      counts[this.line[row]] += 1;
    }
    return { bytes, counts };
  }

  reservedAt(event) {
    return this.reservedBytes[Math.max(upperBound(this.reservedEvent, event) - 1, 0)] || 0;
  }

  // The sum of the sizes of allocated (or of active) blocks after each event; [0] is before the first.
  sums(ends) {
    const after = new Float64Array(this.numEvents + 1);
    for (let i = 0; i < this.numBlocks; i++) {
      if (ends[i] <= this.birth[i]) continue;
      after[this.birth[i] + 1] += this.size[i];
      if (ends[i] < this.numEvents) after[ends[i] + 1] -= this.size[i];
    }
    for (let e = 1; e <= this.numEvents; e++) after[e] += after[e - 1];
    return after;
  }

  get allocated() {
    return (this.allocatedSums ||= this.sums(this.free));
  }

  get active() {
    return (this.activeSums ||= this.sums(this.death));
  }

  segmentAddress(segment) {
    return this.segmentHigh[segment] * 2 ** 32 + this.segmentLow[segment];
  }

  addressText(row) {
    const segment = this.segment[row];
    const address = (BigInt(this.segmentHigh[segment]) << 32n) + BigInt(this.segmentLow[segment]) + BigInt(this.place[row]);
    return `0x${address.toString(16)}`;
  }

  poolText(segment) {
    const pool = this.segmentPool[segment];
    if (pool >= 0) return `private pool ${this.head.pools[pool]}`;
    return ["small pool", "large pool", "unknown pool"][this.segmentPoolSize[segment]];
  }

  streamText(segment) {
    const stream = this.streams[this.segmentStream[segment]];
    return stream === 0 ? "default stream" : `stream 0x${stream.toString(16)}`;
  }

  // A site's Python frames, outermost first.
  pythonFrames(site) {
    const frames = [];
    if (site < 0) return frames;
    for (let i = this.siteStarts[site + 1] - 1; i >= this.siteStarts[site]; i--) {
      if (this.frameRank[this.siteFrames[i]] < PYTHON_RANKS) frames.push(this.siteFrames[i]);
    }
    return frames;
  }

  frameText(frame) {
    const { name } = this.named(this.files[this.frameFile[frame]], this.frameLine[frame], "");
    return `${name} ${this.functions[this.frameFunction[frame]]}`;
  }

  // The lines with a frame in any of their stacks that contains a text, as a set; null for an empty text.
  linesWith(text) {
    const wanted = text.trim().toLowerCase();
    if (!wanted) return null;
    const holds = (value) => value.toLowerCase().includes(wanted);
    const frameHolds = Array.from(this.frameFile, (_, frame) => holds(`${this.files[this.frameFile[frame]]}:${this.frameLine[frame]} ${this.functions[this.frameFunction[frame]]}`));
    const found = new Set();
    this.lines.forEach((line, index) => {
      if (holds(`${line.file}:${line.line} ${line.function} ${line.name}`)) found.add(index);
    });
    for (let site = 0; site < this.siteLine.length; site++) {
      for (let i = this.siteStarts[site]; i < this.siteStarts[site + 1]; i++) {
        if (frameHolds[this.siteFrames[i]]) {
          found.add(this.siteLine[site]);
          break;
        }
      }
    }
    return found;
  }
}

// The first index whose value is not below `value`, in an ascending array.
export function lowerBound(values, value, begin = 0, end = values.length) {
  while (begin < end) {
    const middle = (begin + end) >> 1;
    if (values[middle] < value) begin = middle + 1;
    else end = middle;
  }
  return begin;
}

// The first index whose value is above `value`.
export function upperBound(values, value, begin = 0, end = values.length) {
  while (begin < end) {
    const middle = (begin + end) >> 1;
    if (values[middle] <= value) begin = middle + 1;
    else end = middle;
  }
  return begin;
}
