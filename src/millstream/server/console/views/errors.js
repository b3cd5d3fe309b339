// Each error with its details: record, stack, handler decision, and recovery steps.

import { h } from "../dom.js";
import { ago, clock, count, moment, plural, stateText } from "../format.js";
import { card, empty, facts, lead, table } from "../components.js";

const DECISIONS = {
  REPLACE_THREAD: "replace the thread",
  SHUTDOWN_CLIENT: "shut down this instance",
  SHUTDOWN_APPLICATION: "shut down all instances",
};

export function errors(state, [wanted]) {
  const all = [...state.failures].reverse();
  if (!all.length) {
    return [lead("Errors", null), card("Errors", null, empty("check", "No errors", "Errors that stop a thread are shown here, with the record, the stack and the recovery steps.")), deadLetters(state)];
  }
  const open = all.filter((each) => !each.over).length;
  return [
    lead("Errors", `${all.length} since the start, ${open ? `${open} open` : "all resolved"}`),
    h("ol", { class: "errors" }, all.map((each, index) => item(each, state.now_ms, wanted ? each.number === Number(wanted) : index === 0))),
    deadLetters(state),
  ];
}

function deadLetters({ dead_letters: letters, totals }) {
  if (!letters.length) return null;
  const rows = letters.map((each) =>
    h(
      "tr",
      { key: `${each.node} ${each.handler} ${each.topic}` },
      h("td", { class: "mono" }, each.node),
      h("td", null, each.handler),
      h("td", { class: "mono" }, each.topic),
      h("td", { class: "right" }, count(each.records_total)),
    ),
  );
  const heads = ["Node", "Exception handler", "Dead-letter topic", { name: "Records", right: true }];
  return card("Dead letters", { note: plural(totals.dead_letters_total, "record"), key: "dead-letters" }, table("Dead letters by node and exception handler", heads, rows));
}

function item(failure, nowMs, opened) {
  return h(
    "li",
    { key: failure.number },
    h(
      "details",
      { class: ["card", "error"], open: opened },
      h(
        "summary",
        null,
        h("span", { class: ["pill", failure.over ? "ok" : "bad"] }, failure.over ? "Resolved" : "Open"),
        h("h2", null, failure.error),
        h("span", { class: "quiet cut" }, where(failure)),
        h("time", { class: "quiet nowrap", title: moment(failure.at_ms) }, ago(failure.at_ms, nowMs)),
      ),
      h("div", { class: "inside" }, h("p", { class: "message" }, failure.message), facts(about(failure)), h("div", { class: "told" }, recovery(failure), stack(failure))),
    ),
  );
}

function about(failure) {
  return [
    ["Thread", failure.thread && h("span", { title: failure.thread }, failure.thread.split("-").slice(-2).join("-")), "mono"],
    ["Task", failure.task, "mono"],
    ["Node", failure.node, "mono"],
    ["Record", failure.topic === null ? null : record(failure), "mono"],
    ["Declared at", failure.declared_at, "mono"],
  ];
}

function where({ task, node, topic, partition, place }) {
  const known = [task && `task ${task}`, node, topic && `${topic}-${partition}`].filter(Boolean);
  return known.join(" · ") || place || "in the application";
}

function record({ topic, partition, offset }) {
  return offset === null ? `${topic}-${partition}` : `${topic}-${partition} at offset ${offset}`;
}

function recovery(failure) {
  const decided = DECISIONS[failure.answer] ?? failure.answer;
  return h(
    "div",
    null,
    h("h3", null, "Recovery"),
    h(
      "ol",
      { class: "steps" },
      step("bad", failure.at_ms, failure.thread ? "The thread failed" : "A listener failed"),
      step("warn", failure.at_ms, `Decision: ${decided}`),
      failure.steps.map((each, index) => step(failure.over && index === failure.steps.length - 1 ? "ok" : "", each.at_ms, stepText(each.text))),
    ),
  );
}

/** Format a leading state name as elsewhere on the page. */
function stepText(text) {
  const known = /^([A-Z]+(?:_[A-Z]+)*): (.*)$/s.exec(text);
  if (!known) return text[0].toUpperCase() + text.slice(1);
  return `${stateText(known[1])}: ${known[2]}`;
}

function step(tone, at, text) {
  return h("li", { class: tone }, h("time", { class: "mono quiet" }, clock(at, true)), h("span", null, text));
}

function stack(failure) {
  return h("div", null, h("h3", null, "Stack"), h("pre", { class: "stack", tabindex: "0", "aria-label": "Stack of the error" }, failure.stack.join("\n")));
}
