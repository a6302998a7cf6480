// The connection to the server: a WebSocket that reconnects by itself, and HTTP requests.

import { frameFrom, type Frame } from "./frames";

export interface Welcome {
  sites: string[];
  kinds: string[];
  has_roads: boolean;
  history_minutes: number;
  history_span_ms: [number, number] | null;
  history_step_ms: number;
  tick_ms: number;
}

export interface Answer {
  type: "published" | "refused";
  number: number;
  reason?: string;
  detail?: string;
  key?: string;
}

export interface HazardRequest {
  kind: string;
  latitude: number;
  longitude: number;
  radius_m?: number;
  incident?: string;
}

interface ConnectionHandlers {
  frame: (frame: Frame) => void;
  welcome: (welcome: Welcome) => void;
  state: (state: "live" | "offline" | "refused") => void;
}

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 10_000;
const ANSWER_MS = 15_000;
const TOKEN = "milepost-token";
const POLICY_VIOLATION = 1008;

export const token = {
  get: (): string => sessionStorage.getItem(TOKEN) ?? "",
  store: (text: string): void => sessionStorage.setItem(TOKEN, text),
  forget: (): void => sessionStorage.removeItem(TOKEN),
};

export class ServerConnection {
  private socket: WebSocket | undefined;
  private wait_ms = FIRST_WAIT_MS;
  private next = 1;
  private readonly pending = new Map<number, (answer: Answer) => void>();

  constructor(private readonly handlers: ConnectionHandlers) {}

  open(): void {
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    const socket = (this.socket = new WebSocket(`${scheme}://${location.host}/live`));
    socket.binaryType = "arraybuffer";
    socket.onopen = () => socket.send(JSON.stringify({ type: "hello", token: token.get() }));
    socket.onmessage = (event: MessageEvent<ArrayBuffer | string>) => this.receive(event.data);
    socket.onclose = (event) => this.closed(event.code);
  }

  /** Publish a hazard or an all-clear; resolve to the server's answer. */
  publish(hazard: HazardRequest, secret: string): Promise<Answer> {
    const number = this.next++;
    return new Promise((resolve) => {
      const fail = (detail: string) => this.resolve({ type: "refused", number, reason: "OFFLINE", detail });
      this.pending.set(number, resolve);
      if (this.socket?.readyState !== WebSocket.OPEN) return fail("No connection to the server: try again when it is back.");
      this.socket.send(JSON.stringify({ type: "publish", number, token: secret, ...hazard }));
      setTimeout(() => fail("The server did not answer: check the dashboard's log."), ANSWER_MS);
      return undefined;
    });
  }

  async get(path: string): Promise<Response | undefined> {
    const secret = token.get();
    const headers: Record<string, string> = secret ? { Authorization: `Bearer ${secret}` } : {};
    try {
      const response = await fetch(path, { headers, cache: "no-store" });
      return response.ok ? response : undefined;
    } catch {
      return undefined;
    }
  }

  private receive(data: ArrayBuffer | string): void {
    if (typeof data !== "string") return this.handlers.frame(frameFrom(data));
    const message = JSON.parse(data) as ({ type: "welcome" } & Welcome) | Answer;
    if (message.type !== "welcome") return this.resolve(message);
    this.wait_ms = FIRST_WAIT_MS;
    this.handlers.welcome(message);
    this.handlers.state("live");
  }

  private resolve(answer: Answer): void {
    this.pending.get(answer.number)?.(answer);
    this.pending.delete(answer.number);
  }

  private closed(code: number): void {
    this.handlers.state(code === POLICY_VIOLATION ? "refused" : "offline");
    if (code === POLICY_VIOLATION) return;
    setTimeout(() => this.open(), this.wait_ms * (0.75 + Math.random() / 2));
    this.wait_ms = Math.min(this.wait_ms * 2, LONGEST_WAIT_MS);
  }
}
