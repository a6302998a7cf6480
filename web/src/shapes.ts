// Conversion of the server's areas to GeoJSON shapes that can be drawn.

import type { Area, Point } from "./scene";

type Geometry = GeoJSON.Geometry;

const EARTH_M = 6_371_008.8;
const CORNERS = 128;
const CAP_CORNERS = 12;

export function circle([longitude, latitude]: Point, radius_m: number): Geometry {
  const ring = Array.from({ length: CORNERS + 1 }, (_, at) => moved([longitude, latitude], (at * 360) / CORNERS, radius_m));
  return { type: "Polygon", coordinates: [ring] };
}

export function shapes(area: Area): Geometry[] {
  switch (area.type) {
    case "Point":
      return [circle(area.coordinates, area.radius_m)];
    case "LineString":
      return corridor(area.coordinates, area.half_width_m);
    case "MultiLineString":
      return [{ type: "MultiLineString", coordinates: area.coordinates }];
    case "Box": {
      const [west, south, east, north] = area.bbox;
      return [{ type: "Polygon", coordinates: [[[west, south], [east, south], [east, north], [west, north], [west, south]]] }];
    }
    case "GeometryCollection":
      return area.geometries.flatMap(shapes);
    default:
      return [{ ...area, coordinates: closed(area.coordinates) } as Geometry];
  }
}

export function bounds(area: Area): [number, number, number, number] {
  const all = shapes(area).flatMap((shape) => points(shape));
  const longitudes = all.map(([longitude]) => longitude);
  const latitudes = all.map(([, latitude]) => latitude);
  return [Math.min(...longitudes), Math.min(...latitudes), Math.max(...longitudes), Math.max(...latitudes)];
}

export function points(shape: unknown): Point[] {
  const found: Point[] = [];
  const walk = (value: unknown): void => {
    if (!Array.isArray(value)) return;
    if (typeof value[0] === "number") found.push(value as Point);
    else value.forEach(walk);
  };
  walk((shape as { coordinates?: unknown }).coordinates);
  return found;
}

function moved([longitude, latitude]: Point, bearing_deg: number, distance_m: number): Point {
  const radians = Math.PI / 180;
  const angle = distance_m / EARTH_M;
  const [phi, bearing] = [latitude * radians, bearing_deg * radians];
  const up = Math.asin(Math.sin(phi) * Math.cos(angle) + Math.cos(phi) * Math.sin(angle) * Math.cos(bearing));
  const along = Math.atan2(Math.sin(bearing) * Math.sin(angle) * Math.cos(phi), Math.cos(angle) - Math.sin(phi) * Math.sin(up));
  return [longitude + along / radians, up / radians];
}

/** One polygon for each segment, with round ends. Overlaps look like one shape: fills within a layer do not add up. */
function corridor(path: Point[], half_width_m: number): Geometry[] {
  const segments = path.slice(1).map((to, at) => [path[at] as Point, to] as const);
  return segments.map(([from, to]) => {
    const bearing = bearingFrom(from, to);
    const cap = (around: Point, start: number) =>
      Array.from({ length: CAP_CORNERS + 1 }, (_, at) => moved(around, start + (at * 180) / CAP_CORNERS, half_width_m));
    const ring = [...cap(to, bearing - 90), ...cap(from, bearing + 90)];
    return { type: "Polygon", coordinates: [[...ring, ring[0] as Point]] };
  });
}

function bearingFrom([west, south]: Point, [east, north]: Point): number {
  const radians = Math.PI / 180;
  const across = (east - west) * Math.cos(((south + north) / 2) * radians);
  return Math.atan2(across, north - south) / radians;
}

/** Close rings: the server may omit the last point, GeoJSON requires it. */
function closed(coordinates: unknown): unknown {
  const rings = coordinates as unknown[];
  const first = rings[0];
  if (!Array.isArray(first) || typeof first[0] === "number") {
    const last = rings.at(-1) as Point | undefined;
    const start = rings[0] as Point | undefined;
    return start && last && (start[0] !== last[0] || start[1] !== last[1]) ? [...rings, start] : rings;
  }
  return rings.map(closed);
}
