// The page: the live scene, optionally a past one, and the map, lists and details that show one of the two.

import "maplibre-gl/dist/maplibre-gl.css";
import "./style.css";
import { Detail } from "./detail";
import { byId, count, h, readable, text } from "./dom";
import { frameFrom, type Frame } from "./frames";
import { ServerConnection, token, type Welcome } from "./connection";
import { Lists } from "./lists";
import { CityMap, type MapClick } from "./map";
import { Publishing } from "./publish";
import { Scene, TABLES, type Point } from "./scene";
import { bounds, circle, points } from "./shapes";
import { Time } from "./time";

const LISTS_MS = 400;
const FLY_MS = 500;
const METRES_PER_DEGREE = 111_195;

const live = new Scene();
let shown = live;
let followed = "";
let followedSince_ms = 0;
let filled_ms = 0;
const announced = new Set<string>();

const connection = new ServerConnection({ frame: receive, welcome, state });
const city = new CityMap(live, clicked);
const detail = new Detail(live, connection, { closed, follow, clear: (alert) => publishing.clear(alert) });
const lists = new Lists(live, {
  alert: openAlert,
  vehicle: follow,
  place: (place, radius_m) => city.goTo(around(place, radius_m)),
  edge: (name) => {
    const coverage = shown.edges.get(name)?.coverage;
    if (coverage) city.goTo(bounds(coverage));
  },
});
const publishing = new Publishing(connection, middle, hint);
const time = new Time((at) => void showAt(at));

function receive(frame: Frame): void {
  const changed = live.apply(frame);
  announce(frame.whole);
  if (shown === live) {
    city.fleet.reset(frame.whole ? undefined : Object.keys(frame.names).map(Number));
    city.changed(changed, frame.whole ? undefined : frame.vehicles);
    centreFollowed();
    const now = performance.now();
    if (frame.whole || now - filled_ms > LISTS_MS) {
      filled_ms = now;
      lists.fill();
      detail.fill();
    }
  }
  time.tick(live.at);
}

function welcome(message: Welcome): void {
  text(byId("sites"), message.sites.join(", "));
  publishing.setKinds(message.kinds);
  time.start(message.history_span_ms?.[0], message.history_minutes);
  if (message.has_roads) void loadRoads();
}

async function loadRoads(): Promise<void> {
  const response = await connection.get("/roads");
  if (response) city.setRoads((await response.json()) as GeoJSON.FeatureCollection);
}

function state(now: "live" | "offline" | "refused"): void {
  const labels = { live: "live", offline: "no connection", refused: "token needed" };
  const box = byId("link");
  text(box, labels[now]);
  box.className = now;
  if (now === "refused") askToken();
}

/** Ask for the token, which viewing from another machine needs. */
function askToken(): void {
  const secret = h("input", { id: "token", type: "password", autocomplete: "off", required: true });
  const form = h(
    "form",
    {},
    h("h2", { id: "form-title" }, "Token"),
    h("label", { for: "token" }, "Access from another machine needs the token printed when the dashboard started", secret),
    h("div", { className: "buttons" }, h("button", { className: "main" }, "Connect")),
  );
  const dialog = byId<HTMLDialogElement>("form");
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    token.store(secret.value);
    dialog.close();
    connection.open();
  });
  dialog.replaceChildren(form);
  dialog.showModal();
}

/** Announce new alerts to screen readers, except those of the first scene. */
function announce(isFirst: boolean): void {
  for (const [key, alert] of live.alerts) {
    if (announced.has(key)) continue;
    announced.add(key);
    if (isFirst) continue;
    const news = alert.phase === "cleared" ? `All clear: ${readable(alert.kind)}` : `New alert: ${readable(alert.kind)}, ${count(alert.inside)} inside`;
    byId("news").textContent = news;
  }
  for (const key of announced) if (!live.alerts.has(key)) announced.delete(key);
}

function follow(name: string): void {
  city.select("");
  followed = city.fleet.followed = name;
  followedSince_ms = performance.now();
  detail.openVehicle(name);
  city.updatePadding();
  const vehicle = shown.vehicleNamed(name);
  if (vehicle) city.map.easeTo({ center: [vehicle.longitude, vehicle.latitude], zoom: Math.max(city.map.getZoom(), 14), duration: FLY_MS });
}

/** Keep the followed vehicle in the middle, once the map has moved there. */
function centreFollowed(): void {
  const number = followed ? shown.numbers.get(followed) : undefined;
  const center = number === undefined ? undefined : city.fleet.drawnAt(number);
  if (center && performance.now() - followedSince_ms > FLY_MS) city.map.easeTo({ center, duration: 250, easing: (share) => share });
}

function middle(): { place: Point; x: number; y: number } {
  const place = city.map.getCenter();
  const { x, y } = city.map.project(place);
  return { place: [place.lng, place.lat], x, y };
}

function openAlert(key: string): void {
  followed = city.fleet.followed = "";
  detail.openAlert(key);
  city.select(key);
}

function clicked({ place, vehicle, alert }: MapClick): void {
  if (publishing.isPlacing) publishing.place(place);
  else if (vehicle) follow(vehicle);
  else if (alert) openAlert(alert);
  else detail.close();
}

function closed(): void {
  followed = city.fleet.followed = "";
  city.select("");
  city.updatePadding();
}

async function showAt(at: number | undefined): Promise<void> {
  if (at === undefined) return show(live);
  const response = await connection.get(`/history?at=${at}`);
  const frame = response ? frameFrom(await response.arrayBuffer()) : undefined;
  if (!frame || time.at !== at) return;
  const past = new Scene();
  past.apply(frame);
  show(past);
}

function show(scene: Scene): void {
  shown = scene;
  city.show(scene);
  lists.show(scene);
  detail.show(scene);
}

function hint(message: string): void {
  byId("hint").hidden = !message;
  text(byId("hint"), message);
}

function around([longitude, latitude]: Point, radius_m: number): [number, number, number, number] {
  const far = Math.max(radius_m, 300) / METRES_PER_DEGREE;
  const all = points(circle([longitude, latitude], far * METRES_PER_DEGREE));
  const sides = [all.map(([x]) => x), all.map(([, y]) => y)] as const;
  return [Math.min(...sides[0]), Math.min(...sides[1]), Math.max(...sides[0]), Math.max(...sides[1])];
}

// Dragging the map stops following the vehicle.
city.map.on("dragstart", () => (followed = ""));

const fold = byId("fold");
fold.addEventListener("click", () => {
  const isOpen = fold.getAttribute("aria-expanded") === "true";
  fold.setAttribute("aria-expanded", String(!isOpen));
  document.body.classList.toggle("folded", isOpen);
  city.updatePadding();
});

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !publishing.isPlacing && detail.isOpen) detail.close();
});

// For tests and measurements.
Object.assign(window, { milepost: { city, scene: () => shown, tables: TABLES } });

connection.open();
