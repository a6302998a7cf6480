// Publishing a hazard: choose a place on the map, by a click or with the keyboard, then say what it is.

import { byId, h, spoken } from "./dom";
import { token, type Answer, type Hazardous, type Link } from "./link";
import type { Alert, Point } from "./scene";

const RADIUS_M = 500;

export class Publishing {
  isPlacing = false;
  private readonly button = byId<HTMLButtonElement>("publish");
  private readonly dialog = byId<HTMLDialogElement>("form");
  private kinds: string[] = [];

  constructor(private readonly link: Link, private readonly centre: () => { place: Point; x: number; y: number }, private readonly told: (text: string) => void) {
    this.button.addEventListener("click", () => (this.isPlacing ? this.stop() : this.start()));
    document.addEventListener("keydown", (event) => {
      if (!this.isPlacing || this.dialog.open) return;
      if (event.key === "Escape") this.stop();
      if (event.key !== "Enter" || !(event.target instanceof HTMLCanvasElement)) return;
      event.preventDefault(); // else it opens the list that has the focus by then
      this.place(this.centre().place);
    });
  }

  setKinds(kinds: string[]): void {
    this.kinds = kinds;
  }

  /** Somebody has chosen where. */
  place(place: Point): void {
    this.stop();
    this.open(place);
  }

  clear(alert: Alert): void {
    if (alert.area.type !== "Point") return;
    const [longitude, latitude] = alert.area.coordinates;
    const what = { kind: alert.kind, latitude, longitude, radius_m: alert.area.radius_m, incident: alert.incident };
    if (token.get()) void this.send(what, token.get());
    else this.askToken((secret) => this.send(what, secret));
  }

  private start(): void {
    this.isPlacing = true;
    this.button.textContent = "Cancel";
    const { x, y } = this.centre();
    Object.assign(byId("crosshair").style, { left: `${x}px`, top: `${y}px` });
    byId("crosshair").hidden = false;
    document.body.classList.add("placing");
    this.told("Click where it is; or move the map with the arrow keys and press Enter.");
    document.querySelector<HTMLCanvasElement>("#map canvas")?.focus();
  }

  private stop(): void {
    this.isPlacing = false;
    this.button.textContent = "Publish a hazard";
    byId("crosshair").hidden = true;
    document.body.classList.remove("placing");
    this.told("");
  }

  private open([longitude, latitude]: Point): void {
    const kind = h("select", { id: "kind", name: "kind" }, ...this.kinds.map((name) => h("option", { value: name }, spoken(name))));
    const usual = this.kinds.indexOf("Collision");
    if (usual >= 0) kind.selectedIndex = usual;
    const radius = h("input", { id: "radius", type: "number", min: "50", max: "50000", step: "50", value: String(RADIUS_M), required: true });
    const how = h(
      "select",
      { id: "how" },
      h("option", { value: "alert" }, "Warn everybody near, now"),
      h("option", { value: "report" }, "Report it, as one witness"),
    );
    const distance = h("label", { for: "radius" }, "Within, in metres", radius);
    how.addEventListener("change", () => {
      distance.hidden = how.value !== "alert";
      radius.disabled = distance.hidden;
    });
    const where = h("p", { className: "lead" }, `At ${latitude.toFixed(5)}, ${longitude.toFixed(5)}`);
    this.show("Publish a hazard", "Publish", [where, h("label", { for: "kind" }, "What it is", kind), h("label", { for: "how" }, "What is to happen", how), distance], (secret) =>
      this.send({ kind: kind.value, latitude, longitude, ...(how.value === "alert" ? { radius_m: Number(radius.value) } : {}) }, secret),
    );
  }

  private askToken(then: (secret: string) => Promise<Answer>): void {
    this.show("All clear", "Send", [h("p", { className: "lead" }, "It goes to everybody who was warned.")], then);
  }

  private show(title: string, verb: string, parts: HTMLElement[], then: (secret: string) => Promise<Answer>): void {
    const secret = h("input", { id: "token", type: "password", autocomplete: "off", required: true, value: token.get() });
    const field = h("label", { for: "token" }, "The token that was printed at the start", secret);
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
        fault.textContent = answer.detail ?? "It was refused.";
        field.hidden = Boolean(token.get());
        if (!field.hidden) secret.select();
      });
    });
    this.dialog.replaceChildren(form);
    this.dialog.showModal();
  }

  private async send(what: Hazardous, secret: string): Promise<Answer> {
    const answer = await this.link.publish(what, secret);
    if (answer.type === "published") {
      token.keep(secret);
      this.told(what.incident ? "The all-clear is on its way." : "It is published.");
      setTimeout(() => this.told(""), 4_000);
    } else if (answer.reason === "NOT_ALLOWED") token.forget();
    return answer;
  }
}
