// Where the memory went at the chosen instant: the lines that own it, largest first.

import { bytesText, capitalText, countText, shareText } from "./words.js";
import { el, fill, pressable } from "./elements.js";
import { instantText, lineLabel } from "./block_text.js";

export class OwnersView {
  constructor(parent, state) {
    this.state = state;
    this.parent = parent;
    this.head = parent.appendChild(el("h2", {}));
    this.figures = parent.appendChild(el("p.figures"));
    this.list = parent.appendChild(el("ol.owners"));
    state.on(["recording", "event", "line", "shown", "colors"], () => this.load());
  }

  load() {
    const recording = this.state.get("recording");
    const event = this.state.get("event");
    const chosen = this.state.get("line");
    const { bytes, counts } = recording.byLine(recording.liveAt(event));
    const whole = bytes.reduce((a, b) => a + b, 0);
    const order = [...bytes.keys()].filter((line) => counts[line]).sort((a, b) => bytes[b] - bytes[a]);
    const reserved = recording.reservedAt(event);
    const oom = recording.head.ooms.find((one) => one.event === event);
    const known = oom && oom.device_free_bytes !== null ? `, the GPU had ${bytesText(oom.device_free_bytes)} free` : "";
    fill(this.head, "Where it went");
    fill(this.figures, capitalText(instantText(recording, event)), ": ", el("b", {}, bytesText(whole)), " allocated, ", el("b", {}, bytesText(reserved)), ` reserved${known}`);
    const colors = this.state.get("colors");
    const item = (line) => {
      const bar = el("span.bar");
      bar.style.width = `${(100 * bytes[line]) / (bytes[order[0]] || 1)}%`;
      bar.style.background = colors.css(line, 0.85);
      const act = () => this.state.set({ line: line === chosen ? null : line });
      return el(
        `li${line === chosen ? ".chosen" : ""}`,
        { ...pressable(act), title: `${countText(counts[line])} blocks; click to show this line alone` },
        lineLabel(recording, line, colors),
        el("span.number", {}, bytesText(bytes[line])),
        el("span.track", {}, bar),
        el("span.share", {}, shareText(bytes[line], whole)),
      );
    };
    const most = 60;
    const rest = order.slice(most);
    fill(this.list, ...order.slice(0, most).map(item), rest.length ? el("li.rest", {}, `${countText(rest.length)} more lines, ${bytesText(rest.reduce((sum, line) => sum + bytes[line], 0))}`) : null);
  }
}
