// Colours of the map, for light and dark mode.

export interface Palette {
  ground: string;
  grid: string;
  road: string;
  roadCase: string;
  edge: string;
  vehicle: string;
  unconfirmed: string;
  warned: string;
  roamed: string;
  outline: string;
  alert: string;
  incident: string;
  hazard: string;
}

const LIGHT: Palette = {
  ground: "#f3f2ee",
  grid: "#e6e4dd",
  road: "#ffffff",
  roadCase: "#cdc9bd",
  edge: "#5b8296",
  vehicle: "#2f6690",
  unconfirmed: "#c98a04",
  warned: "#cf3a3a",
  roamed: "#128a7c",
  outline: "#ffffff",
  alert: "#cf3a3a",
  incident: "#d97706",
  hazard: "#b45309",
};

const DARK: Palette = {
  ground: "#12161b",
  grid: "#1c2229",
  road: "#303a44",
  roadCase: "#20272f",
  edge: "#6f9cb3",
  vehicle: "#7fb6e0",
  unconfirmed: "#f0b53c",
  warned: "#ff6b66",
  roamed: "#3fd0be",
  outline: "#12161b",
  alert: "#ff6b66",
  incident: "#f59e42",
  hazard: "#f5b460",
};

const dark = matchMedia("(prefers-color-scheme: dark)");

// Read only on change events: Chromium fires none for a change that a read of `matches` has already observed.
let current = dark.matches ? DARK : LIGHT;

export function palette(): Palette {
  return current;
}

export function onPaletteChange(listener: () => void): void {
  dark.addEventListener("change", () => {
    current = dark.matches ? DARK : LIGHT;
    listener();
  });
}
