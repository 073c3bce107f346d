// Requests to the server, and the token that allows to turn knobs. Must not know what a turn does.

const KEY = "waykeeper-token";

/** Takes the token out of the address, so that a copied link does not carry it. Other tabs of the browser have it too: a link works there. */
export function takeToken() {
  const fragment = location.hash.replace(/^#/, "");
  const found = /(?:^|[&?])token=([0-9A-Za-z_-]+)/.exec(fragment);
  if (!found) return;
  localStorage.setItem(KEY, found[1]);
  const rest = fragment.replace(found[0], "").replace(/^&/, "");
  history.replaceState(null, "", `${location.pathname}#${rest || "/"}`);
}

export function hasToken() {
  return localStorage.getItem(KEY) !== null;
}

/** An answer that is not a success, with the server's one line. */
export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function request(method, path, body) {
  const headers = {};
  const token = localStorage.getItem(KEY);
  if (token !== null) headers.Authorization = `Bearer ${token}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch {
    throw new ApiError(0, "the server does not answer");
  }
  const answer = await response.text();
  if (!response.ok) {
    if (response.status === 401) localStorage.removeItem(KEY);
    throw new ApiError(response.status, answer.trim() || `the server answered ${response.status}`);
  }
  return answer === "" ? null : JSON.parse(answer);
}

export const get = (path) => request("GET", path);
export const post = (path, body) => request("POST", path, body);
export const remove = (path) => request("DELETE", path);
