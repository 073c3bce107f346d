// Decisions with their reasons: the list in a card, and the view of all that are kept. Must not know the policies.

import { button, card, h, setText } from "./dom.js";
import { fileName, saveCsv } from "./export.js";
import * as format from "./format.js";

/** A number that caused a decision, as text. */
function causeText({ what, value, limit, limit_value: limitValue }) {
  const number = (known) => (typeof known === "number" ? String(Number(known.toPrecision(4))) : format.ABSENT);
  return limit ? `${what} ${number(value)}, ${limit} ${number(limitValue)}` : `${what} ${number(value)}`;
}

/** What was decided, in one line. */
export function decisionText(decision) {
  const causes = (decision.causes ?? []).map(causeText).join("; ");
  const about = decision.tenant ? `${decision.tenant}: ` : "";
  return causes ? `${about}${decision.text} (${causes})` : `${about}${decision.text}`;
}

const keyOf = (decision) => `${decision.at}/${decision.policy}/${decision.action}/${decision.tenant}/${decision.text}`;

/** The decisions of a picture, the newest first. */
export function newestFirst(picture) {
  return [...picture.decisions].reverse();
}

/** The last decisions, the newest first. A screen reader announces new ones. */
export class DecisionList {
  constructor({ most = 8, about = null, label = "Last decisions", live = true } = {}) {
    this.most = most;
    this.about = about;
    this.list = h("ol", { class: "decisions", "aria-live": live ? "polite" : null, "aria-relevant": live ? "additions" : null,
      "aria-label": label });
    this.none = h("p", { class: "none", text: "No decision yet." });
    this.element = h("div", {}, this.none, this.list);
    this.shown = new Map();
  }

  update(picture) {
    const concerns = (decision) => this.about === null || decision.tenant === this.about || decision.text.includes(this.about);
    const wanted = newestFirst(picture).filter(concerns).slice(0, this.most);
    this.none.hidden = wanted.length > 0;
    const kept = new Set(wanted.map(keyOf));
    for (const [key, element] of this.shown) {
      if (!kept.has(key)) {
        element.remove();
        this.shown.delete(key);
      }
    }
    let before = null;
    for (const decision of wanted) {
      const key = keyOf(decision);
      let element = this.shown.get(key);
      if (element === undefined) {
        element = h("li", {},
          h("span", { class: "step", text: `step ${decision.step}` }),
          h("span", { class: "action", text: decision.action }),
          h("span", { class: "reason", text: decisionText(decision) }));
        this.shown.set(key, element);
      }
      const place = before === null ? this.list.firstChild : before.nextSibling;
      if (place !== element) this.list.insertBefore(element, place);
      before = element;
    }
  }
}

/** The view of all decisions that the server keeps, with a filter. */
export class DecisionsView {
  constructor() {
    this.filter = h("input", { type: "search", id: "decision-filter", oninput: () => this.update(this.feed), autocomplete: "off" });
    this.body = h("tbody");
    this.count = h("p", { class: "note", role: "status" });
    const heads = ["step", "policy", "action", "decision and reason"].map((title) => h("th", { scope: "col", text: title }));
    const table = h("table", {}, h("caption", { class: "unseen", text: "Decisions" }), h("thead", {}, h("tr", {}, ...heads)), this.body);
    this.problems = h("ul", { class: "problems" });
    this.element = h("div", { class: "view" },
      card("Decisions", { id: "decisions", wide: true, tools: [button("CSV", () => this.save())] },
        h("div", { class: "field" }, h("label", { for: "decision-filter", text: "Show only" }), this.filter), this.count,
        h("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Decisions" }, table)),
      card("Problems", { id: "problems", wide: true }, this.problems));
  }

  rows() {
    const words = this.filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const has = (decision) => {
      const text = `${decision.policy} ${decision.action} ${decisionText(decision)}`.toLowerCase();
      return words.every((word) => text.includes(word));
    };
    return newestFirst(this.feed.picture).filter(has);
  }

  update(feed) {
    this.feed = feed;
    if (!feed?.picture) return;
    const rows = this.rows();
    const shape = rows.map(keyOf).join("\n");
    if (shape !== this.shape) {
      this.shape = shape;
      this.body.replaceChildren(...rows.map((decision) => h("tr", {},
        h("td", { text: decision.step }), h("td", { text: format.text(decision.policy) }),
        h("td", { text: decision.action }), h("td", { class: "long", text: decisionText(decision) }))));
    }
    const all = feed.picture.decisions.length;
    setText(this.count, `${rows.length} of the last ${all} decisions; knobs were turned ${feed.picture.knobs_turned} times`);
    const problems = feed.picture.problems;
    const texts = problems.map((problem) => problem.text);
    if (texts.join("\n") !== this.problemTexts) {
      this.problemTexts = texts.join("\n");
      this.problems.replaceChildren(...(texts.length > 0 ? texts : ["none"]).map((text) => h("li", { text })));
    }
  }

  save() {
    const rows = this.rows().map((decision) => [decision.step, decision.at, decision.policy, decision.action, decisionText(decision)]);
    saveCsv(fileName(["decisions"], "csv"), [["step", "at", "policy", "action", "decision"], ...rows]);
  }

  close() {}
}
