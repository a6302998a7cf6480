// Publishing a hazard: choose its place on the map, by a click or with the keyboard, then fill in the form.

import { byId, h, readable } from "./dom";
import { token, type Answer, type HazardRequest, type ServerConnection } from "./connection";
import type { Alert, Point } from "./scene";

const RADIUS_M = 500;

export class Publishing {
  isPlacing = false;
  private readonly button = byId<HTMLButtonElement>("publish");
  private readonly dialog = byId<HTMLDialogElement>("form");
  private kinds: string[] = [];

  constructor(private readonly connection: ServerConnection, private readonly centre: () => { place: Point; x: number; y: number }, private readonly hint: (text: string) => void) {
    this.button.addEventListener("click", () => (this.isPlacing ? this.stop() : this.start()));
    document.addEventListener("keydown", (event) => {
      if (!this.isPlacing || this.dialog.open) return;
      if (event.key === "Escape") this.stop();
      if (event.key !== "Enter" || !(event.target instanceof HTMLCanvasElement)) return;
      event.preventDefault(); // otherwise it activates the element that has the focus by then
      this.place(this.centre().place);
    });
  }

  setKinds(kinds: string[]): void {
    this.kinds = kinds;
  }

  /** Open the form for a chosen place. */
  place(place: Point): void {
    this.stop();
    this.open(place);
  }

  clear(alert: Alert): void {
    if (alert.area.type !== "Point") return;
    const [longitude, latitude] = alert.area.coordinates;
    const hazard = { kind: alert.kind, latitude, longitude, radius_m: alert.area.radius_m, incident: alert.incident };
    if (token.get()) void this.send(hazard, token.get());
    else this.askToken((secret) => this.send(hazard, secret));
  }

  private start(): void {
    this.isPlacing = true;
    this.button.textContent = "Cancel";
    const { x, y } = this.centre();
    Object.assign(byId("crosshair").style, { left: `${x}px`, top: `${y}px` });
    byId("crosshair").hidden = false;
    document.body.classList.add("placing");
    this.hint("Click the place of the hazard, or move the map with the arrow keys and press Enter.");
    document.querySelector<HTMLCanvasElement>("#map canvas")?.focus();
  }

  private stop(): void {
    this.isPlacing = false;
    this.button.textContent = "Publish a hazard";
    byId("crosshair").hidden = true;
    document.body.classList.remove("placing");
    this.hint("");
  }

  private open([longitude, latitude]: Point): void {
    const kind = h("select", { id: "kind", name: "kind" }, ...this.kinds.map((name) => h("option", { value: name }, readable(name))));
    const preset = this.kinds.indexOf("Collision");
    if (preset >= 0) kind.selectedIndex = preset;
    const radius = h("input", { id: "radius", type: "number", min: "50", max: "50000", step: "50", value: String(RADIUS_M), required: true });
    const action = h(
      "select",
      { id: "action" },
      h("option", { value: "alert" }, "Send an alert to all vehicles nearby"),
      h("option", { value: "report" }, "Add one report, as a witness"),
    );
    const distance = h("label", { for: "radius" }, "Radius in metres", radius);
    action.addEventListener("change", () => {
      distance.hidden = action.value !== "alert";
      radius.disabled = distance.hidden;
    });
    const where = h("p", { className: "lead" }, `At ${latitude.toFixed(5)}, ${longitude.toFixed(5)}`);
    this.show("Publish a hazard", "Publish", [where, h("label", { for: "kind" }, "Kind of hazard", kind), h("label", { for: "action" }, "Action", action), distance], (secret) =>
      this.send({ kind: kind.value, latitude, longitude, ...(action.value === "alert" ? { radius_m: Number(radius.value) } : {}) }, secret),
    );
  }

  private askToken(then: (secret: string) => Promise<Answer>): void {
    this.show("All clear", "Send", [h("p", { className: "lead" }, "The all-clear goes to every vehicle that received the alert.")], then);
  }

  private show(title: string, verb: string, parts: HTMLElement[], then: (secret: string) => Promise<Answer>): void {
    const secret = h("input", { id: "token", type: "password", autocomplete: "off", required: true, value: token.get() });
    const field = h("label", { for: "token" }, "Token, printed when the dashboard started", secret);
    field.hidden = Boolean(token.get());
    const fault = h("p", { className: "fault", role: "alert" });
    const cancel = h("button", { type: "button" }, "Cancel");
    const send = h("button", { className: "main" }, verb);
    const form = h("form", { method: "dialog" }, h("h2", { id: "form-title" }, title), ...parts, field, fault, h("div", { className: "buttons" }, cancel, send));
    cancel.addEventListener("click", () => this.dialog.close());
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      send.disabled = true;
      void then(secret.value).then((answer) => {
        send.disabled = false;
        if (answer.type === "published") return this.dialog.close();
        fault.textContent = answer.detail ?? "The server refused the request.";
        field.hidden = Boolean(token.get());
        if (!field.hidden) secret.select();
      });
    });
    this.dialog.replaceChildren(form);
    this.dialog.showModal();
  }

  private async send(hazard: HazardRequest, secret: string): Promise<Answer> {
    const answer = await this.connection.publish(hazard, secret);
    if (answer.type === "published") {
      token.store(secret);
      this.hint(hazard.incident ? "All-clear published." : "Hazard published.");
      setTimeout(() => this.hint(""), 4_000);
    } else if (answer.reason === "NOT_ALLOWED") token.forget();
    return answer;
  }
}
