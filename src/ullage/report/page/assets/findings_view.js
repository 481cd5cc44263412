// The answers: what was found, worst first. A click takes the other views to the place.

import { bytesText, plainText } from "./words.js";
import { el, fill, pressable } from "./elements.js";

const WORDS = { error: "error", warning: "warning", info: "note" };

export class FindingsView {
  constructor(parent, state, onShow) {
    this.state = state;
    this.onShow = onShow;
    this.head = parent.appendChild(el("h2", {}));
    this.list = parent.appendChild(el("ol.findings"));
    state.on(["recording"], () => this.load());
    state.on(["finding"], () => this.mark());
  }

  load() {
    const { findings } = this.state.get("recording");
    const counts = Object.keys(WORDS).map((severity) => [severity, findings.filter((one) => one.severity === severity).length]);
    const said = counts.filter(([, count]) => count).map(([severity, count]) => `${count} ${WORDS[severity]}${count === 1 ? "" : "s"}`);
    fill(this.head, "Findings", el("span.count", {}, said.join(", ") || "none"));
    fill(this.list, ...findings.map((finding, index) => this.item(finding, index)));
  }

  item(finding, index) {
    const frames = finding.site.slice(0, 3).map((frame, depth) => el("div.frame", {}, el("bdi", {}, `${depth ? "from " : ""}${place(frame)} ${frame.function}`)));
    const open = () => this.onShow(index);
    return el(
      "li",
      { ...pressable(open), "data-kind": finding.kind, "data-severity": finding.severity },
      el("div.title", {}, el(`span.badge.${finding.severity}`, {}, WORDS[finding.severity]), el("bdi", {}, finding.title)),
      el("div.more", {}, el("p", {}, el("bdi", {}, finding.why)), el("p", {}, el("b", {}, "Do: "), el("bdi", {}, finding.next_step)), ...frames, finding.bytes ? el("p.hint", {}, `about ${bytesText(finding.bytes)}`) : null),
    );
  }

  mark() {
    const chosen = this.state.get("finding");
    [...this.list.children].forEach((node, index) => node.classList.toggle("chosen", index === chosen));
    this.list.children[chosen]?.scrollIntoView({ block: "nearest" });
  }
}

function place(frame) {
  const file = plainText(frame.file).split("/").slice(-2).join("/");
  return frame.line ? `${file}:${frame.line}` : file;
}
