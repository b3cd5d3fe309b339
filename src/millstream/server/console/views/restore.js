// The progress of restoring stores, and of standby copies.

import { h } from "../dom.js";
import { ago, count, duration, percent, plural, rate } from "../format.js";
import { bar, card, empty, lead } from "../components.js";
import { share, inProgress } from "../restores.js";

export function restore(state) {
  const going = inProgress(state.restores);
  const standby = state.restores.filter((each) => each.state === "running" && each.kind === "standby");
  const ended = state.restores.filter((each) => each.state !== "running");
  const words = going.length ? `Restoring ${plural(going.length, "store partition")}` : "All active stores are up to date";
  return [
    lead("Restore", state.restores.length ? words : null),
    card(
      "In progress",
      { note: going.length ? remaining(going) : null, key: "going" },
      going.length
        ? h("ul", { class: "bars" }, going.map((each) => row(each, state.now_ms)))
        : state.restores.length
          ? h("p", { class: "quiet" }, "Nothing is being restored.")
          : empty("restore", "Nothing had to be restored", "When a task starts on a thread without its state, the state is restored from changelogs. The progress is shown here."),
    ),
    standby.length > 0 && card("Standbys", { note: plural(standby.length, "copy", "copies"), key: "standby" }, h("ul", { class: "bars" }, standby.map((each) => standbyRow(each, state.now_ms)))),
    ended.length > 0 && card("Ended", { note: `the last ${Math.min(ended.length, 40)}`, key: "ended" }, h("ul", { class: "bars" }, ended.slice(0, 40).map((each) => row(each, state.now_ms)))),
  ];
}

function remaining(going) {
  const records = going.reduce((sum, each) => sum + Math.max(0, each.end - each.at), 0);
  return `${count(records)} records remaining`;
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
  if (each.state === "suspended") return [h("span", null, `${percent(share(each))} when canceled`), h("span", null, ago(each.told_ms, nowMs))];
  const speed = took > 0 ? ((each.at - each.start) * 1000) / took : 0;
  const rest = speed > 0 ? `${duration(((each.end - each.at) * 1000) / speed)} remaining` : "starting";
  return [h("span", null, `${percent(share(each))} · ${count(each.at)} of ${count(each.end)}`), h("span", null, `${rate(speed)} · ${rest}`)];
}

function standbyRow(each, nowMs) {
  const behind = Math.max(0, each.end - each.at);
  return h(
    "li",
    { class: "progress", key: `${each.thread} ${each.topic} ${each.partition}` },
    h("div", { class: "what" }, h("b", { class: "cut", title: each.topic }, each.store), h("span", { class: "quiet nowrap" }, `partition ${each.partition} · task ${each.task}`)),
    bar(each.end ? each.at / each.end : 1, `Standby of ${each.store}, partition ${each.partition}`, "follow"),
    h("div", { class: "how quiet" }, h("span", null, behind ? `${plural(behind, "record")} behind` : "caught up"), h("span", null, `updated ${ago(each.told_ms, nowMs)}`)),
  );
}
