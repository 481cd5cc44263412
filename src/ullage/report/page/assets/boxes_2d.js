// Draws boxes without WebGL: the same picture, slower.

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

  draw({ places, paints }, stretches) {
    const { canvas, context, view } = this;
    const xScale = canvas.width / (view.x1 - view.x0);
    const yScale = canvas.height / (view.y1 - view.y0);
    let last = -1;
    for (const [begin, end] of stretches) {
      for (let box = begin, at = begin * 4; box < end; box++, at += 4) {
        const x = (places[at] - view.x0) * xScale;
        const width = Math.max((places[at + 1] - places[at]) * xScale, 1);
        if (x >= canvas.width || x + width <= 0) continue;
        const height = Math.max(places[at + 3] * yScale, 1);
        if (paints[box] !== last) context.fillStyle = this.style((last = paints[box]));
        context.fillRect(x, canvas.height - (places[at + 2] - view.y0) * yScale - height, width, height);
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
