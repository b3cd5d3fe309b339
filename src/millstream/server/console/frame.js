// What stands around every view: the ways, the application's name and state, the connection.

import { h } from "./dom.js";
import { clock } from "./format.js";
import { brand, icon } from "./icons.js";
import * as pieces from "./pieces.js";
import { underWay } from "./restores.js";
import { theme } from "./theme.js";

const WAYS = [
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
        h("ul", { class: "ways" }, WAYS.filter(([way]) => wanted(way, state)).map(([way, title]) => link(way, title, name, state))),
      ),
      h("footer", null, state && h("span", null, `Delivery: ${state.application.guarantee.replaceAll("_", " ")}`)),
    ),
    h("div", { class: "body", key: "body" }, top(state, status, onTheme), h("main", { id: "main", tabindex: "-1", key: name }, inside)),
  ];
}

/** Who has no subscription need not read of them. */
function wanted(way, state) {
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
    const going = underWay(state.restores).length;
    if (going) return h("span", { class: ["badge", "info"] }, going, h("span", { class: "unseen" }, " under way"));
  }
  return null;
}

function top(state, status, onTheme) {
  const dark = theme() === "dark";
  const other = dark ? "Switch to light colours" : "Switch to dark colours";
  return h(
    "header",
    { class: "top" },
    state && h("span", { class: ["name", "cut"] }, state.application.id),
    state && pieces.state(state.application.state),
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
