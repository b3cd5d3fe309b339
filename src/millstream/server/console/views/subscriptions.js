// Subscriptions: pending tasks, throughput, and properties that can be changed.

import { h } from "../dom.js";
import { count, duration, rate, short } from "../format.js";
import { card, empty, figure, lead, table } from "../components.js";
import { fetchJson } from "../server.js";

// A change that is not confirmed yet, and the result of the latest change.
const change = { property: null, value: null, busy: false, error: null, done: null };

export function subscriptions(state, _, redraw) {
  if (!state.subscriptions.length) {
    return [lead("Subscriptions", null), card("Subscriptions", null, empty("subscriptions", "No subscriptions", "A ProcessorSubscription shows its pending tasks, concurrency and throughput here."))];
  }
  return state.subscriptions.flatMap((each) => one(each, redraw));
}

subscriptions.shown = () => {
  const dialog = document.querySelector("dialog");
  if (dialog && change.property && !dialog.open) dialog.showModal();
  if (dialog && !change.property && dialog.open) dialog.close();
};

function one(subscription, redraw) {
  const { rate_per_partition: limit } = subscription;
  return [
    lead(subscription.name, `reads ${subscription.topic}`),
    h(
      "dl",
      { class: "figures" },
      figure("Pending", short(subscription.pending), "tasks not yet completed"),
      figure("Speed", rate(subscription.records_per_s), `${count(subscription.processed_total)} tasks in total`),
      figure("Concurrency", count(subscription.concurrency), "concurrent tasks per partition"),
      figure("Rate limit", limit < 0 ? "none" : limit === 0 ? "stopped" : `${count(limit)}/s`, "per partition"),
      figure("Failed", count(subscription.failed_total), `${count(subscription.dead_total)} to dead letters`),
    ),
    h("div", { class: "pair wide" }, card("Properties", { note: change.done, key: "properties" }, properties(subscription, redraw)), card("Partitions", { key: "partitions" }, partitions(subscription))),
    confirmation(subscription, redraw),
  ];
}

function partitions({ partitions: all, name }) {
  if (!all.length) return h("p", { class: "quiet" }, "No partition is assigned to this instance yet.");
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

function properties(subscription, redraw) {
  return h("ul", { class: "properties" }, subscription.properties.map((each) => property(each, redraw)));
}

function property(each, redraw) {
  const id = `property-${each.name}`;
  const editable = !each.fixed && ["int", "bool"].includes(each.kind) && each.value !== null;
  const submit = (event) => {
    event.preventDefault();
    const value = read(event.currentTarget, each);
    if (value === each.value) return;
    Object.assign(change, { property: each.name, value, error: null, done: null });
    redraw();
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

function confirmation(subscription, redraw) {
  const property = subscription.properties.find((each) => each.name === change.property);
  const close = () => {
    Object.assign(change, { property: null, error: null });
    redraw();
  };
  const confirm = async (event) => {
    event.preventDefault();
    Object.assign(change, { busy: true, error: null });
    redraw();
    try {
      await fetchJson("/subscription/properties", { method: "PUT", body: { [change.property]: change.value } });
      Object.assign(change, { done: `${change.property} changed`, property: null });
    } catch (error) {
      change.error = error;
    }
    change.busy = false;
    redraw();
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
        h("p", { class: "quiet" }, `${property.doc} Takes effect ${property.applied}, in all threads of this instance.`),
        change.error && h("div", { class: ["callout", "bad"], role: "alert" }, h("p", null, change.error.message)),
        h("div", { class: ["row", "ends"] }, h("button", { class: "button", type: "button", onclick: close }, "Cancel"), h("button", { class: "button main", type: "submit", disabled: change.busy }, change.busy ? "Changing…" : "Change")),
      ),
  );
}
