// What there is to say of a block, of a line and of an instant.

import { bytesText, durationText, pluralText } from "./words.js";
import { el, swatch } from "./elements.js";

export function lineText(recording, line) {
  const { name, function: caller } = recording.lines[line];
  return caller ? `${name} ${caller}` : name;
}

// A line's colour, place and function.
export function lineLabel(recording, line, colors) {
  const { name, function: caller, file } = recording.lines[line];
  return el("span.line", { title: file || name }, swatch(colors.css(line)), el("bdi.place", {}, name), caller ? el("bdi.function", {}, ` ${caller}`) : null);
}

export function bornText(recording, row) {
  return recording.birth[row] < 0 ? "before the recording" : durationText(recording.timeOf(recording.birth[row]));
}

export function lifeText(recording, row) {
  if (recording.free[row] >= recording.numEvents) return "still live at the end";
  const lived = recording.timeOf(recording.free[row]) - recording.timeOf(recording.birth[row]);
  return recording.birth[row] < 0 ? `freed at ${durationText(recording.timeOf(recording.free[row]))}` : `lived ${durationText(lived)}`;
}

export function blockTip(recording, row, colors) {
  const asked = recording.requested[row];
  const rounded = asked === recording.size[row] ? "" : ` (asked for ${bytesText(asked)})`;
  const waited = recording.death[row] - recording.free[row];
  const pending = waited > 1 && recording.death[row] < recording.numEvents ? `, then waited ${durationText(recording.timeOf(recording.death[row]) - recording.timeOf(recording.free[row]))} for a stream` : "";
  const category = recording.category[row] ? `, ${recording.categories[recording.category[row] - 1].toLowerCase()}` : "";
  return [
    el("div.rule"),
    lineLabel(recording, recording.line[row], colors),
    `${bytesText(recording.size[row])}${rounded}${category}`,
    `born ${bornText(recording, row)}, ${lifeText(recording, row)}${pending}`,
  ];
}

// An instant in words: its time, its step, and what it is known for.
export function instantText(recording, event) {
  if (!recording.numEvents) return "at the end";
  if (event < 0) return "before the first event";
  const step = recording.stepOf(event);
  const inStep = step ? `, step ${step} of ${recording.stepStarts.length}` : "";
  const oom = recording.head.ooms.some((one) => one.event === event) ? "the out-of-memory error, " : "";
  const peak = event === recording.peakEvent ? "the peak, " : "";
  const end = event === recording.numEvents - 1 ? "the end, " : "";
  return `${oom || peak || end}${durationText(recording.timeOf(event))}${inStep}`;
}

export function blocksText(count) {
  return pluralText(count, "block");
}
