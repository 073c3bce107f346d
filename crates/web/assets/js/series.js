// The steps that the page keeps: a ring of columns with a fixed size, so that a page that stays open does not grow.
// Must not know how a series is drawn.

/** Most values of all series together; 4 bytes each. */
const MOST_VALUES = 2_000_000;
const MOST_STEPS = 7200;
const LEAST_STEPS = 600;

/** What is kept of a tenant, a device and the socket: key in the picture, title, unit. */
export const TENANT_SERIES = [
  ["llc_hit_ratio", "LLC hit ratio", "ratio"],
  ["ipc", "Instructions per cycle", "plain"],
  ["occupancy_bytes", "LLC occupancy", "bytes"],
  ["memory_bytes_per_s", "Reads from memory by LLC misses", "bytesPerSecond"],
  ["mlc_miss_ratio", "MLC miss ratio", "ratio"],
];
export const DEVICE_SERIES = [
  ["inbound_bytes_per_s", "Device writes to the host", "bytesPerSecond"],
  ["outbound_bytes_per_s", "Device reads from the host", "bytesPerSecond"],
];
export const SOCKET_SERIES = [
  ["dca_write_hit_ratio", "DCA write hit ratio", "ratio"],
  ["dca_write_misses_per_s", "DCA write misses", "perSecond"],
  ["memory_read_bytes_per_s", "Memory reads", "bytesPerSecond"],
  ["memory_write_bytes_per_s", "Memory writes", "bytesPerSecond"],
];

export const seriesKey = (kind, name, what) => `${kind}/${name}/${what}`;

/** All values of a picture by series. */
function* valuesOf(picture) {
  for (const tenant of picture.tenants) {
    for (const [what] of TENANT_SERIES) yield [seriesKey("tenant", tenant.name, what), tenant[what]];
  }
  for (const device of picture.devices) {
    for (const [what] of DEVICE_SERIES) yield [seriesKey("device", device.name, what), device[what]];
  }
  for (const [what] of SOCKET_SERIES) yield [seriesKey("socket", "socket", what), picture.socket[what]];
}

export class SeriesRing {
  constructor(most = MOST_STEPS) {
    this.most = most;
    this.clear();
  }

  clear() {
    this.columns = new Map();
    this.times = null;
    this.length = 0;
    this.next = 0;
    this.lastStep = -1;
  }

  /** Adds a step; one that was added before is left out, an earlier one begins anew. */
  add(picture) {
    if (picture.step === this.lastStep) return;
    if (picture.step < this.lastStep) this.clear();
    this.lastStep = picture.step;
    const values = [...valuesOf(picture)];
    if (this.times === null) {
      const fitting = Math.floor(MOST_VALUES / Math.max(values.length, 1));
      this.size = Math.min(this.most, Math.max(LEAST_STEPS, fitting));
      this.times = new Float64Array(this.size);
    }
    const at = this.next;
    this.times[at] = picture.time_s;
    for (const column of this.columns.values()) column[at] = NaN;
    for (const [key, value] of values) {
      const number = typeof value === "number" ? value : NaN;
      let column = this.columns.get(key);
      if (column === undefined) {
        if (Number.isNaN(number) || this.columns.size * this.size > MOST_VALUES) continue;
        column = new Float32Array(this.size).fill(NaN);
        this.columns.set(key, column);
      }
      column[at] = number;
    }
    this.next = (at + 1) % this.size;
    this.length = Math.min(this.length + 1, this.size);
  }

  /** Puts steps before the first one: the server's history (`histories`, a list with a time axis each). */
  fill(histories, picture) {
    this.clear();
    const [first] = histories;
    const start = picture.at_s - picture.time_s;
    const before = first ? first.at_s.filter((at) => at < picture.at_s) : [];
    this.size = MOST_STEPS;
    this.times = new Float64Array(this.size);
    const skipped = Math.max(before.length - this.size + 1, 0);
    before.slice(skipped).forEach((at, row) => (this.times[row] = at - start));
    this.length = before.length - skipped;
    this.next = this.length % this.size;
    const kinds = new Map([["tenant", TENANT_SERIES], ["device", DEVICE_SERIES], ["socket", SOCKET_SERIES]]
      .flatMap(([kind, series]) => series.map(([what]) => [what, kind])));
    for (const { series, at_s: times, columns } of histories) {
      const kind = kinds.get(series);
      if (kind === undefined || times.length !== first.at_s.length) continue;
      for (const { name, values } of columns) {
        if (this.columns.size * this.size > MOST_VALUES) return;
        const column = new Float32Array(this.size).fill(NaN);
        values.slice(skipped, before.length).forEach((value, row) => (column[row] = value ?? NaN));
        this.columns.set(seriesKey(kind, name, series), column);
      }
    }
  }

  /** Times and values of these series, oldest first, at most the last `most` steps; absent values are null. */
  read(keys, most = this.length) {
    const count = Math.min(most, this.length);
    const order = (index) => (this.next - count + index + this.size) % this.size;
    const take = (column) =>
      Array.from({ length: count }, (_, index) => {
        const value = column ? column[order(index)] : NaN;
        return Number.isNaN(value) ? null : value;
      });
    return [count > 0 ? Array.from({ length: count }, (_, index) => this.times[order(index)]) : [],
      ...keys.map((key) => take(this.columns.get(key)))];
  }
}
