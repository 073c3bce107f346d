// The overview: way map, tenants, devices, who hurts whom, worth, the last decisions. Must not know how data come.

import { button, card, h, setText } from "./dom.js";
import { DecisionList } from "./decisions.js";
import { fileName, saveCsv, savePng, saveSvg } from "./export.js";
import * as format from "./format.js";
import * as orders from "./orders.js";
import { DeviceTable, TenantTable, tenantRows } from "./tables.js";
import { seriesKey } from "./series.js";
import { styleColour } from "./palette.js";
import { drawSparkline, sparkline } from "./sparkline.js";
import { WayMap } from "./way_map.js";

/** The way map with its export and the explanation of its keys. */
export function wayMapCard(map, id = "way-map", title = "LLC ways") {
  const tools = [
    button("PNG", () => savePng(fileName([title], "png"), map.svg), { "aria-label": `Save ${title} as PNG` }),
    button("SVG", () => saveSvg(fileName([title], "svg"), map.svg), { "aria-label": `Save ${title} as SVG` }),
  ];
  return card(title, { id, wide: true, tools }, map.element);
}

/** Numbers of the whole socket, with sparklines. */
class SocketFacts {
  constructor() {
    const of = (name, write, series, isRatio) => ({ name, write, series, isRatio, value: h("span", { class: "value" }),
      line: series ? sparkline() : null });
    this.rows = [
      of("DCA write hits", (picture) => format.percent(picture.socket.dca_write_hit_ratio), "dca_write_hit_ratio", true),
      of("DCA write misses", (picture) => format.perSecond(picture.socket.dca_write_misses_per_s), "dca_write_misses_per_s", false),
      of("Memory reads", (picture) => format.bytesPerSecond(picture.socket.memory_read_bytes_per_s), "memory_read_bytes_per_s", false),
      of("Memory writes", (picture) => format.bytesPerSecond(picture.socket.memory_write_bytes_per_s), "memory_write_bytes_per_s", false),
      of("HPWs since the state as found", (picture) => format.estimate(picture.worth.hpw)),
      of("LPWs since the state as found", (picture) => format.estimate(picture.worth.lpw)),
    ];
    this.why = h("p", { class: "note" });
    this.element = h("div", {}, h("dl", { class: "facts" }, ...this.rows.map((row) =>
      h("div", {}, h("dt", { text: row.name }), h("dd", {}, row.value, row.line)))), this.why);
  }

  update(picture, ring) {
    for (const row of this.rows) {
      setText(row.value, row.write(picture));
      if (row.series) drawSparkline(row.line, ring, seriesKey("socket", "socket", row.series), row.isRatio, styleColour("accent"));
    }
    setText(this.why, picture.worth.why_unknown ? `Not known: ${picture.worth.why_unknown}.` : "");
  }
}

/** Pairs that are shown at once; the others open on demand. */
const PAIRS = 5;

/** Polluters and their victims, the largest shares first; until shares are known, the worst of both. */
export class Hurts {
  constructor(about = null) {
    this.about = about;
    this.list = h("ul", { class: "hurts" });
    this.rest = h("ul", { class: "hurts" });
    this.count = h("summary");
    this.more = h("details", { class: "hurts-more", hidden: "" }, this.count, this.rest);
    this.element = h("div", {}, this.list, this.more);
  }

  update(picture) {
    const concerns = (hurt) => this.about === null || hurt.victim === this.about || hurt.polluter === this.about;
    const hurts = picture.hurts.filter(concerns).sort((one, other) => (other.share ?? -1) - (one.share ?? -1));
    const lines = hurts.length > 0 ? hurts.map((hurt) => this.line(hurt)) : worstLines(picture.worst, this.about);
    const shape = JSON.stringify(lines);
    if (shape === this.shape) return;
    this.shape = shape;
    const items = lines.map((line) => h("li", {}, h("strong", { text: line.title }), h("span", { class: "note", text: line.note })));
    this.list.replaceChildren(...items.slice(0, PAIRS));
    this.rest.replaceChildren(...items.slice(PAIRS));
    this.more.hidden = items.length <= PAIRS;
    setText(this.count, `${items.length - PAIRS} more`);
  }

  line(hurt) {
    const known = typeof hurt.share === "number";
    const share = known ? `${format.percent(hurt.share, 0)} of its loss` : "counters cannot tell how much";
    const sure = typeof hurt.confidence === "number" ? `, confidence ${format.percent(hurt.confidence, 0)}` : "";
    return { title: `${hurt.polluter} hurts ${hurt.victim}`, note: `${share}${sure}: ${hurt.why}` };
  }
}

function worstLines(worst, about) {
  if (!worst || about !== null) return [{ title: "-", note: "no pair is known" }];
  const { sufferer, no_sufferer: noSufferer, polluter, no_polluter: noPolluter } = worst;
  const lines = [];
  if (sufferer) lines.push({ title: `${sufferer.tenant} lost most`, note: `progress ${format.estimate({ value: sufferer.ratio, error: sufferer.error })}` });
  else lines.push({ title: "Who lost most: -", note: format.text(noSufferer) });
  if (polluter) {
    lines.push({ title: `${polluter.name} fills most`, note: `${format.perSecond(polluter.lines_per_s)} lines into the ways of ${polluter.into}` });
  } else lines.push({ title: "What fills most: -", note: format.text(noPolluter) });
  return lines;
}

export class OverviewView {
  constructor(context) {
    this.map = new WayMap({
      onMask: (name, mask) => context.give(orders.mask(name, mask)),
      onDcaWays: (mask) => context.give(orders.dcaWays(mask)),
      can: (kind) => context.can(kind),
    });
    this.tenants = new TenantTable();
    this.devices = new DeviceTable({ onDca: (device, on) => context.give(orders.dca(device.devices[0], on)), can: () => context.can("dca") });
    this.socket = new SocketFacts();
    this.hurts = new Hurts();
    this.decisions = new DecisionList();
    const csv = button("CSV", () => saveCsv(fileName(["tenants"], "csv"), tenantRows(this.picture)), { "aria-label": "Save the tenants as CSV" });
    this.element = h("div", { class: "view overview" },
      wayMapCard(this.map),
      card("Tenants", { id: "tenants", wide: true, tools: [csv] }, this.tenants.element),
      card("Devices", { id: "devices", wide: true }, this.devices.element),
      h("div", { class: "side" },
        card("Socket", { id: "socket" }, this.socket.element),
        card("Polluters and victims", { id: "hurts" }, this.hurts.element),
        card("Last decisions", { id: "last-decisions" }, this.decisions.element)));
  }

  update(feed) {
    const { picture, ring } = feed;
    if (!picture) return;
    this.picture = picture;
    this.map.update(picture);
    this.tenants.update(picture, ring);
    this.devices.update(picture, ring);
    this.socket.update(picture, ring);
    this.hurts.update(picture);
    this.decisions.update(picture);
  }

  close() {
    this.map.close();
  }
}

