// Reserved memory over time under other settings, beside the recorded.

import { bytesText, roundTicks } from "./words.js";
import { copyText, el, fill, Surface, themed } from "./elements.js";
import { upperBound } from "./recording.js";

const LEFT = 66;
const FAR = 1.3; // times what was recorded
const DASHES = [[], [7, 3], [2, 3], [9, 3, 2, 3], [4, 4], [1, 2]];
const HUES = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00"];

export class WhatIfView {
  constructor(parent, state) {
    this.state = state;
    this.hidden = new Set();
    this.plot = el("div.plot-area");
    this.side = el("aside.side.wide");
    parent.append(el("div.split", {}, this.plot, this.side));
    this.surface = new Surface(this.plot, () => this.draw(), "Reserved memory over time under other allocator settings");
    state.on(["recording", "tab"], () => this.load());
    state.on(["view", "axis", "event", "theme"], () => this.draw());
  }

  load() {
    if (this.state.get("tab") !== "what_if") return;
    const recording = (this.recording = this.state.get("recording"));
    if (this.told !== recording) {
      // A curve far above the others would press them flat; its row says what it is.
      const limit = FAR * recording.peakReserved;
      this.hidden = new Set(recording.head.what_if.map((one) => one.outcome).filter((one) => one.peak_reserved_bytes > limit).map((one) => one.policy));
      this.told = recording;
    }
    this.curves = recording.head.what_if.map((one, index) => ({ ...one, hue: HUES[index % HUES.length], dash: DASHES[index % DASHES.length] }));
    const rows = this.curves.map((curve) => this.row(curve));
    fill(
      this.side,
      el("h3", {}, this.curves.length ? "What would have been reserved" : "No other settings were tried"),
      this.curves.length ? this.recordedRow() : el("p.hint", {}, "The recording holds no requests to replay, or they were left out with --no-what-if."),
      ...rows,
      this.curves.length ? el("p.hint", {}, "The recorded requests, run by the allocator's own rules. Click a row to hide its curve.") : null,
    );
    this.draw();
  }

  recordedRow() {
    return el("div.policy", {}, this.sample(themed("reserved"), []), el("div.name", {}, "as recorded"), el("div.number", {}, bytesText(this.recording.peakReserved)));
  }

  row(curve) {
    const { outcome } = curve;
    const saved = outcome.peak_reserved_bytes - this.recording.peakReserved;
    const change = outcome.outcome === "oom" ? "runs out of memory" : saved === 0 ? "the same" : `${saved > 0 ? "+" : ""}${bytesText(saved)}`;
    const copy = curve.setting ? el("button.small", { title: curve.setting, onclick: (event) => this.copy(event, curve.setting) }, "copy") : null;
    const isShown = String(!this.hidden.has(outcome.policy));
    const node = el(
      "div.policy",
      { tabindex: 0, role: "switch", "aria-checked": isShown },
      this.sample(curve.hue, curve.dash),
      el("div.name", {}, outcome.policy.replaceAll(",", ", ")),
      el("div.number", {}, bytesText(outcome.peak_reserved_bytes)),
      el("div.hint", {}, change),
      copy,
    );
    node.classList.toggle("off", this.hidden.has(outcome.policy));
    const turn = () => {
      if (!this.hidden.delete(outcome.policy)) this.hidden.add(outcome.policy);
      this.load();
    };
    node.addEventListener("click", turn);
    node.addEventListener("keydown", (event) => {
      if (event.target !== node || (event.key !== "Enter" && event.key !== " ")) return;
      event.preventDefault();
      const place = [...this.side.children].indexOf(node);
      turn();
      this.side.children[place].focus(); // the row is a new one
    });
    return node;
  }

  async copy(event, setting) {
    event.stopPropagation();
    const button = event.currentTarget;
    button.textContent = (await copyText(setting)) ? "copied" : "not allowed";
    setTimeout(() => (button.textContent = "copy"), 1500);
  }

  shown() {
    return this.curves.filter((one) => !this.hidden.has(one.outcome.policy));
  }

  sample(color, dash) {
    const canvas = el("canvas", { width: 30, height: 14 });
    const pen = canvas.getContext("2d");
    pen.strokeStyle = color;
    pen.lineWidth = 2.5;
    pen.setLineDash(dash);
    pen.beginPath();
    pen.moveTo(0, 7);
    pen.lineTo(30, 7);
    pen.stroke();
    return canvas;
  }

  draw() {
    if (this.state.get("tab") !== "what_if" || !this.curves || !this.surface.width) return;
    const context = this.surface.context();
    const { recording } = this;
    const axis = this.state.get("axis");
    const { x0, x1 } = this.state.get("view");
    const frame = { left: LEFT, top: 12, width: this.surface.width - LEFT - 12, height: this.surface.height - 40 };
    const top = Math.max(recording.peakReserved, ...this.shown().map((curve) => curve.outcome.peak_reserved_bytes), 1) * 1.06;
    const x = (at) => frame.left + ((at - x0) / (x1 - x0)) * frame.width;
    const y = (bytes) => frame.top + frame.height * (1 - bytes / top);
    context.fillStyle = context.strokeStyle = themed("faint");
    context.textAlign = "right";
    for (const tick of roundTicks(0, top, Math.max(2, frame.height / 44), 2)) {
      context.globalAlpha = 0.35;
      context.strokeRect(frame.left, Math.round(y(tick)) + 0.5, frame.width, 0);
      context.globalAlpha = 1;
      context.fillText(bytesText(tick), frame.left - 8, y(tick));
    }
    context.textAlign = "center";
    const ticks = roundTicks(x0 * axis.unit, x1 * axis.unit, frame.width / 110).map((tick) => tick / axis.unit);
    for (const tick of ticks) {
      const text = axis.label(tick, ticks.length > 1 ? ticks[1] - ticks[0] : x1 - x0);
      if (x(tick) + context.measureText(text).width / 2 < this.surface.width) context.fillText(text, x(tick), frame.top + frame.height + 14);
    }
    context.textAlign = "left";
    context.save();
    context.beginPath();
    context.rect(frame.left, 0, frame.width, frame.top + frame.height + 1);
    context.clip();
    const curve = (events, bytes, color, width, dash, oom) => {
      const end = x(oom === undefined ? axis.end : axis.at(oom));
      steps(context, { events, bytes, axis, x, y, x0, x1, end }, color, width, dash);
      if (oom !== undefined) cross(context, end, y(bytes.at(-1)), color);
    };
    curve(recording.reservedEvent, recording.reservedBytes, themed("reserved"), 3, []);
    for (const one of this.shown()) {
      curve(one.events, one.reserved_bytes, one.hue, 1.75, one.dash, one.outcome.first_oom?.event);
    }
    const event = this.state.get("event");
    context.fillStyle = themed("select");
    if (event !== null) context.fillRect(x(axis.at(event)), frame.top, 1.5, frame.height);
    context.restore();
  }
}

function steps(context, { events, bytes, axis, x, y, x0, x1, end }, color, width, dash) {
  if (!events.length) return;
  context.strokeStyle = color;
  context.lineWidth = width;
  context.setLineDash(dash);
  context.beginPath();
  const begin = Math.max(0, upperBound(events, axis.eventAt(x0)) - 1);
  let height = y(bytes[begin]);
  context.moveTo(x(Math.max(axis.at(events[begin]), x0)), height);
  for (let i = begin + 1; i < events.length && axis.at(events[i]) <= x1 + 1; i++) {
    const at = x(axis.at(events[i]));
    context.lineTo(at, height);
    height = y(bytes[i]);
    context.lineTo(at, height);
  }
  context.lineTo(end, height);
  context.stroke();
  context.setLineDash([]);
}

// Where a request failed, the run ended.
function cross(context, x, y, color) {
  context.strokeStyle = color;
  context.lineWidth = 2.5;
  context.beginPath();
  for (const side of [-1, 1]) {
    context.moveTo(x - 6, y - 6 * side);
    context.lineTo(x + 6, y + 6 * side);
  }
  context.stroke();
}
