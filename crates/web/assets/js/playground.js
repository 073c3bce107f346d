// The playground: virtual servers of the user's own. Drag ways, switch DCA, change the load; a second server runs under
// another policy on the same traffic. What is set is in the address, so a link brings it back.
// Must not know how a server is simulated.

import { hasToken, LATE, patiently, post, remove } from "./api.js";
import { button, card, h, options, setText } from "./dom.js";
import { DecisionList } from "./decisions.js";
import { Feed, LatestOrder } from "./feed.js";
import * as format from "./format.js";
import * as link from "./link.js";
import * as orders from "./orders.js";
import { Hurts, wayMapCard } from "./overview.js";
import { swatch, DeviceTable, TenantTable } from "./tables.js";
import { colour } from "./palette.js";
import { WayMap } from "./way_map.js";

const SPEEDS = ["0.25", "0.5", "1", "2", "5", "10"];
/** Highest factor on a slider: a NIC takes more, but its line rate is near. */
const LOAD_SHOWN = 2;
const NONE = "none";
/** Time until a server that could not be started is tried again. */
const RETRY_MS = 2_000;
const LEFT = "waykeeper-left-playgrounds";
const STATES = { connecting: "starting", live: "runs", lost: "stopped", gone: "the server does not answer", full: "the server is full", ended: "has ended" };

/** Settings of the address: `name:value,name:value`. */
function readPairs(text) {
  const pairs = (text ?? "").split(",").map((pair) => pair.split(":"));
  return new Map(pairs.filter((pair) => pair.length === 2 && pair[0] !== ""));
}

const writePairs = (pairs) => [...pairs].map(([name, value]) => `${name}:${value}`).join(",");

/**
 * The servers that this tab has left, by what was set on them. The server keeps one for a few seconds, so a page that is loaded again,
 * and a view that is opened again, go on with theirs.
 */
const left = {
  read: () => JSON.parse(sessionStorage.getItem(LEFT) ?? "{}"),
  put(settings, id) {
    sessionStorage.setItem(LEFT, JSON.stringify({ ...left.read(), [settings]: id }));
  },
  take(settings) {
    const { [settings]: id, ...others } = left.read();
    sessionStorage.setItem(LEFT, JSON.stringify(others));
    return id;
  },
};

/** What the user has set on the first server, as in the address. */
class Wishes {
  constructor(parameters) {
    this.masks = readPairs(parameters.get("masks"));
    this.ports = readPairs(parameters.get("ports"));
    this.loads = readPairs(parameters.get("load"));
    this.dca = parameters.get("dca") ?? "";
  }

  clear() {
    this.clearKnobs();
    this.loads.clear();
  }

  /** A policy that takes over sets the knobs itself. */
  clearKnobs() {
    this.masks.clear();
    this.ports.clear();
    this.dca = "";
  }

  /** The orders that bring a new server there. */
  orders() {
    return [
      ...(this.dca ? [orders.dcaWays(this.dca)] : []),
      ...[...this.masks].map(([name, ways]) => orders.mask(name, ways)),
      ...[...this.ports].map(([device, on]) => orders.dca(device, on === "on")),
      ...[...this.loads].map(([name, factor]) => orders.load(name, Number(factor))),
    ];
  }

  note(order) {
    if (order.do === "mask") this.masks.set(order.tenant, order.mask);
    else if (order.do === "dca-ways") this.dca = order.mask;
    else if (order.do === "dca") this.ports.set(order.device, order.on ? "on" : "off");
    else if (order.do === "load") this.loads.set(order.device, String(order.factor));
    else if (order.do === "policy") this.clearKnobs();
    else return;
    this.write();
  }

  settings() {
    return { masks: writePairs(this.masks), ports: writePairs(this.ports), load: writePairs(this.loads), dca: this.dca };
  }

  write() {
    link.change(this.settings());
  }
}

/** One virtual server with its way map, devices and load. */
class Panel {
  constructor(view, letter, policy) {
    Object.assign(this, { view, letter, policy });
    this.say = h("p", { class: "note", role: "status" });
    this.state = h("span", { class: "note" });
    this.latest = new Map();
    this.map = new WayMap({
      label: `Way map of server ${letter}`,
      onMask: (name, ways) => this.give(orders.mask(name, ways)),
      onDcaWays: (ways) => this.give(orders.dcaWays(ways)),
      can: (kind) => hasToken() && orders.takes(this.feed?.picture, kind),
    });
    this.devices = new DeviceTable({
      onDca: (device, on) => this.give(orders.dca(device.devices[0], on)),
      can: () => hasToken() && orders.takes(this.feed?.picture, "dca"),
    }, `Devices of server ${letter}`, false);
    this.loads = h("div", { class: "loads" });
    this.hurts = new Hurts();
    this.decisions = new DecisionList({ most: 4, label: `Last decisions on server ${letter}`, live: letter === "A" });
    this.chooser = h("select", { id: `policy-${letter}`, onchange: () => this.view.policyChosen(this, this.chooser.value) });
    options(this.chooser, view.policies(), policy);
    this.element = h("section", { class: "panel", "aria-label": `Server ${letter}` },
      h("header", { class: "panel-head" }, h("h2", { text: `Server ${letter}` }),
        h("div", { class: "field" }, h("label", { for: `policy-${letter}`, text: "Policy" }), this.chooser), this.state),
      this.say,
      wayMapCard(this.map, `way-map-${letter}`, `LLC ways of server ${letter}`),
      card(`Devices and load of server ${letter}`, { id: `devices-${letter}`, wide: true }, this.devices.element, this.loads),
      card(`Polluters and victims on server ${letter}`, { id: `hurts-${letter}`, wide: true }, this.hurts.element),
      card(`Last decisions on server ${letter}`, { id: `decisions-${letter}`, wide: true }, this.decisions.element));
  }

  /** Goes on with the server that the tab has left with these settings, or starts one. */
  start(parameters, wishes) {
    this.parameters = parameters;
    this.wishes = wishes;
    const id = left.take(this.settings());
    if (id === undefined) this.startLater(0);
    else this.follow(id, []);
  }

  settings() {
    return JSON.stringify([this.letter, this.parameters, this.policy, this.wishes?.settings()]);
  }

  follow(id, waiting) {
    this.waiting = waiting;
    this.begun = Date.now();
    this.feed = new Feed(id, true, () => this.changed());
  }

  async startAnew() {
    if (this.isClosed) return;
    try {
      const started = post("/api/playgrounds", { ...this.parameters, policy: this.policy });
      const { id } = await patiently(started, () => setText(this.say, LATE));
      if (this.isClosed) {
        remove(`/api/playgrounds/${id}`).catch(() => {});
        return;
      }
      setText(this.say, "");
      this.follow(id, this.wishes?.orders() ?? []);
    } catch (error) {
      // No answer, or no room: both pass.
      const isLater = error.status === 0 || error.status === 503;
      setText(this.say, `cannot start a server: ${error.message}${isLater ? "; the page tries again by itself" : ""}`);
      if (isLater) this.startLater(RETRY_MS);
    }
  }

  /** Starts a server after this time, or when the page is shown. */
  startLater(afterMs) {
    this.later = setTimeout(() => {
      if (document.hidden) document.addEventListener("visibilitychange", () => this.startAnew(), { once: true });
      else this.startAnew();
    }, afterMs);
  }

  async changed() {
    const { feed } = this;
    if (feed.state === "ended") {
      // The page was hidden while others needed the place, or the machine slept. One that ends at once is not hurried.
      setText(this.state, STATES.ended);
      feed.close();
      this.feed = null;
      this.startLater(Date.now() - this.begun < RETRY_MS ? RETRY_MS : 0);
      return;
    }
    setText(this.state, feed.picture && feed.state === "live"
      ? `${STATES.live}, ${format.seconds(feed.picture.time_s)} of the server's clock`
      : `${STATES[feed.state]}${feed.why ? `: ${feed.why}` : ""}`);
    if (feed.picture) this.show(feed);
    const waiting = this.waiting ?? [];
    this.waiting = [];
    if (feed.picture === null) this.waiting = waiting;
    else for (const order of waiting) await this.give(order);
  }

  show(feed) {
    const { picture, ring } = feed;
    this.map.update(picture);
    this.devices.update(picture, ring);
    this.hurts.update(picture);
    this.decisions.update(picture);
    this.showLoads(picture);
    if (picture.policy !== this.chooser.value && document.activeElement !== this.chooser) this.chooser.value = picture.policy;
    this.view.compare();
  }

  /** A slider per device whose load can be changed. */
  showLoads(picture) {
    const { abilities, loads } = picture.source;
    const mosts = Object.entries(abilities.loads ?? {});
    const shape = JSON.stringify(mosts);
    if (shape === this.loadShape) return;
    this.loadShape = shape;
    const now = new Map(loads ?? []);
    this.loads.replaceChildren(...mosts.map(([name, most]) => {
      const id = `load-${this.letter}-${name}`;
      const share = Math.round(100 * (now.get(name) ?? 1));
      const shown = h("output", { for: id, text: `${share} %` });
      const slider = h("input", { type: "range", id, min: 0, max: 100 * Math.min(most, LOAD_SHOWN), step: 5, value: share, oninput: () => {
        shown.textContent = `${slider.value} %`;
        this.give(orders.load(name, Number(slider.value) / 100));
      } });
      return h("div", { class: "field" }, h("label", { for: id, text: `Load of ${name}` }), slider, shown);
    }));
  }

  /** Sends an order; of several about one knob only the newest waits. */
  give(order) {
    const about = orders.about(order);
    if (!this.latest.has(about)) this.latest.set(about, new LatestOrder((next) => this.send(next)));
    return this.latest.get(about).give(order);
  }

  async send(order) {
    try {
      setText(this.say, await patiently(this.feed.turn(order), () => setText(this.say, LATE)));
      this.wishes?.note(order);
    } catch (error) {
      setText(this.say, `not done: ${error.message}`);
    }
  }

  /** Remembers its server, in case that the page comes back. */
  keep() {
    if (this.feed) left.put(this.settings(), this.feed.id);
  }

  /** Ends its server, which will not be wanted again. */
  end() {
    if (this.feed) remove(`/api/playgrounds/${this.feed.id}`).catch(() => {});
    this.close();
  }

  close() {
    this.isClosed = true;
    clearTimeout(this.later);
    this.feed?.close();
    this.feed = null;
    this.map.close();
  }
}

/** The two servers' tenants side by side. */
class Comparison {
  constructor() {
    this.body = h("tbody");
    const heads = ["name", "LLC hits A", "LLC hits B", "IPC A", "IPC B", "IPC A/B"].map((title) => h("th", { scope: "col", text: title }));
    const table = h("table", {}, h("caption", { class: "unseen", text: "Servers A and B" }), h("thead", {}, h("tr", {}, ...heads)), this.body);
    this.traffic = h("p", { class: "note" });
    this.element = card("A against B", { id: "comparison", wide: true }, this.traffic,
      h("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Servers A and B" }, table));
  }

  update(a, b) {
    const loads = [a, b].map((picture) => JSON.stringify(picture.source.loads ?? []));
    setText(this.traffic, loads[0] === loads[1] ? "Both have the same traffic." : "Their loads differ.");
    const other = new Map(b.tenants.map((tenant) => [tenant.name, tenant]));
    const shape = JSON.stringify(a.tenants.map((tenant) => tenant.name)) + colour(0);
    if (shape !== this.shape) {
      this.shape = shape;
      this.cells = new Map();
      this.body.replaceChildren(...a.tenants.map((tenant) => {
        const cells = Array.from({ length: 5 }, () => h("td"));
        this.cells.set(tenant.name, cells);
        return h("tr", {}, h("th", { scope: "row" }, swatch(tenant), tenant.name), ...cells);
      }));
    }
    for (const tenant of a.tenants) {
      const twin = other.get(tenant.name) ?? {};
      const ratio = tenant.ipc && twin.ipc ? tenant.ipc / twin.ipc : undefined;
      const texts = [format.percent(tenant.llc_hit_ratio), format.percent(twin.llc_hit_ratio), format.plain(tenant.ipc),
        format.plain(twin.ipc), format.plain(ratio)];
      this.cells.get(tenant.name).forEach((cell, index) => setText(cell, texts[index]));
    }
  }
}

export class PlaygroundView {
  constructor(context, _, parameters) {
    this.catalogue = context.catalogue;
    this.parameters = parameters;
    this.wishes = new Wishes(parameters);
    this.panels = [];
    const scenarios = this.catalogue.scenarios.map(({ name, about }) => [name, about ? `${name}: ${about}` : name]);
    this.scenario = options(h("select", { id: "scenario" }), scenarios, parameters.get("scenario") ?? this.catalogue.scenarios[0]?.name);
    this.policy = options(h("select", { id: "first" }), this.policies(), parameters.get("policy") ?? "default");
    this.against = options(h("select", { id: "against" }), [[NONE, "no second server"], ...this.policies()], parameters.get("against") ?? NONE);
    this.seed = h("input", { id: "seed", type: "number", min: 0, max: 4294967295, value: parameters.get("seed") ?? "1" });
    this.speed = options(h("select", { id: "speed" }), SPEEDS.map((value) => [value, `x${value}`]), parameters.get("speed") ?? "1");
    const field = (id, text, control) => h("div", { class: "field" }, h("label", { for: id, text }), control);
    this.say = h("p", { class: "note", role: "status" });
    this.form = h("form", { class: "fields", onsubmit: (event) => this.submitted(event) },
      field("scenario", "Scenario", this.scenario), field("first", "Server A", this.policy),
      field("against", "Server B", this.against), field("seed", "Seed", this.seed), field("speed", "Speed", this.speed),
      h("button", { type: "submit", class: "primary", text: "Start" }));
    this.hint = h("p", { class: "note", text:
      "Drag a bar to move its ways, drag its edge to change their number. By keyboard: arrows move, + and - change the number." });
    this.frame = h("div", { class: "panels" });
    this.tenants = new TenantTable("Tenants of server A", false);
    this.comparison = new Comparison();
    this.below = h("div", { class: "view" });
    this.element = h("div", { class: "view" },
      h("section", { class: "card wide", "aria-label": "Virtual servers" }, this.form, this.hint, this.say), this.frame, this.below);
    this.keep = () => this.panels.forEach((panel) => panel.keep());
    addEventListener("pagehide", this.keep);
    if (hasToken()) this.start();
    else setText(this.say, "To start a server, open the address with the token that `waykeeper serve` printed.");
  }

  policies() {
    return this.catalogue.policies;
  }

  submitted(event) {
    event.preventDefault();
    this.wishes.clear();
    this.start();
  }

  settings() {
    return { scenario: this.scenario.value, seed: Number(this.seed.value), speed: Number(this.speed.value) };
  }

  start() {
    const { scenario, seed, speed } = this.settings();
    const against = this.against.value === NONE ? "" : this.against.value;
    link.change({ scenario, policy: this.policy.value, against, seed, speed });
    this.wishes.write();
    for (const panel of this.panels) panel.end();
    this.panels = [new Panel(this, "A", this.policy.value), ...(against ? [new Panel(this, "B", against)] : [])];
    this.frame.replaceChildren(...this.panels.map((panel) => panel.element));
    this.frame.classList.toggle("two", this.panels.length === 2);
    const tenants = card("Tenants of server A", { id: "tenants", wide: true }, this.tenants.element);
    this.below.replaceChildren(...(against ? [this.comparison.element] : []), tenants);
    for (const panel of this.panels) panel.start({ scenario, seed, speed }, panel.letter === "A" ? this.wishes : null);
  }

  policyChosen(panel, name) {
    panel.policy = name;
    link.change({ [panel.letter === "A" ? "policy" : "against"]: name });
    panel.give(orders.policy(name));
  }

  compare() {
    const [a, b] = this.panels.map((panel) => panel.feed);
    if (a?.picture) this.tenants.update(a.picture, a.ring);
    if (a?.picture && b?.picture) this.comparison.update(a.picture, b.picture);
  }

  update() {}

  close() {
    removeEventListener("pagehide", this.keep);
    this.keep();
    for (const panel of this.panels) panel.close();
  }
}
