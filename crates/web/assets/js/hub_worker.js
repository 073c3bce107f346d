// The hub of all pages of a browser, in a worker that they share. Must not know what a hub does.

import { Hub } from "./hub.js";

const hub = new Hub();
self.onconnect = ({ ports }) => hub.attach(ports[0]);
