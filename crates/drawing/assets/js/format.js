// Numbers as text. An absent value is `-`, never 0. Must not know where a value comes from.

export const ABSENT = "-";

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

/** A ratio as a percentage: `71.3 %`. */
export function percent(ratio, digits = 1) {
  return isNumber(ratio) ? `${(100 * ratio).toFixed(digits)} %` : ABSENT;
}

/** Three significant digits, without an exponent. */
function three(value) {
  const size = Math.abs(value);
  if (size >= 100) return value.toFixed(0);
  if (size >= 10) return value.toFixed(1);
  return value.toFixed(2);
}

/** A plain number: `1.35`. */
export function plain(value, digits = 2) {
  return isNumber(value) ? value.toFixed(digits) : ABSENT;
}

function scaled(value, steps, base, unit, whole = (size) => String(Math.round(size))) {
  if (!isNumber(value)) return ABSENT;
  let size = value;
  let step = 0;
  while (Math.abs(size) >= base && step < steps.length - 1) {
    size /= base;
    step += 1;
  }
  const number = step === 0 ? whole(size) : three(size);
  return `${number} ${steps[step]}${unit}`.trim();
}

/** Bytes of a cache: `1.75 MiB`. */
export function bytes(value) {
  return scaled(value, ["B", "KiB", "MiB", "GiB", "TiB"], 1024, "");
}

/** Bytes per second: `12.5 GB/s`. */
export function bytesPerSecond(value) {
  return scaled(value, ["B/s", "kB/s", "MB/s", "GB/s", "TB/s"], 1000, "");
}

/** Events per second: `3.20 M/s`. */
export function perSecond(value) {
  return scaled(value, ["/s", "k/s", "M/s", "G/s"], 1000, "");
}

/** Microseconds as a time with a fitting unit: `310 us`, `4.20 ms`. */
export function microseconds(value) {
  return scaled(value, ["us", "ms", "s"], 1000, "", three);
}

/** A ratio with its standard error: `1.35 ±0.02`. */
export function estimate(value) {
  return value && isNumber(value.value) ? `${value.value.toFixed(2)} ±${(value.error ?? 0).toFixed(2)}` : ABSENT;
}

/** Seconds of the server's clock: `1:05:09` or `12.0 s`. */
export function seconds(value) {
  if (!isNumber(value)) return ABSENT;
  if (value < 600) return `${value.toFixed(value < 100 ? 1 : 0)} s`;
  const whole = Math.floor(value);
  const two = (number) => String(number).padStart(2, "0");
  return `${Math.floor(whole / 3600)}:${two(Math.floor(whole / 60) % 60)}:${two(whole % 60)}`;
}

/** Text or a dash. */
export function text(value) {
  return value === undefined || value === null || value === "" ? ABSENT : String(value);
}
