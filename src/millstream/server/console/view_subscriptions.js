// Subscriptions: what waits, how fast they are, and their properties, which can be changed here.

import { h } from "./dom.js";
import { count, duration, rate, short } from "./format.js";
import { card, empty, figure, lead, table } from "./pieces.js";
import { ask } from "./server.js";

// A change that has been typed and not confirmed yet, and what the server said last.
const change = { property: null, value: null, busy: false, error: null, done: null };

export function subscriptions(state, _, again) {
  if (!state.subscriptions.length) {
    return [lead("Subscriptions", null), card("Subscriptions", null, empty("subscriptions", "This is no subscription", "A ProcessorSubscription shows here what is pending, how many tasks of a partition run at a time, and how fast."))];
  }
  return state.subscriptions.flatMap((each) => one(each, again));
}

subscriptions.shown = () => {
  const dialog = document.querySelector("dialog");
  if (dialog && change.property && !dialog.open) dialog.showModal();
  if (dialog && !change.property && dialog.open) dialog.close();
};

function one(subscription, again) {
  const { rate_per_partition: limit } = subscription;
  return [
    lead(subscription.name, `reads ${subscription.topic}`),
    h(
      "dl",
      { class: "figures" },
      figure("Pending", short(subscription.pending), "tasks taken and not finished"),
      figure("Speed", rate(subscription.records_per_s), `${count(subscription.processed_total)} tasks in all`),
      figure("Concurrency", count(subscription.concurrency), "tasks of a partition at a time"),
      figure("Rate limit", limit < 0 ? "none" : limit === 0 ? "stopped" : `${count(limit)}/s`, "of each partition"),
      figure("Failed", count(subscription.failed_total), `${count(subscription.dead_total)} to dead letters`),
    ),
    h("div", { class: "pair wide" }, card("Properties", { note: change.done, key: "properties" }, properties(subscription, again)), card("Partitions", { key: "partitions" }, partitions(subscription))),
    confirmation(subscription, again),
  ];
}

function partitions({ partitions: all, name }) {
  if (!all.length) return h("p", { class: "quiet" }, "No partition has come to this instance yet.");
  const rows = all.map((each) =>
    h(
      "tr",
      { key: `${each.topic} ${each.partition}` },
      h("td", null, h("span", { class: "mono" }, `${each.topic}-${each.partition}`), each.paused && h("span", { class: ["pill", "warn", "gap"] }, "Full")),
      h("td", { class: "right" }, count(each.pending)),
      h("td", { class: "right" }, each.pending ? duration(each.oldest_ms) : "–"),
      h("td", { class: "right" }, count(each.processed_total)),
    ),
  );
  return table(`Partitions of ${name}`, ["Partition", { name: "Pending", right: true }, { name: "Oldest", right: true }, { name: "Processed", right: true }], rows);
}

function properties(subscription, again) {
  return h("ul", { class: "properties" }, subscription.properties.map((each) => property(each, again)));
}

function property(each, again) {
  const id = `property-${each.name}`;
  const editable = !each.fixed && ["int", "bool"].includes(each.kind) && each.value !== null;
  const submit = (event) => {
    event.preventDefault();
    const value = read(event.currentTarget, each);
    if (value === each.value) return;
    Object.assign(change, { property: each.name, value, error: null, done: null });
    again();
  };
  return h(
    "li",
    { key: each.name },
    h("div", null, h("label", { class: "mono", for: editable ? id : null }, each.name), h("p", { class: "quiet", id: `${id}-doc` }, each.doc)),
    editable
      ? h(
          "form",
          { class: "row", onsubmit: submit },
          each.kind === "bool"
            ? h("select", { id, name: "value", value: String(each.value), "aria-describedby": `${id}-doc` }, h("option", { value: "true" }, "true"), h("option", { value: "false" }, "false"))
            : h("input", { id, name: "value", type: "number", step: 1, min: each.least, max: each.most, required: true, value: String(each.value), "aria-describedby": `${id}-doc` }),
          h("button", { class: "button", type: "submit", "aria-label": `Change ${each.name}` }, "Change"),
        )
      : h("code", null, JSON.stringify(each.value)),
  );
}

function read(form, { kind }) {
  const text = new FormData(form).get("value");
  return kind === "bool" ? text === "true" : Number(text);
}

function confirmation(subscription, again) {
  const property = subscription.properties.find((each) => each.name === change.property);
  const close = () => {
    Object.assign(change, { property: null, error: null });
    again();
  };
  const confirm = async (event) => {
    event.preventDefault();
    Object.assign(change, { busy: true, error: null });
    again();
    try {
      await ask("/subscription/properties", { method: "PUT", body: { [change.property]: change.value } });
      Object.assign(change, { done: `${change.property} is changed`, property: null });
    } catch (error) {
      change.error = error;
    }
    change.busy = false;
    again();
  };
  return h(
    "dialog",
    { key: "confirm", "aria-labelledby": "confirm-title", oncancel: close },
    property &&
      h(
        "form",
        { onsubmit: confirm },
        h("h2", { id: "confirm-title" }, `Change ${property.name}?`),
        h("p", { class: "exchange-value" }, h("code", null, JSON.stringify(property.value)), h("span", { "aria-label": "to" }, " → "), h("code", null, JSON.stringify(change.value))),
        h("p", { class: "quiet" }, `${property.doc} It is felt ${property.applied}, by all threads of this instance.`),
        change.error && h("div", { class: ["callout", "bad"], role: "alert" }, h("p", null, change.error.message)),
        h("div", { class: ["row", "ends"] }, h("button", { class: "button", type: "button", onclick: close }, "Keep it"), h("button", { class: "button main", type: "submit", disabled: change.busy }, change.busy ? "Changing…" : "Change it")),
      ),
  );
}
