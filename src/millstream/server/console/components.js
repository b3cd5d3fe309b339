// Components shared by several views.

import { h } from "./dom.js";
import { stateText } from "./format.js";
import { icon } from "./icons.js";

const TONES = {
  RUNNING: "ok", REBALANCING: "warn", CREATED: "", STARTING: "warn", PARTITIONS_ASSIGNED: "warn",
  PARTITIONS_REVOKED: "warn", RESTORING: "info", STANDBY: "plum", SUSPENDED: "warn", CLOSED: "",
  PENDING_SHUTDOWN: "warn", NOT_RUNNING: "", PENDING_ERROR: "bad", ERROR: "bad", DEAD: "bad",
};

/** The tone of a state: "ok", "warn", "bad", "info", "plum" or none. */
export function tone(state) {
  return TONES[state] ?? "";
}

export function state(name) {
  return h("span", { class: ["pill", tone(name)] }, stateText(name));
}

/** A list of [name, value] or [name, value, class]; empty values are omitted. */
export function facts(known, kind = null) {
  return h(
    "dl",
    { class: ["facts", kind] },
    known
      .filter(([, value]) => value !== null && value !== undefined && value !== "")
      .map(([name, value, look = null]) => h("div", null, h("dt", null, name), h("dd", look && { class: look }, value))),
  );
}

export function card(title, options, ...inside) {
  const { note = null, key = null, level = "h2", id = null } = options ?? {};
  return h(
    "section",
    { class: "card", key, "aria-labelledby": id },
    h("header", null, h(level, { id }, title), note && h("span", { class: "end" }, note)),
    h("div", { class: "inside" }, ...inside),
  );
}

export function figure(name, value, note = null) {
  return h(
    "div",
    { class: ["card", "figure"] },
    h("dt", null, name),
    h("dd", null, value),
    note && h("dd", { class: "note" }, note),
  );
}

export function lead(title, words, ...end) {
  return h(
    "div",
    { class: "lead" },
    h("div", null, h("h1", null, title), words && h("p", null, words)),
    end.length > 0 && h("div", { class: "end" }, ...end),
  );
}

export function empty(picture, title, words, ...more) {
  return h("div", { class: "empty" }, icon(picture), h("h2", null, title), h("p", null, words), ...more);
}

/** A progress bar, with a label for screen readers. */
export function bar(share, label, kind = "") {
  const whole = Math.max(0, Math.min(1, share));
  return h(
    "div",
    {
      class: ["bar", kind], role: "progressbar", "aria-label": label,
      "aria-valuemin": 0, "aria-valuemax": 100, "aria-valuenow": Math.floor(whole * 100),
    },
    h("i", { vars: { share: `${whole * 100}%` } }),
  );
}

export function table(caption, heads, rows) {
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h(
      "table",
      null,
      h("caption", { class: "unseen" }, caption),
      h("thead", null, h("tr", null, heads.map((head) => h("th", { scope: "col", class: head.right && "right" }, head.name ?? head)))),
      h("tbody", null, rows),
    ),
  );
}
