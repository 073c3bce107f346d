// The hub of all pages of a browser, in a worker that they share. Must not know what a hub does.

import { Hub } from "./hub.js";

const lock = `waykeeper-hub-${Math.random().toString(36).slice(2)}`;
const waiting = [];
let hub = null;

function begin(held) {
  hub = new Hub(held);
  for (const port of waiting.splice(0)) hub.attach(port);
}

// Held for as long as the worker lives. Plain HTTP from another machine has no locks.
if (navigator.locks) {
  navigator.locks.request(lock, () => {
    begin(lock);
    return new Promise(() => {});
  });
} else begin(null);

self.onconnect = ({ ports }) => {
  if (hub) hub.attach(ports[0]);
  else waiting.push(ports[0]);
};
