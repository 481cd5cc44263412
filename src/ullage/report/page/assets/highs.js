// The highest value in any stretch of a long series, from the highest of each 64, of each 64 of those, and so on.

const FAN = 64;

export class Highs {
  constructor(values) {
    this.levels = [values];
    while (this.levels.at(-1).length > FAN) {
      const below = this.levels.at(-1);
      const above = new Float64Array(Math.ceil(below.length / FAN));
      for (let i = 0; i < below.length; i++) {
        const at = Math.floor(i / FAN);
        if (i % FAN === 0 || below[i] > above[at]) above[at] = below[i];
      }
      this.levels.push(above);
    }
  }

  // The highest of values[begin..end); -Infinity of none.
  high(begin, end, level = 0) {
    const values = this.levels[level];
    end = Math.min(end, values.length);
    let highest = -Infinity;
    if (end - begin <= 2 * FAN || level + 1 === this.levels.length) {
      for (let i = begin; i < end; i++) if (values[i] > highest) highest = values[i];
      return highest;
    }
    const first = Math.ceil(begin / FAN);
    const last = Math.floor(end / FAN);
    for (let i = begin; i < first * FAN; i++) if (values[i] > highest) highest = values[i];
    for (let i = last * FAN; i < end; i++) if (values[i] > highest) highest = values[i];
    return Math.max(highest, this.high(first, last, level + 1));
  }
}
