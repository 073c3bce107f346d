// One source as the page sees it: its pictures, its state, and orders to it. It reconnects by itself.
// Must not know how a picture is shown, nor how events reach the page.

import { get, post } from "./api.js";
import { follow, unfollow } from "./connection.js";
import { SeriesRing } from "./series.js";

export class Feed {
  /** `changed` is called after every picture and every change of state, at most once per frame. `isKept`: see `follow`. */
  constructor(id, isKept, changed) {
    this.id = id;
    this.changed = changed;
    this.picture = null;
    this.ring = new SeriesRing();
    /** `connecting`, `live`, `finished` (a recording), `lost` (the source), `gone` or `full` (the server), `ended` (a server of ours). */
    this.state = "connecting";
    this.why = "";
    this.isClosed = false;
    this.frame = 0;
    this.lacksHistory = true;
    follow(id, isKept, (kind, data) => this.heard(kind, data));
  }

  heard(kind, data) {
    if (kind === "picture") this.take(data);
    else if (kind === "source") this.turnTo(data);
    else if (kind === "ended") this.turnTo({ state: "ended", why: "the server has ended it" });
    else if (kind === "gone" || kind === "full") this.turnTo({ state: kind, why: data.why });
    else if (kind === "again") this.lacksHistory = true;
  }

  take(picture) {
    if (this.isClosed) return;
    this.state = picture.lost ? "lost" : picture.ended ? "finished" : "live";
    this.why = picture.lost ?? "";
    nameDevices(picture.devices);
    markColours([...picture.tenants, ...picture.devices]);
    this.picture = picture;
    this.ring.add(picture);
    this.notify();
    if (this.lacksHistory) this.loadHistory();
  }

  /** What happened before the page was opened, or while the server could not be reached. */
  async loadHistory() {
    this.lacksHistory = false;
    try {
      const histories = await get(`/api/feeds/${encodeURIComponent(this.id)}/history`);
      this.ring.fill(histories, this.picture);
      this.ring.add(this.picture);
      this.notify();
    } catch (error) {
      // The stream notices a server that is gone; without a history the charts begin now. A full server is asked again.
      this.lacksHistory = error.status === 503;
    }
  }

  turnTo({ state, why }) {
    this.state = state;
    this.why = why ?? "";
    this.notify();
  }

  /** One redraw per frame, whatever the number of steps. */
  notify() {
    if (this.frame !== 0 || this.isClosed) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      if (!this.isClosed) this.changed(this);
    });
  }

  /** Sends an order; returns the server's line about it. */
  async turn(order) {
    const answer = await post(`/api/feeds/${encodeURIComponent(this.id)}/turn`, order);
    return answer?.text ?? "";
  }

  close() {
    this.isClosed = true;
    cancelAnimationFrame(this.frame);
    unfollow(this.id);
  }
}

/** Gives every root port a name of its own: devices with several ports have the same name there. */
function nameDevices(devices) {
  const count = (name) => devices.filter((device) => device.name === name).length;
  const names = devices.map(({ name, address }) => (count(name) > 1 ? `${name} ${address}` : name));
  devices.forEach((device, index) => (device.name = names[index]));
}

/** Numbers the uses of a colour: there may be more names than colours, and a second line in a chart is dashed. */
function markColours(items) {
  const uses = new Map();
  for (const item of items) {
    item.colourUse = uses.get(item.colour) ?? 0;
    uses.set(item.colour, item.colourUse + 1);
  }
}

/** Sends the newest of several orders: while one is under way, only the last of the others is kept. */
export class LatestOrder {
  constructor(send) {
    this.send = send;
    this.waiting = null;
    this.busy = null;
  }

  /** Resolves when the server has answered to this order or to a newer one, and none is under way. */
  give(order) {
    this.waiting = { order };
    this.busy ??= this.sendAll();
    return this.busy;
  }

  async sendAll() {
    while (this.waiting !== null) {
      const next = this.waiting.order;
      this.waiting = null;
      await this.send(next);
    }
    this.busy = null;
  }
}
