// What lies over the boxes of the timeline: axes, steps and annotations, the lines of the sums, and marks.

import { bytesText, plainText, roundTicks } from "./words.js";
import { upperBound } from "./recording.js";
import { FONT, fittedText, Surface, themed } from "./elements.js";

// The room around the plot.
export const LEFT = 66; // the axis of bytes
export const TOP = 34; // steps and annotations
export const BOTTOM = 24; // the axis of time
export const RIGHT = 12;

export class TimelineOver {
  constructor(parent, state, draw) {
    this.state = state;
    this.surface = new Surface(parent, draw, "Lines of allocated and reserved memory over time");
    this.surface.canvas.className = "over";
  }

  // Draws over the boxes of a view: `x0` to `x1` of the axis, `low` to `high` bytes.
  draw(recording, axis, lines, { x0, x1, low, high }) {
    Object.assign(this, { recording, axis, ...lines });
    const { surface } = this;
    const context = surface.context();
    const frame = { left: LEFT, top: TOP, width: surface.width - LEFT - RIGHT, height: surface.height - TOP - BOTTOM };
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
      if (at - half > 4 && at + half < this.surface.width - 2) context.fillText(text, at, frame.top + frame.height + 14);
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
