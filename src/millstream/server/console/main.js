// The page: routing between views, application state, and screen reader announcements.

import { draw, h } from "./dom.js";
import { frame } from "./frame.js";
import { decoded, follow, keepToken, takeToken } from "./server.js";
import { signIn } from "./sign_in.js";
import { onSystemTheme, showTheme, switchTheme } from "./theme.js";
import { errors } from "./views/errors.js";
import { overview } from "./views/overview.js";
import { restore } from "./views/restore.js";
import { stores } from "./views/stores.js";
import { subscriptions } from "./views/subscriptions.js";
import { tasks } from "./views/tasks.js";
import { timeline } from "./views/timeline.js";
import { topology } from "./views/topology.js";

const VIEWS = { overview, topology, tasks, restore, stores, errors, timeline, subscriptions };

const page = document.getElementById("page");
const liveRegion = document.getElementById("told");
let state = null;
let status = "waiting";
let shown = "";
let isScheduled = false;

function currentRoute() {
  const [name, ...rest] = location.hash.replace(/^#\/?/, "").split("/");
  return { name: name in VIEWS ? name : "overview", rest: rest.map(decoded) };
}

function show() {
  isScheduled = false;
  const { name, rest } = currentRoute();
  document.title = title(name);
  if (status === "refused") {
    draw(page, signIn(start));
    return;
  }
  const view = VIEWS[name];
  draw(
    page,
    frame({ name, state, status, onTheme: changeTheme }, state ? view(state, rest, redraw) : loading()),
  );
  page.classList.toggle("stale", status === "lost" && state !== null);
  view.shown?.(redraw);
  if (shown && shown !== name) focusView(name);
  shown = name;
}

function title(name) {
  const id = state?.application.id;
  const view = name[0].toUpperCase() + name.slice(1);
  return id ? `${view} · ${id} · Millstream` : "Millstream";
}

/** Schedule a redraw; several requests are combined. */
function redraw() {
  if (isScheduled) return;
  isScheduled = true;
  // A hidden page gets no animation frames, and needs none.
  requestAnimationFrame(show);
}

/** Move the focus to the top of a new view, for keyboards and screen readers. */
function focusView(name) {
  const main = document.getElementById("main");
  main?.focus({ preventScroll: true });
  scrollTo(0, 0);
  // On a narrow page, the navigation is a scrollable row.
  document.querySelector(".ways a[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
  setLiveRegion(`${name} view`);
}

function loading() {
  const words = status === "lost" ? "The application is not responding. Retrying…" : "Loading…";
  return h("div", { class: "empty" }, h("p", null, words));
}

function changeTheme() {
  switchTheme();
  redraw();
}

function setLiveRegion(words) {
  liveRegion.textContent = words;
}

function announce(before, now) {
  if (!before) return;
  const newest = now.failures.at(-1);
  if (newest && newest.number !== before.failures.at(-1)?.number) {
    setLiveRegion(`Error: ${newest.error} ${newest.place}`);
  } else if (before.application.state !== now.application.state) {
    setLiveRegion(`The application is ${now.application.state.toLowerCase().replaceAll("_", " ")}`);
  }
}

function start(token = null) {
  if (token !== null) keepToken(token);
  status = "waiting";
  follow(
    (next) => {
      announce(state, next);
      state = next;
      redraw();
    },
    (next) => {
      if (next !== status && (next === "lost" || status === "lost")) {
        setLiveRegion(next === "lost" ? "Connection lost, reconnecting" : "Reconnected");
      }
      status = next;
      redraw();
    },
  );
  redraw();
}

addEventListener("hashchange", () => {
  if (takeToken() && status === "refused") start();
  redraw();
});
onSystemTheme(() => {
  showTheme();
  redraw();
});
takeToken();
showTheme();
start();
