// The frame around every view: navigation, application name and state, connection.

import { h } from "./dom.js";
import { clock } from "./format.js";
import { brand, icon } from "./icons.js";
import * as components from "./components.js";
import { inProgress } from "./restores.js";
import { theme } from "./theme.js";

const LINKS = [
  ["overview", "Overview"],
  ["topology", "Topology"],
  ["tasks", "Tasks & hosts"],
  ["restore", "Restore"],
  ["stores", "Stores"],
  ["subscriptions", "Subscriptions"],
  ["errors", "Errors"],
  ["timeline", "Timeline"],
];

export function frame({ name, state, status, onTheme }, inside) {
  return [
    h(
      "aside",
      { class: "side", key: "side" },
      h("div", { class: "brand" }, brand(), "Millstream"),
      h(
        "nav",
        { "aria-label": "Views" },
        h("ul", { class: "ways" }, LINKS.filter(([way]) => isVisible(way, state)).map(([way, title]) => link(way, title, name, state))),
      ),
      h("footer", null, state && h("span", null, `Delivery: ${state.application.guarantee.replaceAll("_", " ")}`)),
    ),
    h("div", { class: "body", key: "body" }, top(state, status, onTheme), h("main", { id: "main", tabindex: "-1", key: name }, inside)),
  ];
}

/** Hide the subscriptions view for applications without subscriptions. */
function isVisible(way, state) {
  return way !== "subscriptions" || !state || state.subscriptions.length > 0;
}

function link(way, title, name, state) {
  return h(
    "li",
    { key: way },
    h(
      "a",
      { href: `#/${way}`, "aria-current": way === name ? "page" : null },
      icon(way),
      title,
      badge(way, state),
    ),
  );
}

function badge(way, state) {
  if (!state) return null;
  if (way === "errors") {
    const open = state.failures.filter((each) => !each.over).length;
    if (open) return h("span", { class: ["badge", "bad"] }, open, h("span", { class: "unseen" }, " open"));
  }
  if (way === "restore") {
    const going = inProgress(state.restores).length;
    if (going) return h("span", { class: ["badge", "info"] }, going, h("span", { class: "unseen" }, " in progress"));
  }
  return null;
}

function top(state, status, onTheme) {
  const dark = theme() === "dark";
  const other = dark ? "Switch to light colors" : "Switch to dark colors";
  return h(
    "header",
    { class: "top" },
    state && h("span", { class: ["name", "cut"] }, state.application.id),
    state && components.state(state.application.state),
    state?.application.paused && h("span", { class: ["pill", "warn"] }, "Paused"),
    h(
      "div",
      { class: "end" },
      h("span", { class: ["live", status !== "live" && "lost"] }, h("i", { "aria-hidden": "true" }), connection(state, status)),
      h("button", { class: "button icon plain", type: "button", "aria-label": other, title: other, onclick: onTheme }, icon(dark ? "sun" : "moon")),
    ),
  );
}

function connection(state, status) {
  if (status === "live") return "Live";
  return state ? `No connection since ${clock(state.now_ms)}` : "Connecting…";
}
