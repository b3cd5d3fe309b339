// The server's answers: with the token, as JSON, errors as `ServerError`s.

const KEPT = "millstream-token";
const RETRY_FIRST_MS = 1000;
const RETRY_MOST_MS = 10_000;
// The server tells something every second, or a sign of life every 15.
const SILENCE_MS = 25_000;

/** What the server refuses, with its code and in its words. */
export class ServerError extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/**
 * The token comes once, in the part of the address that no server and no log gets to see; whether
 * it has.
 */
export function takeToken() {
  const given = /^#token=([^&]+)/.exec(location.hash);
  if (!given) return false;
  keepToken(decoded(given[1]));
  history.replaceState(null, "", `${location.pathname}#/overview`);
  return true;
}

/** What is percent-encoded; a text that is not stays as it is. */
export function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function keepToken(token) {
  sessionStorage.setItem(KEPT, token.trim());
}

/** Ask for a path; its document. */
export async function ask(path, { method = "GET", body = undefined } = {}) {
  const headers = authorized();
  if (body !== undefined) headers["content-type"] = "application/json";
  let response;
  try {
    response = await fetch(path, { method, headers, body: body && JSON.stringify(body) });
  } catch {
    throw new ServerError(0, "UNREACHABLE", "The application does not answer.");
  }
  if (!response.ok) throw await refusal(response);
  return exact(await response.text());
}

/** A document whose whole numbers beyond 2^53, which are none of this language's, are texts. */
function exact(text) {
  let quoted = false;
  const words = text.replace(/\\.|"|-?\d[\d.eE+-]*/g, (token) => {
    if (token === '"') quoted = !quoted;
    const rounded = !quoted && /^-?\d+$/.test(token) && !Number.isSafeInteger(Number(token));
    return rounded ? `"${token}"` : token;
  });
  return JSON.parse(words);
}

/** A path of the API with parameters; those that are empty are left out. */
export function path(parts, parameters = {}) {
  const query = Object.entries(parameters)
    .filter(([, value]) => value !== null && value !== undefined && value !== "" && value !== false)
    .map(([name, value]) => `${name}=${encodeURIComponent(value)}`)
    .join("&");
  const route = `/${parts.map(encodeURIComponent).join("/")}`;
  return query ? `${route}?${query}` : route;
}

/**
 * Follow the application until the page is left or refused: `onState` gets each document,
 * `onStatus` "live", "lost" or "refused".
 */
export function follow(onState, onStatus) {
  const stop = new AbortController();
  // A browser keeps a page that was left for the way back, and its connection with it, of which it
  // has six: the seventh page would wait until the first one is thrown away.
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
      pause = Math.min(pause * 2, RETRY_MOST_MS);
    }
  })();
}

async function listen(signal, onState) {
  const silent = new AbortController();
  const either = AbortSignal.any([signal, silent.signal]);
  let alarm = setTimeout(() => silent.abort(), SILENCE_MS);
  try {
    const response = await fetch("/console/events", { headers: authorized(), signal: either });
    if (!response.ok) throw await refusal(response);
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
      for (const each of events) state = changed(state, each);
      if (state !== before) onState(state);
    }
  } finally {
    clearTimeout(alarm);
  }
}

/** The document after an event, which holds all of it or the parts that differ. */
function changed(state, event) {
  const [, name, data] = /^event: (\w+)\ndata: ([^]*)/.exec(event) ?? [];
  if (!name) return state;
  const told = JSON.parse(data);
  if (name === "state") return told;
  const next = { ...state };
  for (const [part, value] of Object.entries(told)) {
    const whole = value === null || typeof value !== "object" || Array.isArray(value);
    next[part] = whole ? value : { ...state[part], ...value };
  }
  return next;
}

function authorized() {
  const token = sessionStorage.getItem(KEPT);
  return token ? { authorization: `Bearer ${token}` } : {};
}

async function refusal(response) {
  let error = {};
  try {
    error = (await response.json()).error ?? {};
  } catch {
    // Not ours: a proxy's, most likely.
  }
  return new ServerError(
    response.status,
    error.code ?? `HTTP_${response.status}`,
    error.message ?? `The server answered with ${response.status}.`,
  );
}
