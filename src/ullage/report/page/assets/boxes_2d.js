// Draws boxes without WebGL: the same picture, slower.

import { BOX } from "./boxes.js";

export class CanvasPainter {
  static on(canvas) {
    return new CanvasPainter(canvas, canvas.getContext("2d"));
  }

  constructor(canvas, context) {
    this.canvas = canvas;
    this.context = context;
    this.styles = new Map();
  }

  setColors(colors) {
    this.colors = colors;
    this.styles.clear();
  }

  begin(view) {
    this.view = view;
    this.context.clearRect(0, 0, this.canvas.width, this.canvas.height);
  }

  draw(data, stretches) {
    const { canvas, context, view } = this;
    const xScale = canvas.width / (view.x1 - view.x0);
    const yScale = canvas.height / (view.y1 - view.y0);
    let last = -1;
    for (const [begin, end] of stretches) {
      for (let at = begin * BOX; at < end * BOX; at += BOX) {
        const x = (data[at] - view.x0) * xScale;
        const width = Math.max((data[at + 1] - data[at]) * xScale, 1);
        if (x >= canvas.width || x + width <= 0) continue;
        const height = Math.max(data[at + 3] * yScale, 1);
        const paint = data[at + 4];
        if (paint !== last) context.fillStyle = this.style((last = paint));
        context.fillRect(x, canvas.height - (data[at + 2] - view.y0) * yScale - height, width, height);
      }
    }
  }

  style(paint) {
    let style = this.styles.get(paint);
    if (!style) {
      const at = (paint & 65535) * 4;
      const shade = 1 + 0.1 * ((((paint >>> 16) & 15) - 7.5) / 7.5);
      const [red, green, blue] = [0, 1, 2].map((i) => Math.min(255, Math.round(this.colors[at + i] * shade)));
      const alpha = (this.colors[at + 3] / 255) * ((paint >>> 24) / 255);
      style = `rgba(${red},${green},${blue},${alpha.toFixed(3)})`;
      this.styles.set(paint, style);
    }
    return style;
  }

  forget() {}

  forgetAll() {}
}
