// The scene in the browser: tables of rows, and vehicles by number. Only frames change it.

import { ROW_WORDS, type Frame, type Row } from "./frames";

export interface Vehicle {
  number: number;
  name: string;
  latitude: number;
  longitude: number;
  /** Degrees; undefined if not reported. */
  heading: number | undefined;
  /** Metres per second; undefined if not reported. */
  speed: number | undefined;
  edge: number;
  flags: number;
}

export const WARNED = 1;
export const UNCONFIRMED = 2;
export const ROAMED = 4;

const UNKNOWN = 0xffff;

export interface Edge extends Row {
  number: number;
  address: string;
  vehicles: number;
  reports_per_s: number;
  refused_per_s: number;
  is_silent: boolean;
  coverage?: Area;
}

export interface Alert extends Row {
  topic: string;
  source: string;
  kind: string;
  phase: string;
  incident: string;
  state: "active" | "replaced" | "cleared" | "expired";
  priority: string;
  area: Area;
  place: [number, number] | null;
  seen_ms: number;
  until_ms: number | null;
  inside: number;
  received: number;
  acknowledged: number;
  dropped: number;
  pending: number;
}

export interface Incident extends Row {
  kind: string;
  place: [number, number];
  radius_m: number;
  reports: number;
  witnesses: number;
  raised_ms: number;
  hot_ms: number;
}

export interface Hazard extends Row {
  kind: string;
  place: [number, number];
  source: string;
  seen_ms: number;
}

export interface Move extends Row {
  endpoint: string;
  from: string;
  to: string;
  at_ms: number;
}

export interface Query extends Row {
  state: string;
  mode: string;
  rows_per_s: number;
  took_s: number;
  lag: number | null;
  fault: string;
}

export interface Site extends Row {
  hub: string;
  is_hub_up: boolean;
  lag_ms: number;
}

export interface Metrics extends Row {
  vehicles: number;
  hidden: number;
  warned: number;
  reports_per_s: number;
  refused_per_s: number;
  moves: number;
  delay_ms_p50: number | null;
  delay_ms_p95: number | null;
  unreadable: number;
  untracked: number;
}

export type Point = [number, number];
export type Area =
  | { type: "Point"; coordinates: Point; radius_m: number }
  | { type: "LineString"; coordinates: Point[]; half_width_m: number }
  | { type: "MultiLineString"; coordinates: Point[][]; half_widths_m: number[] }
  | { type: "Box"; bbox: [number, number, number, number] }
  | { type: "Polygon"; coordinates: Point[][] }
  | { type: "MultiPolygon"; coordinates: Point[][][] }
  | { type: "GeometryCollection"; geometries: Area[] };

/** The state of the map at one instant. */
export class Scene {
  at = 0;
  readonly names = new Map<number, string>();
  readonly numbers = new Map<string, number>();
  /** Rows of vehicles by number, `ROW_WORDS` words each. */
  words = new Int32Array(1024 * ROW_WORDS);
  readonly edges = new Map<string, Edge>();
  readonly alerts = new Map<string, Alert>();
  readonly incidents = new Map<string, Incident>();
  readonly hazards = new Map<string, Hazard>();
  readonly moves = new Map<string, Move>();
  readonly queries = new Map<string, Query>();
  readonly sites = new Map<string, Site>();
  readonly metrics = new Map<string, Metrics>();

  /** Apply a frame; return the names of the changed tables. */
  apply(frame: Frame): Set<string> {
    if (frame.whole) this.clear();
    this.at = frame.at;
    for (const number of frame.removed) this.forget(number);
    for (const [number, name] of Object.entries(frame.names)) {
      this.names.set(Number(number), name);
      this.numbers.set(name, Number(number));
    }
    const { vehicles } = frame;
    for (let start = 0; start < vehicles.length; start += ROW_WORDS) {
      const number = vehicles[start] as number;
      this.reserve(number);
      this.words.set(vehicles.subarray(start, start + ROW_WORDS), number * ROW_WORDS);
    }
    for (const [name, changes] of Object.entries(frame.tables)) {
      const table = this.table(name);
      for (const [key, row] of Object.entries(changes)) {
        if (row === null) table.delete(key);
        else table.set(key, row);
      }
    }
    return new Set(frame.whole ? TABLES : Object.keys(frame.tables));
  }

  vehicle(number: number): Vehicle {
    const at = number * ROW_WORDS;
    const motion = this.words[at + 3] as number;
    const state = this.words[at + 4] as number;
    const heading = motion & 0xffff;
    const speed = motion >>> 16;
    return {
      number,
      name: this.names.get(number) ?? "",
      latitude: (this.words[at + 1] as number) / 1e7,
      longitude: (this.words[at + 2] as number) / 1e7,
      heading: heading === UNKNOWN ? undefined : heading / 100,
      speed: speed === UNKNOWN ? undefined : speed / 100,
      edge: state & 0xffff,
      flags: state >>> 16,
    };
  }

  vehicleNamed(name: string): Vehicle | undefined {
    const number = this.numbers.get(name);
    return number === undefined ? undefined : this.vehicle(number);
  }

  edgeName(number: number): string {
    for (const [name, edge] of this.edges) if (edge.number === number) return name;
    return "";
  }

  private table(name: string): Map<string, Row> {
    return (this as unknown as Record<string, Map<string, Row>>)[name] ?? new Map<string, Row>();
  }

  private clear(): void {
    this.names.clear();
    this.numbers.clear();
    for (const name of TABLES) this.table(name).clear();
  }

  private forget(number: number): void {
    const name = this.names.get(number);
    if (name !== undefined) this.numbers.delete(name);
    this.names.delete(number);
  }

  private reserve(number: number): void {
    const needed = (number + 1) * ROW_WORDS;
    if (needed <= this.words.length) return;
    const larger = new Int32Array(Math.max(needed, this.words.length * 2));
    larger.set(this.words);
    this.words = larger;
  }
}

export const TABLES = ["edges", "alerts", "incidents", "hazards", "moves", "queries", "sites", "metrics"] as const;
