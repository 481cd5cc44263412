// Draws boxes with WebGL2: one rectangle, drawn for each box of a buffer that stays on the GPU.

import { BOX } from "./boxes.js";

const VERTEX = `#version 300 es
precision highp float;
precision highp int;
precision highp usampler2D;
layout(location = 0) in uvec4 box;    // x0, x1, y, height
layout(location = 1) in uint paint;   // line | shade << 16 | coverage << 24
uniform ivec2 origin;                 // of the view, so that differences are exact at any zoom
uniform vec2 fraction;
uniform vec2 scale;                   // clip space for each unit
uniform vec2 pixel;                   // clip space for each pixel
uniform sampler2D colors;             // 256 lines a row
flat out vec4 color;
out vec2 inside;                      // in pixels from the box's corner
flat out vec2 size;

void main() {
  vec2 low = (vec2(float(int(box.x) - origin.x), float(int(box.z) - origin.y)) - fraction) * scale;
  vec2 extent = vec2(float(box.y - box.x), float(box.w)) * scale;
  vec2 corner = vec2(float(gl_VertexID & 1), float(gl_VertexID >> 1));
  extent = max(extent, pixel);        // nothing is too small to be seen
  gl_Position = vec4(low + corner * extent - 1.0, 0.0, 1.0);
  size = extent / pixel;
  inside = corner * size;
  int line = int(paint & 65535u);
  vec4 base = texelFetch(colors, ivec2(line & 255, line >> 8), 0);
  float shade = (float((paint >> 16) & 15u) - 7.5) / 7.5;
  vec3 shaded = base.rgb * (1.0 + 0.10 * shade);
  color = vec4(shaded, base.a * float(paint >> 24) / 255.0);
}`;

const FRAGMENT = `#version 300 es
precision mediump float;
flat in vec4 color;
in vec2 inside;
flat in vec2 size;
out vec4 result;

void main() {
  vec2 edge = min(inside, size - inside);
  float isEdge = (size.x > 5.0 && edge.x < 1.0) || (size.y > 5.0 && edge.y < 1.0) ? 1.0 : 0.0;
  vec3 rgb = color.rgb * (1.0 - 0.22 * isEdge);
  result = vec4(rgb * color.a, color.a);
}`;

export class GlPainter {
  // Null where the browser has no WebGL2.
  static on(canvas) {
    const gl = canvas.getContext("webgl2", { antialias: false, alpha: true, premultipliedAlpha: true, powerPreference: "low-power" });
    return gl ? new GlPainter(canvas, gl) : null;
  }

  constructor(canvas, gl) {
    this.canvas = canvas;
    this.gl = gl;
    this.buffers = new Map();
    this.program = linked(gl);
    this.uniforms = {};
    for (const name of ["origin", "fraction", "scale", "pixel", "colors"]) {
      this.uniforms[name] = gl.getUniformLocation(this.program, name);
    }
    this.texture = gl.createTexture();
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
    gl.useProgram(this.program);
    gl.enableVertexAttribArray(0);
    gl.enableVertexAttribArray(1);
    gl.vertexAttribDivisor(0, 1);
    gl.vertexAttribDivisor(1, 1);
  }

  // `colors` holds red, green, blue, alpha of each line, for a whole number of rows of 256 lines.
  setColors(colors) {
    const { gl } = this;
    gl.bindTexture(gl.TEXTURE_2D, this.texture);
    gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MIN_FILTER, gl.NEAREST);
    gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MAG_FILTER, gl.NEAREST);
    gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGBA8, 256, colors.length / 1024, 0, gl.RGBA, gl.UNSIGNED_BYTE, colors);
  }

  begin(view) {
    const { gl, canvas, uniforms } = this;
    gl.viewport(0, 0, canvas.width, canvas.height);
    gl.clearColor(0, 0, 0, 0);
    gl.clear(gl.COLOR_BUFFER_BIT);
    const x = Math.floor(view.x0);
    const y = Math.floor(view.y0);
    gl.uniform2i(uniforms.origin, x, y);
    gl.uniform2f(uniforms.fraction, view.x0 - x, view.y0 - y);
    gl.uniform2f(uniforms.scale, 2 / (view.x1 - view.x0), 2 / (view.y1 - view.y0));
    gl.uniform2f(uniforms.pixel, 2 / canvas.width, 2 / canvas.height);
  }

  // Draws stretches of an array of boxes; it is uploaded when it is first met.
  draw(data, stretches) {
    const { gl } = this;
    gl.bindBuffer(gl.ARRAY_BUFFER, this.buffer(data));
    for (const [begin, end] of stretches) {
      const offset = begin * BOX * 4;
      gl.vertexAttribIPointer(0, 4, gl.UNSIGNED_INT, BOX * 4, offset);
      gl.vertexAttribIPointer(1, 1, gl.UNSIGNED_INT, BOX * 4, offset + 16);
      gl.drawArraysInstanced(gl.TRIANGLE_STRIP, 0, 4, end - begin);
    }
  }

  buffer(data) {
    let buffer = this.buffers.get(data);
    if (!buffer) {
      const { gl } = this;
      buffer = gl.createBuffer();
      gl.bindBuffer(gl.ARRAY_BUFFER, buffer);
      gl.bufferData(gl.ARRAY_BUFFER, data, gl.STATIC_DRAW);
      this.buffers.set(data, buffer);
    }
    return buffer;
  }

  forget(data) {
    if (this.buffers.has(data)) this.gl.deleteBuffer(this.buffers.get(data));
    this.buffers.delete(data);
  }

  forgetAll() {
    for (const data of [...this.buffers.keys()]) this.forget(data);
  }
}

function linked(gl) {
  const program = gl.createProgram();
  for (const [kind, source] of [[gl.VERTEX_SHADER, VERTEX], [gl.FRAGMENT_SHADER, FRAGMENT]]) {
    const shader = gl.createShader(kind);
    gl.shaderSource(shader, source);
    gl.compileShader(shader);
    if (!gl.getShaderParameter(shader, gl.COMPILE_STATUS)) throw new Error(gl.getShaderInfoLog(shader));
    gl.attachShader(program, shader);
  }
  gl.linkProgram(program);
  if (!gl.getProgramParameter(program, gl.LINK_STATUS)) throw new Error(gl.getProgramInfoLog(program));
  return program;
}
