// The tables: lines of code, and single blocks.

import { bytesText, countText, durationText, pluralText } from "./words.js";
import { el, fill } from "./elements.js";
import { Table } from "./table.js";
import { bornText, instantText, lineLabel, lineText } from "./block_text.js";

class TableView {
  constructor(parent, state, tab, columns, choose) {
    this.state = state;
    this.tab = tab;
    this.summary = el("span.summary");
    const copy = el("button", { onclick: () => this.copy(copy) }, "Copy as text");
    parent.append(el("div.tools", {}, this.summary, copy));
    this.table = new Table(parent, columns, choose);
    state.on(["recording", "event", "span", "tab", "shown", "found", "colors"], () => this.load());
    state.on(["line", "block"], () => this.state.get("tab") === this.tab && this.table.draw());
  }

  async copy(button) {
    const isDone = await this.table.copy();
    button.textContent = isDone ? `Copied ${pluralText(this.table.rows.length, "row")}` : "The browser does not allow it";
    setTimeout(() => (button.textContent = "Copy as text"), 1800);
  }

  load() {
    if (this.state.get("tab") === this.tab) this.fill(this.state.get("recording"), this.state.get("span"), this.state.get("event"));
  }
}

export class LineTable extends TableView {
  constructor(parent, state) {
    const bytes = (name, title, isFirst = false) => ({ title, isFirst, isNumber: true, width: "96px", value: (row) => row[name], show: (row) => (row[name] ? bytesText(row[name]) : "·") });
    const count = (name, title) => ({ title, isNumber: true, width: "92px", value: (row) => row[name], show: (row) => (row[name] ? countText(row[name]) : "·") });
    const columns = [
      { title: "line", width: "minmax(240px, 3fr)", value: (row) => lineText(row.recording, row.line), show: (row) => lineLabel(row.recording, row.line, state.get("colors")) },
      bytes("live", "live now", true),
      count("liveBlocks", "blocks"),
      bytes("peak", "at the peak"),
      bytes("asked", "asked for"),
      count("requests", "requests"),
      bytes("largest", "largest"),
    ];
    super(parent, state, "lines", columns, (row) => state.set({ line: row.line === state.get("line") ? null : row.line }));
    this.table.isChosen = (row) => row.line === state.get("line");
  }

  fill(recording, span, event) {
    const [begin, end] = span || [0, recording.numEvents];
    const live = recording.byLine(recording.liveAt(event));
    const peak = recording.byLine(recording.liveAt(recording.peakEvent));
    const born = recording.bornIn(begin, end);
    const asked = recording.byLine(born);
    const largest = new Float64Array(recording.lines.length);
    for (const row of born) largest[recording.line[row]] = Math.max(largest[recording.line[row]], recording.size[row]);
    const found = this.state.get("found"); // a chosen line is marked among the others, not alone
    const rows = [];
    for (let line = 0; line < recording.lines.length; line++) {
      if ((found && !found.has(line)) || !(live.counts[line] || peak.counts[line] || asked.counts[line])) continue;
      rows.push({ recording, line, live: live.bytes[line], liveBlocks: live.counts[line], peak: peak.bytes[line], asked: asked.bytes[line], requests: asked.counts[line], largest: largest[line] });
    }
    this.table.set(rows);
    const where = span ? `from ${durationText(recording.timeOf(span[0]))} to ${durationText(recording.timeOf(span[1] - 1))}` : "in the whole recording";
    fill(this.summary, el("b", {}, pluralText(rows.length, "line")), `: live now is ${instantText(recording, event)}; asked for ${where}`);
  }
}

export class BlockTable extends TableView {
  constructor(parent, state) {
    const of = () => state.get("recording");
    const columns = [
      { title: "size", isFirst: true, isNumber: true, width: "84px", value: (row) => of().size[row], show: (row) => bytesText(of().size[row]) },
      { title: "asked for", isNumber: true, width: "84px", value: (row) => of().requested[row], show: (row) => bytesText(of().requested[row]) },
      { title: "born", isNumber: true, width: "148px", value: (row) => of().birth[row], show: (row) => bornText(of(), row) },
      { title: "lives", isNumber: true, width: "104px", value: (row) => life(of(), row), show: (row) => lifeCell(of(), row), copy: (row) => lifeCell(of(), row) },
      { title: "line", width: "minmax(220px, 3fr)", value: (row) => lineText(of(), of().line[row]), show: (row) => lineLabel(of(), of().line[row], state.get("colors")) },
      { title: "address", width: "124px", value: (row) => of().addressText(row), show: (row) => el("code", {}, of().addressText(row)) },
      { title: "pool", width: "120px", value: (row) => of().poolText(of().segment[row]), show: (row) => of().poolText(of().segment[row]) },
    ];
    super(parent, state, "blocks", columns, (row) => state.set({ block: row, line: of().line[row] }));
    this.table.isChosen = (row) => row === state.get("block");
  }

  fill(recording, span, event) {
    const all = span ? recording.bornIn(span[0], span[1]) : recording.liveAt(event);
    const shown = this.state.get("shown");
    const rows = shown ? all.filter((row) => shown.has(recording.line[row])) : all;
    this.table.set(rows);
    const where = span ? `born from ${durationText(recording.timeOf(span[0]))} to ${durationText(recording.timeOf(span[1] - 1))}` : `live, ${instantText(recording, event)}`;
    fill(this.summary, el("b", {}, pluralText(rows.length, "block")), ` ${where}`);
  }
}

function life(recording, row) {
  return recording.timeOf(recording.free[row]) - recording.timeOf(recording.birth[row]) + (recording.free[row] >= recording.numEvents ? 1e15 : 0);
}

function lifeCell(recording, row) {
  if (recording.free[row] >= recording.numEvents) return "to the end";
  return recording.birth[row] < 0 ? "·" : durationText(life(recording, row));
}
