// Events of all kinds in one list, latest first.

import { duration, plural, stateText } from "./format.js";
import { tone } from "./components.js";

/** [{ key, at, until, kind, tone, title, words, about }] */
export function timelineEvents(state) {
  const found = [
    ...state.states.map(stateChange),
    ...state.rebalances.map((each) => rebalance(each, state.now_ms)),
    ...state.failures.map(failure),
    ...restored(state.restores),
  ];
  return found.sort((one, other) => other.at - one.at || RANK[other.kind] - RANK[one.kind]);
}

// Restorations of one store that end within this time are combined into one event.
const COMBINE_MS = 5000;
const RANK = { state: 0, rebalance: 1, restore: 2, failure: 3 };

function stateChange(each, index) {
  return {
    key: `state ${index} ${each.at_ms}`, at: each.at_ms, until: null, kind: "state", tone: tone(each.new),
    title: `${stateText(each.old)} → ${stateText(each.new)}`, words: each.why, about: each,
  };
}

function rebalance(each, nowMs) {
  const took = (each.ended_ms ?? nowMs) - each.began_ms;
  const moved = moves(each).length;
  const what = moved ? `${plural(moved, "task")} moved` : "no tasks moved";
  return {
    key: `rebalance ${each.number}`, at: each.began_ms, until: each.ended_ms, kind: "rebalance", tone: each.ended_ms === null ? "warn" : "info",
    title: each.ended_ms === null ? `Rebalance ${each.number} in progress` : `Rebalance ${each.number}: ${what} in ${duration(took)}`,
    words: each.why, about: each,
  };
}

function failure(each) {
  return {
    key: `failure ${each.number}`, at: each.at_ms, until: null, kind: "failure", tone: "bad",
    title: `${each.error}${each.task ? ` in task ${each.task}` : ""}`, words: each.message, about: each,
  };
}

/** Combine restorations of one store that ended together. */
function restored(restores) {
  const groups = new Map();
  for (const each of restores) {
    if (each.state === "running" || each.kind === "standby" || each.records === 0) continue;
    const last = groups.get(`${each.store} ${each.state}`)?.at(-1);
    // The restorations are ordered latest first.
    if (last && last.at(-1).told_ms - each.told_ms < COMBINE_MS) last.push(each);
    else groups.set(`${each.store} ${each.state}`, [...(groups.get(`${each.store} ${each.state}`) ?? []), [each]]);
  }
  return [...groups.values()].flat().map((all) => {
    const records = all.reduce((sum, each) => sum + each.records, 0);
    const began = Math.min(...all.map((each) => each.began_ms));
    const ended = Math.max(...all.map((each) => each.told_ms));
    const verb = all[0].state === "done" ? "restored" : "canceled";
    return {
      key: `restore ${all[0].store} ${all.at(-1).told_ms} ${all[0].state}`, at: ended, until: null, kind: "restore", tone: all[0].state === "done" ? "ok" : "",
      title: `${all[0].store} ${verb}: ${plural(records, "record")} in ${duration(ended - began)}`,
      words: plural(all.length, "partition"), about: all,
    };
  });
}

/** The tasks whose thread or role was changed by a rebalance. */
export function moves({ before, after }) {
  const places = (owned) => {
    const found = new Map();
    for (const [thread, tasks] of Object.entries(owned)) {
      for (const task of tasks.active) found.set(task, [...(found.get(task) ?? []), `${thread} active`]);
      for (const task of tasks.standby) found.set(task, [...(found.get(task) ?? []), `${thread} standby`]);
    }
    return found;
  };
  const oldOwners = places(before);
  const newOwners = places(after);
  const same = (task) => String([...(oldOwners.get(task) ?? [])].sort()) === String([...(newOwners.get(task) ?? [])].sort());
  return [...new Set([...oldOwners.keys(), ...newOwners.keys()])].filter((task) => !same(task)).sort();
}
