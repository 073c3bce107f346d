// Way masks: bits as the daemon writes them (`0x00c`), way 0 is the rightmost. Must not know what has a mask.

/** The bits of a mask; null if there is none. */
export function bitsOf(mask) {
  if (mask === undefined || mask === null) return null;
  const bits = Number(mask);
  return Number.isInteger(bits) && bits >= 0 ? bits : null;
}

/** The text of a mask: as many hexadecimal digits as `ways` ways take. */
export function maskText(bits, ways) {
  return `0x${bits.toString(16).padStart(Math.ceil(ways / 4), "0")}`;
}

export function isIn(bits, way) {
  return Math.floor(bits / 2 ** way) % 2 === 1;
}

export function countOf(bits) {
  let count = 0;
  for (let rest = bits; rest > 0; rest = Math.floor(rest / 2)) count += rest % 2;
  return count;
}

/** `count` ways from way `low` upwards. */
export function spanBits(low, count) {
  return (2 ** count - 1) * 2 ** low;
}

/** Runs of adjacent ways, `{low, count}`, from the right. */
export function runs(bits, ways) {
  const found = [];
  for (let way = 0; way < ways; way += 1) {
    if (!isIn(bits, way)) continue;
    const last = found.at(-1);
    if (last && last.low + last.count === way) last.count += 1;
    else found.push({ low: way, count: 1 });
  }
  return found;
}

/** The lowest way and the number of ways from it to the highest. */
export function hull(bits, ways) {
  const all = runs(bits, ways);
  if (all.length === 0) return { low: 0, count: 0 };
  const low = all[0].low;
  const last = all.at(-1);
  return { low, count: last.low + last.count - low };
}

/** For a screen reader: `ways 2 to 5, 4 of 11`. */
export function spoken(bits, ways) {
  const all = runs(bits, ways);
  if (all.length === 0) return "no way";
  const name = ({ low, count }) => (count === 1 ? `way ${low}` : `ways ${low} to ${low + count - 1}`);
  return `${all.map(name).join(" and ")}, ${countOf(bits)} of ${ways}`;
}

/** A span after a key: the arrows move it, Shift with an arrow or + and - change its width; null for another key. */
export function afterKey({ low, count }, key, shift, ways, least) {
  const clamp = (value, from, to) => Math.min(Math.max(value, from), to);
  const wider = (by) => {
    const next = clamp(count + by, least, ways);
    return { low: clamp(low, 0, ways - next), count: next };
  };
  // Way 0 is at the right, so the left arrow moves towards higher ways.
  const move = (by) => ({ low: clamp(low + by, 0, ways - count), count });
  if (key === "ArrowLeft") return shift ? wider(1) : move(1);
  if (key === "ArrowRight") return shift ? wider(-1) : move(-1);
  if (key === "ArrowUp" || key === "+" || key === "=") return wider(1);
  if (key === "ArrowDown" || key === "-") return wider(-1);
  if (key === "Home") return { low: ways - count, count };
  if (key === "End") return { low: 0, count };
  return null;
}
