// One stream of events for all pages of a browser. Browsers open six connections to a server; with a stream for each page the
// seventh page would wait for ever. A page says over its port which feeds it has and whether it is shown.
// Must not know what the events say.

/** Without any sign of the server for this long, the stream counts as broken: the server sends one every 5 s. */
const SILENCE_MS = 15_000;
const RETRY_MS = 1_000;
/** A page asks for its feeds one by one; the stream is opened for all of them. */
const GATHER_MS = 20;
const KEPT = ["picture", "source"];

export class Hub {
  constructor() {
    /** By port: the feeds of this page, and whether it shows them. */
    this.pages = new Map();
    /** By feed: its latest events, for a page that comes later. */
    this.kept = new Map();
    this.path = "";
    this.stream = null;
    this.opening = null;
    this.failures = 0;
  }

  attach(port) {
    this.pages.set(port, new Map());
    port.onmessage = ({ data }) => this.take(port, data);
  }

  take(port, { what, id, isShown, lock }) {
    const feeds = this.pages.get(port) ?? new Map();
    this.pages.set(port, feeds);
    // The lock is free when the page has gone, also if its process was killed.
    if (what === "page" && lock) navigator.locks.request(lock, () => this.leave(port));
    else if (what === "leave") this.leave(port);
    else if (what === "end") feeds.delete(id);
    else if (what === "watch") {
      feeds.set(id, isShown);
      if (isShown) for (const [kind, data] of this.kept.get(id) ?? []) port.postMessage({ kind, id, data });
    }
    this.plan(GATHER_MS);
  }

  leave(port) {
    this.pages.delete(port);
    this.plan(GATHER_MS);
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
    for (const id of this.kept.keys()) if (wanted.get(id) !== true) this.kept.delete(id);
    const ids = (isShown) => [...wanted].filter((one) => one[1] === isShown).map(([id]) => encodeURIComponent(id)).sort().join(",");
    return wanted.size === 0 ? "" : `/api/events?seen=${ids(true)}&hidden=${ids(false)}`;
  }

  /** Opens the stream that the pages need. The one before is closed once the new one is there, so that no playground is without a page. */
  renew() {
    const path = this.wantedPath();
    if (path === this.path && (this.stream || this.opening)) return;
    this.opening?.close();
    this.opening = null;
    this.path = path;
    if (path === "") {
      this.stream?.close();
      this.stream = null;
      clearTimeout(this.silence);
      return;
    }
    const opening = new EventSource(path);
    this.opening = opening;
    this.heard();
    opening.onopen = () => {
      this.stream?.close();
      this.stream = opening;
      this.opening = null;
      this.heard();
      if (this.failures > 0) this.tell({ kind: "again" });
      this.failures = 0;
    };
    opening.onerror = () => this.lost();
    opening.addEventListener("alive", () => {
      this.heard();
      this.tell({ kind: "alive" });
    });
    for (const kind of [...KEPT, "ended"]) {
      opening.addEventListener(kind, (event) => this.pass(kind, event.lastEventId, event.data));
    }
  }

  pass(kind, id, data) {
    this.heard();
    if (KEPT.includes(kind)) {
      if (!this.kept.has(id)) this.kept.set(id, new Map());
      this.kept.get(id).set(kind, data);
    } else {
      this.kept.delete(id);
    }
    for (const [port, feeds] of this.pages) {
      if (!feeds.has(id)) continue;
      // A hidden page is told that a feed ends, and nothing else.
      if (kind === "ended") feeds.delete(id);
      if (kind === "ended" || feeds.get(id)) port.postMessage({ kind, id, data });
    }
    if (kind === "ended") this.plan(GATHER_MS);
  }

  tell(message) {
    for (const port of this.pages.keys()) port.postMessage(message);
  }

  /** A sign of the server: starts the wait for the next one. */
  heard() {
    clearTimeout(this.silence);
    this.silence = setTimeout(() => this.lost(), SILENCE_MS);
  }

  /** One stream that breaks is opened again at once; a server that then does not answer is gone. */
  lost() {
    clearTimeout(this.silence);
    this.stream?.close();
    this.opening?.close();
    this.stream = this.opening = null;
    this.failures += 1;
    if (this.wantedPath() === "") return;
    if (this.failures > 1) this.tell({ kind: "gone", why: "the server does not answer" });
    this.plan(this.failures > 1 ? RETRY_MS : RETRY_MS / 4);
  }
}
