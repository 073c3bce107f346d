// Requests to the server, and the token that allows to turn knobs. Must not know what a turn does.

const KEY = "waykeeper-token";
/** A person expects an answer within this time. */
const LATE_MS = 3_000;
/** No answer comes after this time: the server waits for a daemon for at most 120 s. A connection may break without a sign. */
const LOST_MS = 150_000;
/** What is shown when an answer is late. */
export const LATE = "no answer from the server for 3 s; the page waits for it";

/** Takes the token out of the address, so that a copied link does not carry it. Other tabs of the browser have it too: a link works there. */
export function takeToken() {
  const fragment = location.hash.replace(/^#/, "");
  const found = /(?:^|[&?])token=([0-9A-Za-z_-]+)/.exec(fragment);
  if (!found) return;
  localStorage.setItem(KEY, found[1]);
  const rest = fragment.replace(found[0], "").replace(/^&/, "");
  history.replaceState(null, "", `${location.pathname}#${rest || "/"}`);
}

export const token = () => localStorage.getItem(KEY);
export const hasToken = () => token() !== null;

/** An answer that is not a success, with the server's one line. */
export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** Waits for an answer, and calls `late` if it takes longer than a person expects. */
export async function patiently(answer, late) {
  const timer = setTimeout(late, LATE_MS);
  try {
    return await answer;
  } finally {
    clearTimeout(timer);
  }
}

async function request(method, path, body) {
  const headers = {};
  if (hasToken()) headers.Authorization = `Bearer ${token()}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response, answer;
  try {
    response = await fetch(path, {
      method, headers, cache: "no-store", signal: AbortSignal.timeout(LOST_MS), body: body === undefined ? undefined : JSON.stringify(body),
    });
    answer = await response.text();
  } catch {
    throw new ApiError(0, "the server does not answer");
  }
  if (!response.ok) {
    if (response.status === 401) localStorage.removeItem(KEY);
    throw new ApiError(response.status, answer.trim() || `the server answered ${response.status}`);
  }
  return answer === "" ? null : JSON.parse(answer);
}

export const get = (path) => request("GET", path);
export const post = (path, body) => request("POST", path, body);
export const remove = (path) => request("DELETE", path);
