// The overview: health, throughput and the latest events.

import { chart } from "../chart.js";
import { h } from "../dom.js";
import { ago, count, duration, plural, rate, short, stateText } from "../format.js";
import { bar, card, figure, lead, tone } from "../components.js";
import { timelineEvents } from "../events.js";
import { share, inProgress } from "../restores.js";

export function overview(state) {
  const { application, totals } = state;
  return [
    lead("Overview", sentence(state)),
    ...callouts(state),
    h(
      "dl",
      { class: "figures" },
      figure("Throughput", rate(totals.records_per_s), `${count(totals.processed_total)} records in total`),
      totals.lag !== null && figure("Lag", short(totals.lag), "records waiting in topics"),
      figure("Threads", threads(state), hosts(state)),
      application.has_tasks && figure("Tasks", taskCount(state), standbys(state)),
      figure("Stores", count(state.stores.length), storeNote(state)),
      totals.dropped_total + totals.dead_letters_total > 0 && figure("Dropped", count(totals.dropped_total), droppedNote(totals)),
    ),
    card("Records per second", { note: rate(totals.records_per_s), key: "chart" }, chart(totals.history, "Records per second")),
    h("div", { class: "pair" }, restoring(state), latest(state)),
  ];
}

function sentence({ application, now_ms }) {
  const since = application.since_ms === null ? "" : ` for ${duration(now_ms - application.since_ms)}`;
  const started = application.started_ms === null ? "" : `, started ${ago(application.started_ms, now_ms)}`;
  return `${stateText(application.state)}${since}${started}`;
}

function callouts(state) {
  const found = [];
  const { application, failures, threads: all } = state;
  const open = failures.filter((each) => !each.over);
  if (application.error) found.push(callout("bad", "Stopped by an error.", application.error, "#/errors", "Details"));
  else if (open.length) found.push(callout("bad", open.at(-1).error, open.at(-1).place, `#/errors/${open.at(-1).number}`, "Details"));
  for (const thread of all.filter((each) => each.stall)) {
    found.push(callout("warn", `Thread ${thread.label} is not responding`, `for ${duration(thread.stall.silent_ms)} in ${thread.stall.place}`, "#/tasks", "Stack"));
  }
  for (const thread of all.filter((each) => each.uncommitted_ms !== null)) {
    found.push(callout("warn", `Thread ${thread.label} does not commit`, `It has not committed processed records for ${duration(thread.uncommitted_ms)}`, "#/tasks", "Tasks"));
  }
  return found;
}

function callout(kind, title, words, href, more) {
  return h("div", { class: ["callout", kind] }, h("span", { class: "pill" }, h("b", null, title)), h("p", null, words), h("a", { href }, more));
}

function threads({ threads: all }) {
  const running = all.filter((each) => each.state === "RUNNING").length;
  return running === all.length ? count(all.length) : `${running} of ${all.length}`;
}

function hosts({ application, threads: all }) {
  const known = new Set(all.map((each) => each.host).filter(Boolean));
  const where = known.size ? `running on ${plural(known.size, "host")}` : "not placed yet";
  const { elastic } = application;
  return elastic ? `${where}, ${elastic.least} to ${elastic.most} depending on load` : where;
}

function taskCount({ threads: all }) {
  return count(all.reduce((sum, each) => sum + each.active.length, 0));
}

function standbys({ threads: all }) {
  const standby = all.reduce((sum, each) => sum + each.standby.length, 0);
  return standby ? `and ${plural(standby, "standby", "standbys")}` : "no standbys";
}

function storeNote({ stores }) {
  const disk = stores.filter((each) => each.persistent).length;
  return disk ? `${disk} on disk` : stores.length ? "in memory" : "stateless";
}

function droppedNote({ dead_letters_total: letters }) {
  return letters ? h("a", { href: "#/errors" }, plural(letters, "dead letter")) : "records deliberately dropped";
}

function restoring({ restores }) {
  const going = inProgress(restores);
  const inside = going.length
    ? going.slice(0, 5).map((each) =>
        h(
          "div",
          { class: "slim", key: `${each.topic}-${each.partition}` },
          h("span", { class: "cut" }, `${each.store} ${each.partition}`),
          bar(share(each), `Restoring ${each.store}, partition ${each.partition}`),
        ),
      )
    : h("p", { class: "quiet" }, restores.length ? "All stores are restored." : "Nothing had to be restored.");
  return card("Restoring", { note: h("a", { href: "#/restore" }, "All"), key: "restoring" }, inside);
}

function latest(state) {
  // A rebalance implies these state changes.
  const turns = new Set(["RUNNING", "REBALANCING"]);
  const isTurn = ({ kind, about }) => kind === "state" && turns.has(about.old) && turns.has(about.new);
  const last = timelineEvents(state).filter((each) => !isTurn(each)).slice(0, 6);
  return card(
    "Latest",
    { note: h("a", { href: "#/timeline" }, "Timeline"), key: "latest" },
    last.length
      ? h("ol", { class: "latest" }, last.map((each) => h("li", { key: each.key }, h("span", { class: ["dot", each.tone ?? tone(each.state)] }), h("span", { class: "cut" }, each.title), h("time", { class: "quiet" }, ago(each.at, state.now_ms)))))
      : h("p", { class: "quiet" }, "Nothing has happened yet."),
  );
}
