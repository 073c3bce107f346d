// The way map: a row per tenant and per device, a column per way, the ways that each may fill as a bar. A bar that can be
// turned is dragged with the pointer or moved with keys. Must not know how an order is sent.

import { s, setAttributes, setText } from "./dom.js";
import { percent } from "./format.js";
import { afterKey, bitsOf, hull, maskText, runs, spanBits, spoken } from "./mask.js";
import { colour, inkOn } from "./palette.js";

const HEAD = 44;
const ROW = 27;
const BAR = 17;
/** Width of a bar's edge that widens it instead of moving it, pixels. */
const EDGE = 9;
/** How long a wish is shown after the server's answer without a picture that has it, ms. */
const PATIENCE_MS = 4_000;
/** Room for the LLC hit ratios at the right, pixels; narrow maps have none. */
const VALUES = 58;
const NARROW = 420;

export class WayMap {
  /**
   * `onMask(name, mask)` and `onDcaWays(mask)` are called with wishes, and return promises that resolve when the server has
   * answered; `can(kind)` says what may be turned.
   */
  constructor({ onMask, onDcaWays, can, label = "Way map" }) {
    this.onMask = onMask;
    this.onDcaWays = onDcaWays;
    this.can = can;
    this.svg = s("svg", { class: "way-map", role: "group", "aria-label": label });
    this.rows = new Map();
    /** What is asked for, by row: rows are built anew when the width, or what there is to show, changes. */
    this.wishes = new Map();
    this.width = 0;
    this.shape = "";
    this.observer = new ResizeObserver(([entry]) => {
      const width = Math.round(entry.contentRect.width);
      if (width > 0 && width !== this.width) {
        this.width = width;
        this.shape = "";
        if (this.picture) this.update(this.picture);
      }
    });
    this.element = document.createElement("div");
    this.element.className = "way-map-frame";
    this.element.append(this.svg);
    this.observer.observe(this.element);
  }

  close() {
    this.observer.disconnect();
  }

  update(picture) {
    this.picture = picture;
    if (this.width === 0) return;
    const rows = rowsOf(picture, this.can);
    const hasValues = rows.some((row) => row.value !== undefined) && this.width > NARROW;
    const shape = JSON.stringify([this.width, picture.llc.ways, picture.llc.inclusive_ways, picture.llc.dca_ways, hasValues,
      rows.map((row) => [row.key, row.turns])]);
    if (shape !== this.shape && !this.drag) {
      this.shape = shape;
      this.values = hasValues ? VALUES : 0;
      this.build(rows);
    }
    for (const row of rows) this.rows.get(row.key)?.update(row);
  }

  /** Position of a way's left edge; way 0 is the rightmost. */
  left(way) {
    return this.labels + (this.ways - 1 - way) * this.cell;
  }

  build(rows) {
    const focused = this.svg.contains(document.activeElement) ? document.activeElement.dataset.row : undefined;
    const { llc } = this.picture;
    this.ways = llc.ways;
    this.labels = Math.min(Math.max(0.2 * this.width, 92), 180);
    this.cell = (this.width - this.labels - this.values - 2) / this.ways;
    const height = HEAD + rows.length * ROW + 4;
    setAttributes(this.svg, { viewBox: `0 0 ${this.width} ${height}`, width: this.width, height });
    this.svg.replaceChildren(...this.columns(llc, height));
    this.rows.clear();
    rows.forEach((row, index) => {
      const made = new Row(this, row, HEAD + index * ROW);
      this.rows.set(row.key, made);
      this.svg.append(made.group);
    });
    if (focused !== undefined) this.rows.get(focused)?.bar.focus();
  }

  /** Heads and grounds of the columns, with the DCA ways and the inclusive ways marked. */
  columns(llc, height) {
    const dca = bitsOf(llc.dca_ways);
    const inclusive = bitsOf(llc.inclusive_ways);
    const made = [];
    const ground = (bits, name, title, y) => {
      for (const { low, count } of bits === null ? [] : runs(bits, this.ways)) {
        const x = this.left(low + count - 1);
        const width = count * this.cell;
        made.push(s("rect", { class: `ground ${name}`, x, y: y + 13, width, height: height - y - 13 }));
        made.push(s("rect", { class: `mark ${name}`, x: x + 1, y: y + 10, width: width - 2, height: 3 }));
        const room = Math.floor(width / 6.2);
        const text = title.length <= room ? title : title.slice(0, 4);
        made.push(s("text", { class: "mark-name", x: x + width / 2, y: y + 8, "text-anchor": "middle", text }));
      }
    };
    ground(dca, "dca", "DCA ways", 0);
    ground(inclusive, "inclusive", "inclusive", 14);
    for (let way = 0; way < this.ways; way += 1) {
      const x = this.left(way);
      made.push(s("text", { class: "way-number", x: x + this.cell / 2, y: HEAD - 6, "text-anchor": "middle", text: way }));
      made.push(s("line", { class: "grid", x1: x, x2: x, y1: HEAD - 2, y2: height - 4 }));
    }
    made.push(s("text", { class: "way-number", x: 0, y: HEAD - 6, text: "way" }));
    const right = this.left(-1);
    made.push(s("line", { class: "grid", x1: right, x2: right, y1: HEAD - 2, y2: height - 4 }));
    if (this.values > 0) made.push(s("text", { class: "way-number", x: this.width, y: HEAD - 6, "text-anchor": "end", text: "LLC hits" }));
    return made;
  }
}

/** The rows of a picture: the DCA ways, the tenants, the devices. */
function rowsOf(picture, can) {
  const rows = [];
  const dca = bitsOf(picture.llc.dca_ways);
  const least = picture.llc.min_ways;
  if (dca !== null) {
    rows.push({ key: "dca", kind: "dca", name: "DCA ways", bits: dca, least: 1, turns: can("dca-ways") && picture.llc.dca_ways_switch, fill: null });
  }
  for (const tenant of picture.tenants) {
    rows.push({
      key: `tenant/${tenant.name}`, kind: "tenant", name: tenant.name, bits: bitsOf(tenant.mask), least,
      turns: can("mask"), fill: tenant.colour, letter: tenant.letter, high: tenant.priority === "high", value: tenant.llc_hit_ratio,
    });
  }
  for (const device of picture.devices) {
    const bits = device.dca === false ? 0 : dca;
    rows.push({
      key: `device/${device.port}`, kind: "device", name: device.name, bits, turns: false, fill: device.colour, letter: device.letter,
      note: device.dca === false ? "DCA off" : null,
    });
  }
  return rows;
}

class Row {
  constructor(map, row, top) {
    this.map = map;
    this.key = row.key;
    this.kind = row.kind;
    this.name = row.name;
    this.least = row.least;
    this.turns = row.turns;
    if (!map.wishes.has(row.key)) map.wishes.set(row.key, {});
    /** `bits` that were asked for, `asked`: the order under way, `until` when they are shown after it. */
    this.wish = map.wishes.get(row.key);
    this.top = top + (ROW - BAR) / 2;
    const room = Math.floor((map.labels - 8) / 7);
    const short = row.name.length > room ? `${row.name.slice(0, room - 1)}…` : row.name;
    this.label = s("text", { class: row.high ? "row-name high" : "row-name", x: 0, y: top + 18 },
      s("title", { text: row.name }), short);
    this.note = s("text", { class: "row-note", x: map.labels + 6, y: top + 18 });
    this.value = s("text", { class: "row-value", x: map.width, y: top + 18, "text-anchor": "end" });
    this.parts = s("g", {});
    this.ghost = s("rect", { class: "ghost", y: this.top - 2, height: BAR + 4, rx: 4 });
    this.bar = s("g", { class: row.turns ? "bar turns" : "bar", "data-row": row.key }, this.parts);
    if (row.turns) this.makeTurnable();
    else this.bar.setAttribute("role", "img");
    this.group = s("g", {}, this.label, this.note, this.bar, this.ghost, this.value);
    this.setGhost(this.wish.bits ?? null);
  }

  makeTurnable() {
    setAttributes(this.bar, {
      tabindex: 0, role: "slider", "aria-orientation": "horizontal", "aria-valuemin": 0,
      "aria-valuemax": this.map.ways - 1, "aria-describedby": "mask-keys",
    });
    this.bar.addEventListener("keydown", (event) => this.pressed(event));
    this.bar.addEventListener("pointerdown", (event) => this.grab(event));
    // Browsers scroll by a touch on a part of a drawing in spite of its style `touch-action`.
    this.bar.addEventListener("touchstart", (event) => event.preventDefault(), { passive: false });
    this.bar.addEventListener("pointermove", (event) => this.showCursor(event));
  }

  update(row) {
    this.bits = row.bits;
    // While an order is under way, the next key goes on from the wish, however long the server takes.
    const { wish } = this;
    const isSettled = !wish.asked && (wish.bits === row.bits || performance.now() > wish.until);
    if (wish.bits !== undefined && isSettled && !this.map.drag) this.setGhost(null);
    const shown = row.bits ?? 0;
    const drawn = `${shown}/${row.fill}/${colour(row.fill)}`;
    if (drawn !== this.drawn) {
      this.drawn = drawn;
      const { map } = this;
      this.parts.replaceChildren(...runs(shown, map.ways).flatMap((run) => this.part(run, row)));
    }
    setText(this.note, row.note ?? (row.bits === null ? "-" : ""));
    if (row.kind === "tenant") setText(this.value, this.map.values > 0 ? percent(row.value, 0) : "");
    this.describe(row);
  }

  /** A bar of adjacent ways with the letter of its name. */
  part({ low, count }, row) {
    const { map } = this;
    const fill = row.fill === null ? null : colour(row.fill);
    const [x, width] = [map.left(low + count - 1) + 1.5, count * map.cell - 3];
    const bar = s("rect", { class: `part ${this.kind}`, x, y: this.top, width, height: BAR, rx: 3, fill });
    if (!row.letter) return [bar];
    return [bar, s("text", { class: "part-letter", x: x + width / 2, y: this.top + BAR / 2 + 4, "text-anchor": "middle",
      fill: inkOn(fill), text: row.letter })];
  }

  describe(row) {
    const bits = this.wish.bits ?? row.bits;
    const ways = this.map.ways;
    const text = bits === null ? "unknown" : bits === 0 && row.note ? row.note : spoken(bits, ways);
    if (!this.turns) {
      this.bar.setAttribute("aria-label", `${this.name}: ${text}`);
      return;
    }
    setAttributes(this.bar, {
      "aria-label": this.kind === "dca" ? "DCA ways" : `Mask of ${this.name}`,
      "aria-valuenow": bits === null ? 0 : hull(bits, ways).low,
      "aria-valuetext": text,
    });
  }

  /** The span that is shown: the wish, else the mask. */
  span() {
    return hull(this.wish.bits ?? this.bits ?? 0, this.map.ways);
  }

  /** Shows a wish. */
  wants(span) {
    const bits = spanBits(span.low, span.count);
    this.wish.until = performance.now() + PATIENCE_MS;
    this.setGhost(bits);
    setAttributes(this.bar, { "aria-valuenow": span.low, "aria-valuetext": spoken(bits, this.map.ways) });
  }

  /** Asks for the wish, if it is another than before. */
  order(before) {
    const { wish } = this;
    if (wish.bits === undefined || wish.bits === before) return;
    const mask = maskText(wish.bits, this.map.ways);
    const asked = this.kind === "dca" ? this.map.onDcaWays(mask) : this.map.onMask(this.name, mask);
    wish.asked = asked;
    asked.finally(() => {
      if (wish.asked !== asked) return;
      wish.asked = null;
      wish.until = performance.now() + PATIENCE_MS;
    });
  }

  setGhost(bits) {
    this.wish.bits = bits ?? undefined;
    this.ghost.setAttribute("visibility", bits === null ? "hidden" : "visible");
    if (bits === null) return;
    const { low, count } = hull(bits, this.map.ways);
    const x = this.map.left(low + count - 1) + 0.5;
    setAttributes(this.ghost, { x, width: count * this.map.cell - 1 });
  }

  pressed(event) {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const next = afterKey(this.span(), event.key, event.shiftKey, this.map.ways, this.least);
    if (next === null) return;
    event.preventDefault();
    event.stopPropagation();
    const before = this.wish.bits ?? this.bits;
    this.wants(next);
    this.order(before);
  }

  /** Where the pointer is in the map: the way, and the part of the bar. */
  place(event) {
    const box = this.map.svg.getBoundingClientRect();
    const x = event.clientX - box.left;
    const { low, count } = this.span();
    const left = this.map.left(low + count - 1);
    const right = left + count * this.map.cell;
    const edge = Math.min(EDGE, (right - left) / 4);
    const part = x < left + edge ? "left" : x > right - edge ? "right" : "middle";
    return { way: this.map.ways - (x - this.map.labels) / this.map.cell, part };
  }

  showCursor(event) {
    if (this.map.drag) return;
    this.bar.dataset.part = this.place(event).part;
  }

  grab(event) {
    if (event.button !== 0) return;
    event.preventDefault();
    this.bar.focus();
    this.bar.setPointerCapture(event.pointerId);
    const { way, part } = this.place(event);
    const from = this.span();
    const before = this.wish.bits ?? this.bits;
    this.map.drag = true;
    this.bar.classList.add("held");
    const move = (moved) => {
      const by = Math.round(this.place(moved).way - way);
      this.wants(dragged(from, part, by, this.map.ways, this.least));
    };
    const end = (ended) => {
      // Only where the drag ends is asked for: ways on its path would change the server for a step.
      if (ended.type === "pointerup") this.order(before);
      else this.setGhost(null);
      this.map.drag = false;
      this.bar.classList.remove("held");
      this.bar.removeEventListener("pointermove", move);
      for (const name of ["pointerup", "pointercancel"]) this.bar.removeEventListener(name, end);
    };
    this.bar.addEventListener("pointermove", move);
    for (const name of ["pointerup", "pointercancel"]) this.bar.addEventListener(name, end);
  }
}

/** A span after a drag by a number of ways; the left edge is the highest way. */
function dragged({ low, count }, part, by, ways, least) {
  const clamp = (value, from, to) => Math.min(Math.max(value, from), to);
  if (part === "middle") return { low: clamp(low + by, 0, ways - count), count };
  if (part === "left") return { low, count: clamp(count + by, least, ways - low) };
  const next = clamp(low + by, 0, low + count - least);
  return { low: next, count: count + low - next };
}
