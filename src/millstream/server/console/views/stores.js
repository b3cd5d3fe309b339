// The stores and their entries.

import { browser } from "../browse.js";
import { h } from "../dom.js";
import { bytes, count, duration, percent, plural, short } from "../format.js";
import { card, empty, facts, lead } from "../components.js";

export function stores(state, [name], redraw) {
  if (!state.stores.length) {
    return [lead("Stores", null), card("Stores", null, empty("stores", "This application has no state", "Stores of tables, aggregations, joins and processors are listed here and can be queried."))];
  }
  const chosen = state.stores.find((each) => each.name === name) ?? null;
  return [
    lead("Stores", `${plural(state.stores.length, "store")}, ${state.stores.filter((each) => each.persistent).length} of them on disk`),
    h(
      "div",
      { class: ["shelf", chosen && "opened"] },
      h("nav", { class: "card", "aria-label": "Stores" }, h("ul", { class: "list" }, state.stores.map((each) => item(each, each === chosen)))),
      chosen
        ? h("div", { class: "stack", key: chosen.name }, about(chosen), browser(chosen, redraw))
        : h("div", { class: "card", key: "none" }, empty("search", "Choose a store", "Entries can be queried by key, by range, and by window.")),
    ),
  ];
}

function item(store, chosen) {
  const known = [
    store.form,
    store.is_global && "global",
    store.entries === null ? null : `about ${short(store.entries)} ${store.entries === 1 ? "entry" : "entries"}`,
    store.disk_bytes === null ? null : bytes(store.disk_bytes),
  ];
  return h(
    "li",
    { key: store.name },
    h(
      "a",
      { href: `#/stores/${encodeURIComponent(store.name)}`, "aria-current": chosen ? "true" : null },
      h("b", null, store.name),
      h("small", { class: "quiet" }, known.filter(Boolean).join(" · ")),
    ),
  );
}

function about(store) {
  const serdes = store.key === null ? null : `${store.key} → ${store.value ?? "?"}`;
  const known = [
    ["Kind", `${store.timestamped ? "timestamped " : ""}${store.form}${store.is_global ? ", global" : ""}`],
    ["Keys and values", serdes],
    ["Storage", store.persistent ? "on disk (RocksDB)" : "in memory"],
    ["Entries", store.entries === null ? null : `about ${count(store.entries)}`],
    ["On disk", store.disk_bytes === null ? null : bytes(store.disk_bytes)],
    ["Memtables", store.memory_bytes === null ? null : bytes(store.memory_bytes)],
    ["Cache", store.cached ? (store.cache_hits === null ? "on" : `${percent(store.cache_hits)} hit rate`) : "off"],
    ["Window", store.window_ms ? duration(store.window_ms) : null],
    ["Retention", store.retention_ms ? duration(store.retention_ms) : null],
    ["Changelog", store.changelog ?? "none", "mono"],
  ];
  return card(
    store.name,
    { note: store.subtopology === null ? "on every instance" : `sub-topology ${store.subtopology}` },
    facts(known),
  );
}
