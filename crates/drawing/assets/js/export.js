// Files for the user: CSV of numbers, SVG and PNG of drawings. Must not know what they show.

import { h } from "./dom.js";

function save(name, blob) {
  const address = URL.createObjectURL(blob);
  const link = h("a", { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

/** A file's name from words: lower case, hyphens. */
export function fileName(words, ending) {
  const base = words.join("-").toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "");
  return `waykeeper-${base}.${ending}`;
}

/** A text that a spreadsheet would evaluate begins with an apostrophe; a number stays as it is. */
function cell(value) {
  let text = value === null || value === undefined ? "" : String(value);
  if (/^[=+\-@\t\r]./.test(text) && !Number.isFinite(Number(text))) text = `'${text}`;
  return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** Rows as CSV (RFC 4180); an absent value is an empty cell. */
export function saveCsv(name, rows) {
  const lines = rows.map((row) => row.map(cell).join(","));
  save(name, new Blob([`${lines.join("\r\n")}\r\n`], { type: "text/csv" }));
}

const STYLES = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-family", "font-size",
  "font-weight", "text-anchor"];

/** An SVG drawing as a document of its own: the styles of the page become attributes. */
function standalone(svg) {
  const copy = svg.cloneNode(true);
  const sources = [svg, ...svg.querySelectorAll("*")];
  const copies = [copy, ...copy.querySelectorAll("*")];
  sources.forEach((source, index) => {
    const style = getComputedStyle(source);
    for (const name of STYLES) {
      const value = style.getPropertyValue(name);
      if (value) copies[index].setAttribute(name, value);
    }
    for (const name of ["class", "tabindex", "role"]) copies[index].removeAttribute(name);
  });
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  const box = svg.getBoundingClientRect();
  copy.setAttribute("width", Math.round(box.width));
  copy.setAttribute("height", Math.round(box.height));
  const ground = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  ground.setAttribute("width", "100%");
  ground.setAttribute("height", "100%");
  ground.setAttribute("fill", getComputedStyle(document.body).backgroundColor);
  copy.prepend(ground);
  return { text: new XMLSerializer().serializeToString(copy), width: box.width, height: box.height };
}

export function saveSvg(name, svg) {
  save(name, new Blob([standalone(svg).text], { type: "image/svg+xml" }));
}

/** The drawing as pixels, two per pixel of the page. */
export async function savePng(name, svg) {
  const { text, width, height } = standalone(svg);
  const address = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
  const image = new Image();
  image.src = address;
  await image.decode();
  const canvas = h("canvas", { width: Math.round(2 * width), height: Math.round(2 * height) });
  const context = canvas.getContext("2d");
  context.drawImage(image, 0, 0, canvas.width, canvas.height);
  URL.revokeObjectURL(address);
  canvas.toBlob((blob) => blob && save(name, blob), "image/png");
}

export function saveText(name, text, type) {
  save(name, new Blob([text], { type }));
}
