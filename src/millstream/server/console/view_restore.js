// How far the copies of stores are, those that are to be worked on and those that stand by.

import { h } from "./dom.js";
import { ago, count, duration, percent, plural, rate } from "./format.js";
import { bar, card, empty, lead } from "./pieces.js";
import { share, underWay } from "./restores.js";

export function restore(state) {
  const going = underWay(state.restores);
  const standby = state.restores.filter((each) => each.state === "running" && each.kind === "standby");
  const ended = state.restores.filter((each) => each.state !== "running");
  const words = going.length ? `${plural(going.length, "partition")} of stores being brought up to date` : "Every store that is worked on is up to date";
  return [
    lead("Restore", state.restores.length ? words : null),
    card(
      "Under way",
      { note: going.length ? left(going) : null, key: "going" },
      going.length
        ? h("ul", { class: "bars" }, going.map((each) => row(each, state.now_ms)))
        : state.restores.length
          ? h("p", { class: "quiet" }, "Nothing is being restored.")
          : empty("restore", "Nothing had to be restored", "When a task comes to a thread that has not its state, its changelogs are read, and how far that is shows here."),
    ),
    standby.length > 0 && card("Standbys", { note: plural(standby.length, "copy", "copies"), key: "standby" }, h("ul", { class: "bars" }, standby.map((each) => standbyRow(each, state.now_ms)))),
    ended.length > 0 && card("Ended", { note: `the last ${ended.length}`, key: "ended" }, h("ul", { class: "bars" }, ended.slice(0, 40).map((each) => row(each, state.now_ms)))),
  ];
}

function left(going) {
  const records = going.reduce((sum, each) => sum + Math.max(0, each.end - each.at), 0);
  return `${count(records)} records to go`;
}

function row(each, nowMs) {
  const running = each.state === "running";
  const took = (running ? nowMs : each.told_ms) - each.began_ms;
  const kind = running ? "" : each.state === "done" ? "done" : "off";
  return h(
    "li",
    { class: "progress", key: `${each.thread} ${each.topic} ${each.partition} ${each.began_ms}` },
    h(
      "div",
      { class: "what" },
      h("b", { class: "cut", title: each.topic }, each.store),
      h("span", { class: "quiet nowrap" }, `partition ${each.partition} · task ${each.task}`),
    ),
    bar(share(each), `${each.store}, partition ${each.partition}: ${running ? "restoring" : each.state}`, kind),
    h("div", { class: "how quiet" }, ...words(each, took, nowMs)),
  );
}

function words(each, took, nowMs) {
  if (each.state === "done") return [h("span", null, plural(each.records, "record")), h("span", null, `in ${duration(took)}, ${ago(each.told_ms, nowMs)}`)];
  if (each.state === "suspended") return [h("span", null, `${percent(share(each))} when given up`), h("span", null, ago(each.told_ms, nowMs))];
  const speed = took > 0 ? ((each.at - each.start) * 1000) / took : 0;
  const rest = speed > 0 ? `${duration(((each.end - each.at) * 1000) / speed)} left` : "starting";
  return [h("span", null, `${percent(share(each))} · ${count(each.at)} of ${count(each.end)}`), h("span", null, `${rate(speed)} · ${rest}`)];
}

function standbyRow(each, nowMs) {
  const behind = Math.max(0, each.end - each.at);
  return h(
    "li",
    { class: "progress", key: `${each.thread} ${each.topic} ${each.partition}` },
    h("div", { class: "what" }, h("b", { class: "cut", title: each.topic }, each.store), h("span", { class: "quiet nowrap" }, `partition ${each.partition} · task ${each.task}`)),
    bar(each.end ? each.at / each.end : 1, `Standby of ${each.store}, partition ${each.partition}`, "follow"),
    h("div", { class: "how quiet" }, h("span", null, behind ? `${plural(behind, "record")} behind` : "has caught up"), h("span", null, `told ${ago(each.told_ms, nowMs)}`)),
  );
}
