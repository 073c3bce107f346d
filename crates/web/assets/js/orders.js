// Orders that turn something, as the server reads them, and which of them a source takes. Must not know who gives them.

export const mask = (tenant, ways) => ({ do: "mask", tenant, mask: ways });
export const dcaWays = (ways) => ({ do: "dca-ways", mask: ways });
export const dca = (device, on) => ({ do: "dca", device, on });
export const load = (device, factor) => ({ do: "load", device, factor });
export const policy = (name) => ({ do: "policy", name });
export const pause = () => ({ do: "pause", release: false });
export const resume = () => ({ do: "resume" });
export const speed = (factor) => ({ do: "speed", factor });
export const stop = () => ({ do: "stop" });
export const play = () => ({ do: "play" });
export const seek = (toS) => ({ do: "seek", to_s: toS });

/** What an order is about: a newer one about the same replaces one that waits. */
export const about = (order) => `${order.do}/${order.tenant ?? order.device ?? ""}`;

/** Whether a source takes orders of this kind, about this device. */
export function takes(picture, kind, device) {
  const abilities = picture?.source?.abilities;
  // A source that is lost takes nothing.
  if (!abilities || picture.lost) return false;
  if (kind === "policy") return (abilities.policies ?? []).length > 0;
  if (kind === "load") return Object.hasOwn(abilities.loads ?? {}, device);
  if (["mask", "dca-ways", "dca"].includes(kind)) return abilities.knobs === true;
  return abilities[kind] === true;
}
