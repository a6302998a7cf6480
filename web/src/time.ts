// Time: live, or a moment of the last minutes.

import { byId, clock, text } from "./dom";

const PLAY_MS = 1_000;

export class Time {
  /** The moment that is looked at; undefined: now. */
  at: number | undefined;
  private readonly slider = byId<HTMLInputElement>("slider");
  private readonly live = byId("live");
  private readonly play = byId("play");
  private first = 0;
  private length_ms = 0;
  private now = 0;
  private playing: number | undefined;

  constructor(private readonly looked: (at: number | undefined) => void) {
    this.slider.addEventListener("input", () => this.look(Number(this.slider.value)));
    this.live.addEventListener("click", () => this.look(undefined));
    this.play.addEventListener("click", () => (this.playing === undefined ? this.start() : this.pause()));
  }

  begin(first: number | undefined, minutes: number): void {
    this.length_ms = minutes * 60_000;
    this.first = first ?? Date.now();
    byId("time").hidden = !this.length_ms;
  }

  /** The server's clock goes on. */
  tick(now: number): void {
    this.now = now;
    const first = Math.max(this.first, now - this.length_ms);
    this.slider.min = String(Math.floor(first / 1000) * 1000);
    this.slider.max = String(Math.floor(now / 1000) * 1000);
    if (this.at === undefined) this.slider.value = this.slider.max;
    this.show();
  }

  private look(at: number | undefined): void {
    if (at === undefined || at >= Number(this.slider.max)) {
      this.pause();
      at = undefined;
    }
    this.at = at;
    document.body.classList.toggle("past", at !== undefined);
    this.live.setAttribute("aria-pressed", String(at === undefined));
    this.play.hidden = at === undefined;
    if (at === undefined) this.slider.value = this.slider.max;
    this.show();
    this.looked(at);
  }

  private show(): void {
    const behind = this.at === undefined ? 0 : Math.round((this.now - this.at) / 1000);
    text(byId("clock"), this.at === undefined ? clock(this.now) : `${clock(this.at)} · ${behind} s ago`);
    this.slider.setAttribute("aria-valuetext", this.at === undefined ? "now" : `${behind} seconds ago`);
  }

  private start(): void {
    this.play.textContent = "❚❚";
    this.play.setAttribute("aria-label", "Pause");
    this.playing = window.setInterval(() => {
      if (this.at === undefined) return;
      this.slider.value = String(this.at + PLAY_MS);
      this.look(this.at + PLAY_MS);
    }, PLAY_MS);
  }

  private pause(): void {
    window.clearInterval(this.playing);
    this.playing = undefined;
    this.play.textContent = "▶";
    this.play.setAttribute("aria-label", "Play on from here");
  }
}
