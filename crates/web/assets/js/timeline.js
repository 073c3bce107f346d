// The timeline: one chart per quantity with a line per tenant or device, and marks where the policy decided.
// Must not know how a chart is drawn.

import { h, options } from "./dom.js";
import { Chart, dashOf } from "./chart.js";
import { decisionTimes } from "./detail.js";
import * as link from "./link.js";
import { colour, styleColour } from "./palette.js";
import { DEVICE_SERIES, SOCKET_SERIES, TENANT_SERIES, seriesKey } from "./series.js";

const SPANS = [["60", "last 60 steps"], ["300", "last 300 steps"], ["1200", "last 1200 steps"], ["7200", "all that the page keeps"]];

/** Groups of charts: which may be shown. */
const GROUPS = [["all", "all quantities"], ["tenants", "tenants"], ["devices", "devices and memory"]];

export class TimelineView {
  constructor(context, _, parameters) {
    this.span = options(h("select", { id: "span", onchange: () => this.chosen() }), SPANS, parameters.get("steps") ?? "300");
    this.group = options(h("select", { id: "group", onchange: () => this.chosen() }), GROUPS, parameters.get("show") ?? "all");
    this.charts = [];
    this.marks = [];
    this.frame = h("div", { class: "charts" });
    this.element = h("div", { class: "view" },
      h("section", { class: "card wide", "aria-label": "Timeline" },
        h("h2", { class: "unseen", text: "Timeline" }),
        h("div", { class: "fields" },
          h("div", { class: "field" }, h("label", { for: "group", text: "Show" }), this.group),
          h("div", { class: "field" }, h("label", { for: "span", text: "Time" }), this.span),
          h("p", { class: "note", text: "Drag across a chart to zoom, double click to return. Dashed lines: decisions." })),
        this.frame));
  }

  chosen() {
    link.change({ steps: this.span.value, show: this.group.value });
    this.shape = "";
    if (this.feed) this.update(this.feed);
  }

  update(feed) {
    this.feed = feed;
    const { picture, ring } = feed;
    if (!picture) return;
    const shape = JSON.stringify([picture.tenants.map((tenant) => tenant.name), picture.devices.map((device) => device.name)]);
    if (shape !== this.shape) {
      this.shape = shape;
      this.build(picture);
    }
    this.marks = decisionTimes(picture);
    for (const chart of this.charts) chart.update(ring, Number(this.span.value));
  }

  build(picture) {
    for (const chart of this.charts) chart.close();
    const chart = (title, unit, lines) => new Chart({ title, unit, lines, marks: () => this.marks });
    const per = (kind, items, series) => series.map(([what, title, unit]) => chart(title, unit,
      items.map((item) => ({ key: seriesKey(kind, item.name, what), name: item.name, colour: () => colour(item.colour),
        letter: item.letter, dash: dashOf(item.colourUse) }))));
    const socket = (title, unit, rows) => chart(title, unit, rows.map(([what, name, shade]) => ({
      key: seriesKey("socket", "socket", what), name, colour: () => styleColour(shade) })));
    const [ratio, misses, reads, writes] = SOCKET_SERIES;
    const tenants = this.group.value === "devices" ? [] : per("tenant", picture.tenants, TENANT_SERIES);
    const devices = this.group.value === "tenants" ? [] : [
      ...per("device", picture.devices, DEVICE_SERIES),
      socket("DCA write hit ratio", "ratio", [[ratio[0], "all devices", "accent"]]),
      socket("DCA write misses", "perSecond", [[misses[0], "all devices", "accent"]]),
      socket("Memory traffic of the socket", "bytesPerSecond", [[reads[0], "reads", "accent"], [writes[0], "writes", "second"]]),
    ];
    this.charts = [...tenants, ...devices];
    this.frame.replaceChildren(...this.charts.map((made) => made.element));
  }

  close() {
    for (const chart of this.charts) chart.close();
  }
}
