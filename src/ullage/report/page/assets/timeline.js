// Live bytes over time: every block a box, and above them the lines of allocated, active and reserved.

import { bytesText, durationText, plainText, roundTicks } from "./words.js";
import { upperBound } from "./recording.js";
import { el, FONT, fittedText, showTip, Surface, themed } from "./elements.js";
import { Boxes } from "./boxes.js";
import { GlPainter } from "./boxes_gl.js";
import { CanvasPainter } from "./boxes_2d.js";
import { Highs } from "./highs.js";
import { blockTip } from "./block_text.js";

const LEFT = 66; // the axis of bytes
const TOP = 34; // steps and annotations
const BOTTOM = 24; // the axis of time
const RIGHT = 12;

export class Timeline {
  constructor(parent, state) {
    this.state = state;
    this.parent = parent;
    this.plot = parent.appendChild(el("div.plot"));
    this.plot.style.inset = `${TOP}px ${RIGHT}px ${BOTTOM}px ${LEFT}px`;
    this.boxSurface = new Surface(this.plot, () => this.draw(), "Blocks over time");
    this.painter = CanvasPainter.on(this.boxSurface.canvas);
    parent.dataset.painter = "canvas";
    this.over = new Surface(parent, () => this.draw(), "Lines of allocated and reserved memory over time");
    this.over.canvas.className = "over";
    this.listen();
    state.on(["recording", "axis"], () => this.load());
    state.on(["view", "event", "span", "block", "what_if_shown"], () => this.draw());
    state.on(["shown", "theme", "colors"], () => this.paint());
  }

  // Goes over to WebGL where there is one. The first picture does not wait for it: it can take a second to start.
  turnToGl() {
    const asked = new URLSearchParams(location.hash.slice(1)); // "nogl" and "webgl" settle it, for tests and measurements
    if (asked.has("nogl")) return;
    const surface = new Surface(this.plot, () => this.draw(), "Blocks over time");
    const painter = GlPainter.on(surface.canvas, asked.has("webgl"));
    if (!painter) {
      surface.canvas.remove();
      return;
    }
    surface.fit();
    this.boxSurface.canvas.remove();
    Object.assign(this, { boxSurface: surface, painter });
    surface.canvas.addEventListener("webglcontextlost", () => this.turnToCanvas());
    this.paint();
    this.parent.dataset.painter = "webgl2";
  }

  turnToCanvas() {
    const surface = new Surface(this.plot, () => this.draw(), "Blocks over time");
    surface.fit();
    this.boxSurface.canvas.remove();
    Object.assign(this, { boxSurface: surface, painter: CanvasPainter.on(surface.canvas) });
    this.parent.dataset.painter = "canvas";
    this.paint();
  }

  load() {
    const { state } = this;
    const recording = state.get("recording");
    this.recording = recording;
    this.axis = state.get("axis");
    this.painter.forgetAll();
    this.boxes = new Boxes(recording, this.axis);
    if (this.loadedRecording !== recording) {
      this.loadedRecording = recording;
      this.allocated = new Highs(recording.allocated);
      this.active = recording.head.summary.peak.active_bytes > recording.head.summary.peak.allocated_bytes ? new Highs(recording.active) : null;
    }
    this.prepare(this.boxes.levelsAhead(this.boxSurface.canvas.width));
    this.top = Math.max(recording.peakReserved, recording.head.drawn_height, 1) * 1.05;
    this.paint();
  }

  // Merges, while nothing else is to be done, what zooming in will ask for.
  prepare(levels) {
    const { boxes } = this;
    const next = () => {
      if (boxes !== this.boxes || !levels.length) return;
      boxes.level(levels.shift());
      requestIdleCallback(next);
    };
    setTimeout(() => requestIdleCallback(next), 300);
  }

  paint() {
    if (!this.boxes) return;
    this.painter.setColors(this.state.get("colors").table(this.state.get("shown"), this.state.get("isDark")));
    this.draw();
  }

  // The part of the axis and of the bytes that is shown.
  view() {
    const { x0, x1, y0 = 0, y1 = 1 } = this.state.get("view");
    return { x0, x1, low: y0 * this.top, high: y1 * this.top };
  }

  draw() {
    if (!this.boxes || !this.over.width) return;
    const { x0, x1, low, high } = this.view();
    const { boxes, painter } = this;
    painter.begin({ x0, x1, y0: low / boxes.yUnit, y1: high / boxes.yUnit });
    const { single, merged } = boxes.inView(x0, x1, this.boxSurface.canvas.width);
    if (boxes.dropped) painter.forget(boxes.dropped);
    if (merged) painter.draw(merged.boxes, [merged.stretch]);
    painter.draw(boxes.single, single);
    this.drawOver(x0, x1, low, high);
  }

  drawOver(x0, x1, low, high) {
    const context = this.over.context();
    const frame = { left: LEFT, top: TOP, width: this.over.width - LEFT - RIGHT, height: this.over.height - TOP - BOTTOM };
    const x = (at) => frame.left + ((at - x0) / (x1 - x0)) * frame.width;
    const y = (bytes) => frame.top + frame.height * (1 - (bytes - low) / (high - low));
    this.frame = frame;
    this.drawAxes(context, frame, x, y, { x0, x1, low, high });
    context.save();
    context.beginPath();
    context.rect(frame.left, 0, frame.width, frame.top + frame.height);
    context.clip();
    this.drawSpan(context, frame, x);
    this.drawBands(context, frame, x, x0, x1);
    this.drawLines(context, frame, y, x0, x1);
    this.drawMarks(context, frame, x, y);
    context.restore();
  }

  drawAxes(context, frame, x, y, { x0, x1, low, high }) {
    context.fillStyle = context.strokeStyle = themed("faint");
    context.lineWidth = 1;
    context.textAlign = "right";
    for (const tick of roundTicks(low, high, Math.max(2, frame.height / 44), 2)) {
      const at = Math.round(y(tick)) + 0.5;
      context.globalAlpha = 0.35;
      line(context, frame.left, at, frame.left + frame.width, at);
      context.globalAlpha = 1;
      context.fillText(bytesText(tick), frame.left - 8, at);
    }
    context.textAlign = "center";
    const ticks = roundTicks(x0 * this.axis.unit, x1 * this.axis.unit, frame.width / 110).map((tick) => tick / this.axis.unit);
    const step = ticks.length > 1 ? ticks[1] - ticks[0] : x1 - x0;
    for (const tick of ticks) {
      const at = Math.round(x(tick)) + 0.5;
      line(context, at, frame.top + frame.height, at, frame.top + frame.height + 4);
      const text = this.axis.label(tick, step);
      const half = context.measureText(text).width / 2;
      if (at - half > 4 && at + half < this.over.width - 2) context.fillText(text, at, frame.top + frame.height + 14);
    }
    context.textAlign = "left";
    if (this.axis.kind === "events") context.fillText("event", 8, frame.top + frame.height + 14);
  }

  drawSpan(context, frame, x) {
    const span = this.state.get("span");
    if (!span) return;
    const left = x(this.axis.at(span[0]));
    const right = Math.max(x(this.axis.at(span[1] - 1)), left + 2);
    context.fillStyle = themed("select");
    context.globalAlpha = 0.16;
    context.fillRect(left, frame.top, right - left, frame.height);
    context.globalAlpha = 1;
    context.fillRect(left, frame.top, right - left, 2);
  }

  // Steps as alternating bands with their numbers, annotations below them.
  drawBands(context, frame, x, x0, x1) {
    const { recording, axis } = this;
    const starts = recording.stepStarts;
    const first = Math.max(0, upperBound(starts, axis.eventAt(x0)) - 1);
    const last = Math.min(starts.length, upperBound(starts, axis.eventAt(x1)) + 1);
    const widest = (frame.width * (axis.end / (x1 - x0))) / Math.max(starts.length, 1);
    context.font = `11px ${FONT}`;
    if (widest > 4) {
      for (let step = first; step < last; step++) {
        const left = x(axis.at(starts[step]));
        const right = x(step + 1 < starts.length ? axis.at(starts[step + 1]) : axis.end);
        context.fillStyle = themed(step % 2 ? "band-odd" : "band-even");
        context.fillRect(left, 2, right - left, 14);
        context.fillStyle = themed("muted");
        const text = widest > 70 ? `step ${step + 1}` : String(step + 1);
        if (context.measureText(text).width + 6 < right - left) context.fillText(text, Math.max(left, frame.left) + 4, 9.5);
      }
    } else if (starts.length) {
      context.fillStyle = themed("band-even");
      context.fillRect(frame.left, 2, frame.width, 14);
      context.fillStyle = themed("muted");
      context.fillText(`${starts.length.toLocaleString("en")} steps: zoom in to tell them apart`, frame.left + 6, 9.5);
    }
    this.drawAnnotations(context, frame, x, x0, x1);
  }

  drawAnnotations(context, frame, x, x0, x1) {
    let drawnTo = -Infinity;
    for (const [name, begin, end] of this.recording.head.spans) {
      const from = this.axis.kind === "events" ? this.axis.at(this.recording.eventAt(begin)) : begin / this.axis.unit;
      const to = end === null ? this.axis.end : this.axis.kind === "events" ? this.axis.at(this.recording.eventAt(end)) : end / this.axis.unit;
      if (to < x0 || from > x1) continue;
      const left = Math.max(x(from), frame.left);
      const right = Math.max(Math.min(x(to), frame.left + frame.width), left + 1);
      if (right <= drawnTo + 1) continue; // too close to the last to be told apart
      drawnTo = right;
      context.fillStyle = themed("annotation");
      context.fillRect(left, 18, right - left, 12);
      context.fillStyle = themed("muted");
      fittedText(context, plainText(name), left + 4, 24.5, right - left - 8);
    }
  }

  drawLines(context, frame, y, x0, x1) {
    const { recording } = this;
    if (this.active) this.drawHighs(context, frame, y, x0, x1, this.active, themed("active"), 1, [4, 3]);
    this.drawHighs(context, frame, y, x0, x1, this.allocated, themed("ink"), 1.25, []);
    context.strokeStyle = themed("reserved");
    context.lineWidth = 2;
    context.beginPath();
    const x = (at) => frame.left + ((at - x0) / (x1 - x0)) * frame.width;
    const events = recording.reservedEvent;
    const begin = Math.max(0, upperBound(events, this.axis.eventAt(x0)) - 1);
    let height = y(recording.reservedBytes[begin] || 0);
    context.moveTo(frame.left, height);
    for (let i = begin + 1; i < events.length; i++) {
      const at = x(this.axis.at(events[i]));
      context.lineTo(at, height);
      height = y(recording.reservedBytes[i]);
      context.lineTo(at, height);
      if (at > frame.left + frame.width) break;
    }
    context.lineTo(Math.min(x(this.axis.end), frame.left + frame.width), height);
    context.stroke();
  }

  // One step for each column of pixels: the highest value in it, so that no peak is lost.
  drawHighs(context, frame, y, x0, x1, highs, color, width, dash) {
    const columns = Math.max(1, Math.round(frame.width));
    context.strokeStyle = color;
    context.lineWidth = width;
    context.setLineDash(dash);
    context.beginPath();
    let event = this.axis.eventAt(x0);
    for (let column = 0; column < columns; column++) {
      const right = x0 + ((column + 1) / columns) * (x1 - x0);
      if (right > this.axis.end + 1) break;
      const last = this.axis.eventAt(right);
      const height = y(highs.high(event + 1, last + 2)); // the state at the column's start and after each event in it
      context.lineTo(frame.left + column, height);
      context.lineTo(frame.left + column + 1, height);
      event = last;
    }
    context.stroke();
    context.setLineDash([]);
  }

  drawMarks(context, frame, x, y) {
    const { recording, state, axis } = this;
    this.drawCursor(context, frame, x);
    const peak = recording.head.summary.peak;
    const taken = [];
    const flag = (event, text, color, height) => {
      const at = x(axis.at(event));
      if (at < frame.left - 1 || at > frame.left + frame.width + 1) return;
      context.font = `600 11.5px ${FONT}`;
      const width = context.measureText(text).width + 10;
      const left = Math.min(Math.max(at - width / 2, frame.left + 2), frame.left + frame.width - width - 2);
      let top = Math.max(height - 20, frame.top + 3);
      while (taken.some((box) => left < box.right && left + width > box.left && top < box.top + 18 && top + 18 > box.top)) top += 19;
      taken.push({ left, right: left + width, top });
      context.fillStyle = color;
      context.fillRect(at - 0.75, top + 8, 1.5, Math.max(4, height - top - 8));
      roundedRect(context, left, top, width, 16, 4);
      context.fillStyle = themed("on-flag");
      context.fillText(text, left + 5, top + 8.5);
    };
    for (const oom of recording.head.ooms.slice(0, 40)) {
      context.fillStyle = themed("error");
      context.fillRect(x(axis.at(oom.event)) - 0.75, frame.top, 1.5, frame.height);
      flag(oom.event, `out of memory: ${bytesText(oom.bytes)}`, themed("error"), frame.top + 22);
    }
    if (recording.numEvents) flag(recording.peakEvent, `peak ${bytesText(peak.allocated_bytes)}`, themed("ink"), y(peak.allocated_bytes));
    this.drawChosen(context, x, y);
  }

  drawCursor(context, frame, x) {
    const at = x(this.axis.at(this.state.get("event")));
    context.fillStyle = themed("select");
    context.fillRect(Math.round(at) - 0.5, frame.top, 1.5, frame.height);
    context.beginPath();
    context.moveTo(at - 5, frame.top);
    context.lineTo(at + 6, frame.top);
    context.lineTo(at + 0.5, frame.top + 7);
    context.fill();
  }

  drawChosen(context, x, y) {
    const row = this.state.get("block");
    if (row === null || row < 0) return;
    const { recording, axis } = this;
    const left = x(axis.at(recording.birth[row]));
    const right = Math.max(x(axis.at(recording.death[row])), left + 2);
    const top = y(recording.drawn[row] + recording.size[row]);
    const height = Math.max(y(recording.drawn[row]) - top, 2);
    context.strokeStyle = themed("select");
    context.lineWidth = 2;
    context.strokeRect(left, top, right - left, height);
  }

  // The place on the axis and the bytes under the pointer; null outside the plot.
  placeOf(event) {
    const box = this.over.canvas.getBoundingClientRect();
    const px = event.clientX - box.left - LEFT;
    const py = event.clientY - box.top - TOP;
    const { frame } = this;
    if (!frame || px < 0 || py < -TOP || px > frame.width || py > frame.height + BOTTOM) return null;
    const { x0, x1, low, high } = this.view();
    const perPixel = (x1 - x0) / frame.width;
    return { x: x0 + px * perPixel, bytes: low + (1 - py / frame.height) * (high - low), perPixel, isInPlot: py >= 0 && py <= frame.height };
  }

  blockAt(place) {
    if (!place.isInPlot || !this.boxes) return -1;
    return this.boxes.pick(place.x - place.perPixel / 2, place.x + place.perPixel / 2, place.bytes / this.boxes.yUnit);
  }

  listen() {
    const { over, state } = this;
    let drag = null;
    over.canvas.addEventListener("pointerdown", (event) => {
      const place = this.placeOf(event);
      if (!place || event.button !== 0) return;
      over.canvas.setPointerCapture(event.pointerId);
      drag = { place, view: state.get("view"), at: event.clientX, isSpan: event.shiftKey, hasMoved: false };
    });
    over.canvas.addEventListener("pointermove", (event) => {
      if (drag) this.dragTo(drag, event);
      else this.hover(event);
    });
    over.canvas.addEventListener("pointerup", (event) => {
      if (drag && !drag.hasMoved) this.click(event);
      drag = null;
    });
    over.canvas.addEventListener("pointerleave", () => showTip(null));
    over.canvas.addEventListener("dblclick", (event) => {
      const place = this.placeOf(event);
      const row = place ? this.blockAt(place) : -1;
      if (row >= 0) this.zoomTo(this.axis.at(this.recording.birth[row]), this.axis.at(this.recording.death[row]));
    });
    over.canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
  }

  dragTo(drag, event) {
    if (Math.abs(event.clientX - drag.at) > 3) drag.hasMoved = true;
    if (!drag.hasMoved) return;
    showTip(null);
    if (drag.isSpan) {
      const place = this.placeOf(event);
      if (!place) return;
      const [left, right] = [drag.place.x, place.x].sort((a, b) => a - b);
      this.state.set({ span: [this.axis.eventAt(left) + 1, this.axis.eventAt(right) + 1] });
    } else {
      const moved = (event.clientX - drag.at) * drag.place.perPixel;
      this.show(drag.view.x0 - moved, drag.view.x1 - moved);
    }
  }

  wheel(event) {
    const place = this.placeOf(event);
    if (!place) return;
    event.preventDefault();
    const view = this.state.get("view");
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      this.show(view.x0 + event.deltaX * place.perPixel, view.x1 + event.deltaX * place.perPixel);
    } else if (event.shiftKey) {
      this.zoomBytes(Math.exp(event.deltaY * 0.0016), place.bytes / this.top);
    } else {
      this.zoom(Math.exp(event.deltaY * 0.0016), place.x);
    }
  }

  hover(event) {
    const place = this.placeOf(event);
    if (!place) return showTip(null);
    const row = this.blockAt(place);
    const at = this.axis.eventAt(place.x);
    const { recording } = this;
    const head = `${durationText(recording.timeOf(at))} · event ${Math.max(at, 0).toLocaleString("en")}`;
    const sums = `allocated ${bytesText(recording.allocated[at + 1])}, reserved ${bytesText(recording.reservedAt(at))}`;
    showTip([el("b", {}, head), sums, ...(row >= 0 ? blockTip(recording, row, this.state.get("colors")) : [])], event.clientX, event.clientY);
  }

  click(event) {
    const place = this.placeOf(event);
    if (!place) return;
    const row = this.blockAt(place);
    this.state.set({ event: this.axis.eventAt(place.x), block: row, line: row >= 0 ? this.recording.line[row] : null });
  }

  zoom(factor, around) {
    const { x0, x1 } = this.state.get("view");
    const middle = around ?? (x0 + x1) / 2;
    this.show(middle - (middle - x0) * factor, middle + (x1 - middle) * factor);
  }

  // Zooms the axis of bytes around a share of its height.
  zoomBytes(factor, around) {
    const view = this.state.get("view");
    const { y0 = 0, y1 = 1 } = view;
    const low = Math.max(0, around - (around - y0) * factor);
    const high = Math.min(1, around + (y1 - around) * factor);
    if (high - low > 1e-6) this.state.set({ view: { ...view, y0: low, y1: high } });
  }

  zoomTo(x0, x1) {
    const margin = Math.max((x1 - x0) * 0.15, this.axis.kind === "events" ? 1 : 4);
    this.show(x0 - margin, x1 + margin);
  }

  // Shows a part of the axis, as far as there is one.
  show(x0, x1) {
    const least = Math.min(this.axis.end, 8);
    const width = Math.min(Math.max(x1 - x0, least), this.axis.end);
    const middle = (x0 + x1) / 2;
    const left = Math.min(Math.max(middle - width / 2, 0), this.axis.end - width);
    this.state.set({ view: { ...this.state.get("view"), x0: left, x1: left + width } });
  }

  fit() {
    this.state.set({ view: { x0: 0, x1: this.axis.end, y0: 0, y1: 1 } });
  }

  pan(share) {
    const { x0, x1 } = this.state.get("view");
    this.show(x0 + share * (x1 - x0), x1 + share * (x1 - x0));
  }
}

function line(context, x0, y0, x1, y1) {
  context.beginPath();
  context.moveTo(x0, y0);
  context.lineTo(x1, y1);
  context.stroke();
}

function roundedRect(context, x, y, width, height, radius) {
  context.beginPath();
  context.roundRect(x, y, width, height, radius);
  context.fill();
}
