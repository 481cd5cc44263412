// Draws boxes with WebGL2, from textures that stay on the GPU.
//
// An instance is a batch of boxes, six vertices each: software renderers take as long for an instance of one box as for one
// of a hundred.

import { TEXTURE_WIDTH } from "./boxes.js";

const BATCH = 128;

const VERTEX = `#version 300 es
precision highp float;
precision highp int;
precision highp usampler2D;
uniform usampler2D places;            // x0, x1, y, height
uniform usampler2D paints;            // line | shade << 16 | coverage << 24
uniform int first;                    // the stretch of boxes that is drawn
uniform int last;
uniform ivec2 origin;                 // of the view, so that differences are exact at any zoom
uniform vec2 fraction;
uniform vec2 scale;                   // clip space for each unit
uniform vec2 pixel;                   // clip space for each pixel
uniform sampler2D colors;             // 256 lines a row
flat out vec4 color;
out vec2 inside;                      // in pixels from the box's corner
flat out vec2 size;

void main() {
  int index = first + gl_InstanceID * ${BATCH} + gl_VertexID / 6;
  if (index >= last) {
    gl_Position = vec4(2.0, 2.0, 0.0, 1.0);
    return;
  }
  ivec2 at = ivec2(index % ${TEXTURE_WIDTH}, index / ${TEXTURE_WIDTH});
  uvec4 box = texelFetch(places, at, 0);
  uint paint = texelFetch(paints, at, 0).x;
  int side = gl_VertexID % 6;         // two triangles: 0 1 2, 2 1 3
  vec2 corner = vec2(float(side == 1 || side == 4 || side == 5), float(side == 2 || side == 3 || side == 5));
  vec2 low = (vec2(float(int(box.x) - origin.x), float(int(box.z) - origin.y)) - fraction) * scale;
  vec2 extent = vec2(float(box.y - box.x), float(box.w)) * scale;
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
  // Null where the browser has no WebGL2, or one that a processor does the work of: a plain canvas is faster then.
  static on(canvas, takesSoftware) {
    const gl = canvas.getContext("webgl2", { antialias: false, alpha: true, premultipliedAlpha: true, powerPreference: "low-power" });
    if (!gl) return null;
    if (takesSoftware || !isSoftware(gl)) return new GlPainter(canvas, gl);
    gl.getExtension("WEBGL_lose_context")?.loseContext();
    return null;
  }

  constructor(canvas, gl) {
    this.canvas = canvas;
    this.gl = gl;
    this.textures = new Map();
    this.program = linked(gl);
    gl.useProgram(this.program);
    this.uniforms = {};
    for (const name of ["places", "paints", "colors", "first", "last", "origin", "fraction", "scale", "pixel"]) {
      this.uniforms[name] = gl.getUniformLocation(this.program, name);
    }
    ["places", "paints", "colors"].forEach((name, unit) => gl.uniform1i(this.uniforms[name], unit));
    this.colors = gl.createTexture();
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
    gl.bindVertexArray(gl.createVertexArray());
  }

  // `colors` holds red, green, blue, alpha of each line, for a whole number of rows of 256 lines.
  setColors(colors) {
    const { gl } = this;
    this.bind(2, this.colors);
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

  // Draws stretches of a BoxArray; it is uploaded when it is first met.
  draw(boxes, stretches) {
    const { gl, uniforms } = this;
    this.upload(boxes);
    for (const [begin, end] of stretches) {
      gl.uniform1i(uniforms.first, begin);
      gl.uniform1i(uniforms.last, end);
      gl.drawArraysInstanced(gl.TRIANGLES, 0, 6 * Math.min(BATCH, end - begin), Math.ceil((end - begin) / BATCH));
    }
  }

  upload(boxes) {
    const { gl } = this;
    let pair = this.textures.get(boxes);
    const isNew = !pair;
    if (isNew) this.textures.set(boxes, (pair = [gl.createTexture(), gl.createTexture()]));
    pair.forEach((texture, unit) => this.bind(unit, texture));
    if (!isNew) return;
    const height = boxes.paints.length / TEXTURE_WIDTH;
    gl.activeTexture(gl.TEXTURE0);
    gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGBA32UI, TEXTURE_WIDTH, height, 0, gl.RGBA_INTEGER, gl.UNSIGNED_INT, boxes.places);
    gl.activeTexture(gl.TEXTURE1);
    gl.texImage2D(gl.TEXTURE_2D, 0, gl.R32UI, TEXTURE_WIDTH, height, 0, gl.RED_INTEGER, gl.UNSIGNED_INT, boxes.paints);
  }

  bind(unit, texture) {
    const { gl } = this;
    gl.activeTexture(gl.TEXTURE0 + unit);
    gl.bindTexture(gl.TEXTURE_2D, texture);
    gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MIN_FILTER, gl.NEAREST);
    gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MAG_FILTER, gl.NEAREST);
  }

  forget(boxes) {
    for (const texture of this.textures.get(boxes) || []) this.gl.deleteTexture(texture);
    this.textures.delete(boxes);
  }

  forgetAll() {
    for (const boxes of [...this.textures.keys()]) this.forget(boxes);
  }
}

function isSoftware(gl) {
  const names = gl.getExtension("WEBGL_debug_renderer_info");
  return names !== null && /swiftshader|llvmpipe|softpipe|software|basic render/i.test(gl.getParameter(names.UNMASKED_RENDERER_WEBGL));
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
