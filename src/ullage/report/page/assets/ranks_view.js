// Many ranks: one row each, the odd one out first.

import { bytesText } from "./words.js";
import { el, fill, pressable, themed } from "./elements.js";

export class RanksView {
  constructor(parent, state, ranks, onChoose) {
    this.state = state;
    this.parent = parent;
    this.ranks = ranks;
    this.onChoose = onChoose;
    parent.hidden = ranks.length < 2;
    state.on(["rank", "theme"], () => this.load());
  }

  load() {
    if (this.ranks.length < 2) return;
    const top = Math.max(...this.ranks.map((rank) => rank.peak_reserved_bytes), 1);
    fill(this.parent, ...this.ranks.map((rank, index) => this.row(rank, index, top)));
  }

  row(rank, index, top) {
    const act = () => this.onChoose(index);
    return el(
      `div.rank-row${index === this.state.get("rank") ? ".chosen" : ""}${rank.aside ? ".odd" : ""}`,
      { ...pressable(act), role: "button" },
      el("bdi.name", {}, rank.name),
      this.spark(rank, top),
      el("span.number", {}, bytesText(rank.peak_allocated_bytes)),
      el("span.number.reserved", {}, bytesText(rank.peak_reserved_bytes)),
      el("span.aside", {}, rank.aside),
    );
  }

  spark(rank, top) {
    const [width, height] = [240, 18];
    const ratio = window.devicePixelRatio || 1;
    const canvas = el("canvas", { width: width * ratio, height: height * ratio });
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    pen.fillStyle = themed(rank.aside ? "odd" : "spark");
    rank.highs.forEach((bytes, i) => {
      const size = (bytes / top) * height;
      pen.fillRect((i / rank.highs.length) * width, height - size, width / rank.highs.length, size);
    });
    return canvas;
  }
}
