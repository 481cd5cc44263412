// Live bytes over time: every block a box, and above them the lines of allocated, active and reserved.

import { bytesText, durationText } from "./words.js";
import { el, showTip, Surface } from "./elements.js";
import { Boxes } from "./boxes.js";
import { GlPainter } from "./boxes_gl.js";
import { CanvasPainter } from "./boxes_2d.js";
import { BOTTOM, LEFT, RIGHT, TimelineOver, TOP } from "./timeline_over.js";
import { Highs } from "./highs.js";
import { blockTip } from "./block_text.js";

export class Timeline {
  constructor(parent, state) {
    this.state = state;
    this.parent = parent;
    this.plot = parent.appendChild(el("div.plot"));
    this.plot.style.inset = `${TOP}px ${RIGHT}px ${BOTTOM}px ${LEFT}px`;
    this.boxSurface = new Surface(this.plot, () => this.draw(), "Blocks over time");
    this.painter = CanvasPainter.on(this.boxSurface.canvas);
    parent.dataset.painter = "canvas";
    this.over = new TimelineOver(parent, state, () => this.draw());
    this.listen();
    state.on(["recording", "axis"], () => this.load());
    state.on(["view", "event", "span", "block"], () => this.draw());
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
      const { peak } = recording.head.summary;
      this.lines = { allocated: new Highs(recording.allocated), active: peak.active_bytes > peak.allocated_bytes ? new Highs(recording.active) : null };
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
    if (!this.boxes || !this.over.surface.width) return;
    const { x0, x1, low, high } = this.view();
    const { boxes, painter } = this;
    painter.begin({ x0, x1, y0: low / boxes.yUnit, y1: high / boxes.yUnit });
    const { single, merged } = boxes.inView(x0, x1, this.boxSurface.canvas.width);
    if (boxes.dropped) painter.forget(boxes.dropped);
    if (merged) painter.draw(merged.boxes, [merged.stretch]);
    painter.draw(boxes.single, single);
    this.over.draw(this.recording, this.axis, this.lines, { x0, x1, low, high });
  }

  // The place on the axis and the bytes under the pointer; null outside the plot.
  placeOf(event) {
    const box = this.over.surface.canvas.getBoundingClientRect();
    const px = event.clientX - box.left - LEFT;
    const py = event.clientY - box.top - TOP;
    const { frame } = this.over;
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
    const { state } = this;
    const { canvas } = this.over.surface;
    let drag = null;
    canvas.addEventListener("pointerdown", (event) => {
      const place = this.placeOf(event);
      if (!place || event.button !== 0) return;
      canvas.setPointerCapture(event.pointerId);
      drag = { place, view: state.get("view"), at: event.clientX, isSpan: event.shiftKey, hasMoved: false };
    });
    canvas.addEventListener("pointermove", (event) => {
      if (drag) this.dragTo(drag, event);
      else this.hover(event);
    });
    canvas.addEventListener("pointerup", (event) => {
      if (drag && !drag.hasMoved) this.click(event);
      drag = null;
    });
    canvas.addEventListener("pointerleave", () => showTip(null));
    canvas.addEventListener("dblclick", (event) => {
      const place = this.placeOf(event);
      const row = place ? this.blockAt(place) : -1;
      if (row >= 0) this.zoomTo(this.axis.at(this.recording.birth[row]), this.axis.at(this.recording.death[row]));
    });
    canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
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
