// Puts the page together: reads what was recorded, makes the views, and hands out keys.

import { unpack } from "./unpack.js";
import { Recording } from "./recording.js";
import { bytesText, countText, durationText, plainText } from "./words.js";
import { byId, el, fill } from "./elements.js";
import { State } from "./state.js";
import { Axis } from "./boxes.js";
import { Colors } from "./colors.js";
import { Timeline } from "./timeline.js";
import { AddressView } from "./address_view.js";
import { FlameView } from "./flame_view.js";
import { BlockTable, LineTable } from "./table_views.js";
import { WhatIfView } from "./what_if_view.js";
import { FindingsView } from "./findings_view.js";
import { OwnersView } from "./owners_view.js";
import { RanksView } from "./ranks_view.js";

const TABS = [
  ["address", "Address space", AddressView],
  ["flame", "Flame graph", FlameView],
  ["lines", "Lines", LineTable],
  ["blocks", "Blocks", BlockTable],
  ["what_if", "What if", WhatIfView],
];

const KEYS = [
  ["← →", "pan"],
  ["+ − or ↑ ↓", "zoom"],
  ["0", "show everything"],
  ["wheel, drag", "zoom at the pointer, pan; with Shift: zoom bytes, choose a span"],
  ["click", "choose an instant and the block under the pointer; double click: zoom to the block"],
  [", .", "the event before, the next one"],
  ["p", "go to the peak"],
  ["n N", "the next finding, the one before"],
  ["1 … 5", "address space, flame graph, lines, blocks, what if"],
  ["x", "along time, or along events"],
  ["t", "light or dark"],
  ["/", "search lines and stacks"],
  ["Esc", "clear search, span and choice"],
  ["?", "this help"],
];

class Page {
  constructor(ranks, blocks) {
    this.ranks = ranks;
    this.blocks = blocks;
    this.recordings = new Map();
    this.state = new State({
      rank: null, recording: null, axis: null, view: { x0: 0, x1: 1 }, event: 0, span: null, line: null, block: -1, hole: null,
      shown: null, found: null, query: "", tab: "address", finding: null, colors: null, theme: null, isDark: false,
    });
    this.build();
  }

  build() {
    const { state } = this;
    new RanksView(byId("ranks"), state, this.ranks, (rank) => this.open(rank).catch(fail));
    this.findings = new FindingsView(byId("findings"), state, (index) => this.show(index));
    new OwnersView(byId("owners"), state);
    this.timeline = new Timeline(byId("timeline"), state);
    this.tabs();
    this.search = byId("search");
    this.search.addEventListener("input", () => state.set({ query: this.search.value }));
    state.on(["query", "line", "recording"], () => this.filter());
    state.on(["span", "view", "axis"], () => this.describeSpan());
    byId("axis").addEventListener("click", () => this.turnAxis());
    byId("theme").addEventListener("click", () => this.turnTheme());
    byId("help").addEventListener("click", () => this.help());
    byId("fit").addEventListener("click", () => this.timeline.fit());
    fill(byId("keys"), el("h2", {}, "Keys"), el("dl", {}, ...KEYS.flatMap(([key, what]) => [el("dt", {}, key), el("dd", {}, what)])), el("button", { onclick: () => byId("keys").close() }, "Close"));
    document.addEventListener("keydown", (event) => this.key(event));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.dress());
    this.dress();
  }

  tabs() {
    const bar = byId("tabs");
    this.panes = TABS.map(([name, title, View]) => {
      const button = bar.appendChild(el("button", { role: "tab", id: `tab-${name}`, "aria-controls": `pane-${name}`, onclick: () => this.state.set({ tab: name }) }, title));
      const pane = byId("panes").appendChild(el("div.pane", { id: `pane-${name}`, role: "tabpanel", "aria-labelledby": `tab-${name}` }));
      return { name, button, pane, view: new View(pane, this.state) };
    });
    const turn = () => {
      for (const { name, button, pane } of this.panes) {
        pane.hidden = name !== this.state.get("tab");
        button.setAttribute("aria-selected", String(!pane.hidden));
      }
    };
    this.state.listeners.unshift({ names: ["tab"], listener: turn });
    turn();
  }

  async open(rank) {
    if (!this.recordings.has(rank)) this.recordings.set(rank, new Recording(await unpack(this.blocks[rank].textContent)));
    const recording = this.recordings.get(rank);
    const { head } = recording;
    const axis = new Axis(recording, this.state.get("axis")?.kind || "time");
    const peak = recording.byLine(recording.liveAt(recording.peakEvent)).bytes;
    const asked = recording.byLine(recording.bornIn(-1, recording.numEvents)).bytes;
    const order = [...peak.keys()].sort((a, b) => peak[b] - peak[a] || asked[b] - asked[a]);
    this.state.set({
      rank, recording, axis, colors: new Colors(recording, order), view: { x0: 0, x1: axis.end },
      event: head.ooms.length ? head.ooms[0].event : recording.peakEvent,
      span: null, line: null, block: -1, finding: null,
    });
    this.describe(recording);
  }

  describe(recording) {
    const { head } = recording;
    const { peak, num_ooms: ooms } = head.summary;
    byId("legend-active").hidden = peak.active_bytes <= peak.allocated_bytes;
    const settings = Object.entries(head.settings).map(([key, value]) => `${key}: ${value}`);
    const known = [...settings, ...(head.steps_from ? [`steps from ${head.steps_from}`] : [])];
    byId("facts").title = plainText(known.join(", "));
    const fact = (label, value) => el("span.fact", {}, label ? `${label} ` : "", el("b", {}, value));
    fill(
      byId("facts"),
      el("bdi.file", {}, head.name),
      fact("peak allocated", bytesText(peak.allocated_bytes)),
      fact("reserved", bytesText(peak.reserved_bytes)),
      ooms ? el("span.fact.error", {}, `out of memory ${ooms === 1 ? "once" : `${countText(ooms)} times`}`) : null,
      fact("", `${countText(recording.numEvents)} events in ${durationText(recording.spanUs)}`),
      head.torch_version ? fact("torch", head.torch_version) : null,
    );
  }

  // Takes all views to what a finding is about.
  show(index) {
    const { state, timeline } = this;
    const finding = state.get("recording").findings[index];
    if (!finding) return;
    state.set({ finding: index, line: finding.on_line ?? null, block: -1, query: "" });
    this.search.value = "";
    const event = finding.span ? finding.span[1] - 1 : finding.event; // what has grown shows at the end of it
    if (event !== null) {
      state.set({ event });
      const at = timeline.axis.at(event);
      if (finding.span) timeline.zoomTo(timeline.axis.at(finding.span[0]), timeline.axis.at(finding.span[1]));
      else {
        const width = Math.max(timeline.axis.end / 8, 16);
        timeline.show(at - width / 2, at + width / 2);
      }
    } else timeline.fit();
    if (finding.kind === "fragmentation" || finding.kind === "oom" || finding.kind === "private_pool") state.set({ tab: "address" });
    if (finding.kind === "growth" || finding.kind === "held") state.set({ tab: "blocks" });
  }

  // What is shown in colour: the lines that the search finds, or the one that is chosen.
  filter() {
    const { state } = this;
    const recording = state.get("recording");
    if (!recording) return;
    const line = state.get("line");
    const found = recording.linesWith(state.get("query"));
    state.set({ found, shown: found || (line === null ? null : new Set([line])) });
    byId("found").textContent = found ? `${countText(found.size)} ${found.size === 1 ? "line" : "lines"}` : "";
  }

  describeSpan() {
    const recording = this.state.get("recording");
    const span = this.state.get("span");
    const node = byId("span");
    node.hidden = !span;
    if (!span || !recording) return;
    const born = recording.bornIn(span[0], span[1]);
    const bytes = born.reduce((sum, row) => sum + recording.size[row], 0);
    fill(node, `${durationText(recording.timeOf(span[1] - 1) - recording.timeOf(span[0]))} chosen: ${countText(born.length)} blocks, ${bytesText(bytes)} asked for `, el("button.small", { onclick: () => this.state.set({ span: null }) }, "clear"));
  }

  turnAxis() {
    const { state, timeline } = this;
    const recording = state.get("recording");
    const old = state.get("axis");
    const axis = new Axis(recording, old.kind === "time" ? "events" : "time");
    const { x0, x1 } = state.get("view");
    const [left, right] = [axis.at(old.eventAt(x0)), x1 >= old.end ? axis.end : axis.at(old.eventAt(x1))];
    state.set({ axis });
    timeline.axis = axis;
    timeline.show(x0 <= 0 ? 0 : left, right);
    byId("axis").textContent = axis.kind === "time" ? "by time" : "by event";
  }

  turnTheme() {
    document.documentElement.dataset.theme = this.state.get("isDark") ? "light" : "dark";
    this.dress();
  }

  dress() {
    const asked = document.documentElement.dataset.theme;
    const isDark = asked ? asked === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    document.documentElement.dataset.shade = isDark ? "dark" : "light";
    this.state.set({ isDark, theme: isDark ? "dark" : "light" });
  }

  help() {
    const keys = byId("keys");
    if (keys.open) keys.close();
    else keys.showModal();
  }

  clear() {
    this.search.value = "";
    this.search.blur();
    this.state.set({ query: "", span: null, line: null, block: -1, hole: null, finding: null });
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return undefined;
    if (byId("keys").open) return event.key === "?" ? this.help() : undefined; // Escape closes it by itself
    if (event.key === "Escape") return this.clear();
    if (event.target instanceof HTMLInputElement && (event.target.type !== "range" || event.key.startsWith("Arrow"))) return undefined;
    if (event.target instanceof HTMLSelectElement) return undefined;
    const act = this.actions()[event.key];
    if (!act) return undefined;
    event.preventDefault();
    return act();
  }

  actions() {
    const { state, timeline } = this;
    const recording = state.get("recording");
    if (!recording) return {};
    const finding = state.get("finding") ?? -1;
    const go = (event) => state.set({ event: Math.min(Math.max(event, -1), recording.numEvents - 1) });
    const zoom = (factor) => timeline.zoom(factor, this.middle());
    const count = recording.findings.length;
    return {
      ArrowLeft: () => timeline.pan(-0.2), ArrowRight: () => timeline.pan(0.2),
      ArrowUp: () => zoom(0.7), "+": () => zoom(0.7), "=": () => zoom(0.7),
      ArrowDown: () => zoom(1 / 0.7), "-": () => zoom(1 / 0.7), "−": () => zoom(1 / 0.7),
      0: () => timeline.fit(), ",": () => go(state.get("event") - 1), ".": () => go(state.get("event") + 1), p: () => go(recording.peakEvent),
      n: () => this.show((finding + 1) % Math.max(count, 1)), N: () => this.show(((finding < 0 ? count : finding) - 1 + count) % Math.max(count, 1)),
      x: () => this.turnAxis(), t: () => this.turnTheme(), "/": () => this.search.focus(), "?": () => this.help(),
      ...Object.fromEntries(TABS.map(([name], index) => [index + 1, () => state.set({ tab: name })])),
    };
  }

  // Where keys zoom: at the chosen instant where it is in view.
  middle() {
    const { x0, x1 } = this.state.get("view");
    const at = this.state.get("axis").at(this.state.get("event"));
    return at >= x0 && at <= x1 ? at : (x0 + x1) / 2;
  }
}

async function start() {
  try {
    const [index, ...blocks] = document.querySelectorAll('script[type="application/x-ullage"]');
    const { head } = await unpack(index.textContent);
    const page = new Page(head.ranks.map((rank) => ({ ...rank, name: plainText(rank.name), aside: plainText(rank.aside) })), blocks);
    window.ullage = page; // for the console
    await page.open(0);
    // The second frame begins when the first has been drawn.
    requestAnimationFrame(() => requestAnimationFrame(() => {
      document.documentElement.dataset.ready = String(Math.round(performance.now()));
      setTimeout(() => page.timeline.turnToGl(), 30);
    }));
  } catch (error) {
    fail(error);
  }
}

function fail(error) {
  fill(byId("failure"), el("b", {}, "This page cannot show its recording. "), `${error.message}. A newer browser may: the page needs one from 2023 or later.`);
  byId("failure").hidden = false;
  throw error;
}

start();
