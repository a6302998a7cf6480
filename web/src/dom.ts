// Helpers that create elements. Texts are set as text, never as markup: names come from untrusted clients.

type Child = Node | string | undefined;

/** Create an element with properties and children; names with a dash are attributes. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  properties: Record<string, unknown> = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined) continue;
    if (name.includes("-") || name === "role" || name === "for") element.setAttribute(name, String(value));
    else (element as unknown as Record<string, unknown>)[name] = value;
  }
  element.append(...children.filter((child) => child !== undefined));
  return element;
}

export function byId<T extends HTMLElement = HTMLElement>(id: string): T {
  const found = document.getElementById(id);
  if (found === null) throw new Error(`the page has no #${id}`);
  return found as T;
}

/** Make the children of a list match *rows*, in their order; reused elements keep the focus. */
export function keyed<R>(
  list: HTMLElement,
  rows: readonly (readonly [string, R])[],
  make: (key: string) => HTMLElement,
  fill: (element: HTMLElement, row: R, key: string) => void,
): void {
  const old = new Map<string, HTMLElement>();
  for (const child of Array.from(list.children) as HTMLElement[]) old.set(child.dataset["key"] ?? "", child);
  let before: Element | null = list.firstElementChild;
  for (const [key, row] of rows) {
    let element = old.get(key);
    old.delete(key);
    if (element === undefined) {
      element = make(key);
      element.dataset["key"] = key;
    }
    fill(element, row, key);
    if (element === before) before = element.nextElementSibling;
    else list.insertBefore(element, before);
  }
  for (const element of old.values()) element.remove();
}

/** Set a text only if it differs: screen readers announce changes. */
export function text(element: Element, value: string): void {
  if (element.textContent !== value) element.textContent = value;
}

export function readable(kind: string): string {
  return kind.replaceAll("_", " ");
}

export function clock(ms: number): string {
  return new Date(ms).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });
}

export function timeAgo(ms: number, now: number): string {
  const seconds = Math.max(0, Math.round((now - ms) / 1000));
  return seconds < 60 ? `${seconds} s ago` : `${Math.floor(seconds / 60)} min ago`;
}

export function count(value: number): string {
  return value.toLocaleString("en");
}

export function milliseconds(value: number | null): string {
  if (value === null) return "–";
  if (value < 1) return "< 1 ms";
  return value < 1000 ? `${Math.round(value)} ms` : `${(value / 1000).toFixed(1)} s`;
}
