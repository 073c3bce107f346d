// One source as the page sees it: its stream of pictures, its state, and orders to it. It reconnects by itself.
// Must not know how a picture is shown.

import { ApiError, get, post } from "./api.js";
import { SeriesRing } from "./series.js";

/** Without any sign of the server for this long, the stream counts as broken: the server sends one every 5 s. */
const SILENCE_MS = 15_000;
const RETRY_MS = 1_000;

export class Feed {
  /** `changed` is called after every picture and every change of state, at most once per frame. */
  constructor(id, changed) {
    this.id = id;
    this.changed = changed;
    this.picture = null;
    this.ring = new SeriesRing();
    /** `connecting`, `live`, `finished` (a recording), `lost` (the source), `gone` (the server), `ended` (a server of ours). */
    this.state = "connecting";
    this.why = "";
    this.isClosed = false;
    this.frame = 0;
    this.open();
  }

  open() {
    if (this.isClosed) return;
    this.stream?.close();
    const stream = new EventSource(`/api/feeds/${encodeURIComponent(this.id)}/events`);
    this.stream = stream;
    this.lacksHistory = true;
    this.heard();
    stream.addEventListener("picture", (event) => this.take(JSON.parse(event.data)));
    stream.addEventListener("source", (event) => this.turnTo(JSON.parse(event.data)));
    stream.addEventListener("alive", () => this.heard());
    stream.onerror = () => {
      stream.close();
      this.retry();
    };
  }

  /** A sign of the server: starts the wait for the next one. */
  heard() {
    clearTimeout(this.silence);
    this.silence = setTimeout(() => this.retry(), SILENCE_MS);
  }

  async retry() {
    if (this.isClosed) return;
    clearTimeout(this.silence);
    clearTimeout(this.again);
    this.stream?.close();
    try {
      await get(`/api/feeds/${encodeURIComponent(this.id)}`);
      this.again = setTimeout(() => this.open(), RETRY_MS / 4);
    } catch (error) {
      if (error instanceof ApiError && error.status === 404) {
        this.turnTo({ state: "ended", why: "the server has ended it" });
        return;
      }
      this.turnTo({ state: "gone", why: error.message });
      this.again = setTimeout(() => this.retry(), RETRY_MS);
    }
  }

  take(picture) {
    this.heard();
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
    } catch {
      // The stream notices a server that is gone; without a history the charts begin now.
    }
  }

  turnTo({ state, why }) {
    this.heard();
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
    clearTimeout(this.silence);
    clearTimeout(this.again);
    cancelAnimationFrame(this.frame);
    this.stream?.close();
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
    this.isBusy = false;
  }

  async give(order) {
    this.waiting = { order };
    if (this.isBusy) return;
    this.isBusy = true;
    while (this.waiting !== null) {
      const next = this.waiting.order;
      this.waiting = null;
      await this.send(next);
    }
    this.isBusy = false;
  }
}
