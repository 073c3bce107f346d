// One stream of events for all pages of a browser. Browsers open six connections to a server; with a stream for each page the
// seventh page would wait for ever. A page says over its port which feeds it has and whether it is shown.
// Must not know what the events say.

import { EventStream } from "./stream.js";

const RETRY_MS = 1_000;
/** The server asks those that it refuses to come back after this time. */
const REFUSED_MS = 2_000;
/** A page asks for its feeds one by one; the stream is opened for all of them. */
const GATHER_MS = 20;
const KEPT = ["picture", "source"];

export class Hub {
  /** `lock` is free when the hub has ended: pages then need another one. */
  constructor(lock) {
    this.lock = lock;
    /** By port: the feeds of this page, and whether it shows them. */
    this.pages = new Map();
    /** By feed that some page shows: its latest events, for a page that comes later. */
    this.kept = new Map();
    this.path = "";
    this.token = null;
    this.stream = null;
    this.opening = null;
    this.failures = 0;
  }

  attach(port) {
    this.pages.set(port, new Map());
    port.onmessage = ({ data }) => this.take(port, data);
    if (this.lock) port.postMessage({ kind: "hub", lock: this.lock });
  }

  take(port, { what, id, isShown, lock, token }) {
    const feeds = this.pages.get(port) ?? new Map();
    this.pages.set(port, feeds);
    if (token) this.token = token;
    // The lock is free when the page has gone, also if its process was killed.
    if (what === "page" && lock) navigator.locks.request(lock, () => this.leave(port));
    else if (what === "leave") this.leave(port);
    else if (what === "end") feeds.delete(id);
    else if (what === "watch") {
      feeds.set(id, isShown);
      if (isShown) for (const [kind, data] of this.kept.get(id) ?? []) port.postMessage({ kind, id, data });
    }
    this.forget();
    this.plan(GATHER_MS);
  }

  leave(port) {
    this.pages.delete(port);
    this.forget();
    this.plan(GATHER_MS);
  }

  isShown(id) {
    return [...this.pages.values()].some((feeds) => feeds.get(id));
  }

  /** Events of a feed that no page shows are of the past: the feed may have ended when a page shows it again. */
  forget() {
    for (const id of this.kept.keys()) if (!this.isShown(id)) this.kept.delete(id);
  }

  /** Asks for what the pages have now, a little later. */
  plan(afterMs) {
    this.planned ??= setTimeout(() => {
      this.planned = undefined;
      this.renew();
    }, afterMs);
  }

  wantedPath() {
    const wanted = new Map();
    for (const feeds of this.pages.values()) {
      for (const [id, isShown] of feeds) wanted.set(id, isShown || wanted.get(id) === true);
    }
    const ids = (isShown) => [...wanted].filter((one) => one[1] === isShown).map(([id]) => encodeURIComponent(id)).sort().join(",");
    return wanted.size === 0 ? "" : `/api/events?seen=${ids(true)}&hidden=${ids(false)}`;
  }

  /**
   * Opens the stream that the pages need. The one before is closed once the new one is there, so that no playground is without a page.
   * For the same reason one that is being opened is not given up for a newer one: pages that come one after the other would
   * put off the stream of the first for as long as they come.
   */
  renew() {
    const path = this.wantedPath();
    if (path === "") {
      this.stream?.close();
      this.opening?.close();
      this.stream = this.opening = null;
      this.path = path;
      return;
    }
    if (this.opening || (path === this.path && this.stream)) return;
    this.path = path;
    const opening = new EventStream(path, this.token, {
      opened: () => {
        this.stream?.close();
        this.stream = opening;
        this.opening = null;
        if (this.failures > 0) this.tell({ kind: "again" });
        this.failures = 0;
        // What the pages have may have changed meanwhile.
        this.plan(GATHER_MS);
      },
      event: ({ event, id, data }) => {
        if (event === "alive") this.tell({ kind: "alive" });
        else this.pass(event, id, data);
      },
      failed: (why) => this.lost(why),
    });
    this.opening = opening;
  }

  pass(kind, id, data) {
    if (KEPT.includes(kind) && this.isShown(id)) {
      if (!this.kept.has(id)) this.kept.set(id, new Map());
      this.kept.get(id).set(kind, data);
    } else {
      this.kept.delete(id);
    }
    for (const [port, feeds] of this.pages) {
      if (!feeds.has(id)) continue;
      // A hidden page hears that a feed ends, and nothing else.
      if (kind === "ended") feeds.delete(id);
      if (kind === "ended" || feeds.get(id)) port.postMessage({ kind, id, data });
    }
    if (kind === "ended") this.plan(GATHER_MS);
  }

  tell(message) {
    for (const port of this.pages.keys()) port.postMessage(message);
  }

  /** One stream that breaks is opened again at once; a server that then does not answer is gone. `refusal` has the words of a full one. */
  lost(refusal) {
    this.stream?.close();
    this.opening?.close();
    this.stream = this.opening = null;
    this.failures += 1;
    if (this.wantedPath() === "") return;
    if (refusal) this.tell({ kind: "full", why: refusal });
    else if (this.failures > 1) this.tell({ kind: "gone", why: "the server does not answer" });
    this.plan(refusal ? REFUSED_MS : this.failures > 1 ? RETRY_MS : RETRY_MS / 4);
  }
}
