// Makes and fills elements. Texts only ever become text: nothing here takes markup.

import { plainText } from "./words.js";

// el("button.small", { title: "Copy" }, "text", child, ...)
export function el(kind, attributes = {}, ...children) {
  const [tag, ...classes] = kind.split(".");
  const node = document.createElement(tag);
  if (classes.length) node.className = classes.join(" ");
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined).map((child) => (child instanceof Node ? child : plainText(child))));
  return node;
}

export function fill(node, ...children) {
  node.replaceChildren(...children.filter((child) => child !== null && child !== undefined).map((child) => (child instanceof Node ? child : plainText(child))));
}

export function byId(id) {
  return document.getElementById(id);
}

export function swatch(color) {
  const node = el("span.swatch");
  node.style.background = color;
  return node;
}

// What makes an element a button: a click, Enter or Space does `act`.
export function pressable(act) {
  const key = (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    act(event);
  };
  return { tabindex: 0, onclick: act, onkeydown: key };
}

// A canvas that fills its parent, in device pixels, and calls `draw` when its size changes.
export class Surface {
  constructor(parent, draw, label) {
    this.canvas = el("canvas", { role: "img", "aria-label": label });
    parent.append(this.canvas);
    this.parent = parent;
    this.width = this.height = 0;
    this.ratio = 1;
    new ResizeObserver(() => {
      if (this.fit()) draw();
    }).observe(parent);
  }

  // Takes the parent's size; whether it is another one.
  fit() {
    const ratio = window.devicePixelRatio || 1;
    const { clientWidth: width, clientHeight: height } = this.parent;
    if (width === this.width && height === this.height && ratio === this.ratio) return false;
    Object.assign(this, { width, height, ratio });
    this.canvas.width = Math.max(1, Math.round(width * ratio));
    this.canvas.height = Math.max(1, Math.round(height * ratio));
    return width > 0 && height > 0;
  }

  // An empty context whose unit is a CSS pixel.
  context() {
    const context = this.canvas.getContext("2d");
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    context.clearRect(0, 0, this.width, this.height);
    context.textBaseline = "middle";
    context.font = `12px ${FONT}`;
    return context;
  }
}

export const FONT = '"Inter", "Segoe UI", system-ui, -apple-system, "Helvetica Neue", Arial, sans-serif';

// A colour of the page's style sheet.
export function themed(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

// Draws as much of a text as fits, from its start; nothing where not even a few letters do.
export function fittedText(context, text, x, y, room) {
  if (room < 14) return;
  const whole = context.measureText(text).width;
  if (whole <= room) {
    context.fillText(text, x, y);
    return;
  }
  const letters = Math.floor((text.length * room) / whole) - 1;
  if (letters >= 3) context.fillText(`${text.slice(0, letters)}…`, x, y);
}

// Puts text on the clipboard, also where the page is a file and the browser's clipboard is out of reach.
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = el("textarea.offscreen");
    area.value = text;
    document.body.append(area);
    area.select();
    const isDone = document.execCommand("copy");
    area.remove();
    return isDone;
  }
}

const tip = { node: null };

// Shows lines of text beside the pointer; null hides them.
export function showTip(lines, x, y) {
  tip.node ||= document.body.appendChild(el("div.tip", { role: "status" }));
  tip.node.hidden = !lines;
  if (!lines) return;
  fill(tip.node, ...lines.map((line) => (line instanceof Node ? line : el("div", {}, line))));
  const { offsetWidth: width, offsetHeight: height } = tip.node;
  tip.node.style.left = `${x + 16 + width > innerWidth ? Math.max(4, x - width - 12) : x + 16}px`;
  tip.node.style.top = `${y + 16 + height > innerHeight ? Math.max(4, y - height - 12) : y + 16}px`;
}
