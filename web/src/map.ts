// The map: background, roads, coverage, areas, incidents, hazards, and the fleet on top. It loads nothing from other hosts.

import {
  Map as MapLibre,
  Marker,
  NavigationControl,
  ScaleControl,
  setWorkerUrl,
  type GeoJSONSource,
  type LayerSpecification,
  type StyleSpecification,
} from "maplibre-gl";
import { h, readable, text } from "./dom";
import { Fleet } from "./fleet";
import { onPaletteChange, palette, type Palette } from "./palette";
import type { Point, Scene } from "./scene";
import { bounds, circle, shapes } from "./shapes";

type Features = GeoJSON.FeatureCollection;
type Paint = Record<string, unknown>;

const SOURCES = ["grid", "roads", "edges", "alerts", "incidents", "hazards", "selected"];
const NOTHING: Features = { type: "FeatureCollection", features: [] };
const PICK_PX = 16;
const NARROW_PX = 760;

interface Layer {
  id: string;
  source: string;
  type: "fill" | "line" | "circle";
  filter?: unknown[];
  layout?: Record<string, unknown>;
  paint: (colors: Palette) => Paint;
}

const WIDTH_BY_ZOOM = ["interpolate", ["exponential", 1.6], ["zoom"], 10, 0.6, 14, 3, 18, 18];
const CASE_BY_ZOOM = ["interpolate", ["exponential", 1.6], ["zoom"], 10, 1.2, 14, 4.4, 18, 21];
const IS_LINE = ["==", ["geometry-type"], "LineString"];
const IS_AREA = ["==", ["geometry-type"], "Polygon"];
const ROUND = { "line-cap": "round", "line-join": "round" };

const LAYERS: Layer[] = [
  { id: "grid", source: "grid", type: "line", paint: (c) => ({ "line-color": c.grid, "line-width": 1 }) },
  { id: "road-cases", source: "roads", type: "line", layout: ROUND, paint: (c) => ({ "line-color": c.roadCase, "line-width": CASE_BY_ZOOM }) },
  { id: "roads", source: "roads", type: "line", layout: ROUND, paint: (c) => ({ "line-color": c.road, "line-width": WIDTH_BY_ZOOM }) },
  { id: "edges-fill", source: "edges", type: "fill", paint: (c) => ({ "fill-color": c.edge, "fill-opacity": 0.035 }) },
  {
    id: "edges",
    source: "edges",
    type: "line",
    paint: (c) => ({
      "line-color": ["case", ["get", "is_silent"], c.warned, c.edge],
      "line-width": 1.2,
      "line-opacity": 0.6,
      "line-dasharray": [4, 3],
    }),
  },
  { id: "incidents-fill", source: "incidents", type: "fill", paint: (c) => ({ "fill-color": c.incident, "fill-opacity": 0.22 }) },
  { id: "incidents", source: "incidents", type: "line", paint: (c) => ({ "line-color": c.incident, "line-width": 1.5 }) },
  { id: "alerts-fill", source: "alerts", type: "fill", filter: IS_AREA, paint: (c) => ({ "fill-color": c.alert, "fill-opacity": 0.1 }) },
  { id: "alerts", source: "alerts", type: "line", filter: IS_AREA, paint: (c) => ({ "line-color": c.alert, "line-width": 1.6 }) },
  {
    id: "alerts-roads",
    source: "alerts",
    type: "line",
    filter: IS_LINE,
    layout: ROUND,
    paint: (c) => ({ "line-color": c.alert, "line-opacity": 0.45, "line-width": CASE_BY_ZOOM }),
  },
  { id: "selected", source: "selected", type: "line", layout: ROUND, paint: (c) => ({ "line-color": c.alert, "line-width": 3.5 }) },
  {
    id: "hazards",
    source: "hazards",
    type: "circle",
    paint: (c) => ({
      "circle-radius": 5,
      "circle-color": c.hazard,
      "circle-opacity": ["get", "opacity"],
      "circle-stroke-color": c.outline,
      "circle-stroke-width": 1.2,
    }),
  },
];

export interface MapClick {
  place: Point;
  vehicle: string | undefined;
  alert: string | undefined;
}

export class CityMap {
  readonly fleet: Fleet;
  readonly map: MapLibre;
  private readonly labels = new Map<string, Marker>();
  private isZoomed = false;
  private isLoaded = false;
  private roads: Features = NOTHING;
  private selectedKey = "";

  constructor(private scene: Scene, private readonly onClick: (click: MapClick) => void) {
    setWorkerUrl("/worker.js");
    this.fleet = new Fleet(scene);
    this.map = new MapLibre({
      container: "map",
      style: style(),
      center: [0, 20],
      zoom: 1.5,
      maxZoom: 19,
      maxPitch: 0,
      attributionControl: false,
      locale: { "Map.Title": "Map: arrow keys pan, plus and minus zoom" },
    });
    this.map.addControl(new NavigationControl({ showCompass: false }), "bottom-right");
    this.map.addControl(new ScaleControl({}), "bottom-right");
    this.map.on("load", () => {
      this.map.addLayer(this.fleet);
      this.isLoaded = true;
      this.put("roads", this.roads);
      this.drawAll();
      this.zoomToAll();
    });
    this.map.on("moveend", () => this.drawGrid());
    this.map.on("resize", () => this.updatePadding());
    this.map.on("click", (event) => this.clicked(event.point.x, event.point.y, [event.lngLat.lng, event.lngLat.lat]));
    onPaletteChange(() => this.repaint());
  }

  show(scene: Scene): void {
    this.scene = scene;
    this.fleet.show(scene);
    this.drawAll();
  }

  /** Redraw changed tables; the first time, zoom to everything. */
  changed(tables: ReadonlySet<string>, words: Int32Array | undefined): void {
    this.fleet.update(words);
    if (!this.isLoaded) return;
    if (tables.has("edges")) this.drawEdges();
    if (tables.has("alerts")) this.drawAlerts();
    if (tables.has("incidents")) this.drawIncidents();
    if (tables.has("hazards")) this.drawHazards();
    this.zoomToAll();
  }

  setRoads(roads: Features): void {
    this.roads = roads;
    this.put("roads", roads);
    this.zoomToAll();
  }

  select(key: string): void {
    this.selectedKey = key;
    this.drawAlerts();
    const alert = this.scene.alerts.get(key);
    if (alert) this.goTo(bounds(alert.area));
  }

  /** Pad the map so that its centre is not under the panels. */
  updatePadding(): void {
    const box = (id: string) => document.getElementById(id)?.getBoundingClientRect() ?? new DOMRect();
    const isWide = innerWidth > NARROW_PX;
    const sheets = Math.max(box("panel").height, box("detail").height);
    const wide = { left: box("panel").right, right: box("detail").width, top: 30, bottom: 90 };
    this.map.setPadding(isWide ? wide : { left: 0, right: 0, top: box("time").bottom, bottom: Math.min(sheets, innerHeight * 0.6) });
  }

  goTo([west, south, east, north]: [number, number, number, number], duration = 600): void {
    this.updatePadding();
    this.map.fitBounds([[west, south], [east, north]], { padding: 30, maxZoom: 16, duration });
  }

  /** Zoom to everything, once there is anything. */
  zoomToAll(): void {
    if (this.isZoomed || !this.isLoaded) return;
    const boxes = [...this.scene.edges.values()].flatMap((edge) => (edge.coverage ? [bounds(edge.coverage)] : []));
    for (const number of boxes.length ? [] : this.scene.names.keys()) {
      const { longitude, latitude } = this.scene.vehicle(number);
      boxes.push([longitude, latitude, longitude, latitude]);
    }
    if (!boxes.length) return;
    this.isZoomed = true;
    const side = (at: 0 | 1 | 2 | 3, pick: (...all: number[]) => number) => pick(...boxes.map((box) => box[at]));
    this.goTo([side(0, Math.min), side(1, Math.min), side(2, Math.max), side(3, Math.max)], 0);
  }

  private clicked(x: number, y: number, place: Point): void {
    const vehicle = this.fleet.nearest(x, y, PICK_PX);
    const layers = ["alerts-fill", "alerts-roads"];
    const alert = this.map.queryRenderedFeatures([x, y], { layers })[0]?.properties["key"] as string | undefined;
    this.onClick({ place, vehicle, alert });
  }

  private drawAll(): void {
    if (!this.isLoaded) return;
    this.drawGrid();
    this.drawEdges();
    this.drawAlerts();
    this.drawIncidents();
    this.drawHazards();
  }

  private drawEdges(): void {
    const features = [...this.scene.edges].flatMap(([name, edge]) =>
      edge.coverage ? shapes(edge.coverage).map((shape) => feature(shape, { name, is_silent: edge.is_silent })) : [],
    );
    this.put("edges", { type: "FeatureCollection", features });
    const labels = new Map<string, Point>();
    for (const [name, edge] of this.scene.edges) {
      if (!edge.coverage) continue;
      const [west, , east, north] = bounds(edge.coverage);
      labels.set(name, [(west + east) / 2, north]);
    }
    this.drawLabels(labels);
  }

  private drawAlerts(): void {
    const live = [...this.scene.alerts].filter(([, alert]) => alert.state === "active");
    const features = live.flatMap(([key, alert]) => shapes(alert.area).map((shape) => feature(shape, { key })));
    this.put("alerts", { type: "FeatureCollection", features });
    const selected = this.scene.alerts.get(this.selectedKey);
    this.put("selected", { type: "FeatureCollection", features: selected ? shapes(selected.area).map((shape) => feature(shape, {})) : [] });
  }

  private drawIncidents(): void {
    const features = [...this.scene.incidents].map(([key, one]) => feature(circle(one.place, one.radius_m), { key, kind: readable(one.kind) }));
    this.put("incidents", { type: "FeatureCollection", features });
  }

  private drawHazards(): void {
    const features = [...this.scene.hazards.values()].map((one) => {
      const opacity = Math.max(0.25, 1 - (this.scene.at - one.seen_ms) / 60_000);
      return feature({ type: "Point", coordinates: one.place }, { opacity });
    });
    this.put("hazards", { type: "FeatureCollection", features });
  }

  /** Draw lines at round degrees, so that a map without roads visibly moves. */
  private drawGrid(): void {
    if (!this.isLoaded || this.roads.features.length) return this.put("grid", NOTHING);
    const box = this.map.getBounds();
    const span = Math.max(box.getEast() - box.getWest(), 1e-6);
    const step = 2 ** Math.floor(Math.log2(span / 6));
    const features: GeoJSON.Feature[] = [];
    for (let x = Math.floor(box.getWest() / step - 6) * step; x < box.getEast() + 6 * step; x += step)
      features.push(feature({ type: "LineString", coordinates: [[x, -85], [x, 85]] }, {}));
    for (let y = Math.floor(box.getSouth() / step - 6) * step; y < box.getNorth() + 6 * step; y += step)
      features.push(feature({ type: "LineString", coordinates: [[box.getWest() - span, y], [box.getEast() + span, y]] }, {}));
    this.put("grid", { type: "FeatureCollection", features });
  }

  private drawLabels(places: Map<string, Point>): void {
    for (const [name, marker] of this.labels) {
      if (places.has(name)) continue;
      marker.remove();
      this.labels.delete(name);
    }
    for (const [name, place] of places) {
      let marker = this.labels.get(name);
      if (!marker) {
        const element = h("div", { className: "edge-label", "aria-hidden": true });
        marker = new Marker({ element, anchor: "bottom" }).setLngLat(place).addTo(this.map);
        element.removeAttribute("tabindex");
        this.labels.set(name, marker);
      }
      marker.setLngLat(place);
      const edge = this.scene.edges.get(name);
      marker.getElement().classList.toggle("silent", Boolean(edge?.is_silent));
      text(marker.getElement(), `${name.split("/").at(-1) ?? name} · ${edge?.vehicles ?? 0}`);
    }
  }

  private put(source: string, features: Features): void {
    if (this.isLoaded) void this.map.getSource<GeoJSONSource>(source)?.setData(features);
  }

  private repaint(): void {
    const colors = palette();
    this.map.setPaintProperty("ground", "background-color", colors.ground);
    for (const layer of LAYERS)
      for (const [name, value] of Object.entries(layer.paint(colors)))
        this.map.setPaintProperty(layer.id, name as never, value as never);
    this.map.triggerRepaint();
  }
}

function feature(geometry: GeoJSON.Geometry, properties: Record<string, unknown>): GeoJSON.Feature {
  return { type: "Feature", geometry, properties };
}

function style(): StyleSpecification {
  const colors = palette();
  const drawn = LAYERS.map(({ paint, ...layer }) => ({ ...layer, paint: paint(colors) }) as LayerSpecification);
  return {
    version: 8,
    sources: Object.fromEntries(SOURCES.map((name) => [name, { type: "geojson", data: NOTHING }])),
    layers: [{ id: "ground", type: "background", paint: { "background-color": colors.ground } }, ...drawn],
  };
}
