// The link to the server: a WebSocket that comes back by itself, and what is asked of the server besides.

import { frameFrom, type Frame } from "./frames";

export interface Welcome {
  sites: string[];
  kinds: string[];
  has_roads: boolean;
  past_minutes: number;
  past_span_ms: [number, number] | null;
  past_step_ms: number;
  tick_ms: number;
}

export interface Answer {
  type: "published" | "refused";
  number: number;
  reason?: string;
  detail?: string;
  key?: string;
}

export interface Hazardous {
  kind: string;
  latitude: number;
  longitude: number;
  radius_m?: number;
  incident?: string;
}

interface Heard {
  frame: (frame: Frame) => void;
  welcome: (welcome: Welcome) => void;
  state: (state: "live" | "away" | "refused") => void;
}

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 10_000;
const ANSWER_MS = 15_000;
const TOKEN = "milepost-token";
const POLICY_VIOLATION = 1008;

export const token = {
  get: (): string => sessionStorage.getItem(TOKEN) ?? "",
  keep: (text: string): void => sessionStorage.setItem(TOKEN, text),
  forget: (): void => sessionStorage.removeItem(TOKEN),
};

export class Link {
  private socket: WebSocket | undefined;
  private wait_ms = FIRST_WAIT_MS;
  private next = 1;
  private readonly asked = new Map<number, (answer: Answer) => void>();

  constructor(private readonly heard: Heard) {}

  open(): void {
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    const socket = (this.socket = new WebSocket(`${scheme}://${location.host}/live`));
    socket.binaryType = "arraybuffer";
    socket.onopen = () => socket.send(JSON.stringify({ type: "hello", token: token.get() }));
    socket.onmessage = (event: MessageEvent<ArrayBuffer | string>) => this.take(event.data);
    socket.onclose = (event) => this.closed(event.code);
  }

  /** Publish something; the answer says how it went. */
  publish(what: Hazardous, secret: string): Promise<Answer> {
    const number = this.next++;
    return new Promise((resolve) => {
      const fail = (detail: string) => this.settle({ type: "refused", number, reason: "AWAY", detail });
      this.asked.set(number, resolve);
      if (this.socket?.readyState !== WebSocket.OPEN) return fail("There is no connection to the server.");
      this.socket.send(JSON.stringify({ type: "publish", number, token: secret, ...what }));
      setTimeout(() => fail("The server did not answer."), ANSWER_MS);
      return undefined;
    });
  }

  async ask(path: string): Promise<Response | undefined> {
    const secret = token.get();
    const headers: Record<string, string> = secret ? { Authorization: `Bearer ${secret}` } : {};
    try {
      const response = await fetch(path, { headers, cache: "no-store" });
      return response.ok ? response : undefined;
    } catch {
      return undefined;
    }
  }

  private take(data: ArrayBuffer | string): void {
    if (typeof data !== "string") return this.heard.frame(frameFrom(data));
    const said = JSON.parse(data) as ({ type: "welcome" } & Welcome) | Answer;
    if (said.type !== "welcome") return this.settle(said);
    this.wait_ms = FIRST_WAIT_MS;
    this.heard.welcome(said);
    this.heard.state("live");
  }

  private settle(answer: Answer): void {
    this.asked.get(answer.number)?.(answer);
    this.asked.delete(answer.number);
  }

  private closed(code: number): void {
    this.heard.state(code === POLICY_VIOLATION ? "refused" : "away");
    if (code === POLICY_VIOLATION) return;
    setTimeout(() => this.open(), this.wait_ms * (0.75 + Math.random() / 2));
    this.wait_ms = Math.min(this.wait_ms * 2, LONGEST_WAIT_MS);
  }
}
