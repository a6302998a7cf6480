// The time slider: live, or an instant of the last minutes.

import { byId, clock, text } from "./dom";

const PLAY_MS = 1_000;

export class Time {
  /** The shown instant; undefined: live. */
  at: number | undefined;
  private readonly slider = byId<HTMLInputElement>("slider");
  private readonly live = byId("live");
  private readonly play = byId("play");
  private first = 0;
  private length_ms = 0;
  private now = 0;
  private playing: number | undefined;

  constructor(private readonly onChange: (at: number | undefined) => void) {
    this.slider.addEventListener("input", () => this.select(Number(this.slider.value)));
    this.live.addEventListener("click", () => this.select(undefined));
    this.play.addEventListener("click", () => (this.playing === undefined ? this.resume() : this.pause()));
  }

  start(first: number | undefined, minutes: number): void {
    this.length_ms = minutes * 60_000;
    this.first = first ?? Date.now();
    byId("time").hidden = !this.length_ms;
  }

  /** Advance to the server's current time. */
  tick(now: number): void {
    this.now = now;
    const first = Math.max(this.first, now - this.length_ms);
    this.slider.min = String(Math.floor(first / 1000) * 1000);
    this.slider.max = String(Math.floor(now / 1000) * 1000);
    if (this.at === undefined) this.slider.value = this.slider.max;
    this.show();
  }

  private select(at: number | undefined): void {
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
    this.onChange(at);
  }

  private show(): void {
    const behind = this.at === undefined ? 0 : Math.round((this.now - this.at) / 1000);
    text(byId("clock"), this.at === undefined ? clock(this.now) : `${clock(this.at)} · ${behind} s ago`);
    this.slider.setAttribute("aria-valuetext", this.at === undefined ? "live" : `${behind} seconds ago`);
  }

  private resume(): void {
    this.play.textContent = "❚❚";
    this.play.setAttribute("aria-label", "Pause");
    this.playing = window.setInterval(() => {
      if (this.at === undefined) return;
      this.slider.value = String(this.at + PLAY_MS);
      this.select(this.at + PLAY_MS);
    }, PLAY_MS);
  }

  private pause(): void {
    window.clearInterval(this.playing);
    this.playing = undefined;
    this.play.textContent = "▶";
    this.play.setAttribute("aria-label", "Play from here");
  }
}
