// The views of one tenant and of one device: all its numbers, its charts, what hurts it. Must not know other views.

import { card, h, setText } from "./dom.js";
import { Chart } from "./chart.js";
import { DecisionList } from "./decisions.js";
import * as format from "./format.js";
import { Hurts } from "./overview.js";
import { colour } from "./palette.js";
import { DEVICE_SERIES, TENANT_SERIES, seriesKey } from "./series.js";
import { maskWords, swatch } from "./tables.js";

const TENANT_FACTS = [
  ["Priority", (tenant) => format.text(tenant.priority)],
  ["Kind", (tenant) => format.text(tenant.kind)],
  ["Cores", (tenant) => format.text(tenant.cores)],
  ["Devices", (tenant) => format.text((tenant.devices ?? []).join(", "))],
  ["Shares a class with", (tenant) => format.text((tenant.grouped_with ?? []).join(", "))],
  ["Mask", (tenant, picture) => maskWords(tenant.mask, picture.llc?.ways)],
  ["LLC hit ratio", (tenant) => format.percent(tenant.llc_hit_ratio)],
  ["MLC miss ratio", (tenant) => format.percent(tenant.mlc_miss_ratio)],
  ["IPC", (tenant) => format.plain(tenant.ipc)],
  ["LLC occupancy", (tenant) => format.bytes(tenant.occupancy_bytes)],
  ["LLC misses", (tenant) => format.perSecond(tenant.llc_misses_per_s)],
  ["Memory traffic", (tenant) => format.bytesPerSecond(tenant.memory_bytes_per_s)],
  ["Progress since the state as found", (tenant) => format.estimate(tenant.progress)],
];

const DEVICE_FACTS = [
  ["Kind", (device) => format.text(device.kind)],
  ["Root port", (device) => format.text(device.address)],
  ["Used by", (device) => format.text((device.tenants ?? []).join(", "))],
  ["DCA", (device) => (device.dca === undefined ? format.ABSENT : device.dca ? "on" : "off")],
  ["DCA ways", (_, picture) => maskWords(picture.llc?.dca_ways, picture.llc?.ways)],
  ["Writes to the host", (device) => format.bytesPerSecond(device.inbound_bytes_per_s)],
  ["Reads from the host", (device) => format.bytesPerSecond(device.outbound_bytes_per_s)],
  ["DCA write hits, all devices", (_, picture) => format.percent(picture.socket.dca_write_hit_ratio)],
];

/** Steps that the charts show. */
const STEPS = 600;

class DetailView {
  constructor(context, name, { kind, of, facts, series }) {
    Object.assign(this, { name, of, facts });
    this.values = facts.map(() => h("dd"));
    this.charts = series.map(([what, title, unit]) => new Chart({
      title: `${title} of ${name}`, unit, marks: () => this.marks,
      lines: [{ key: seriesKey(kind, name, what), name, colour: () => colour(this.item?.colour) }],
    }));
    this.marks = [];
    this.hurts = new Hurts(name);
    this.decisions = new DecisionList({ about: name, most: 20, label: `Decisions about ${name}` });
    this.missing = h("p", { class: "none", role: "status" });
    this.mark = h("span", {});
    const list = h("dl", { class: "facts" }, ...facts.map(([title], index) => h("div", {}, h("dt", { text: title }), this.values[index])));
    this.element = h("div", { class: "view" },
      h("p", { class: "crumbs wide" }, h("a", { href: "#/", text: "Overview" }), " / ", this.mark, h("strong", { text: name }), this.missing),
      h("div", { class: "side" },
        card(name, { id: "facts" }, list),
        card("Polluters and victims", { id: "hurts" }, this.hurts.element),
        card("Decisions about it", { id: "last-decisions" }, this.decisions.element)),
      card("Timeline", { id: "charts", wide: true }, h("div", { class: "charts" }, ...this.charts.map((chart) => chart.element))));
  }

  update(feed) {
    const { picture, ring } = feed;
    if (!picture) return;
    this.item = this.of(picture).find((item) => item.name === this.name);
    setText(this.missing, this.item ? "" : "is not here now");
    if (!this.item) return;
    if (this.mark.dataset.colour !== colour(this.item.colour)) {
      this.mark.dataset.colour = colour(this.item.colour);
      this.mark.replaceChildren(swatch(this.item));
    }
    this.facts.forEach(([, write], index) => setText(this.values[index], write(this.item, picture)));
    this.marks = decisionTimes(picture);
    for (const chart of this.charts) chart.update(ring, STEPS);
    this.hurts.update(picture);
    this.decisions.update(picture);
  }

  close() {
    for (const chart of this.charts) chart.close();
  }
}

/** When the policy decided, on the charts' axis. */
export function decisionTimes(picture) {
  const start = picture.at_s - picture.time_s;
  return [...new Set(picture.decisions.map((decision) => Date.parse(decision.at) / 1000 - start))];
}

export class TenantView extends DetailView {
  constructor(context, name) {
    super(context, name, { kind: "tenant", of: (picture) => picture.tenants, facts: TENANT_FACTS, series: TENANT_SERIES });
  }
}

export class DeviceView extends DetailView {
  constructor(context, name) {
    super(context, name, { kind: "device", of: (picture) => picture.devices, facts: DEVICE_FACTS, series: DEVICE_SERIES });
  }
}
