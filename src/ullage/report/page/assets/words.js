// Numbers, places and texts as people read them. Mirrors `ullage.units`.

const UNITS = [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]];

export function bytesText(bytes) {
  const sign = bytes < 0 ? "-" : "";
  const size = Math.abs(bytes);
  for (const [unit, step] of UNITS) {
    if (size >= step - step / 2048) return `${sign}${significant(size / step)} ${unit}`;
  }
  return `${sign}${size} B`;
}

function significant(value) {
  const text = value.toFixed(value < 10 ? 2 : value < 100 ? 1 : 0);
  const short = text.includes(".") ? text.replace(/\.?0+$/, "") : text;
  return grouped(short);
}

export function durationText(us) {
  const abs = Math.abs(us);
  if (abs < 1000) return `${Math.round(us)} µs`;
  if (abs < 999500) return `${digits(us / 1000)} ms`;
  if (abs < 99950000) return `${digits(us / 1e6)} s`;
  const minutes = Math.floor(us / 6e7);
  return minutes < 100 ? `${minutes} min ${Math.round(us / 1e6 - minutes * 60)} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

function digits(value) {
  return String(Number(value.toPrecision(3)));
}

export function capitalText(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

export function countText(count) {
  return grouped(String(Math.round(count)));
}

function grouped(text) {
  return text.replace(/\B(?<!\.\d*)(?=(\d{3})+(?!\d))/g, ",");
}

export function pluralText(count, one, many) {
  return `${countText(count)} ${count === 1 ? one : many || one + "s"}`;
}

export function shareText(part, whole) {
  if (!(whole > 0) || part <= 0) return "0 %";
  const percent = (100 * part) / whole;
  if (percent < 0.1) return "<0.1 %";
  return percent >= 10 ? `${Math.round(percent)} %` : `${Number(percent.toPrecision(2))} %`;
}

// The last two parts of a path; of an installed file the package and the name.
export function shortFile(file) {
  for (const marker of ["site-packages/", "dist-packages/"]) {
    const at = file.lastIndexOf(marker);
    if (at >= 0) {
      const parts = file.slice(at + marker.length).split("/");
      return parts.length > 2 ? `${parts[0]}/…/${parts[parts.length - 1]}` : parts.join("/");
    }
  }
  const parts = file.split("/");
  return parts.length > 2 ? parts.slice(-2).join("/") : file;
}

// A text from a recording, with what would change the look of its surroundings written out: controls, and the marks that
// turn the direction of writing.
export function plainText(text) {
  return String(text).replace(/[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g, (mark) => {
    return `\\u${mark.charCodeAt(0).toString(16).padStart(4, "0")}`;
  });
}

// Round numbers between two bounds, about `count` of them, for an axis.
export function roundTicks(low, high, count, base = 10) {
  const rough = (high - low) / Math.max(count, 1);
  if (!(rough > 0)) return [];
  const power = base ** Math.floor(Math.log(rough) / Math.log(base));
  const steps = base === 2 ? [1, 2] : [1, 2, 5, 10];
  const step = power * steps.find((factor) => factor * power >= rough * 0.999);
  const ticks = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high; tick += step) ticks.push(tick);
  return ticks;
}
