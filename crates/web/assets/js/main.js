// The page: its head, the views and the way between them. Must not know what a view shows.

import { get, hasToken, LATE, patiently, takeToken } from "./api.js";
import { Clock } from "./clock.js";
import { h, options, setText } from "./dom.js";
import { DecisionsView } from "./decisions.js";
import { DeviceView, TenantView } from "./detail.js";
import { Feed, LatestOrder } from "./feed.js";
import * as format from "./format.js";
import * as link from "./link.js";
import * as orders from "./orders.js";
import { OverviewView } from "./overview.js";
import { applyTheme, theme } from "./palette.js";
import { PlaygroundView } from "./playground.js";
import { TimelineView } from "./timeline.js";

const VIEWS = {
  overview: OverviewView, timeline: TimelineView, decisions: DecisionsView, playground: PlaygroundView,
  tenant: TenantView, device: DeviceView,
};
const TABS = [["overview", "Overview"], ["timeline", "Timeline"], ["decisions", "Decisions"], ["playground", "Playground"]];
const STATES = { connecting: "connecting", live: "live", lost: "source lost", gone: "server gone", full: "server full", ended: "ended", finished: "at its end" };
const RETRY_MS = 1_000;

const find = (id) => document.getElementById(id);

class Page {
  constructor(catalogue) {
    this.catalogue = catalogue;
    this.latest = new Map();
    this.head = {
      source: find("source"), state: find("state"), policy: find("policy"), pause: find("pause"),
      time: find("time"), say: find("say"), alarm: find("alarm"),
    };
    this.clock = new Clock((order) => this.give(order));
    find("tabs").replaceChildren(...TABS.map(([view, title]) => h("li", {}, h("a", { href: link.fragment(view), "data-view": view, text: title }))));
    options(this.head.policy, catalogue.policies);
    this.head.policy.addEventListener("change", () => this.give(orders.policy(this.head.policy.value)));
    this.head.pause.addEventListener("click", () => this.give(this.feed.picture?.paused ? orders.resume() : orders.pause()));
    find("skip").addEventListener("click", () => find("view").focus());
    find("theme").addEventListener("click", () => this.turnTheme());
    find("copy").addEventListener("click", () => this.copyLink());
    find("help-open").addEventListener("click", () => find("help").showModal());
    find("help-close").addEventListener("click", () => find("help").close());
    document.addEventListener("keydown", (event) => this.pressed(event));
    window.addEventListener("hashchange", () => this.show());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.show());
    if (catalogue.main) this.feed = new Feed(catalogue.main, false, () => this.changed());
    else document.body.classList.add("without-source");
    this.show();
    this.changed();
  }

  /** What views may ask for. */
  context() {
    return {
      catalogue: this.catalogue,
      can: (kind) => hasToken() && orders.takes(this.feed?.picture, kind),
      give: (order) => this.give(order),
    };
  }

  show() {
    takeToken();
    const { view, names, parameters } = link.read();
    const shown = VIEWS[view] && (this.feed || view === "playground") ? view : this.feed ? "overview" : "playground";
    const asked = parameters.get("theme");
    if (asked === "light" || asked === "dark") applyTheme(asked);
    document.body.dataset.view = shown;
    this.view?.close();
    this.view = new VIEWS[shown](this.context(), names[0] ?? "", parameters);
    find("view").replaceChildren(this.view.element);
    for (const tab of find("tabs").querySelectorAll("a")) {
      if (tab.dataset.view === shown) tab.setAttribute("aria-current", "page");
      else tab.removeAttribute("aria-current");
    }
    const title = names[0] ?? TABS.find(([name]) => name === shown)?.[1] ?? shown;
    document.title = `${title} - Waykeeper`;
    if (this.feed) this.view.update(this.feed);
  }

  changed() {
    const { feed, head } = this;
    if (!feed) return;
    const { picture } = feed;
    setText(head.state, picture?.paused && feed.state === "live" ? "paused" : STATES[feed.state]);
    head.state.dataset.state = feed.state;
    const words = {
      lost: "The source is lost", gone: "The server does not answer", full: "The server is full", ended: "The source has ended",
    };
    const isWrong = feed.state in words;
    setText(head.alarm, isWrong ? `${words[feed.state]}${feed.why ? `: ${feed.why}` : ""}.${feed.state === "ended" ? "" : " The page reconnects by itself."}` : "");
    head.alarm.hidden = !isWrong;
    if (!picture) return;
    setText(head.source, picture.source.name);
    head.source.title = `${picture.source.kind}: ${picture.source.name}`;
    setText(head.time, `step ${picture.step}, ${format.seconds(picture.time_s)}`);
    this.showOrders(picture);
    this.view.update(feed);
  }

  showOrders(picture) {
    const { policy, pause } = this.head;
    if (![...policy.options].some((option) => option.value === picture.policy)) {
      policy.append(h("option", { value: picture.policy, text: picture.policy }));
    }
    if (document.activeElement !== policy) policy.value = picture.policy;
    policy.disabled = !(hasToken() && orders.takes(picture, "policy"));
    pause.disabled = !(hasToken() && orders.takes(picture, "pause"));
    setText(pause, picture.paused ? "Resume policy" : "Pause policy");
    this.clock.update(picture);
  }

  /** Sends an order to the main source; of several of one kind only the newest waits. */
  give(order) {
    const about = orders.about(order);
    if (!this.latest.has(about)) this.latest.set(about, new LatestOrder((next) => this.send(next)));
    return this.latest.get(about).give(order);
  }

  async send(order) {
    try {
      this.say(await patiently(this.feed.turn(order), () => this.say(LATE, Infinity)));
    } catch (error) {
      this.say(`not done: ${error.message}`);
    }
  }

  say(text, forMs = 8_000) {
    setText(this.head.say, text);
    clearTimeout(this.silence);
    if (forMs !== Infinity) this.silence = setTimeout(() => setText(this.head.say, ""), forMs);
  }

  turnTheme() {
    applyTheme(theme() === "dark" ? "light" : "dark");
    this.show();
    this.changed();
  }

  async copyLink() {
    try {
      await navigator.clipboard.writeText(location.href);
      this.say("the link is copied");
    } catch {
      this.say("the browser does not allow copying; the link is in the address bar");
    }
  }

  pressed(event) {
    const isTyping = event.target.closest?.("input, select, textarea, dialog");
    if (isTyping || event.ctrlKey || event.altKey || event.metaKey) return;
    const tab = TABS[Number(event.key) - 1];
    if (tab) location.hash = link.fragment(tab[0]);
    else if (event.key === "?") find("help").showModal();
    else if (event.key === "d") this.turnTheme();
    else if (event.key === "Escape") location.hash = link.fragment("overview");
    else return;
    event.preventDefault();
  }
}

/** Waits for the server's list of scenarios and policies, then makes the page. */
async function begin() {
  takeToken();
  applyTheme();
  const alarm = find("alarm");
  const cannot = (why) => {
    alarm.hidden = false;
    setText(alarm, `The page cannot start: ${why}.`);
  };
  for (;;) {
    try {
      const catalogue = await patiently(get("/api/catalogue"), () => cannot(LATE));
      alarm.hidden = true;
      return new Page(catalogue);
    } catch (error) {
      cannot(`${error.message}; it tries again`);
      await new Promise((done) => setTimeout(done, RETRY_MS));
    }
  }
}

begin();
