// Queries of a store by key, range or window, one page at a time.

import { h } from "./dom.js";
import { moment, plural, valueText } from "./format.js";
import { card, table } from "./components.js";
import { fetchJson, path } from "./server.js";

const PAGE = 50;

// The queries for each form of store, with a display name, the fields, and the path to request.
const QUERIES = {
  "key-value": [
    { name: "Key", fields: ["key"], to: (store, { key }) => ofKey(store, "keys", key) },
    { name: "Range", fields: ["from", "to"], to: (store, { from, to, cursor }) => path(["stores", store, "range"], { from, to, cursor, limit: PAGE }) },
  ],
  window: [
    { name: "Key", fields: ["key", "since", "until"], to: (store, { key, since, until, cursor }) => ofKey(store, "windows", key, { from: since, to: until, cursor, limit: PAGE }) },
    { name: "All keys", fields: ["since", "until"], to: (store, { since, until, cursor }) => path(["stores", store, "windows"], { from: since, to: until, cursor, limit: PAGE }) },
  ],
  session: [{ name: "Key", fields: ["key"], to: (store, { key, cursor }) => ofKey(store, "sessions", key, { cursor, limit: PAGE }) }],
  versioned: [
    { name: "Key", fields: ["key"], to: (store, { key }) => ofKey(store, "keys", key) },
    { name: "Versions", fields: ["key", "since", "until"], to: (store, { key, since, until, cursor }) => ofKey(store, "versions", key, { from: since, to: until, cursor, limit: PAGE }) },
  ],
};

function ofKey(store, what, key, given = {}) {
  // Browsers interpret `.` and `..` as relative path segments even if they are percent-encoded.
  const isDotSegment = key === "." || key === "..";
  return isDotSegment ? path(["stores", store, what, btoa(key)], { ...given, key_as: "base64" }) : path(["stores", store, what, key], given);
}

const FIELDS = {
  key: { label: "Key", type: "text", required: true },
  from: { label: "From key", type: "text", hint: "first" },
  to: { label: "To key", type: "text", hint: "last" },
  since: { label: "From", type: "datetime-local", step: 1 },
  until: { label: "To", type: "datetime-local", step: 1 },
};

const forms = new Map();

/** The query form and the results of a store. */
export function browser(store, redraw) {
  const ways = QUERIES[store.form];
  if (!ways) {
    return card("Entries", null, h("p", { class: "quiet" }, "This internal store buffers records and cannot be queried."));
  }
  const at = forms.get(store.name) ?? { way: 0, pages: [], busy: false, error: null, given: null };
  forms.set(store.name, at);
  const way = ways[at.way];
  const submit = (event) => {
    event.preventDefault();
    runQuery(store, at, way, read(event.currentTarget, way), redraw);
  };
  return card(
    "Entries",
    { key: "entries" },
    h(
      "form",
      { class: "ask", onsubmit: submit, "aria-label": `Query ${store.name}` },
      ways.length > 1 && choice(ways, at, redraw),
      h("div", { class: "row" }, way.fields.map((name) => field(name)), h("button", { class: "button main", type: "submit", disabled: at.busy }, at.busy ? "Loading…" : "Query")),
    ),
    h("div", { class: "found", "aria-live": "polite", "aria-busy": at.busy ? "true" : "false" }, found(store, at, way, redraw)),
  );
}

function choice(ways, at, redraw) {
  return h(
    "fieldset",
    { class: "choice" },
    h("legend", { class: "unseen" }, "Query by"),
    ways.map((way, index) =>
      h(
        "label",
        { key: way.name, "data-way": way.name },
        h("input", {
          type: "radio", name: "way", class: "unseen", checked: index === at.way,
          onchange: () => {
            Object.assign(at, { way: index, pages: [], error: null, given: null });
            redraw();
          },
        }),
        h("span", null, way.name),
      ),
    ),
  );
}

function field(name) {
  const { label, type, hint = null, required = false, step = null } = FIELDS[name];
  return h(
    "label",
    { class: "field", key: name },
    h("span", null, label),
    h("input", { name, type, required, step, placeholder: hint, autocomplete: "off", spellcheck: "false" }),
  );
}

function read(form, way) {
  const data = new FormData(form);
  const given = {};
  for (const name of way.fields) {
    const text = data.get(name);
    given[name] = FIELDS[name].type === "datetime-local" && text ? new Date(text).getTime() : text;
  }
  return given;
}

async function runQuery(store, at, way, given, redraw, cursor = null) {
  Object.assign(at, { busy: true, error: null, given, pages: cursor ? at.pages : [] });
  redraw();
  try {
    const document = await fetchJson(way.to(store.name, { ...given, cursor }));
    at.pages.push({ entries: document.entries ?? [document], cursor: document.cursor ?? null });
  } catch (error) {
    at.error = error;
  }
  at.busy = false;
  redraw();
}

function found(store, at, way, redraw) {
  if (at.error?.code === "KEY_NOT_FOUND") {
    return h("p", { class: "quiet" }, "There is no entry with this key.");
  }
  if (at.error) {
    return h("div", { class: ["callout", "warn"] }, h("span", { class: "pill" }, h("b", null, at.error.code)), h("p", null, at.error.message));
  }
  if (!at.given) return h("p", { class: "quiet" }, "Queries are answered by the thread that owns the key, on any host.");
  const entries = at.pages.flatMap((page) => page.entries);
  if (!entries.length) return at.busy ? null : h("p", { class: "quiet" }, "No entries.");
  const cursor = at.pages.at(-1).cursor;
  return [
    results(store, entries),
    h(
      "div",
      { class: ["row", "pages"] },
      h("span", { class: "quiet" }, `${plural(entries.length, "entry", "entries")}${cursor ? "" : ", no more entries"}`),
      cursor && h("button", { class: "button", type: "button", disabled: at.busy, onclick: () => runQuery(store, at, way, at.given, redraw, cursor) }, "More"),
    ),
  ];
}

// Optional fields of an entry, with their titles.
const COLUMNS = [
  ["window_start", "Window from", moment], ["window_end", "To", moment], ["timestamp", "Timestamp", moment],
  ["valid_to", "Valid to", moment], ["partition", "Partition", String], ["host", "Host", String],
];

function results(store, entries) {
  const extra = COLUMNS.filter(([name]) => entries.some((each) => each[name] !== undefined && each[name] !== null));
  const rows = entries.map((each, index) =>
    h(
      "tr",
      { key: index },
      h("td", { class: "mono" }, valueText(each.key)),
      h("td", { class: ["mono", "value"] }, valueText(each.value)),
      extra.map(([name, , words]) => h("td", { class: ["quiet", "nowrap"] }, each[name] === undefined || each[name] === null ? "" : words(each[name]))),
    ),
  );
  return table(`Entries of ${store.name}`, ["Key", "Value", ...extra.map(([, words]) => words)], rows);
}
