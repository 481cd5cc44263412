// A flame graph of what is live at the instant, or was asked for in the span: callers above, what they call below.

import { bytesText, durationText, pluralText, shareText } from "./words.js";
import { el, fill, fittedText, showTip, Surface, themed } from "./elements.js";
import { instantText } from "./block_text.js";

const ROW = 20;
const AGES = [[1e6, "younger than 1 s"], [1e7, "1 to 10 s old"], [6e7, "10 to 60 s old"], [Infinity, "older than 60 s"]];

export class FlameView {
  constructor(parent, state) {
    this.state = state;
    this.by = "line";
    this.summary = el("span.summary");
    this.choice = el("select", { "aria-label": "Group by", onchange: () => this.regroup() });
    this.scroller = el("div.scroller");
    this.sheet = this.scroller.appendChild(el("div.sheet"));
    parent.append(el("div.tools", {}, this.summary, el("label", {}, "first by ", this.choice), el("button", { onclick: () => this.focus(this.root) }, "Whole")), this.scroller);
    this.surface = new Surface(this.sheet, () => this.draw(), "Flame graph of bytes by call stack");
    const { canvas } = this.surface;
    canvas.addEventListener("pointermove", (event) => this.hover(event));
    canvas.addEventListener("pointerleave", () => showTip(null));
    canvas.addEventListener("click", (event) => this.click(event));
    state.on(["recording", "event", "span", "tab", "shown"], () => this.load());
    state.on(["theme", "colors"], () => this.draw());
  }

  regroup() {
    this.by = this.choice.value;
    this.load();
  }

  load() {
    if (this.state.get("tab") !== "flame") return;
    const recording = (this.recording = this.state.get("recording"));
    const span = this.state.get("span");
    const shown = this.state.get("shown");
    this.event = span ? span[1] - 1 : this.state.get("event");
    const all = span ? recording.bornIn(span[0], span[1]) : recording.liveAt(this.event);
    const rows = shown ? all.filter((row) => shown.has(recording.line[row])) : all;
    const choices = [["line", "stack"], ["age", "age"], ...(recording.categories.length ? [["role", "role"]] : [])];
    fill(this.choice, ...choices.map(([value, text]) => el("option", { value, selected: value === this.by }, text)));
    this.root = this.tree(rows);
    const when = span ? `asked for from ${durationText(recording.timeOf(span[0]))} to ${durationText(recording.timeOf(span[1] - 1))}` : `live, ${instantText(recording, this.event)}`;
    fill(this.summary, el("b", {}, bytesText(this.root.bytes)), ` in ${pluralText(rows.length, "block")} ${when}`);
    this.focus(this.root);
  }

  // Nodes by name below each other, with bytes, blocks and children.
  tree(rows) {
    const { recording } = this;
    const root = node("all", -1);
    const groups = new Map();
    for (const row of rows) {
      const first = this.groupOf(row);
      const key = `${first}|${recording.site[row]}|${recording.site[row] < 0 ? recording.line[row] : ""}`;
      const group = groups.get(key) || { first, row, bytes: 0, count: 0 };
      group.bytes += recording.size[row];
      group.count += 1;
      groups.set(key, group);
    }
    for (const { first, row, bytes, count } of groups.values()) {
      const line = recording.line[row];
      const frames = recording.pythonFrames(recording.site[row]).map((frame) => recording.frameText(frame));
      const names = [...(first ? [first] : []), ...(frames.length ? frames : [recording.lines[line].name])];
      let at = root;
      add(at, bytes, count);
      for (const name of names) {
        at = at.children.get(name) || at.children.set(name, node(name, line)).get(name);
        add(at, bytes, count);
        if (bytes > at.most) [at.most, at.line] = [bytes, line];
      }
    }
    return root;
  }

  groupOf(row) {
    const { recording } = this;
    if (this.by === "role") return recording.category[row] ? recording.categories[recording.category[row] - 1].toLowerCase() : "unknown role";
    if (this.by !== "age") return "";
    if (recording.birth[row] < 0) return "from before the recording";
    const age = recording.timeOf(this.event) - recording.timeOf(recording.birth[row]);
    return AGES.find(([limit]) => age < limit)[1];
  }

  focus(root) {
    this.focused = root;
    this.boxes = [];
    const place = (one, depth, from, share) => {
      this.boxes.push({ one, depth, from, share });
      let at = from;
      for (const child of [...one.children.values()].sort((a, b) => b.bytes - a.bytes)) {
        const part = one.bytes ? (share * child.bytes) / one.bytes : 0;
        if (part > 1 / 4000) place(child, depth + 1, at, part);
        at += part;
      }
    };
    place(root, 0, 0, 1);
    const depth = this.boxes.reduce((deepest, box) => Math.max(deepest, box.depth), 0);
    this.sheet.style.height = `${(depth + 1) * ROW + 6}px`;
    this.surface.fit();
    this.draw();
  }

  draw() {
    if (this.state.get("tab") !== "flame" || !this.boxes || !this.surface.width) return;
    const context = this.surface.context();
    const colors = this.state.get("colors");
    for (const { one, depth, from, share } of this.boxes) {
      const left = from * this.surface.width;
      const width = Math.max(share * this.surface.width - 1, 0.5);
      const isLeaf = one.children.size === 0;
      context.fillStyle = one.line >= 0 ? colors.css(one.line, isLeaf ? 0.95 : 0.5) : themed("pale");
      context.fillRect(left, depth * ROW, width, ROW - 2);
      context.fillStyle = isLeaf && one.line >= 0 ? colors.textOn(one.line) : themed("ink");
      fittedText(context, depth ? `${one.name}  ${bytesText(one.bytes)}` : `all  ${bytesText(one.bytes)}`, left + 5, depth * ROW + ROW / 2 - 0.5, width - 8);
    }
  }

  boxAt(event) {
    const box = this.surface.canvas.getBoundingClientRect();
    const [x, y] = [(event.clientX - box.left) / box.width, event.clientY - box.top];
    return (this.boxes || []).find(({ depth, from, share }) => Math.floor(y / ROW) === depth && x >= from && x < from + share);
  }

  hover(event) {
    const found = this.boxAt(event);
    if (!found) return showTip(null);
    const { one } = found;
    showTip([el("b", {}, one.name), `${bytesText(one.bytes)}, ${shareText(one.bytes, this.root.bytes)} of all`, pluralText(one.count, "block")], event.clientX, event.clientY);
  }

  click(event) {
    const found = this.boxAt(event);
    if (found) this.focus(found.one === this.focused ? this.root : found.one);
  }
}

function node(name, line) {
  return { name, line, bytes: 0, count: 0, most: 0, children: new Map() };
}

function add(one, bytes, count) {
  one.bytes += bytes;
  one.count += count;
}
