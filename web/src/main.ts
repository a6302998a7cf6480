// The page: a live scene that frames change, perhaps another of the past, and the map, lists and details that show one of them.

import "maplibre-gl/dist/maplibre-gl.css";
import "./style.css";
import { Detail } from "./detail";
import { byId, count, h, spoken, text } from "./dom";
import { frameFrom, type Frame } from "./frames";
import { Link, token, type Welcome } from "./link";
import { Lists } from "./lists";
import { CityMap, type Clicked } from "./map";
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
const known = new Set<string>();

const link = new Link({ frame: take, welcome, state });
const city = new CityMap(live, clicked);
const detail = new Detail(live, link, { closed, follow, clear: (alert) => publishing.clear(alert) });
const lists = new Lists(live, {
  alert: openAlert,
  vehicle: follow,
  place: (place, radius_m) => city.goTo(around(place, radius_m)),
  edge: (name) => {
    const coverage = shown.edges.get(name)?.coverage;
    if (coverage) city.goTo(bounds(coverage));
  },
});
const publishing = new Publishing(link, middle, hint);
const time = new Time((at) => void look(at));

function take(frame: Frame): void {
  const changed = live.apply(frame);
  announce(frame.whole);
  if (shown === live) {
    city.fleet.begin(frame.whole ? undefined : Object.keys(frame.names).map(Number));
    city.changed(changed, frame.whole ? undefined : frame.vehicles);
    keepUp();
    const now = performance.now();
    if (frame.whole || now - filled_ms > LISTS_MS) {
      filled_ms = now;
      lists.fill();
      detail.fill();
    }
  }
  time.tick(live.at);
}

function welcome(told: Welcome): void {
  text(byId("sites"), told.sites.join(", "));
  publishing.setKinds(told.kinds);
  time.begin(told.past_span_ms?.[0], told.past_minutes);
  if (told.has_roads) void loadRoads();
}

async function loadRoads(): Promise<void> {
  const response = await link.ask("/roads");
  if (response) city.setRoads((await response.json()) as GeoJSON.FeatureCollection);
}

function state(now: "live" | "away" | "refused"): void {
  const words = { live: "live", away: "no connection", refused: "token needed" };
  const box = byId("link");
  text(box, words[now]);
  box.className = now;
  if (now === "refused") askToken();
}

/** From another machine nothing is shown without the token. */
function askToken(): void {
  const secret = h("input", { id: "token", type: "password", autocomplete: "off", required: true });
  const form = h(
    "form",
    {},
    h("h2", { id: "form-title" }, "Token"),
    h("label", { for: "token" }, "From another machine the map needs the token that was printed at the start", secret),
    h("div", { className: "buttons" }, h("button", { className: "main" }, "Look")),
  );
  const dialog = byId<HTMLDialogElement>("form");
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    token.keep(secret.value);
    dialog.close();
    link.open();
  });
  dialog.replaceChildren(form);
  dialog.showModal();
}

/** Say new alerts aloud, those that were there before not. */
function announce(isFirst: boolean): void {
  for (const [key, alert] of live.alerts) {
    if (known.has(key)) continue;
    known.add(key);
    if (isFirst) continue;
    const what = alert.phase === "cleared" ? `All clear: ${spoken(alert.kind)}` : `New alert: ${spoken(alert.kind)}, ${count(alert.inside)} inside`;
    byId("news").textContent = what;
  }
  for (const key of known) if (!live.alerts.has(key)) known.delete(key);
}

function follow(name: string): void {
  city.choose("");
  followed = city.fleet.followed = name;
  followedSince_ms = performance.now();
  detail.openVehicle(name);
  city.makeRoom();
  const vehicle = shown.vehicleNamed(name);
  if (vehicle) city.map.easeTo({ center: [vehicle.longitude, vehicle.latitude], zoom: Math.max(city.map.getZoom(), 14), duration: FLY_MS });
}

/** Keep who is followed in the middle, once the map has got there. */
function keepUp(): void {
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
  city.choose(key);
}

function clicked({ place, vehicle, alert }: Clicked): void {
  if (publishing.isPlacing) publishing.place(place);
  else if (vehicle) follow(vehicle);
  else if (alert) openAlert(alert);
  else detail.close();
}

function closed(): void {
  followed = city.fleet.followed = "";
  city.choose("");
  city.makeRoom();
}

async function look(at: number | undefined): Promise<void> {
  if (at === undefined) return show(live);
  const response = await link.ask(`/past?at=${at}`);
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

function hint(words: string): void {
  byId("hint").hidden = !words;
  text(byId("hint"), words);
}

function around([longitude, latitude]: Point, radius_m: number): [number, number, number, number] {
  const far = Math.max(radius_m, 300) / METRES_PER_DEGREE;
  const all = points(circle([longitude, latitude], far * METRES_PER_DEGREE));
  const sides = [all.map(([x]) => x), all.map(([, y]) => y)] as const;
  return [Math.min(...sides[0]), Math.min(...sides[1]), Math.max(...sides[0]), Math.max(...sides[1])];
}

// Whoever moves the map looks elsewhere: it is no longer kept in the middle.
city.map.on("dragstart", () => (followed = ""));

const fold = byId("fold");
fold.addEventListener("click", () => {
  const isOpen = fold.getAttribute("aria-expanded") === "true";
  fold.setAttribute("aria-expanded", String(!isOpen));
  document.body.classList.toggle("folded", isOpen);
  city.makeRoom();
});

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !publishing.isPlacing && detail.isOpen) detail.close();
});

// For whoever measures: tests ask for these.
Object.assign(window, { milepost: { city, scene: () => shown, tables: TABLES } });

link.open();
