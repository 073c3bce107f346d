// Elements: short ways to make and change them. Must not know what is shown.

const SVG = "http://www.w3.org/2000/svg";

/** Sets attributes; `on...` are listeners, `class` and `text` are the usual properties. */
function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "text") element.textContent = value;
    else if (value === null || value === undefined || value === false) element.removeAttribute(name);
    else element.setAttribute(name, value === true ? "" : value);
  }
  return element;
}

/** An HTML element with attributes and children. */
export function h(tag, attributes = {}, ...children) {
  const element = set(document.createElement(tag), attributes);
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** An SVG element with attributes and children. */
export function s(tag, attributes = {}, ...children) {
  const element = set(document.createElementNS(SVG, tag), attributes);
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** Changes an element's text only if it differs: unchanged text is not announced again and keeps a selection. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Changes attributes only where they differ. */
export function setAttributes(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) element.removeAttribute(name);
    else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
  }
}

/** A titled section of a view. `tools` are buttons beside its title. */
export function card(title, options = {}, ...children) {
  const { id, tools = [], wide = false, note } = options;
  const heading = h("h2", { id: id && `${id}-title`, text: title });
  return h(
    "section",
    { class: wide ? "card wide" : "card", id, "aria-labelledby": id && `${id}-title` },
    h("header", {}, heading, note && h("span", { class: "note", text: note }), h("div", { class: "tools" }, ...tools)),
    ...children,
  );
}

/** A small button. */
export function button(text, onclick, attributes = {}) {
  return h("button", { type: "button", onclick, text, ...attributes });
}

/** Options of a list; `[value, label]` or a plain value. A chosen value that is not among them is added: the server judges it. */
export function options(select, values, chosen) {
  const pairs = values.map((value) => (Array.isArray(value) ? value : [value, value]));
  if (chosen !== undefined && !pairs.some(([key]) => key === chosen)) pairs.push([chosen, chosen]);
  select.replaceChildren(...pairs.map(([key, label]) => h("option", { value: key, text: label })));
  if (chosen !== undefined) select.value = chosen;
  return select;
}
