// The address space at the chosen instant.

import { bytesText, capitalText, durationText, pluralText } from "./words.js";
import { el, fill, pressable, showTip, Surface, themed } from "./elements.js";
import { layoutAt, pinsOf, Rows } from "./layout.js";
import { blockTip, instantText, lineLabel } from "./block_text.js";

const ROW = 22;

export class AddressView {
  constructor(parent, state) {
    this.state = state;
    this.parent = parent;
    this.zoomed = 1;
    this.summary = el("span.summary");
    const button = (text, title, act) => el("button", { title, "aria-label": title, onclick: act }, text);
    this.slider = el("input.scrub", { type: "range", min: -1, max: 0, step: 1, "aria-label": "Instant", oninput: () => state.set({ event: Number(this.slider.value) }) });
    this.ghosts = el("input", { type: "checkbox", onchange: () => this.load() });
    this.scroller = el("div.scroller");
    this.sheet = this.scroller.appendChild(el("div.sheet"));
    this.side = el("aside.side");
    parent.append(
      el("div.tools", {}, this.summary, el("label", { title: "Also segments that were given back in the stretch of time that is shown" }, this.ghosts, " ghosts"), this.slider, button("−", "Smaller", () => this.zoom(1 / 1.5)), button("+", "Larger", () => this.zoom(1.5))),
      el("div.split", {}, this.scroller, this.side),
    );
    this.surface = new Surface(this.sheet, () => this.draw(), "Segments and blocks at the chosen instant");
    new ResizeObserver(() => this.arrange()).observe(this.scroller);
    const canvas = this.surface.canvas;
    canvas.addEventListener("pointermove", (event) => this.hover(event));
    canvas.addEventListener("pointerleave", () => showTip(null));
    canvas.addEventListener("click", (event) => this.click(event));
    state.on(["recording", "event", "tab"], () => this.load());
    state.on(["shown", "colors", "theme", "block", "hole"], () => this.draw());
    state.on(["hole"], () => this.layout && this.describeSide());
  }

  load() {
    if (this.state.get("tab") !== "address") return;
    const { state } = this;
    this.recording = state.get("recording");
    this.event = state.get("event");
    const since = this.ghosts.checked ? state.get("axis").eventAt(state.get("view").x0) : null;
    this.layout = layoutAt(this.recording, this.event, since);
    this.slider.max = Math.max(this.recording.numEvents - 1, 0);
    this.slider.value = this.event;
    state.set({ hole: null });
    this.arrange();
    this.describe();
  }

  zoom(factor) {
    this.zoomed = Math.min(Math.max(this.zoomed * factor, 1), 4096);
    this.arrange();
  }

  // So many bytes to a row that all of it fits, or so many fewer as it is zoomed.
  arrange() {
    const width = this.scroller.clientWidth - 4;
    if (!this.layout || width < 50) return;
    const total = this.layout.reduce((sum, one) => sum + one.size, 0) || 1;
    const pools = new Set(this.layout.map((one) => this.recording.poolText(one.segment))).size;
    const rows = Math.max(2, Math.floor((this.scroller.clientHeight - pools * (26 + ROW)) / ROW));
    let bytesPerRow = (total / rows) * 1.02;
    if (this.zoomed > 1) bytesPerRow /= this.zoomed;
    this.rows = new Rows(this.recording, this.layout, width, bytesPerRow, ROW);
    this.sheet.style.height = `${Math.min(this.rows.height, 16000)}px`;
    this.surface.fit();
    this.draw();
  }

  describe() {
    const { recording, layout } = this;
    const there = layout.filter((one) => !one.isGhost);
    const sum = (of) => there.reduce((total, one) => total + of(one), 0);
    const live = sum((one) => one.liveBytes);
    const whole = sum((one) => one.size);
    const holes = sum((one) => (one.blocks.length ? one.size - one.liveBytes : 0));
    this.totals = { live, whole, holes, cached: whole - live - holes };
    fill(this.summary, el("b", {}, capitalText(instantText(recording, this.event))), `: ${bytesText(whole)} in ${pluralText(there.length, "segment")}, ${bytesText(live)} live`);
    this.describeSide();
  }

  draw() {
    if (this.state.get("tab") !== "address" || !this.rows || !this.surface.width) return;
    const context = this.surface.context();
    const { recording } = this;
    const colors = this.state.get("colors");
    const shown = this.state.get("shown");
    const chosen = this.state.get("block");
    const hatch = hatched(context);
    const height = ROW - 4;
    context.fillStyle = themed("muted");
    for (const { name, y, segments: all } of this.rows.headings) {
      const segments = all.filter((one) => !one.isGhost);
      const ghosts = all.length - segments.length;
      const gone = ghosts ? `; ${pluralText(ghosts, "segment")} given back before` : "";
      const free = segments.reduce((total, one) => total + one.size - one.liveBytes, 0);
      const bytes = segments.reduce((total, one) => total + one.size, 0);
      context.fillText(`${name}: ${bytesText(bytes)} in ${pluralText(segments.length, "segment")}, ${bytesText(free)} free${gone}`, 2, y + 9);
    }
    for (const { x, y, width, what } of this.rows.pieces) {
      if (what.kind === "ghost") context.fillStyle = themed("ghost");
      else if (what.kind === "hole") context.fillStyle = hatch;
      else if (what.kind === "cached") context.fillStyle = themed("cached");
      else {
        const alpha = what.kind === "pending" ? 0.55 : 1;
        context.fillStyle = colors.css(recording.line[what.row], !shown || shown.has(recording.line[what.row]) ? alpha : alpha * 0.22);
      }
      const inset = width > 4 ? 0.5 : 0;
      context.fillRect(x, y, Math.max(width - inset, 0.6), height);
      if (what === this.state.get("hole") || (chosen !== null && chosen >= 0 && what.row === chosen)) {
        context.strokeStyle = themed("select");
        context.lineWidth = 2;
        context.strokeRect(x + 1, y + 1, Math.max(width - 2, 1), height - 2);
      }
    }
    context.strokeStyle = themed("frame");
    context.lineWidth = 1;
    for (const { x, y, width, what } of this.rows.frames) {
      context.setLineDash(what.isGhost ? [2, 3] : []);
      if (width > 3) context.strokeRect(x + 0.5, y + 0.5, width - 1, height - 1);
    }
    context.setLineDash([]);
  }

  pieceAt(event) {
    const box = this.surface.canvas.getBoundingClientRect();
    return this.rows ? this.rows.at(event.clientX - box.left, event.clientY - box.top) : null;
  }

  hover(event) {
    const piece = this.pieceAt(event);
    if (!piece) return showTip(null);
    const { recording } = this;
    const segment = `segment of ${bytesText(recording.segmentSize[piece.segment])}, ${recording.poolText(piece.segment)}, ${recording.streamText(piece.segment)}`;
    if (piece.row >= 0) {
      const state = piece.kind === "pending" ? "freed, waits for a stream" : recording.addressText(piece.row);
      showTip([el("b", {}, state), ...blockTip(recording, piece.row, this.state.get("colors")).slice(1), segment], event.clientX, event.clientY);
    } else if (piece.kind === "ghost") {
      const [birth, death] = [recording.segmentBirth[piece.segment], recording.segmentDeath[piece.segment]];
      const made = birth < 0 ? "before the recording" : durationText(recording.timeOf(birth));
      showTip([el("b", {}, `a ghost: ${bytesText(piece.size)} given back`), `made ${made}, given back ${durationText(recording.timeOf(death))}`, segment], event.clientX, event.clientY);
    } else {
      const what = piece.kind === "hole" ? "hole: free, but its segment is pinned. Click: by what" : "cached: nothing lives in this segment";
      showTip([el("b", {}, `${bytesText(piece.size)} free`), what, segment], event.clientX, event.clientY);
    }
  }

  click(event) {
    const piece = this.pieceAt(event);
    const hole = piece && piece.kind === "hole" ? piece : null;
    if (piece && piece.row >= 0) this.state.set({ hole, block: piece.row, line: this.recording.line[piece.row] });
    else this.state.set({ hole, block: -1 });
  }

  describeSide() {
    fill(this.side, ...(this.state.get("hole") ? this.holeText(this.state.get("hole")) : this.wholeText()));
  }

  wholeText() {
    const { live, holes, cached } = this.totals;
    const row = (kind, label, bytes) => el("div.key", {}, el(`span.box.${kind}`), el("span", {}, label), el("span.number", {}, bytesText(bytes)));
    return [
      row("live", "live, in its line's colour", live),
      row("hole", "holes: free, beside live blocks", holes),
      row("cached", "cached: whole free segments", cached),
      el("p.hint", {}, "Click a hole to see what pins it."),
    ];
  }

  holeText(hole) {
    const { recording, layout } = this;
    const colors = this.state.get("colors");
    const { one, free, above, below, lines } = pinsOf(recording, layout, hole);
    const choose = (row) => this.state.set({ block: row, line: recording.line[row] });
    const neighbour = (label, row) =>
      row < 0 ? null : el("div.pin", pressable(() => choose(row)), el("div.hint", {}, label), lineLabel(recording, recording.line[row], colors), el("div", {}, `${bytesText(recording.size[row])}, ${this.age(row)} old`));
    return [
      el("h3", {}, `A hole of ${bytesText(hole.size)}`),
      el("p", {}, `Its segment of ${bytesText(one.size)} has ${bytesText(free)} free and cannot go back: ${pluralText(one.blocks.length, "block")} with ${bytesText(one.liveBytes)} ${one.blocks.length === 1 ? "lives" : "live"} in it.`),
      neighbour("below it", below),
      neighbour("above it", above),
      el("div.hint", {}, "all that pins the segment, least first"),
      ...lines.slice(0, 12).map(({ line, bytes, count }) => el("div.pin", {}, lineLabel(recording, line, colors), el("div", {}, `${bytesText(bytes)} in ${pluralText(count, "block")}`))),
    ];
  }

  age(row) {
    const { recording } = this;
    if (recording.birth[row] < 0) return "more than the recording";
    return durationText(recording.timeOf(this.event) - recording.timeOf(recording.birth[row]));
  }
}

function hatched(context) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 8;
  const pen = tile.getContext("2d");
  pen.fillStyle = themed("hole");
  pen.fillRect(0, 0, 8, 8);
  pen.strokeStyle = themed("hatch");
  pen.lineWidth = 1.6;
  pen.beginPath();
  for (const shift of [-8, 0, 8]) {
    pen.moveTo(shift, 8);
    pen.lineTo(shift + 8, 0);
  }
  pen.stroke();
  return context.createPattern(tile, "repeat");
}
