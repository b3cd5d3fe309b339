// Threads and their tasks, by host.

import { h } from "../dom.js";
import { duration, plural, rate } from "../format.js";
import { card, empty, lead, state as statePill, tone } from "../components.js";

export function tasks(state) {
  if (!state.threads.length) {
    return [
      lead("Tasks & hosts", null),
      card("Threads", null, empty("tasks", "No running threads", "Threads appear here once Spark has started them, with the tasks that the group assigns to them.")),
    ];
  }
  const hosts = Map.groupBy(state.threads, (each) => each.host ?? "");
  return [
    lead("Tasks & hosts", summary(state.threads, hosts)),
    ...[...hosts].sort().map(([host, threads]) => hostCard(host, threads)),
  ];
}

function summary(threads, hosts) {
  const active = threads.reduce((sum, each) => sum + each.active.length, 0);
  const standby = threads.reduce((sum, each) => sum + each.standby.length, 0);
  const words = [plural(active, "active task"), standby && plural(standby, "standby", "standbys"), plural(threads.length, "thread"), plural(hosts.size, "host")];
  return words.filter(Boolean).join(" · ");
}

function hostCard(host, threads) {
  const total = threads.reduce((sum, each) => sum + each.records_per_s, 0);
  return card(
    host || "Not placed yet",
    { note: rate(total), key: host },
    h("ul", { class: "threads" }, threads.map(threadItem)),
  );
}

function threadItem(thread) {
  const most = Math.max(1, ...thread.active.map((each) => each.records_per_s ?? 0));
  return h(
    "li",
    { class: "thread", key: thread.name },
    h(
      "header",
      null,
      h("h3", { title: thread.name }, `Thread ${thread.label}`),
      statePill(thread.state),
      h("span", { class: "quiet", title: thread.client && `client ${thread.client}` }, thread.pid === null ? "no process" : `pid ${thread.pid}`),
      h("span", { class: "speed" }, rate(thread.records_per_s)),
    ),
    thread.stall && stall(thread.stall),
    thread.uncommitted_ms !== null && h("p", { class: "stall" }, `Processed records have not been committed for ${duration(thread.uncommitted_ms)}`),
    thread.active.length + thread.standby.length === 0 && h("p", { class: "quiet" }, "No tasks: all of them are assigned to other threads."),
    h(
      "ul",
      { class: "tasks", "aria-label": `Tasks of thread ${thread.label}` },
      thread.active.map((each) => taskItem(each, most, false)),
      thread.standby.map((each) => taskItem(each, most, true)),
    ),
  );
}

function taskItem(task, most, standby) {
  const share = standby ? 0 : (task.records_per_s ?? 0) / most;
  const odd = task.state !== "RUNNING" && !standby;
  return h(
    "li",
    { class: ["task", standby && "standby", odd && tone(task.state)], key: `${standby} ${task.id}`, vars: { share: `${share * 100}%` } },
    h("b", { class: "mono" }, task.id),
    h("span", null, standby ? "standby" : odd ? task.state.toLowerCase() : rate(task.records_per_s)),
  );
}

function stall({ silent_ms, place, stack }) {
  return h(
    "details",
    { class: "stall" },
    h("summary", null, `Not responding for ${duration(silent_ms)} in ${place}`),
    h("pre", { tabindex: "0" }, stack.join("\n")),
  );
}
