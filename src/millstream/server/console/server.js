// Requests to the server, with the token. Error responses are thrown as `ServerError`s.

const TOKEN_KEY = "millstream-token";
const RETRY_FIRST_MS = 1000;
const RETRY_MAX_MS = 10_000;
// The server sends changes every second, or a keepalive every 15 seconds.
const SILENCE_MS = 25_000;

/** An error response, with the code and message of the server. */
export class ServerError extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/**
 * Take the token from the fragment of the URL, which browsers do not send to servers. Returns
 * whether the URL contained a token.
 */
export function takeToken() {
  const given = /^#token=([^&]+)/.exec(location.hash);
  if (!given) return false;
  keepToken(decoded(given[1]));
  history.replaceState(null, "", `${location.pathname}#/overview`);
  return true;
}

/** Decode percent-encoded text; invalid encodings are returned unchanged. */
export function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function keepToken(token) {
  sessionStorage.setItem(TOKEN_KEY, token.trim());
}

/** Request a path and return its document. */
export async function fetchJson(path, { method = "GET", body = undefined } = {}) {
  const headers = authorized();
  if (body !== undefined) headers["content-type"] = "application/json";
  let response;
  try {
    response = await fetch(path, { method, headers, body: body && JSON.stringify(body) });
  } catch {
    throw new ServerError(0, "UNREACHABLE", "The application is not responding.");
  }
  if (!response.ok) throw await errorOf(response);
  return parseExact(await response.text());
}

/** Parse JSON with integers beyond 2^53 as strings, since JavaScript would round them. */
function parseExact(text) {
  let quoted = false;
  const words = text.replace(/\\.|"|-?\d[\d.eE+-]*/g, (token) => {
    if (token === '"') quoted = !quoted;
    const rounded = !quoted && /^-?\d+$/.test(token) && !Number.isSafeInteger(Number(token));
    return rounded ? `"${token}"` : token;
  });
  return JSON.parse(words);
}

/** Build a path of the API with parameters; empty ones are omitted. */
export function path(parts, parameters = {}) {
  const query = Object.entries(parameters)
    .filter(([, value]) => value !== null && value !== undefined && value !== "" && value !== false)
    .map(([name, value]) => `${name}=${encodeURIComponent(value)}`)
    .join("&");
  const route = `/${parts.map(encodeURIComponent).join("/")}`;
  return query ? `${route}?${query}` : route;
}

/**
 * Follow the application until the page is left or the token is rejected: `onState` is called with
 * each document, `onStatus` with "live", "lost" or "refused".
 */
export function follow(onState, onStatus) {
  const stop = new AbortController();
  // Browsers keep pages in the back/forward cache together with their connections, and allow six
  // connections per server: a seventh page would wait until the first one is evicted.
  addEventListener("pagehide", () => stop.abort(), { once: true });
  addEventListener("pageshow", (event) => event.persisted && location.reload(), { once: true });
  (async () => {
    let pause = RETRY_FIRST_MS;
    while (!stop.signal.aborted) {
      try {
        await listen(stop.signal, (document) => {
          pause = RETRY_FIRST_MS;
          onStatus("live");
          onState(document);
        });
      } catch (error) {
        if (stop.signal.aborted) return;
        if (error.status === 401) {
          onStatus("refused");
          return;
        }
      }
      if (stop.signal.aborted) return;
      onStatus("lost");
      await new Promise((done) => setTimeout(done, pause));
      pause = Math.min(pause * 2, RETRY_MAX_MS);
    }
  })();
}

async function listen(signal, onState) {
  const silent = new AbortController();
  const either = AbortSignal.any([signal, silent.signal]);
  let alarm = setTimeout(() => silent.abort(), SILENCE_MS);
  try {
    const response = await fetch("/console/events", { headers: authorized(), signal: either });
    if (!response.ok) throw await errorOf(response);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    let state = null;
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      clearTimeout(alarm);
      alarm = setTimeout(() => silent.abort(), SILENCE_MS);
      text += value;
      const events = text.split("\n\n");
      text = events.pop();
      const before = state;
      for (const each of events) state = applyEvent(state, each);
      if (state !== before) onState(state);
    }
  } finally {
    clearTimeout(alarm);
  }
}

/** Apply an event, which contains the whole document or its changed parts. */
function applyEvent(state, event) {
  const [, name, data] = /^event: (\w+)\ndata: ([^]*)/.exec(event) ?? [];
  if (!name) return state;
  const payload = JSON.parse(data);
  if (name === "state") return payload;
  const next = { ...state };
  for (const [part, value] of Object.entries(payload)) {
    const whole = value === null || typeof value !== "object" || Array.isArray(value);
    next[part] = whole ? value : { ...state[part], ...value };
  }
  return next;
}

function authorized() {
  const token = sessionStorage.getItem(TOKEN_KEY);
  return token ? { authorization: `Bearer ${token}` } : {};
}

async function errorOf(response) {
  let error = {};
  try {
    error = (await response.json()).error ?? {};
  } catch {
    // Not a response of this server, but probably of a proxy.
  }
  return new ServerError(
    response.status,
    error.code ?? `HTTP_${response.status}`,
    error.message ?? `The server responded with status ${response.status}.`,
  );
}
