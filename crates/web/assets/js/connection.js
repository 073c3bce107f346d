// The page's way to the events of its feeds: the hub that all pages of the browser share, or one of its own where the browser has
// no shared workers. A hidden page gets no events. Must not know what the events say.
//
// The hub is in a shared worker, not in a page that leads the others: no page has to take over when another is closed, put to sleep
// or slowed down in the background, and a page that is loaded finds the latest picture there.

import { token } from "./api.js";
import { Hub } from "./hub.js";

/** Pages of another version of the program have another hub; the number changes with the messages between page and hub. */
const NAME = "waykeeper-hub-2";
/** A hub that says nothing for this long has ended; it passes on the server's sign of life, which comes every 5 s. */
const SILENCE_MS = 30_000;
const LOOK_MS = 5_000;
/** A worker may fail once because the server is full or away; one that fails again is not for this browser. */
const WORKERS_MOST = 2;
const RETRY_MS = 1_000;

/** By feed: who takes its events, and whether the feed has to be kept while the page is hidden. */
const takers = new Map();
let port = null;
let lastHeard = 0;
let lock = null;
let workersLeft = "SharedWorker" in globalThis ? WORKERS_MOST : 0;

const tell = (message) => port?.postMessage({ ...message, token: token() });
const all = (kind, data) => {
  for (const { taker } of takers.values()) taker(kind, data);
};

/**
 * Asks for what the page shows. A hidden page asks only for what ends without it, and for nothing if it has a stream of its own: these
 * would take the few connections that the pages in front need.
 */
function watch(id) {
  const isKept = takers.get(id).isKept && workersLeft > 0;
  if (document.hidden && !isKept) tell({ what: "end", id });
  else tell({ what: "watch", id, isShown: !document.hidden });
}

function connect() {
  port?.close();
  lastHeard = Date.now();
  if (workersLeft > 0) {
    const worker = new SharedWorker("/js/hub_worker.js", { type: "module", name: NAME });
    worker.onerror = () => {
      // Some browsers have shared workers but no modules in them.
      workersLeft -= 1;
      if (workersLeft > 0) setTimeout(connect, RETRY_MS);
      else connect();
    };
    port = worker.port;
  } else {
    const { port1, port2 } = new MessageChannel();
    new Hub(null).attach(port2);
    port = port1;
  }
  const now = port;
  port.onmessage = ({ data }) => take(data, now);
  if (lock) tell({ what: "page", lock });
  for (const id of takers.keys()) watch(id);
}

/** After a hub has ended: another one takes over, and what came meanwhile is in the history. */
function reconnect() {
  connect();
  all("again", {});
}

function take({ kind, id, data, why, lock: ofHub }, from) {
  lastHeard = Date.now();
  if (kind === "hub") navigator.locks?.request(ofHub, { mode: "shared" }, () => from === port && reconnect());
  else if (kind === "alive") return;
  else if (id === undefined) all(kind, { why });
  else takers.get(id)?.taker(kind, JSON.parse(data));
}

function begin() {
  connect();
  // Held for as long as the page lives. Without locks (plain HTTP from another machine) the page says when it leaves.
  const name = `waykeeper-page-${Math.random().toString(36).slice(2)}`;
  navigator.locks?.request(name, () => {
    lock = name;
    tell({ what: "page", lock });
    return new Promise(() => {});
  });
  addEventListener("pagehide", () => tell({ what: "leave" }));
  addEventListener("pageshow", (event) => event.persisted && reconnect());
  document.addEventListener("visibilitychange", () => {
    lastHeard = Date.now();
    for (const [id, { taker }] of takers) {
      watch(id);
      if (!document.hidden) taker("again", {});
    }
  });
  setInterval(() => {
    if (takers.size > 0 && !document.hidden && Date.now() - lastHeard > SILENCE_MS) reconnect();
  }, LOOK_MS);
}

/**
 * Passes the events of a feed to `taker(kind, data)`: those of the server (`picture`, `source`), `ended` if there is no such feed any
 * more, `gone` if the server does not answer, `full` if it refuses, `again` if events may have been missed. A feed with `isKept` would
 * end without a page; it is kept while the page is hidden.
 */
export function follow(id, isKept, taker) {
  takers.set(id, { taker, isKept });
  if (port === null) begin();
  else watch(id);
}

export function unfollow(id) {
  if (takers.delete(id)) tell({ what: "end", id });
}
