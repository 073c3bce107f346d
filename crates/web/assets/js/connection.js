// The page's way to the events of its feeds: the hub that all pages of the browser share, or one of its own where the browser has
// no shared workers. A hidden page gets no events. Must not know what the events say.

import { Hub } from "./hub.js";

/** Pages of another version of the program have another hub; the number changes with the messages between page and hub. */
const NAME = "waykeeper-hub-1";
/** A hub that says nothing for this long has ended; it passes on the server's sign of life, which comes every 5 s. */
const SILENCE_MS = 30_000;
const LOOK_MS = 5_000;

/** By feed: who takes its events. */
const takers = new Map();
let port = null;
let lastHeard = 0;
let lock = null;
let hasWorkers = "SharedWorker" in globalThis;

const tell = (message) => port?.postMessage(message);
const watch = (id) => tell({ what: "watch", id, isShown: !document.hidden });

function connect() {
  port?.close();
  lastHeard = Date.now();
  if (hasWorkers) {
    const worker = new SharedWorker("/js/hub_worker.js", { type: "module", name: NAME });
    worker.onerror = () => {
      // Some browsers have shared workers but no modules in them.
      hasWorkers = false;
      connect();
    };
    port = worker.port;
  } else {
    const { port1, port2 } = new MessageChannel();
    new Hub().attach(port2);
    port = port1;
  }
  port.onmessage = ({ data }) => take(data);
  if (lock) tell({ what: "page", lock });
  for (const id of takers.keys()) watch(id);
}

function take({ kind, id, data, why }) {
  lastHeard = Date.now();
  if (kind === "alive") return;
  if (id === undefined) for (const taker of takers.values()) taker(kind, { why });
  else takers.get(id)?.(kind, JSON.parse(data));
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
  addEventListener("pageshow", (event) => event.persisted && connect());
  document.addEventListener("visibilitychange", () => {
    for (const [id, taker] of takers) {
      watch(id);
      if (!document.hidden) taker("again", {});
    }
  });
  setInterval(() => {
    if (takers.size > 0 && !document.hidden && Date.now() - lastHeard > SILENCE_MS) connect();
  }, LOOK_MS);
}

/**
 * Passes the events of a feed to `taker(kind, data)`: those of the server (`picture`, `source`), `ended` if there is no such feed any
 * more, `gone` if the server does not answer, `again` if events may have been missed.
 */
export function follow(id, taker) {
  takers.set(id, taker);
  if (port === null) begin();
  else watch(id);
}

export function unfollow(id) {
  if (takers.delete(id)) tell({ what: "end", id });
}
