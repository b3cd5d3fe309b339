// The page as a whole: which view is shown, what it is told, and what is said aloud.

import { draw, h } from "./dom.js";
import { frame } from "./frame.js";
import { decoded, follow, keepToken, takeToken } from "./server.js";
import { signIn } from "./sign_in.js";
import { onSystemTheme, showTheme, switchTheme } from "./theme.js";
import { errors } from "./view_errors.js";
import { overview } from "./view_overview.js";
import { restore } from "./view_restore.js";
import { stores } from "./view_stores.js";
import { subscriptions } from "./view_subscriptions.js";
import { tasks } from "./view_tasks.js";
import { timeline } from "./view_timeline.js";
import { topology } from "./view_topology.js";

const VIEWS = { overview, topology, tasks, restore, stores, errors, timeline, subscriptions };

const page = document.getElementById("page");
const told = document.getElementById("told");
let state = null;
let status = "waiting";
let shown = "";
let waiting = false;

function way() {
  const [name, ...rest] = location.hash.replace(/^#\/?/, "").split("/");
  return { name: name in VIEWS ? name : "overview", rest: rest.map(decoded) };
}

function show() {
  waiting = false;
  const { name, rest } = way();
  document.title = title(name);
  if (status === "refused") {
    draw(page, signIn(start));
    return;
  }
  const view = VIEWS[name];
  draw(
    page,
    frame({ name, state, status, onTheme: changeTheme }, state ? view(state, rest, again) : loading()),
  );
  page.classList.toggle("stale", status === "lost" && state !== null);
  view.shown?.(again);
  if (shown && shown !== name) moved(name);
  shown = name;
}

function title(name) {
  const id = state?.application.id;
  const view = name[0].toUpperCase() + name.slice(1);
  return id ? `${view} · ${id} · Millstream` : "Millstream";
}

/** Draw at the next opportunity; several wishes are one. */
function again() {
  if (waiting) return;
  waiting = true;
  // A page that is not looked at gets no animation frames, and needs none.
  requestAnimationFrame(show);
}

/** Another view was asked for: readers and keyboards begin at its top. */
function moved(name) {
  const main = document.getElementById("main");
  main?.focus({ preventScroll: true });
  scrollTo(0, 0);
  // On a narrow page the ways lie in a row, of which only some are seen.
  document.querySelector(".ways a[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
  say(`${name} view`);
}

function loading() {
  const words = status === "lost" ? "The application does not answer. Trying again…" : "Asking the application…";
  return h("div", { class: "empty" }, h("p", null, words));
}

function changeTheme() {
  switchTheme();
  again();
}

function say(words) {
  told.textContent = words;
}

function announce(before, now) {
  if (!before) return;
  const newest = now.failures.at(-1);
  if (newest && newest.number !== before.failures.at(-1)?.number) {
    say(`Error: ${newest.error} ${newest.place}`);
  } else if (before.application.state !== now.application.state) {
    say(`The application is ${now.application.state.toLowerCase().replaceAll("_", " ")}`);
  }
}

function start(token = null) {
  if (token !== null) keepToken(token);
  status = "waiting";
  follow(
    (next) => {
      announce(state, next);
      state = next;
      again();
    },
    (next) => {
      if (next !== status && (next === "lost" || status === "lost")) {
        say(next === "lost" ? "The connection is lost, trying again" : "Connected again");
      }
      status = next;
      again();
    },
  );
  again();
}

addEventListener("hashchange", () => {
  if (takeToken() && status === "refused") start();
  again();
});
onSystemTheme(() => {
  showTheme();
  again();
});
takeToken();
showTheme();
start();
