// One colour for each line, told apart by people who see fewer: the hues of Okabe and Ito, then the same paler.
// Source: M. Okabe, K. Ito, "Color Universal Design", 2008.

const HUES = [
  [0, 114, 178], // blue
  [230, 159, 0], // orange
  [0, 158, 115], // green
  [204, 121, 167], // pink
  [86, 180, 233], // sky
  [213, 94, 0], // vermilion
  [200, 184, 0], // yellow, darker than theirs so that it holds on white
];
const PALE = 0.45;
const REST = [140, 140, 148];
const NO_STACK = [128, 118, 150];
const BEFORE = [112, 124, 132];

export class Colors {
  // `order`: the lines, the one with most bytes first.
  constructor(recording, order) {
    this.count = recording.lines.length;
    this.rgb = new Array(this.count).fill(REST);
    let next = 0;
    for (const line of order) {
      if (line === recording.before || line === recording.noStack) continue;
      const hue = HUES[next % HUES.length];
      const round = Math.floor(next / HUES.length);
      if (round > 1) break;
      this.rgb[line] = round ? hue.map((value) => Math.round(value + (255 - value) * PALE)) : hue;
      next++;
    }
    this.rgb[recording.before] = BEFORE;
    this.rgb[recording.noStack] = NO_STACK;
  }

  css(line, alpha = 1) {
    return `rgba(${this.rgb[line].join(",")},${alpha})`;
  }

  // Black or white, whichever is easier to read on a line's colour. Source: relative luminance, WCAG 2.2.
  textOn(line) {
    const [red, green, blue] = this.rgb[line].map((value) => (value <= 10 ? value / 3294 : ((value / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? "#0d1014" : "#ffffff";
  }

  // For the painters: whole rows of 256 lines. Lines that are not in `shown` (null: all are) are pale.
  table(shown, isDark) {
    const out = new Uint8Array(Math.ceil(Math.max(this.count, 1) / 256) * 1024);
    for (let line = 0; line < this.count; line++) {
      const isShown = !shown || shown.has(line);
      const rgb = isShown ? this.rgb[line] : isDark ? [70, 74, 82] : [205, 208, 214];
      out.set([...rgb, isShown ? 255 : 110], line * 4);
    }
    return out;
  }
}
