// Permanent links: what is seen, as the fragment of the address. `#/tenant/fio?theme=dark`. Must not know the views.

/** The address's view, its arguments and its parameters. */
export function read() {
  const [path, query = ""] = location.hash.replace(/^#/, "").split("?");
  const [view = "", ...names] = path.replace(/^\//, "").split("/").map(decodeURIComponent);
  return { view: view || "overview", names, parameters: new URLSearchParams(query) };
}

/** The fragment of a view. Parameters without a value are left out. */
export function fragment(view, names = [], parameters = {}) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(parameters)) {
    if (value !== undefined && value !== null && value !== "") query.set(key, value);
  }
  const path = [view === "overview" ? "" : view, ...names].map(encodeURIComponent).join("/");
  const text = query.toString().replaceAll("%2F", "/").replaceAll("%2C", ",").replaceAll("%3A", ":");
  return `#/${path}${text ? `?${text}` : ""}`;
}

/** Changes parameters of the address without a step in the browser's history. */
export function change(parameters) {
  const { view, names, parameters: before } = read();
  const all = { ...Object.fromEntries(before), ...parameters };
  const next = fragment(view, names, all);
  if (next !== location.hash) history.replaceState(null, "", next);
}
