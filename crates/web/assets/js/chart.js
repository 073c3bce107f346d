// A chart over time: uPlot with our axes, colours and legend, and its export as PNG, SVG and CSV.
// Must not know what the series are.

import { button, h } from "./dom.js";
import { fileName, saveCsv, saveText } from "./export.js";
import * as format from "./format.js";
import { styleColour, theme } from "./palette.js";

const HEIGHT = 210;

/** How a value of a unit is written. */
const WRITERS = {
  ratio: (value) => format.percent(value),
  plain: (value) => format.plain(value),
  bytes: format.bytes,
  perSecond: format.perSecond,
  bytesPerSecond: format.bytesPerSecond,
};
const AXIS_WRITERS = { ...WRITERS, ratio: (value) => `${Math.round(100 * value)} %` };
export const UNIT_NAMES = {
  ratio: "share", plain: "instructions per cycle", bytes: "bytes", perSecond: "events per second",
  bytesPerSecond: "bytes per second",
};

/** Distances of the ticks of an axis in bytes. */
const POWERS = Array.from({ length: 44 }, (_, exponent) => 2 ** exponent);

/** Charts with one key show their cursors at the same time. */
const SYNC = "waykeeper";

export class Chart {
  /** `lines` are `{key, name, colour, dash}`; `unit` is a key of `UNIT_NAMES`. */
  constructor({ title, unit, lines, marks = () => [] }) {
    Object.assign(this, { title, unit, lines, marks });
    this.frame = h("div", { class: "chart-frame" });
    const tools = h("div", { class: "tools" },
      button("PNG", () => this.savePng(), { "aria-label": `Save the chart ${title} as PNG` }),
      button("SVG", () => this.saveSvg(), { "aria-label": `Save the chart ${title} as SVG` }),
      button("CSV", () => this.saveCsv(), { "aria-label": `Save the values of ${title} as CSV` }));
    this.summary = h("figcaption", { class: "unseen" });
    this.element = h("figure", { class: "chart", "aria-label": `${title}, ${UNIT_NAMES[unit]}` },
      h("div", { class: "chart-head" }, h("h3", {}, title, h("span", { class: "unit", text: ` ${UNIT_NAMES[unit]}` })), tools),
      this.frame, this.summary);
    this.observer = new ResizeObserver(([entry]) => this.fit(Math.round(entry.contentRect.width)));
    this.observer.observe(this.frame);
    this.data = [[], ...lines.map(() => [])];
  }

  close() {
    this.observer.disconnect();
    this.plot?.destroy();
  }

  fit(width) {
    if (width < 50 || width === this.width) return;
    this.width = width;
    this.draw();
  }

  draw() {
    this.plot?.destroy();
    this.theme = theme();
    this.plot = new window.uPlot(this.settings(), this.data, this.frame);
  }

  settings() {
    const text = styleColour("soft");
    const grid = { stroke: styleColour("grid"), width: 1 };
    const axis = { stroke: text, grid, ticks: grid, font: "12px system-ui, sans-serif" };
    const series = this.lines.map(({ name, colour, dash }) => ({
      label: name, stroke: colour(), width: 1.8, dash, spanGaps: false, points: { show: false },
      value: (_, value) => WRITERS[this.unit](value),
    }));
    return {
      width: this.width,
      height: HEIGHT,
      cursor: { sync: { key: SYNC }, y: false, drag: { x: true, y: false } },
      legend: { live: true },
      scales: { x: { time: false }, y: { range: (_, low, high) => this.range(low, high) } },
      axes: [
        { ...axis, values: (_, values) => values.map((value) => format.seconds(value)), space: 70, size: 32 },
        { ...axis, values: (_, values) => values.map((value) => AXIS_WRITERS[this.unit](value)), size: 76,
          ...(this.unit === "bytes" ? { incrs: POWERS } : {}) },
      ],
      series: [{ label: "time", value: (_, value) => format.seconds(value) }, ...series],
      hooks: { draw: [(plot) => this.drawMarks(plot)] },
    };
  }

  range(low, high) {
    if (this.unit === "ratio") return [0, 1];
    return high > 0 ? [0, 1.08 * high] : [0, 1];
  }

  /** Vertical lines where the policy decided. */
  drawMarks(plot) {
    const { ctx: context, bbox } = plot;
    context.save();
    context.strokeStyle = styleColour("mark");
    context.lineWidth = devicePixelRatio;
    context.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
    for (const time of this.marks()) {
      const x = Math.round(plot.valToPos(time, "x", true));
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      context.beginPath();
      context.moveTo(x, bbox.top);
      context.lineTo(x, bbox.top + bbox.height);
      context.stroke();
    }
    context.restore();
  }

  /** Draws the newest values; a range that the user zoomed into stays until a double click. */
  update(ring, steps) {
    this.data = ring.read(this.lines.map((line) => line.key), steps);
    if (!this.plot) return;
    if (this.theme !== theme()) this.draw();
    const { min, max } = this.plot.scales.x;
    const [before] = this.plot.data;
    const isZoomed = before.length > 1 && (min > before[0] || max < before.at(-1));
    this.plot.setData(this.data, !isZoomed);
    if (isZoomed) this.plot.redraw();
    // Without a pointer the legend has the newest values.
    if (!(this.plot.cursor.left >= 0)) this.plot.setLegend({ idx: this.data[0].length - 1 });
    const newest = this.lines.map((line, index) => `${line.name} ${WRITERS[this.unit](this.data[index + 1].at(-1))}`);
    this.summary.textContent = `Newest values: ${newest.join(", ")}`;
  }

  rows() {
    const [times, ...columns] = this.data;
    return [["time_s", ...this.lines.map((line) => line.name)],
      ...times.map((time, index) => [time, ...columns.map((column) => column[index])])];
  }

  saveCsv() {
    saveCsv(fileName([this.title], "csv"), this.rows());
  }

  savePng() {
    const source = this.plot.ctx.canvas;
    const head = 30 * devicePixelRatio;
    const legend = 22 * devicePixelRatio * Math.ceil(this.lines.length / 4);
    const canvas = h("canvas", { width: source.width, height: source.height + head + legend });
    const context = canvas.getContext("2d");
    context.fillStyle = styleColour("card");
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.drawImage(source, 0, head);
    context.fillStyle = styleColour("text");
    context.font = `bold ${15 * devicePixelRatio}px system-ui, sans-serif`;
    context.fillText(`${this.title}, ${UNIT_NAMES[this.unit]}`, 8 * devicePixelRatio, 20 * devicePixelRatio);
    context.font = `${12 * devicePixelRatio}px system-ui, sans-serif`;
    this.lines.forEach((line, index) => {
      const x = 8 * devicePixelRatio + (index % 4) * (canvas.width / 4);
      const y = head + source.height + (14 + 22 * Math.floor(index / 4)) * devicePixelRatio;
      context.fillStyle = line.colour();
      context.fillRect(x, y - 10 * devicePixelRatio, 11 * devicePixelRatio, 11 * devicePixelRatio);
      context.fillStyle = styleColour("text");
      context.fillText(line.name, x + 16 * devicePixelRatio, y);
    });
    canvas.toBlob((blob) => blob && saveText(fileName([this.title], "png"), blob, "image/png"), "image/png");
  }

  saveSvg() {
    saveText(fileName([this.title], "svg"), this.svg(), "image/svg+xml");
  }

  /** The chart as a document of its own, of the same values as on the screen. */
  svg() {
    const escape = (text) => text.replace(/[&<>"]/g, (letter) => `&#${letter.charCodeAt(0)};`);
    const [width, left, top, plotHeight] = [this.width, 78, 34, 180];
    const plotWidth = width - left - 12;
    const [times, ...columns] = this.data;
    const known = columns.flat().filter((value) => value !== null);
    const [low, high] = this.range(Math.min(...known, 0), Math.max(...known, 0));
    const first = times[0] ?? 0;
    const span = (times.at(-1) ?? 1) - first || 1;
    const x = (time) => (left + ((time - first) / span) * plotWidth).toFixed(1);
    const y = (value) => (top + plotHeight - ((value - low) / (high - low)) * plotHeight).toFixed(1);
    const style = (name) => escape(styleColour(name));
    const parts = [`<text x="8" y="20" font-weight="bold" font-size="15">${escape(this.title)}, ${UNIT_NAMES[this.unit]}</text>`];
    for (let tick = 0; tick <= 4; tick += 1) {
      const value = low + ((high - low) * tick) / 4;
      parts.push(`<line x1="${left}" x2="${width - 12}" y1="${y(value)}" y2="${y(value)}" stroke="${style("grid")}"/>`,
        `<text x="${left - 6}" y="${y(value)}" dy="4" text-anchor="end">${escape(AXIS_WRITERS[this.unit](value))}</text>`);
      const time = first + (span * tick) / 4;
      const anchor = tick === 4 ? "end" : tick === 0 ? "start" : "middle";
      parts.push(`<text x="${x(time)}" y="${top + plotHeight + 16}" text-anchor="${anchor}">${format.seconds(time)}</text>`);
    }
    const rows = Math.ceil(this.lines.length / 4);
    this.lines.forEach((line, index) => {
      let path = "";
      columns[index].forEach((value, step) => {
        if (value === null) return;
        path += `${path === "" || columns[index][step - 1] === null ? "M" : "L"}${x(times[step])} ${y(value)}`;
      });
      const dash = line.dash ? ` stroke-dasharray="${line.dash.join(" ")}"` : "";
      if (path) parts.push(`<path d="${path}" fill="none" stroke="${line.colour()}" stroke-width="1.8"${dash}/>`);
      const place = [8 + (index % 4) * (width / 4), top + plotHeight + 38 + 20 * Math.floor(index / 4)];
      parts.push(`<rect x="${place[0]}" y="${place[1] - 10}" width="11" height="11" fill="${line.colour()}"/>`,
        `<text x="${place[0] + 16}" y="${place[1]}">${escape(line.name)}</text>`);
    });
    const height = top + plotHeight + 36 + 20 * rows;
    return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" ` +
      `font-family="system-ui, sans-serif" font-size="12" fill="${style("text")}">` +
      `<rect width="100%" height="100%" fill="${style("card")}"/>${parts.join("")}</svg>\n`;
  }
}
