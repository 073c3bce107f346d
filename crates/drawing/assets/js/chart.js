// A chart of lines over time or another quantity: uPlot with our axes, colours, marks and legend, and its export as PNG,
// SVG and CSV. Must not know what the lines are.

import { button, h } from "./dom.js";
import { fileName, saveCsv, saveText } from "./export.js";
import * as format from "./format.js";
import { styleColour, theme } from "./palette.js";

const HEIGHT = 210;
/** Height that the label of the x axis adds, pixels. */
const LABEL = 20;
/** Room at the right for the letters at the ends of lines, and the distance of two of them. */
const LETTER_ROOM = 22;
const LETTER_STEP = 12;
const LETTER_FONT = "bold 11px system-ui, sans-serif";

/** Units: their name beside the title, how a value is written in the legend, and on the axis where that differs. */
const UNITS = {
  ratio: { name: "share", write: (value) => format.percent(value), onAxis: (value) => `${Number((100 * value).toPrecision(3))} %` },
  plain: { name: "instructions per cycle", write: (value) => format.plain(value) },
  relative: { name: "relative to the baseline", write: (value) => format.plain(value) },
  bytes: { name: "bytes", write: format.bytes },
  microseconds: { name: "microseconds", write: format.microseconds },
  perSecond: { name: "events per second", write: format.perSecond },
  packetsPerSecond: { name: "packets per second", write: format.perSecond },
  instructionsPerSecond: { name: "instructions per second", write: format.perSecond },
  operationsPerSecond: { name: "operations per second", write: format.perSecond },
  bytesPerSecond: { name: "bytes per second", write: format.bytesPerSecond },
};

/** Distances of the ticks of an axis in bytes. */
const POWERS = Array.from({ length: 44 }, (_, exponent) => 2 ** exponent);

/** Patterns of lines with the same colour, the first one without gaps. */
const DASHES = [undefined, [7, 3], [2, 3], [10, 3, 2, 3], [14, 4], [5, 2, 1, 2, 1, 2], [1, 5]];

/** Charts over time show their cursors at the same place. */
const SYNC = "waykeeper";

/** The x axis of a chart over time: its column in a CSV file and how a value is written. */
const TIME = { column: "time_s", write: format.seconds };

/** The pattern of the line with this number among those of one colour. */
export function dashOf(index) {
  return DASHES[index % DASHES.length];
}

export class Chart {
  /**
   * `lines` are `{key, name, colour, dash, letter}`, where `colour` is a function and `letter` the mark of a name; `unit` is a
   * key of `UNITS`. `x` describes another axis than time: `column`, `write`, `label`, and `names` of the positions 0, 1, 2
   * if its values are no numbers. `hasPoints` marks each value, `isLog` is for the values' axis, and `isWhole` says that a
   * ratio's axis ends at 1 whatever the values are.
   */
  constructor({ title, unit, lines, marks = () => [], x = TIME, hasPoints = false, isLog = false, isWhole = unit === "ratio" }) {
    const labelled = lines.map((line) => ({ ...line, label: line.letter ? `${line.letter} ${line.name}` : line.name }));
    Object.assign(this, { title, unit: UNITS[unit], isBytes: unit === "bytes", lines: labelled, marks, x, hasPoints, isLog, isWhole });
    this.frame = h("div", { class: "chart-frame" });
    const tools = h("div", { class: "tools" },
      button("PNG", () => this.savePng(), { "aria-label": `Save the chart ${title} as PNG` }),
      button("SVG", () => this.saveSvg(), { "aria-label": `Save the chart ${title} as SVG` }),
      button("CSV", () => this.saveCsv(), { "aria-label": `Save the values of ${title} as CSV` }));
    this.summary = h("figcaption", { class: "unseen" });
    this.element = h("figure", { class: "chart", "aria-label": `${title}, ${this.unit.name}` },
      h("div", { class: "chart-head" }, h("h3", {}, title, h("span", { class: "unit", text: ` ${this.unit.name}` })), tools),
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
    const label = this.x.label ? { label: this.x.label, labelSize: LABEL, labelFont: axis.font } : {};
    const series = this.lines.map(({ label: name, colour, dash }) => ({
      label: name, stroke: colour(), width: 1.8, dash, spanGaps: this.hasPoints, points: { show: this.hasPoints, size: 6 },
      value: (_, value) => this.unit.write(value),
    }));
    const { names } = this.x;
    const across = names ? { splits: () => names.map((_, index) => index), values: (plot) => this.tickNames(plot) }
      : { values: (_, values) => values.map((value) => this.x.write(value)) };
    return {
      width: this.width,
      height: HEIGHT + (this.x.label ? LABEL : 0),
      padding: [null, this.lines.some((line) => line.letter) ? LETTER_ROOM : null, null, null],
      cursor: { sync: this.x === TIME ? { key: SYNC } : {}, y: false, drag: { x: true, y: false } },
      legend: { live: true },
      scales: {
        x: { time: false, ...(names ? { range: () => [-0.25, names.length - 0.75] } : {}) },
        y: { distr: this.isLog ? 3 : 1, range: (_, low, high) => this.range(low, high) },
      },
      axes: [
        { ...axis, ...label, ...across, space: 70, size: 32 },
        { ...axis, values: (_, values) => values.map((value) => (value === null ? "" : this.onAxis(value))), size: 76,
          ...(this.isBytes ? { incrs: POWERS } : {}) },
      ],
      series: [{ label: this.x.label ?? "time", value: (_, value) => this.place(value) }, ...series],
      hooks: {
        draw: [(plot) => this.drawMarks(plot), (plot) => this.drawLetters(plot)],
        ready: [() => this.showLast()],
        setCursor: [() => this.showLast()],
      },
    };
  }

  onAxis(value) {
    return (this.unit.onAxis ?? this.unit.write)(value);
  }

  /** A place on the x axis as text. */
  place(value) {
    if (!this.x.names) return this.x.write(value);
    return Number.isInteger(value) ? this.x.names[value] ?? format.ABSENT : format.ABSENT;
  }

  /** The names of the positions; some are left out where there is no room for all. */
  tickNames(plot) {
    const { names } = this.x;
    const longest = Math.max(...names.map((name) => name.length));
    const step = Math.ceil((names.length * (7 * longest + 10)) / Math.max(plot.over.clientWidth || this.width - 90, 1));
    return names.map((name, index) => (index % step === 0 ? name : ""));
  }

  range(low, high) {
    if (this.isLog) return low > 0 ? window.uPlot.rangeLog(low, high, 10, false) : [1, 10];
    if (this.isWhole) return [0, 1];
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

  /** The letter of each line at its last value in sight; letters that would touch move apart. */
  drawLetters(plot) {
    const { ctx: context, bbox } = plot;
    const [, to] = plot.series[0].idxs ?? [0, -1];
    const ends = this.lines.flatMap((line, index) => {
      if (!line.letter) return [];
      const last = this.data[index + 1].slice(0, to + 1).findLastIndex((value) => value !== null);
      if (last < 0) return [];
      const [x, y] = [plot.valToPos(this.data[0][last], "x", true), plot.valToPos(this.data[index + 1][last], "y", true)];
      return x < bbox.left ? [] : [{ line, x: Math.min(x, bbox.left + bbox.width), y }];
    });
    const step = LETTER_STEP * devicePixelRatio;
    ends.sort((one, other) => one.y - other.y);
    ends.forEach((end, index) => {
      if (index > 0) end.y = Math.max(end.y, ends[index - 1].y + step);
    });
    let most = bbox.top + bbox.height;
    for (const end of ends.toReversed()) {
      end.y = Math.min(end.y, most);
      most = end.y - step;
    }
    context.save();
    context.font = LETTER_FONT.replace("11px", `${11 * devicePixelRatio}px`);
    context.textAlign = "left";
    context.textBaseline = "middle";
    for (const { line, x, y } of ends) {
      context.fillStyle = line.colour();
      context.fillText(line.letter, x + 4 * devicePixelRatio, y);
    }
    context.restore();
  }

  /** Draws values that do not change: x and the values of each line, null where there is none. */
  show(data) {
    this.data = data;
    if (this.plot) this.draw();
    else this.showLast();
  }

  /** Draws again if the theme is another one. */
  followTheme() {
    if (this.plot && this.theme !== theme()) this.draw();
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
    this.showLast();
  }

  /** Without a pointer the legend has the last values, and so has the text for a screen reader. */
  showLast() {
    if (this.plot && !(this.plot.cursor.left >= 0)) this.plot.setLegend({ idx: this.data[0].length - 1 });
    const last = this.lines.map((line, index) => `${line.name} ${this.unit.write(this.data[index + 1].at(-1))}`);
    this.summary.textContent = `Last values: ${last.join(", ")}`;
  }

  rows() {
    const [places, ...columns] = this.data;
    const names = this.x.names;
    return [[this.x.column, ...this.lines.map((line) => line.name)],
      ...places.map((place, index) => [names ? names[place] : place, ...columns.map((column) => column[index])])];
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
    context.fillText(`${this.title}, ${this.unit.name}`, 8 * devicePixelRatio, 20 * devicePixelRatio);
    context.font = `${12 * devicePixelRatio}px system-ui, sans-serif`;
    this.lines.forEach((line, index) => {
      const x = 8 * devicePixelRatio + (index % 4) * (canvas.width / 4);
      const y = head + source.height + (14 + 22 * Math.floor(index / 4)) * devicePixelRatio;
      context.fillStyle = line.colour();
      context.fillRect(x, y - 10 * devicePixelRatio, 11 * devicePixelRatio, 11 * devicePixelRatio);
      context.fillStyle = styleColour("text");
      context.fillText(line.label, x + 16 * devicePixelRatio, y);
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
    const plotWidth = width - left - 16;
    const [places, ...columns] = this.data;
    const known = columns.flat().filter((value) => value !== null);
    const [low, high] = this.isLog ? this.range(Math.min(...known), Math.max(...known))
      : this.range(Math.min(...known, 0), Math.max(...known, 0));
    const [flat, steep] = this.isLog ? [Math.log10, (value) => 10 ** value] : [Number, Number];
    const first = places[0] ?? 0;
    const span = (places.at(-1) ?? 1) - first || 1;
    const x = (place) => (left + ((place - first) / span) * plotWidth).toFixed(1);
    const y = (value) => (top + plotHeight - ((flat(value) - flat(low)) / (flat(high) - flat(low))) * plotHeight).toFixed(1);
    const style = (name) => escape(styleColour(name));
    const parts = [`<text x="8" y="20" font-weight="bold" font-size="15">${escape(this.title)}, ${this.unit.name}</text>`];
    for (let tick = 0; tick <= 4; tick += 1) {
      const value = steep(flat(low) + ((flat(high) - flat(low)) * tick) / 4);
      parts.push(`<line x1="${left}" x2="${left + plotWidth}" y1="${y(value)}" y2="${y(value)}" stroke="${style("grid")}"/>`,
        `<text x="${left - 6}" y="${y(value)}" dy="4" text-anchor="end">${escape(this.onAxis(value))}</text>`);
    }
    const ticks = this.x.names ? places : [0, 1, 2, 3, 4].map((tick) => first + (span * tick) / 4);
    ticks.forEach((place, tick) => {
      const anchor = tick === ticks.length - 1 ? "end" : tick === 0 ? "start" : "middle";
      parts.push(`<text x="${x(place)}" y="${top + plotHeight + 16}" text-anchor="${anchor}">${escape(this.place(place))}</text>`);
    });
    const below = top + plotHeight + (this.x.label ? 38 : 20);
    if (this.x.label) {
      parts.push(`<text x="${left + plotWidth / 2}" y="${below - 4}" text-anchor="middle">${escape(this.x.label)}</text>`);
    }
    const rows = Math.ceil(this.lines.length / 4);
    this.lines.forEach((line, index) => {
      let path = "";
      columns[index].forEach((value, step) => {
        if (value === null) return;
        const isNew = path === "" || (columns[index][step - 1] === null && !this.hasPoints);
        path += `${isNew ? "M" : "L"}${x(places[step])} ${y(value)}`;
      });
      const dash = line.dash ? ` stroke-dasharray="${line.dash.join(" ")}"` : "";
      if (path) parts.push(`<path d="${path}" fill="none" stroke="${line.colour()}" stroke-width="1.8"${dash}/>`);
      const place = [8 + (index % 4) * (width / 4), below + 18 + 20 * Math.floor(index / 4)];
      parts.push(`<rect x="${place[0]}" y="${place[1] - 10}" width="11" height="11" fill="${line.colour()}"/>`,
        `<text x="${place[0] + 16}" y="${place[1]}">${escape(line.label)}</text>`);
    });
    const height = below + 16 + 20 * rows;
    return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" ` +
      `font-family="system-ui, sans-serif" font-size="12" fill="${style("text")}">` +
      `<rect width="100%" height="100%" fill="${style("card")}"/>${parts.join("")}</svg>\n`;
  }
}
