// Colours: one per tenant or device, by the index that the server gives a name; and those of the theme.
// Must not know what is coloured. Each colour has a contrast of at least 3 to the background of its theme
// (WCAG 2.2, 1.4.11); a name is always written beside it.

const LIGHT = [
  "#0b6bcb", "#c2410c", "#15803d", "#be123c", "#7c3aed", "#0f766e",
  "#a16207", "#be185d", "#4d7c0f", "#475569", "#0369a1", "#9a3412",
];
const DARK = [
  "#60a5fa", "#fb923c", "#4ade80", "#fb7185", "#a78bfa", "#2dd4bf",
  "#facc15", "#f472b6", "#a3e635", "#94a3b8", "#38bdf8", "#fdba74",
];

const KEY = "waykeeper-theme";

/** `light` or `dark`: the user's choice, else the system's. */
export function theme() {
  const chosen = document.documentElement.dataset.theme;
  if (chosen === "light" || chosen === "dark") return chosen;
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

/** Applies a choice, or the kept one. */
export function applyTheme(chosen) {
  if (chosen) localStorage.setItem(KEY, chosen);
  const kept = chosen ?? localStorage.getItem(KEY);
  if (kept) document.documentElement.dataset.theme = kept;
}

/** The colour of an index, in the current theme. */
export function colour(index) {
  const palette = theme() === "dark" ? DARK : LIGHT;
  return palette[(index ?? 0) % palette.length];
}

/** A colour of the style sheet, for canvases. */
export function styleColour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}
