// The lists beside the map: everything the map shows, as text, also for screen readers.

import { timeAgo, byId, clock, count, h, keyed, milliseconds, readable, text } from "./dom";
import { WARNED, type Alert, type Edge, type Metrics, type Incident, type Query, type Scene, type Site } from "./scene";

export interface ListActions {
  alert: (key: string) => void;
  vehicle: (name: string) => void;
  place: (place: [number, number], radius_m: number) => void;
  edge: (name: string) => void;
}

const TABS = ["Alerts", "Incidents", "Edges", "Vehicles", "Health"] as const;
type Tab = (typeof TABS)[number];

const ALERTS_SHOWN = 60;
const VEHICLES_SHOWN = 60;
const STATES = { active: "active", replaced: "replaced", cleared: "all clear", expired: "expired" };

export class Lists {
  private readonly tabs = new Map<Tab, HTMLButtonElement>();
  private readonly pages = new Map<Tab, HTMLElement>();
  private readonly search = h("input", { type: "search", placeholder: "Search vehicles", "aria-label": "Search vehicles" });
  private shown: Tab = "Alerts";

  constructor(private scene: Scene, private readonly actions: ListActions) {
    for (const name of TABS) this.addTab(name);
    this.page("Vehicles").before(this.search);
    this.search.addEventListener("input", () => this.fillVehicles());
    this.select("Alerts");
  }

  show(scene: Scene): void {
    this.scene = scene;
    this.fill();
  }

  fill(): void {
    this.fillMetrics();
    const active = [...this.scene.alerts.values()].filter((alert) => alert.state === "active" && alert.phase !== "cleared").length;
    this.badge("Alerts", active);
    this.badge("Incidents", this.scene.incidents.size);
    this.badge("Edges", this.scene.edges.size);
    switch (this.shown) {
      case "Alerts":
        return this.fillAlerts();
      case "Incidents":
        return this.fillIncidents();
      case "Edges":
        return this.fillEdges();
      case "Vehicles":
        return this.fillVehicles();
      case "Health":
        return this.fillHealth();
    }
  }

  private addTab(name: Tab): void {
    const id = name.toLowerCase();
    const tab = h("button", { role: "tab", id: `tab-${id}`, "aria-controls": `page-${id}` }, name, h("span", { className: "badge" }));
    tab.addEventListener("click", () => this.select(name));
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const next = TABS[(TABS.indexOf(name) + step + TABS.length) % TABS.length] as Tab;
      this.select(next);
      this.tabs.get(next)?.focus();
    });
    const list = h("ul", { className: "rows" });
    byId("tabs").append(tab);
    byId("lists").append(h("div", { role: "tabpanel", id: `page-${id}`, "aria-labelledby": `tab-${id}` }, list));
    this.tabs.set(name, tab);
    this.pages.set(name, list);
  }

  private select(name: Tab): void {
    this.shown = name;
    for (const [other, tab] of this.tabs) {
      tab.setAttribute("aria-selected", String(other === name));
      tab.tabIndex = other === name ? 0 : -1;
      const panel = this.page(other).parentElement;
      if (panel) panel.hidden = other !== name;
    }
    this.fill();
  }

  private page(name: Tab): HTMLElement {
    const found = this.pages.get(name);
    if (!found) throw new Error(`the page has no list ${name}`);
    return found;
  }

  private badge(name: Tab, value: number): void {
    const badge = this.tabs.get(name)?.querySelector(".badge");
    if (badge) text(badge, value ? count(value) : "");
  }

  private fillMetrics(): void {
    const found = this.scene.metrics.get("all") as Metrics | undefined;
    const rows: [string, [string, string, boolean]][] = [
      ["vehicles", ["vehicles", count(this.scene.names.size), false]],
      ["warned", ["warned", count(found?.warned ?? 0), Boolean(found?.warned)]],
      ["delay", ["median delay", milliseconds(found?.delay_ms_p50 ?? null), false]],
      ["reports", ["reports/s", count(found?.reports_per_s ?? 0), false]],
    ];
    keyed(
      byId("metrics"),
      rows,
      () => h("div", {}, h("dt"), h("dd")),
      (element, [label, value, isLoud]) => {
        text(element.querySelector("dt") as Element, label);
        text(element.querySelector("dd") as Element, value);
        element.classList.toggle("loud", isLoud);
      },
    );
  }

  private fillAlerts(): void {
    const rank = (alert: Alert) => (alert.state === "active" ? 1 : 0);
    const rows = [...this.scene.alerts]
      .sort(([, a], [, b]) => rank(b) - rank(a) || b.seen_ms - a.seen_ms)
      .slice(0, ALERTS_SHOWN);
    this.fillRows("Alerts", rows, "No alerts.", this.actions.alert, (alert) => ({
      title: alert.phase === "cleared" ? `All clear: ${readable(alert.kind)}` : readable(alert.kind),
      note: `${STATES[alert.state]} · ${timeAgo(alert.seen_ms, this.scene.at)}`,
      value: alert.inside ? `received by ${count(alert.received)} of ${count(alert.inside)}` : "no vehicles inside",
      mark: alert.state === "active" ? "alert" : "quiet",
    }));
  }

  private fillIncidents(): void {
    const rows = [...this.scene.incidents].sort(([, a], [, b]) => b.raised_ms - a.raised_ms);
    const show = (key: string) => {
      const incident = this.scene.incidents.get(key);
      if (incident) this.actions.place(incident.place, incident.radius_m);
    };
    this.fillRows<Incident>("Incidents", rows, "No incidents.", show, (one) => ({
      title: readable(one.kind),
      note: `since ${clock(one.raised_ms)} · ${Math.round(one.radius_m)} m`,
      value: `${count(one.reports)} reports, ${count(one.witnesses)} witnesses`,
      mark: "incident",
    }));
  }

  private fillEdges(): void {
    const rows = [...this.scene.edges].sort(([a], [b]) => a.localeCompare(b));
    this.fillRows<Edge>("Edges", rows, "No edges yet.", this.actions.edge, (edge, name) => ({
      title: name,
      note: edge.is_silent ? "not responding" : edge.coverage ? edge.address || "no address" : "no coverage limit",
      value: `${count(edge.vehicles)} vehicles · ${count(edge.reports_per_s)} reports/s${edge.refused_per_s ? ` · ${count(edge.refused_per_s)}/s refused` : ""}`,
      mark: edge.is_silent ? "alert" : "edge",
    }));
  }

  private fillVehicles(): void {
    const pattern = this.search.value.trim().toLowerCase();
    const rows: [string, string][] = [];
    const names = [...this.scene.numbers.keys()].filter((name) => !pattern || name.toLowerCase().includes(pattern));
    const rank = (name: string) => ((this.scene.vehicleNamed(name)?.flags ?? 0) & WARNED ? 0 : 1);
    names.sort((a, b) => rank(a) - rank(b) || a.localeCompare(b, "en", { numeric: true }));
    for (const name of names.slice(0, VEHICLES_SHOWN)) rows.push([name, name]);
    this.fillRows("Vehicles", rows, pattern ? "No matching vehicles." : "No vehicles yet.", this.actions.vehicle, (name) => {
      const vehicle = this.scene.vehicleNamed(name);
      const isWarned = Boolean((vehicle?.flags ?? 0) & WARNED);
      return {
        title: name,
        note: this.scene.edgeName(vehicle?.edge ?? -1),
        value: `${isWarned ? "warned · " : ""}${vehicle?.speed === undefined ? "" : `${Math.round(vehicle.speed * 3.6)} km/h`}`,
        mark: isWarned ? "alert" : "vehicle",
      };
    });
  }

  private fillHealth(): void {
    const found = this.scene.metrics.get("all") as Metrics | undefined;
    const rows: [string, ListRow][] = [];
    for (const [name, site] of this.scene.sites as Map<string, Site>)
      rows.push([
        `site ${name}`,
        {
          title: `Site ${name}`,
          note: site.hub ? `central hub ${site.hub}: ${site.is_hub_up ? "online" : "offline"}` : "no central hub",
          value: `log lag ${milliseconds(site.lag_ms)}`,
          mark: site.lag_ms > 5_000 || (site.hub && !site.is_hub_up) ? "alert" : "good",
        },
      ]);
    for (const [name, query] of this.scene.queries as Map<string, Query>)
      rows.push([
        `query ${name}`,
        {
          title: `Spark: ${name}`,
          note: query.fault || `${query.state}, ${query.mode}`,
          value: `${count(Math.round(query.rows_per_s))} rows/s · lag ${query.lag === null ? "?" : count(query.lag)}`,
          mark: query.state === "running" ? "good" : "alert",
        },
      ]);
    if (found) rows.push(["all", totals(found)]);
    for (const move of [...this.scene.moves.values()].slice(-8).reverse())
      rows.push([
        `move ${move.endpoint} ${move.at_ms}`,
        { title: move.endpoint, note: `${move.from} → ${move.to}`, value: timeAgo(move.at_ms, this.scene.at), mark: "roamed" },
      ]);
    this.fillRows("Health", rows, "No data yet.", undefined, (row) => row);
  }

  private fillRows<R>(
    tab: Tab,
    rows: (readonly [string, R])[],
    none: string,
    select: ((key: string) => void) | undefined,
    show: (row: R, key: string) => ListRow,
  ): void {
    const list = this.page(tab);
    const make = (key: string) => {
      const parts = [h("i", { className: "mark" }), h("b"), h("span", { className: "value" }), h("small")];
      if (!select) return h("li", {}, h("div", { className: "row" }, ...parts));
      const button = h("button", { className: "row" }, ...parts);
      button.addEventListener("click", () => select(key));
      return h("li", {}, button);
    };
    keyed(list, rows, make, (element, row, key) => {
      const { title, note, value, mark } = show(row, key);
      text(element.querySelector("b") as Element, title);
      text(element.querySelector("small") as Element, note);
      text(element.querySelector(".value") as Element, value);
      (element.querySelector(".mark") as Element).className = `mark ${mark}`;
    });
    list.dataset["none"] = none;
  }
}

interface ListRow {
  title: string;
  note: string;
  value: string;
  mark: string;
}

function totals(found: Metrics): ListRow {
  const faults = [
    found.refused_per_s ? `${count(found.refused_per_s)} reports/s refused` : "",
    found.hidden ? `${count(found.hidden)} reports not shown: over the limit of vehicles` : "",
    found.unreadable ? `${count(found.unreadable)} records unreadable` : "",
    found.untracked ? `${count(found.untracked)} deliveries not tracked: over the limit` : "",
  ].filter(Boolean);
  return {
    title: "Deliveries",
    note: faults.join(" · ") || "no refused reports, no unreadable records",
    value: `p95 delay ${milliseconds(found.delay_ms_p95)} · ${count(found.moves)} handovers`,
    mark: faults.length ? "incident" : "good",
  };
}
