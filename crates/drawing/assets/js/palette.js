// Colours: one per tenant or device, by the index that the server gives a name; and those of the theme.
// Must not know what is coloured. Each colour has a contrast of at least 3 to the background of its theme
// (WCAG 2.2, 1.4.11), and no two look alike; a letter of its own is always beside it.

const LIGHT = [
  "#3c87ff", "#e14b4b", "#007800", "#a50000", "#c369c3", "#4b3c00",
  "#002da5", "#a58700", "#4b5a78", "#780069", "#009696", "#783cc3",
];
const DARK = [
  "#00a5ff", "#ff9678", "#5ae178", "#e14b78", "#f087f0", "#b47800",
  "#5ae1ff", "#ffe178", "#78a596", "#ffd2ff", "#00961e", "#9669d2",
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

/** Black or white, whichever is read on a colour: one of the two has a contrast of at least 4.5. */
export function inkOn(hex) {
  const linear = [1, 3, 5].map((at) => {
    const part = parseInt(hex.slice(at, at + 2), 16) / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  const luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  // The contrast to black is (l + 0.05) / 0.05, to white 1.05 / (l + 0.05): equal where (l + 0.05)^2 is 0.0525.
  return luminance > 0.179 ? "#000000" : "#ffffff";
}

/** A colour of the style sheet, for canvases. */
export function styleColour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}
