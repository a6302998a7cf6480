// The fleet: all vehicles in one draw call, interpolated between their last two positions.

import type { CustomLayerInterface, CustomRenderMethodInput, Map as MapLibre } from "maplibre-gl";
import { ROW_WORDS, UNKNOWN } from "./frames";
import { palette } from "./palette";
import { UNCONFIRMED, ROAMED, WARNED, type Scene } from "./scene";

const SHORTEST_MS = 200;
const LONGEST_MS = 1_500;
const FLOATS = 4;
/** Above this zoom, vehicles have a border that sets them off from the road. */
const CLOSE_ZOOM = 13.5;
const CORNER = 0;
const INSTANCE = 1;
/** Placeholder for an unknown heading, in radians. */
const NO_HEADING = 100;

const VERTEX = `#version 300 es
uniform mat4 u_matrix;
uniform vec2 u_viewport;
uniform float u_size;
uniform float u_bearing;
uniform vec4 u_colors[3];
uniform float u_followed;
layout(location = 0) in vec2 a_corner;
layout(location = 1) in vec4 a_vehicle;
out vec2 v_at;
out vec4 v_color;
flat out float v_is_round;
flat out float v_ring;
void main() {
  float state = a_vehicle.w;
  float kind = mod(state, 4.0);
  v_color = u_colors[int(kind)];
  v_ring = step(4.0, state) + (float(gl_InstanceID) == u_followed ? 2.0 : 0.0);
  v_is_round = step(50.0, a_vehicle.z);
  v_at = a_corner;
  float angle = v_is_round > 0.5 ? 0.0 : a_vehicle.z - u_bearing;
  vec2 rotated = vec2(a_corner.x * cos(angle) + a_corner.y * sin(angle), a_corner.y * cos(angle) - a_corner.x * sin(angle));
  vec4 place = u_matrix * vec4(a_vehicle.xy, 0.0, 1.0);
  float size = u_size * (kind > 0.5 ? 1.25 : 1.0);
  gl_Position = place + vec4(rotated * size / u_viewport * 2.0 * place.w, 0.0, 0.0);
}`;

const FRAGMENT = `#version 300 es
precision highp float;
uniform vec4 u_outline;
uniform float u_border;
uniform vec4 u_ring;
in vec2 v_at;
in vec4 v_color;
flat in float v_is_round;
flat in float v_ring;
out vec4 color;
// Signed distance to the border of a kite that points up, in units of its size; negative outside.
float kite(vec2 at) {
  float x = abs(at.x);
  float side = (0.40 * (0.62 - at.y) / 1.10 - x) * 0.94;
  float tail = (at.y + 0.22 + x * 0.65) * 0.84;
  return min(side, tail);
}
void main() {
  float inside = v_is_round > 0.5 ? 0.38 - length(v_at) : kite(v_at);
  float soft = fwidth(inside);
  float body = smoothstep(-soft, soft, inside);
  float edge = smoothstep(-soft, soft, inside + u_border);
  vec4 found = mix(vec4(u_outline.rgb, 1.0) * edge, vec4(v_color.rgb, 1.0), body);
  if (v_ring > 0.5) {
    float ring = abs(length(v_at) - 0.84) - (v_ring > 1.5 ? 0.09 : 0.06);
    float there = 1.0 - smoothstep(-soft, soft, ring);
    found = mix(found, vec4(v_ring > 1.5 ? v_color.rgb : u_ring.rgb, 1.0), there);
  }
  if (found.a < 0.01) discard;
  color = found;
}`;

export class Fleet implements CustomLayerInterface {
  readonly id = "fleet";
  readonly type = "custom" as const;
  /** Script time of the last frames, in milliseconds. */
  readonly render_ms: number[] = [];
  followed = "";
  private map: MapLibre | undefined;
  private program: WebGLProgram | undefined;
  private buffer: WebGLBuffer | null = null;
  private vertices: WebGLVertexArrayObject | null = null;
  private readonly uniforms = new Map<string, WebGLUniformLocation | null>();
  private origin: [number, number] | undefined;
  /** By vehicle number: start and end of the current movement, its start time, and its duration. */
  private from = new Float64Array(0);
  private to = new Float64Array(0);
  private since = new Float64Array(0);
  private duration = new Float64Array(0);
  private instances = new Float32Array(0);
  private readonly still = matchMedia("(prefers-reduced-motion: reduce)");

  constructor(private scene: Scene) {}

  show(scene: Scene): void {
    this.scene = scene;
    this.reset(undefined);
    this.update(undefined);
  }

  /** Restart the movement of these numbers, or of all: they now belong to other vehicles. */
  reset(numbers: number[] | undefined): void {
    if (numbers === undefined) this.since.fill(0);
    else for (const number of numbers) this.since[number] = 0;
  }

  /** Update the targets of moved vehicles: those in a frame's rows, or all. */
  update(words: Int32Array | undefined): void {
    const now = performance.now();
    this.grow(this.scene.words.length / ROW_WORDS);
    if (words === undefined) for (const number of this.scene.names.keys()) this.setTarget(number, now);
    else for (let at = 0; at < words.length; at += ROW_WORDS) this.setTarget(words[at] as number, now);
    this.map?.triggerRepaint();
  }

  /** Return where a vehicle is drawn now, in degrees. */
  drawnAt(number: number): [number, number] | undefined {
    if (!this.since[number]) return undefined;
    const [x, y] = this.place(number, performance.now());
    return [x * 360 - 180, (Math.atan(Math.exp(Math.PI * (1 - 2 * y))) * 360) / Math.PI - 90];
  }

  /** Return the vehicle nearest to a point of the screen, within a distance. */
  nearest(x: number, y: number, within_px: number): string | undefined {
    let best = within_px ** 2;
    let found: string | undefined;
    for (const [number, name] of this.scene.names) {
      const place = this.drawnAt(number);
      const at = place && this.map?.project(place);
      const distance = at ? (at.x - x) ** 2 + (at.y - y) ** 2 : Infinity;
      if (distance < best) [best, found] = [distance, name];
    }
    return found;
  }

  onAdd(map: MapLibre, gl: WebGL2RenderingContext): void {
    this.map = map;
    const program = (this.program = linked(gl));
    for (const name of ["u_matrix", "u_viewport", "u_size", "u_bearing", "u_colors", "u_outline", "u_border", "u_ring", "u_followed"])
      this.uniforms.set(name, gl.getUniformLocation(program, name));
    this.vertices = gl.createVertexArray();
    gl.bindVertexArray(this.vertices);
    gl.bindBuffer(gl.ARRAY_BUFFER, gl.createBuffer());
    gl.bufferData(gl.ARRAY_BUFFER, new Float32Array([-1, -1, 1, -1, -1, 1, 1, 1]), gl.STATIC_DRAW);
    gl.enableVertexAttribArray(CORNER);
    gl.vertexAttribPointer(CORNER, 2, gl.FLOAT, false, 0, 0);
    this.buffer = gl.createBuffer();
    gl.bindBuffer(gl.ARRAY_BUFFER, this.buffer);
    gl.enableVertexAttribArray(INSTANCE);
    gl.vertexAttribPointer(INSTANCE, FLOATS, gl.FLOAT, false, 0, 0);
    gl.vertexAttribDivisor(INSTANCE, 1);
    gl.bindVertexArray(null);
  }

  render(gl: WebGL2RenderingContext, { defaultProjectionData }: CustomRenderMethodInput): void {
    const map = this.map;
    if (!map || !this.program || !this.scene.names.size) return;
    const began = performance.now();
    const { drawn, followed, isMoving } = this.fillInstances(began);
    gl.useProgram(this.program);
    gl.bindVertexArray(this.vertices);
    gl.bindBuffer(gl.ARRAY_BUFFER, this.buffer);
    gl.bufferData(gl.ARRAY_BUFFER, this.instances.subarray(0, drawn * FLOATS), gl.DYNAMIC_DRAW);
    const at = (name: string) => this.uniforms.get(name) ?? null;
    gl.uniformMatrix4fv(at("u_matrix"), false, this.matrix(defaultProjectionData.mainMatrix));
    gl.uniform2f(at("u_viewport"), gl.drawingBufferWidth, gl.drawingBufferHeight);
    gl.uniform1f(at("u_size"), sizeAt(map.getZoom()) * devicePixelRatio);
    gl.uniform1f(at("u_border"), map.getZoom() > CLOSE_ZOOM ? 0.09 : 0.03);
    gl.uniform1f(at("u_bearing"), (map.getBearing() * Math.PI) / 180);
    gl.uniform1f(at("u_followed"), followed);
    const { vehicle, unconfirmed, warned, outline, roamed } = palette();
    gl.uniform4fv(at("u_colors"), [...rgba(vehicle), ...rgba(unconfirmed), ...rgba(warned)]);
    gl.uniform4fv(at("u_outline"), rgba(outline));
    gl.uniform4fv(at("u_ring"), rgba(roamed));
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
    gl.drawArraysInstanced(gl.TRIANGLE_STRIP, 0, 4, drawn);
    gl.bindVertexArray(null);
    this.render_ms.push(performance.now() - began);
    if (this.render_ms.length > 600) this.render_ms.shift();
    if (isMoving) map.triggerRepaint();
  }

  /** Write all vehicles into the instance buffer; warned and unconfirmed ones last, on top. */
  private fillInstances(now: number): { drawn: number; followed: number; isMoving: boolean } {
    const { scene, instances } = this;
    const [originX, originY] = (this.origin ??= this.to.length ? [this.to[0] as number, this.to[1] as number] : [0, 0]);
    const followedNumber = scene.numbers.get(this.followed);
    let [drawn, followed, isMoving] = [0, -1, false];
    for (let rank = 0; rank < 2; rank++) {
      for (const number of scene.names.keys()) {
        const flags = (scene.words[number * ROW_WORDS + 4] as number) >>> 16;
        const kind = flags & WARNED ? 2 : flags & UNCONFIRMED ? 1 : 0;
        if ((kind > 0) !== (rank > 0)) continue;
        const heading = (scene.words[number * ROW_WORDS + 3] as number) & 0xffff;
        const [x, y] = this.place(number, now);
        isMoving ||= now - (this.since[number] as number) < (this.duration[number] as number);
        if (number === followedNumber) followed = drawn;
        const at = drawn++ * FLOATS;
        instances[at] = x - originX;
        instances[at + 1] = y - originY;
        instances[at + 2] = heading === UNKNOWN ? NO_HEADING : (heading * Math.PI) / 18_000;
        instances[at + 3] = kind + (flags & ROAMED ? 4 : 0);
      }
    }
    return { drawn, followed, isMoving };
  }

  private setTarget(number: number, now: number): void {
    const latitude = (this.scene.words[number * ROW_WORDS + 1] as number) / 1e7;
    const longitude = (this.scene.words[number * ROW_WORDS + 2] as number) / 1e7;
    const x = (longitude + 180) / 360;
    const y = (1 - Math.log(Math.tan(Math.PI / 4 + (latitude * Math.PI) / 360)) / Math.PI) / 2;
    if (x === this.to[number * 2] && y === this.to[number * 2 + 1] && this.since[number]) return;
    const last = this.since[number] as number;
    const [fromX, fromY] = last && this.scene.names.has(number) ? this.place(number, now) : [x, y];
    const isFar = Math.hypot(x - fromX, y - fromY) > 1e-4;
    this.from[number * 2] = isFar ? x : fromX;
    this.from[number * 2 + 1] = isFar ? y : fromY;
    this.to[number * 2] = x;
    this.to[number * 2 + 1] = y;
    this.duration[number] = last && !this.still.matches ? Math.min(Math.max(now - last, SHORTEST_MS), LONGEST_MS) : 0;
    this.since[number] = now;
  }

  private place(number: number, now: number): [number, number] {
    const duration = this.duration[number] as number;
    const share = duration ? Math.min((now - (this.since[number] as number)) / duration, 1) : 1;
    const at = number * 2;
    const [fromX, fromY] = [this.from[at] as number, this.from[at + 1] as number];
    return [fromX + ((this.to[at] as number) - fromX) * share, fromY + ((this.to[at + 1] as number) - fromY) * share];
  }

  /** Return the map's matrix, moved to our origin in double precision: single precision would make vehicles jitter. */
  private matrix(map: ArrayLike<number>): Float32Array {
    const [x, y] = this.origin ?? [0, 0];
    const moved = new Float32Array(16);
    for (let at = 0; at < 16; at++) moved[at] = map[at] as number;
    for (let row = 0; row < 4; row++)
      moved[12 + row] = (map[row] as number) * x + (map[4 + row] as number) * y + (map[12 + row] as number);
    return moved;
  }

  private grow(vehicles: number): void {
    if (this.since.length >= vehicles) return;
    const larger = (old: Float64Array, size: number) => {
      const made = new Float64Array(size);
      made.set(old);
      return made;
    };
    this.from = larger(this.from, vehicles * 2);
    this.to = larger(this.to, vehicles * 2);
    this.since = larger(this.since, vehicles);
    this.duration = larger(this.duration, vehicles);
    this.instances = new Float32Array(vehicles * FLOATS);
  }
}

function sizeAt(zoom: number): number {
  return Math.min(Math.max(8 + (zoom - 11) * 2, 6), 18);
}

function rgba(color: string): [number, number, number, number] {
  const value = parseInt(color.slice(1), 16);
  return [(value >> 16) / 255, ((value >> 8) & 255) / 255, (value & 255) / 255, 1];
}

function linked(gl: WebGL2RenderingContext): WebGLProgram {
  const program = gl.createProgram();
  for (const [type, source] of [[gl.VERTEX_SHADER, VERTEX], [gl.FRAGMENT_SHADER, FRAGMENT]] as const) {
    const shader = gl.createShader(type);
    if (!shader) throw new Error("cannot create a shader");
    gl.shaderSource(shader, source);
    gl.compileShader(shader);
    if (!gl.getShaderParameter(shader, gl.COMPILE_STATUS)) throw new Error(gl.getShaderInfoLog(shader) ?? "cannot create a shader");
    gl.attachShader(program, shader);
  }
  gl.linkProgram(program);
  return program;
}
