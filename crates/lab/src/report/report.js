// The script of a report: draws the charts of lines, the ways at one time, and the values under the pointer, with the drawing
// code of the web page. Must not know how a result was made.

import { Chart, dashOf } from "./chart.js";
import { h, setText } from "./dom.js";
import * as format from "./format.js";
import { colour, styleColour } from "./palette.js";
import { WayMap } from "./way_map.js";

/** Width of a chart on paper, pixels. */
const PAPER_WIDTH = 640;

/** The content of a data element; null where the page has none. */
function data(id) {
  const element = document.getElementById(id);
  return element && JSON.parse(element.textContent);
}

/** The x axis of a chart that the report describes; undefined for time. */
function axis({ kind, label, names }) {
  if (kind === "time") return undefined;
  const write = (value) => (typeof value === "number" ? String(Number(value.toPrecision(6))) : format.ABSENT);
  return { column: label, label, names, write };
}

/** A line that the report describes: its colour is one of the palette or of the theme. */
function line({ name, colour: ink, letter, dash }) {
  return { name, letter, dash: dashOf(dash), colour: () => (typeof ink === "number" ? colour(ink) : styleColour(ink)) };
}

function chart(description) {
  const { title, unit, x, lines, places, marks } = description;
  const made = new Chart({
    title, unit, lines: lines.map(line), marks: () => marks, x: axis(x), hasPoints: description.has_points,
    isLog: description.is_log, isWhole: description.is_whole,
  });
  made.show([places, ...lines.map(({ values }) => values)]);
  return made;
}

/** The ways of a policy at one time, which is chosen with a slider: the way map of the web page. */
class WaysAt {
  /** `times` are the steps of the control loop. */
  constructor(place, summary, looks, times) {
    this.result = summary.policies[place.dataset.policy];
    this.ways = summary.llc_ways;
    this.looks = looks;
    const { way_map: slices } = this.result;
    const [from, to] = [slices[0].from_s, slices.at(-1).to_s];
    const step = times.length > 1 ? times[1] - times[0] : "any";
    const id = `time-${place.dataset.number}`;
    this.time = h("input", { type: "range", id, min: from, max: to, step, value: to, oninput: () => this.update() });
    this.said = h("output", { for: id });
    this.map = new WayMap({ can: () => false, label: `Ways under ${place.dataset.policy}` });
    place.append(h("p", { class: "note" }, h("label", { for: id, text: "At " }), this.time, " ", this.said), this.map.element);
    this.update();
  }

  update() {
    const at = Number(this.time.value);
    const { way_map: slices, workloads } = this.result;
    const slice = slices.findLast((one) => one.from_s <= at) ?? slices[0];
    const ports = [...new Set(slices.flatMap((one) => one.dca_off_ports ?? []))];
    const off = new Set(slice.dca_off_ports ?? []);
    setText(this.said, format.seconds(at));
    this.time.setAttribute("aria-valuetext", format.seconds(at));
    this.map.update({
      llc: { ways: this.ways, min_ways: 1, dca_ways: slice.dca_ways, dca_ways_switch: false },
      tenants: Object.entries(slice.masks).map(([name, mask]) => ({ name, mask, priority: workloads[name]?.priority, ...this.looks[name] })),
      devices: ports.map((port) => ({ port, name: port, dca: !off.has(port), colour: null })),
    });
  }
}

/** Shows the title of the part of a picture that is under the pointer at once, where a browser waits. */
function showTips() {
  const tip = h("div", { class: "tip", role: "status", hidden: true });
  document.body.append(tip);
  const titles = new WeakMap();
  document.addEventListener("pointermove", (event) => {
    const part = event.target.closest?.("svg.bars g, svg.waymap g, svg.waymap .mark");
    if (!part) {
      tip.hidden = true;
      return;
    }
    const title = part.querySelector("title");
    if (title) {
      titles.set(part, title.textContent);
      title.remove();
    }
    setText(tip, titles.get(part) ?? "");
    tip.hidden = tip.textContent === "";
    const { width, height } = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(Math.min(event.clientX + 12, innerWidth - width - 8), 4)}px`;
    tip.style.top = `${event.clientY + 16 + height > innerHeight ? event.clientY - height - 8 : event.clientY + 16}px`;
  });
}

/** Draws all. */
function begin() {
  const descriptions = data("charts");
  const charts = [...document.querySelectorAll("[data-chart]")].map((place) => {
    const made = chart(descriptions[Number(place.dataset.chart)]);
    place.append(made.element);
    return made;
  });
  const looks = data("marks");
  const times = descriptions.find(({ x }) => x.kind === "time")?.places ?? [];
  const maps = [...document.querySelectorAll(".ways-at")].map((place) => new WaysAt(place, data("summary"), looks, times));
  showTips();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    for (const one of charts) one.followTheme();
    for (const one of maps) one.update();
  });
  // A chart in a section that is not shown has no width yet; on paper all are shown.
  window.addEventListener("beforeprint", () => charts.forEach((one) => one.fit(PAPER_WIDTH)));
  window.addEventListener("afterprint", () => charts.forEach((one) => one.fit(one.frame.clientWidth)));
}

begin();
