// Sparklines: the last minute of a series as one line without axes. Must not know what the series is.

import { s, setAttributes } from "./dom.js";

const WIDTH = 84;
const HEIGHT = 20;
/** Steps that are drawn. */
const STEPS = 60;

/** An empty sparkline. A reader hears the number beside it instead. */
export function sparkline() {
  const line = s("path", { class: "spark-line" });
  const last = s("circle", { class: "spark-end", r: 2 });
  return s("svg", { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, width: WIDTH, height: HEIGHT, "aria-hidden": "true" },
    line, last);
}

/** Draws a series from the ring. `ratio` series have the range 0 to 1, others their own from 0. */
export function drawSparkline(svg, ring, key, isRatio, stroke) {
  const [times, values] = ring.read([key], STEPS);
  const known = values.filter((value) => value !== null);
  const [line, end] = svg.children;
  if (known.length < 2) {
    setAttributes(line, { d: "" });
    setAttributes(end, { visibility: "hidden" });
    return;
  }
  const most = isRatio ? 1 : Math.max(...known, Number.MIN_VALUE) * 1.05;
  const x = (index) => 2 + ((STEPS - times.length + index) / (STEPS - 1)) * (WIDTH - 6);
  const y = (value) => HEIGHT - 3 - (Math.max(value, 0) / most) * (HEIGHT - 6);
  let path = "";
  let isOn = false;
  values.forEach((value, index) => {
    if (value === null) isOn = false;
    else {
      path += `${isOn ? "L" : "M"}${x(index).toFixed(1)} ${y(value).toFixed(1)}`;
      isOn = true;
    }
  });
  setAttributes(line, { d: path, stroke });
  const last = values.findLastIndex((value) => value !== null);
  setAttributes(end, { visibility: "visible", cx: x(last).toFixed(1), cy: y(values[last]).toFixed(1), fill: stroke });
}
