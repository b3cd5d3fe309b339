// The timeline: an overview strip, and a list of the latest 150 events.

import { h } from "../dom.js";
import { clock, moment } from "../format.js";
import { timelineEvents, moves } from "../events.js";
import { card, empty, lead, tone } from "../components.js";

const KINDS = { state: "State", rebalance: "Rebalance", failure: "Error", restore: "Restore" };
const WIDTH = 1000;

export function timeline(state) {
  const all = timelineEvents(state);
  if (!all.length) {
    return [lead("Timeline", null), card("Timeline", null, empty("timeline", "Nothing has happened yet", "State changes, rebalances, errors and restorations are listed here in order."))];
  }
  return [
    lead("Timeline", "The last 200 state changes, 100 rebalances, 100 errors and 200 restorations"),
    card("At a glance", { note: `since ${clock(state.states[0]?.at_ms ?? state.now_ms)}`, key: "strip" }, strip(state)),
    card("Latest events", { note: "up to 150, latest first", key: "list" }, h("ol", { class: "events" }, all.slice(0, 150).map((each) => event(each)))),
  ];
}

function strip(state) {
  const from = state.states[0]?.at_ms ?? state.now_ms - 1;
  const span = Math.max(1, state.now_ms - from);
  const x = (at) => (Math.max(0, at - from) / span) * WIDTH;
  const bands = state.states.map((each, index) => {
    const until = state.states[index + 1]?.at_ms ?? state.now_ms;
    return h("rect", { class: ["band", tone(each.new)], x: x(each.at_ms).toFixed(2), y: 0, width: Math.max(1.5, x(until) - x(each.at_ms)).toFixed(2), height: 18 }, h("title", null, `${each.new} from ${clock(each.at_ms)}: ${each.why}`));
  });
  const restores = state.restores
    .filter((each) => each.kind !== "standby")
    .map((each) => h("rect", { class: ["band", "info"], x: x(each.began_ms).toFixed(2), y: 26, width: Math.max(2, x(each.told_ms) - x(each.began_ms)).toFixed(2), height: 8 }, h("title", null, `${each.store} ${each.partition} restored`)));
  const failures = state.failures.map((each) => h("rect", { class: ["band", "bad"], x: (x(each.at_ms) - 2).toFixed(2), y: 42, width: 4, height: 14 }, h("title", null, `${clock(each.at_ms)} ${each.error}`)));
  const words = `State, restorations and ${state.failures.length} errors from ${clock(from)} to ${clock(state.now_ms)}; the list below contains the latest events`;
  return h(
    "figure",
    { class: "strip" },
    h("div", { class: "lanes", "aria-hidden": "true" }, h("span", null, "State"), h("span", null, "Restore"), h("span", null, "Errors")),
    h("svg", { viewBox: `0 0 ${WIDTH} 58`, preserveAspectRatio: "none", role: "img", "aria-label": words }, bands, restores, failures),
    h("figcaption", { "aria-hidden": "true" }, [0, 0.25, 0.5, 0.75, 1].map((part) => h("span", null, clock(from + span * part)))),
  );
}

function event(each) {
  return h(
    "li",
    { key: each.key },
    h("time", { class: "mono quiet", title: moment(each.at) }, clock(each.at)),
    h("span", { class: ["pill", each.tone] }, KINDS[each.kind]),
    h(
      "div",
      null,
      h("h3", null, each.kind === "failure" ? h("a", { href: `#/errors/${each.about.number}` }, each.title) : each.title),
      h("p", { class: "quiet" }, each.words),
      each.kind === "rebalance" && exchange(each.about),
    ),
  );
}

/** The tasks of each thread before and after a rebalance. */
function exchange(rebalance) {
  const threads = [...new Set([...Object.keys(rebalance.before), ...Object.keys(rebalance.after)])].sort();
  if (!threads.length) return null;
  const moved = new Set(moves(rebalance));
  const none = { active: [], standby: [] };
  return h(
    "details",
    null,
    h("summary", null, "Tasks by thread before and after"),
    h(
      "ul",
      { class: "exchange" },
      threads.map((thread) => {
        const was = rebalance.before[thread] ?? none;
        const is = rebalance.after[thread] ?? none;
        return h(
          "li",
          { key: thread },
          h("span", { class: "quiet nowrap", title: thread }, `Thread ${thread.split("-StreamThread-").pop()}`),
          h(
            "div",
            { class: "chips" },
            was.active.filter((task) => !is.active.includes(task)).map((task) => chip(task, "gone")),
            is.active.map((task) => chip(task, moved.has(task) && !was.active.includes(task) ? "new" : "")),
            is.standby.map((task) => chip(task, "standby")),
          ),
        );
      }),
    ),
  );
}

function chip(task, kind) {
  const note = { gone: "revoked", new: "assigned", standby: "standby" }[kind];
  return h("span", { class: ["chip", "mono", kind] }, task, note && h("span", { class: "unseen" }, ` ${note}`));
}
