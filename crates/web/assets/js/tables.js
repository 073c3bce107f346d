// Tables of tenants and devices, with sparklines. Rows are changed in place, so that focus and selection stay.
// Must not know which view they are in.

import { h, setText } from "./dom.js";
import * as format from "./format.js";
import { fragment } from "./link.js";
import { bitsOf, spoken } from "./mask.js";
import { colour, inkOn } from "./palette.js";
import { seriesKey } from "./series.js";
import { drawSparkline, sparkline } from "./sparkline.js";

/** Columns of the tenants: title, how the value is written, the series of its sparkline. */
const TENANT_COLUMNS = [
  ["priority", (tenant) => format.text(tenant.priority)],
  ["mask", (tenant) => format.text(tenant.mask)],
  ["LLC hits", (tenant) => format.percent(tenant.llc_hit_ratio), "llc_hit_ratio", true],
  ["IPC", (tenant) => format.plain(tenant.ipc), "ipc", false],
  ["occupancy", (tenant) => format.bytes(tenant.occupancy_bytes), "occupancy_bytes", false],
  ["from memory", (tenant) => format.bytesPerSecond(tenant.memory_bytes_per_s), "memory_bytes_per_s", false],
  ["progress", (tenant) => format.estimate(tenant.progress)],
];

const DEVICE_COLUMNS = [
  ["kind", (device) => format.text(device.kind)],
  ["port", (device) => device.address],
  ["writes to host", (device) => format.bytesPerSecond(device.inbound_bytes_per_s), "inbound_bytes_per_s", false],
  ["reads from host", (device) => format.bytesPerSecond(device.outbound_bytes_per_s), "outbound_bytes_per_s", false],
];

/** The square with a name's colour and letter, which is no part of the text beside it. */
export function swatch(item) {
  const made = h("span", { class: "swatch", "aria-hidden": "true", "data-letter": item.letter });
  const fill = colour(item.colour);
  made.style.background = fill;
  made.style.color = inkOn(fill);
  return made;
}

class LiveTable {
  /** `hasLinks`: a name leads to its own view, which only the main source has. */
  constructor(label, kind, columns, hasLinks) {
    this.hasLinks = hasLinks;
    this.kind = kind;
    this.columns = columns;
    this.body = h("tbody");
    const heads = ["name", ...columns.map(([title]) => title)].map((title) => h("th", { scope: "col", text: title }));
    const table = h("table", { class: "live" }, h("caption", { class: "unseen", text: label }),
      h("thead", {}, h("tr", {}, ...heads)), this.body);
    // A wide table scrolls in its frame; the keyboard reaches it there.
    this.element = h("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": label }, table);
    this.rows = new Map();
    this.shape = "";
  }

  fill(items, ring, extra) {
    const shape = JSON.stringify(items.map((item) => [item.name, item.colour, item.letter])) + colour(0);
    if (shape !== this.shape) {
      this.shape = shape;
      this.rows.clear();
      this.body.replaceChildren(...items.map((item) => this.row(item, extra)));
    }
    for (const item of items) this.change(item, ring);
  }

  row(item, extra) {
    const cells = this.columns.map(([, , series]) => {
      const value = h("span", { class: "value" });
      const line = series ? sparkline() : null;
      return { cell: h("td", {}, value, line), value, line };
    });
    const name = this.hasLinks ? h("a", { href: fragment(this.kind, [item.name]), text: item.name }) : item.name;
    const head = h("th", { scope: "row" }, swatch(item), name);
    const added = extra ? extra(item) : null;
    this.rows.set(item.name, { cells, added });
    return h("tr", {}, head, added && h("td", {}, added.element), ...cells.map((made) => made.cell));
  }

  change(item, ring) {
    const { cells, added } = this.rows.get(item.name);
    this.columns.forEach(([, write, series, isRatio], index) => {
      setText(cells[index].value, write(item));
      if (series) drawSparkline(cells[index].line, ring, seriesKey(this.kind, item.name, series), isRatio, colour(item.colour));
    });
    added?.update(item);
  }
}

export class TenantTable extends LiveTable {
  constructor(label = "Tenants", hasLinks = true) {
    super(label, "tenant", TENANT_COLUMNS, hasLinks);
  }

  update(picture, ring) {
    this.fill(picture.tenants, ring);
  }
}

export class DeviceTable extends LiveTable {
  /** `onDca(device, on)` turns a port's DCA; `can()` says whether it may be turned. */
  constructor({ onDca, can }, label = "Devices", hasLinks = true) {
    super(label, "device", DEVICE_COLUMNS, hasLinks);
    this.onDca = onDca;
    this.can = can;
    this.body.parentElement.querySelector("thead th").after(h("th", { scope: "col", text: "DCA" }));
  }

  update(picture, ring) {
    this.fill(picture.devices, ring, (device) => this.dcaSwitch(device));
  }

  dcaSwitch(device) {
    const turn = () => this.onDca(device, element.getAttribute("aria-checked") !== "true");
    const element = h("button", { type: "button", role: "switch", class: "switch", onclick: turn,
      "aria-label": `DCA of ${device.name}` });
    return {
      element,
      update: (now) => {
        element.setAttribute("aria-checked", String(now.dca === true));
        setText(element, now.dca === undefined || now.dca === null ? format.ABSENT : now.dca ? "on" : "off");
        element.disabled = !this.can() || !now.dca_switch || now.devices.length === 0;
      },
    };
  }
}

/** The tenants of a picture as rows of CSV. */
export function tenantRows(picture) {
  const keys = ["name", "priority", "cores", "mask", "llc_hit_ratio", "ipc", "occupancy_bytes", "llc_misses_per_s",
    "memory_bytes_per_s", "mlc_miss_ratio"];
  const rows = picture.tenants.map((tenant) => {
    const values = keys.map((key) => tenant[key]);
    return [picture.step, picture.time_s, ...values];
  });
  return [["step", "time_s", ...keys], ...rows];
}

/** What is known of a mask, for people. */
export function maskWords(mask, ways) {
  const bits = bitsOf(mask);
  return bits === null ? format.ABSENT : `${mask} (${spoken(bits, ways)})`;
}
