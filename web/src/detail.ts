// Details of one alert, with its proof of coverage, or of one vehicle that is followed.

import { timeAgo, byId, clock, count, h, keyed, milliseconds, readable, text } from "./dom";
import type { ServerConnection } from "./connection";
import { UNCONFIRMED, ROAMED, WARNED, type Alert, type Scene, type Vehicle } from "./scene";

interface ProofRow {
  endpoint: string;
  inside: boolean;
  state: string;
  edge: string;
  after_ms: number | null;
  reason: string;
}

interface Proof {
  key: string;
  alert: Alert;
  /** Undelivered endpoints first, then the receivers by delay. */
  endpoints: ProofRow[];
  omitted: number;
}

export interface DetailActions {
  closed: () => void;
  follow: (name: string) => void;
  clear: (alert: Alert) => void;
}

const REFRESH_MS = 1_000;
const ROWS_SHOWN = 300;
const OPERATOR = "@service/dashboard";

/** The source of a message in words: an endpoint's id, or "edge NAME" or "service NAME". */
function sourceName(source: string): string {
  return source.startsWith("@") ? source.slice(1).replace("/", " ") : source;
}

export class Detail {
  private readonly box = byId("detail");
  private subject: { alert: string } | { vehicle: string } | undefined;
  private proof: Proof | undefined;
  private requested_ms = 0;
  private opener: Element | null = null;

  constructor(private scene: Scene, private readonly connection: ServerConnection, private readonly actions: DetailActions) {
    this.box.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.close();
    });
  }

  show(scene: Scene): void {
    this.scene = scene;
    this.fill();
  }

  get isOpen(): boolean {
    return this.subject !== undefined;
  }

  openAlert(key: string): void {
    this.proof = undefined;
    this.requested_ms = 0;
    this.open({ alert: key }, this.alertBox());
    void this.refresh();
  }

  openVehicle(name: string): void {
    this.open({ vehicle: name }, this.vehicleBox());
  }

  close(): void {
    if (!this.subject) return;
    this.subject = undefined;
    this.box.hidden = true;
    this.actions.closed();
    if (this.opener instanceof HTMLElement && this.opener.isConnected) this.opener.focus();
  }

  /** Update the content. */
  fill(): void {
    if (!this.subject) return;
    if ("vehicle" in this.subject) return this.fillVehicle(this.subject.vehicle);
    this.fillAlert(this.subject.alert);
    if (performance.now() - this.requested_ms > REFRESH_MS) void this.refresh();
  }

  private open(subject: { alert: string } | { vehicle: string }, content: HTMLElement[]): void {
    if (!this.subject) this.opener = document.activeElement;
    this.subject = subject;
    this.box.replaceChildren(...content);
    this.box.hidden = false;
    this.fill();
    this.box.querySelector("h2")?.focus();
  }

  private head(): HTMLElement {
    const close = h("button", { className: "quiet close", "aria-label": "Close" }, "✕");
    close.addEventListener("click", () => this.close());
    return h("header", {}, h("h2", { tabIndex: -1 }), close);
  }

  private alertBox(): HTMLElement[] {
    const clear = h("button", { id: "clear", hidden: true }, "All clear");
    clear.addEventListener("click", () => {
      const alert = this.subject && "alert" in this.subject ? this.scene.alerts.get(this.subject.alert) : undefined;
      if (alert) this.actions.clear(alert);
    });
    const bar = h("div", { className: "bar", role: "img" }, h("i", { className: "received" }), h("i", { className: "pending" }), h("i", { className: "dropped" }));
    const head = h("tr", {}, ...["Endpoint", "State", "Delay", "Edge"].map((name) => h("th", { scope: "col" }, name)));
    const table = h("table", {}, h("caption", {}, "Proof of coverage"), h("thead", {}, head), h("tbody"));
    return [this.head(), h("p", { className: "lead" }), bar, h("p", { className: "legend" }), clear, h("div", { className: "scroll", tabIndex: 0 }, table)];
  }

  private vehicleBox(): HTMLElement[] {
    return [this.head(), h("p", { className: "lead" }), h("dl", { className: "facts" }), h("p", { className: "legend" }, "The map follows this vehicle. Press Escape to stop.")];
  }

  private async refresh(): Promise<void> {
    const key = this.subject && "alert" in this.subject ? this.subject.alert : undefined;
    if (key === undefined) return;
    this.requested_ms = performance.now();
    const response = await this.connection.get(`/alerts/${encodeURIComponent(key)}`);
    const proof = response ? ((await response.json()) as Proof) : undefined;
    if (proof && this.subject && "alert" in this.subject && this.subject.alert === key) {
      this.proof = proof;
      this.fillAlert(key);
    }
  }

  private fillAlert(key: string): void {
    const alert = this.scene.alerts.get(key) ?? this.proof?.alert;
    if (!alert) return;
    const part = (selector: string) => this.box.querySelector(selector) as HTMLElement;
    text(part("h2"), alert.phase === "cleared" ? `All clear: ${readable(alert.kind)}` : readable(alert.kind));
    const until = alert.until_ms === null ? "" : `, valid until ${clock(alert.until_ms)}`;
    text(part(".lead"), `${alert.state === "active" ? "Active" : "Inactive"} · published ${clock(alert.seen_ms)} by ${sourceName(alert.source)}${until} · ${alert.topic}`);
    const total = Math.max(alert.inside, 1);
    part(".bar .received").style.width = `${(alert.received / total) * 100}%`;
    part(".bar .pending").style.width = `${(alert.pending / total) * 100}%`;
    part(".bar .dropped").style.width = `${(alert.dropped / total) * 100}%`;
    const slowest = this.proof?.omitted ? 0 : (this.proof?.endpoints.at(-1)?.after_ms ?? 0);
    const summary = `${count(alert.inside)} inside · ${count(alert.received)} received${slowest ? `, the last after ${milliseconds(slowest)}` : ""} · ${count(alert.pending)} pending · ${count(alert.dropped)} dropped`;
    text(part(".legend"), summary);
    part(".bar").setAttribute("aria-label", summary);
    part("#clear").hidden = !(alert.source === OPERATOR && alert.state === "active" && alert.area.type === "Point");
    this.fillProof();
  }

  private fillProof(): void {
    const rows = this.proof?.endpoints ?? [];
    const body = this.box.querySelector("tbody") as HTMLElement;
    const make = (key: string) => {
      const name = h("button", { className: "link" }, key);
      name.addEventListener("click", () => this.actions.follow(key));
      return h("tr", {}, h("th", { scope: "row" }, name), h("td"), h("td"), h("td"));
    };
    const keys = rows.slice(0, ROWS_SHOWN).map((row) => [row.endpoint, row] as const);
    keyed(body, keys, make, (element, row) => {
      const [state, after, edge] = Array.from(element.querySelectorAll("td"));
      if (!state || !after || !edge) return;
      text(state, row.reason ? `${row.state}: ${readable(row.reason).toLowerCase()}` : row.state);
      state.className = row.state;
      text(after, milliseconds(row.after_ms));
      text(edge, row.edge.split("/").at(-1) ?? "");
    });
    const more = Math.max(0, rows.length - ROWS_SHOWN) + (this.proof?.omitted ?? 0);
    text(this.box.querySelector("caption") as Element, more > 0 ? `Proof of coverage; ${count(more)} more not shown` : "Proof of coverage");
  }

  private fillVehicle(name: string): void {
    const vehicle = this.scene.vehicleNamed(name);
    text(this.box.querySelector("h2") as Element, name);
    text(this.box.querySelector(".lead") as Element, vehicle ? stateOf(vehicle) : "No recent reports.");
    const move = [...this.scene.moves.values()].filter((one) => one.endpoint === name).at(-1);
    const facts: [string, string][] = vehicle
      ? [
          ["Edge", this.scene.edgeName(vehicle.edge)],
          ["Speed", vehicle.speed === undefined ? "not reported" : `${Math.round(vehicle.speed * 3.6)} km/h`],
          ["Heading", vehicle.heading === undefined ? "not reported" : `${Math.round(vehicle.heading)}°`],
          ["Position", `${vehicle.latitude.toFixed(5)}, ${vehicle.longitude.toFixed(5)}`],
          ["Last handover", move ? `${move.from.split("/").at(-1)} → ${move.to.split("/").at(-1)}, ${timeAgo(move.at_ms, this.scene.at)}` : "none"],
        ]
      : [];
    keyed(
      this.box.querySelector(".facts") as HTMLElement,
      facts,
      (key) => h("div", {}, h("dt", {}, key), h("dd")),
      (element, value) => text(element.querySelector("dd") as Element, value),
    );
  }
}

function stateOf({ flags }: Vehicle): string {
  const found = flags & WARNED ? "Warned: it received an active alert." : flags & UNCONFIRMED ? "Inside an alert's area; delivery not confirmed." : "No active alerts.";
  return flags & ROAMED ? `${found} Just handed over from another edge.` : found;
}
