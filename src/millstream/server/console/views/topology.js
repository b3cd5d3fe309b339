// The live topology: records per second and lag on edges, sizes on stores.

import { h } from "../dom.js";
import { bytes, count, duration, plural, rate, short } from "../format.js";
import { caption, layOut } from "../graph_layout.js";
import { icon } from "../icons.js";
import { Viewport } from "../viewport.js";
import { card, empty, facts, lead, table } from "../components.js";

const viewport = new Viewport();
let chosen = null;
let laid = { topology: "", drawing: null };

export function topology(state, [wanted], redraw) {
  const { parts, topics } = state.topology;
  if (wanted) chosen = wanted;
  if (!parts.length) return [lead("Topology", null), card("Topology", null, empty("topology", "Nothing to draw", "This topology has no nodes."))];
  const drawing = drawn(labeled(state));
  const live = liveness(state);
  const words = [plural(parts.length, "sub-topology", "sub-topologies"), plural(topics.length, "topic"), plural(state.stores.length, "store")].join(" · ");
  const choose = (id) => {
    chosen = id;
    redraw();
  };
  return [
    lead("Topology", words),
    h(
      "div",
      { class: "studio" },
      h("section", { class: ["card", "canvas"], "aria-label": "Drawing of the topology" }, picture(drawing, live, choose), tools(redraw)),
      h("aside", { class: ["card", "about"], "aria-label": "Details of the selection" }, about(state, live)),
    ),
    h("details", { class: ["card", "folded"] }, h("summary", null, "Show as a table"), h("div", { class: "inside" }, asTable(state.topology, live))),
  ];
}

topology.shown = (redraw) => viewport.watch(document.querySelector(".canvas svg.graph"), redraw);

/** Show internal topics without their common prefix, the application ID. */
function labeled({ topology: data, application }) {
  const prefix = `${application.id}-`;
  const label = ({ name, kind }) => (kind === "internal" && name.startsWith(prefix) ? name.slice(prefix.length) : name);
  return { ...data, topics: data.topics.map((topic) => ({ ...topic, label: label(topic) })) };
}

/** Lay out the topology once; only its numbers change later. */
function drawn(data) {
  const canvas = document.querySelector(".canvas");
  const [width, height] = canvas ? [canvas.clientWidth, canvas.clientHeight] : [Math.max(320, innerWidth - 560), 560];
  const shape = JSON.stringify([data.parts.map((part) => part.nodes), data.topics.map((topic) => topic.id)]);
  if (laid.topology !== shape) {
    const drawing = layOut(data, width - 40, height - 40);
    laid = { topology: shape, drawing };
    viewport.show(drawing.width, drawing.height);
  }
  return laid.drawing;
}

function liveness(state) {
  const edges = new Map(state.topology.edges.map((edge) => [`${edge.source} ${edge.target}`, edge]));
  const parts = new Map(state.topology.parts.map((part) => [part.id, part]));
  const stores = new Map(state.stores.map((store) => [store.name, store]));
  const topics = new Map(state.topology.topics.map((topic) => [topic.id, topic]));
  return { edges, parts, stores, topics };
}

// --- the drawing ----------------------------------------------------------------------------------

function picture(drawing, live, choose) {
  const { boxes, edges } = drawing;
  const parts = boxes.filter((box) => box.shape === "part");
  const others = boxes.filter((box) => box.shape !== "part");
  const current = others.some((box) => box.id === chosen) ? chosen : others[0]?.id;
  const onkeydown = (event) => {
    const next = neighbor(event.key, event.currentTarget.dataset.box, drawing);
    if (!next) return;
    event.preventDefault();
    choose(next);
    const element = document.querySelector(`[data-box="${CSS.escape(next)}"]`);
    element?.focus({ preventScroll: true });
    viewport.reveal(others.find((box) => box.id === next));
  };
  const help = "Arrow keys follow the flow of records and move between neighbors; plus and minus zoom.";
  return h(
    "svg",
    { class: "graph", viewBox: viewport.viewBox, role: "group", "aria-label": `Topology of ${plural(others.length, "part")}. ${help}` },
    arrowHeads(),
    parts.map((box) => partBox(box)),
    h("g", { class: "wires" }, edges.map((edge) => wire(edge, live))),
    h("g", { class: "boxes" }, others.map((box) => boxed(box, live, { chosen: box.id === chosen, current: box.id === current, choose, onkeydown }))),
    h("g", { class: "labels", "aria-hidden": "true" }, parts.map((box) => partTitle(box, live)), edges.map((edge) => label(edge, live))),
  );
}

function arrowHeads() {
  return h(
    "defs",
    null,
    h("marker", { id: "head", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto", markerUnits: "userSpaceOnUse" }, h("path", { d: "M0 .8 7 4 0 7.2z" })),
  );
}

function partBox(box) {
  return h("rect", { class: ["part", box.isGlobal && "global"], key: box.id, x: box.x, y: box.y, width: box.w, height: box.h, rx: 14 });
}

function partTitle(box, live) {
  const part = live.parts.get(box.number);
  // Details of a DataFrame function are in its box.
  if (part.dataframe) return h("text", { class: "title", key: box.id, x: box.x + 14, y: box.y + 22 }, box.name);
  const known = box.isGlobal ? ["on every instance"] : [plural(part.tasks, "task"), rate(part.records_per_s)];
  const room = box.w - 8 * box.name.length - 40;
  const words = [known.join(" · "), known.at(-1)].find((each) => each.length * 6.4 < room) ?? "";
  return h("text", { class: "title", key: box.id, x: box.x + 14, y: box.y + 22 }, box.name, h("tspan", { class: "words", dx: 10 }, words));
}

function wire(edge, live) {
  const now = live.edges.get(`${edge.source} ${edge.target}`);
  const speed = now?.records_per_s ?? 0;
  const flows = speed > 0;
  // The width changes in steps, so that the drawing is stable.
  const width = flows ? Math.min(3.2, 1.4 + 0.4 * Math.floor(Math.log10(1 + speed))) : 1.4;
  const key = `${edge.source} ${edge.target}`;
  return [
    h("path", { class: ["wire", edge.kind, flows && "flows"], key, d: edge.path, "stroke-width": width, "marker-end": edge.kind === "store" ? null : "url(#head)" }),
    flows && h("path", { class: "pulse", key: `pulse ${key}`, d: edge.path, "stroke-width": width + 2 }),
  ];
}

function label(edge, live) {
  const now = live.edges.get(`${edge.source} ${edge.target}`);
  if (!edge.label || !now || now.records_per_s === null) return null;
  const words = now.lag ? `${rate(now.records_per_s)} · ${short(now.lag)} behind` : rate(now.records_per_s);
  const width = words.length * 6.6 + 16;
  const [x, y] = edge.label;
  return h(
    "g",
    { class: ["label", now.lag > 10_000 && "late"], key: `${edge.source} ${edge.target}` },
    h("rect", { x: x - width / 2, y: y - 11, width, height: 22, rx: 11 }),
    h("text", { x, y: y + 4, "text-anchor": "middle" }, words),
  );
}

function boxed(box, live, { chosen: isChosen, current, choose, onkeydown }) {
  const text = box.shape === "node" ? box.title : (box.label ?? box.name);
  const tip = box.shape === "topic" || box.shape === "store" ? null : box.name;
  const note = noteOf(box, live);
  const middle = box.y + box.h / 2 + (box.shape === "store" ? 7 : 4.5);
  return h(
    "g",
    {
      class: ["box", box.shape, box.kind, isChosen && "chosen"], key: box.id, "data-box": box.id,
      role: "button", tabindex: current ? 0 : -1, "aria-pressed": isChosen ? "true" : "false",
      "aria-label": ariaLabel(box, note),
      onclick: () => choose(box.id),
      onfocus: () => chosen !== box.id && choose(box.id),
      onkeydown,
    },
    tip && h("title", null, tip),
    outline(box),
    box.shape !== "port" && h("text", { x: box.x + box.w / 2, y: note ? middle - 6 : middle, "text-anchor": "middle" }, caption(text)),
    note && h("text", { class: "note", x: box.x + box.w / 2, y: middle + 9, "text-anchor": "middle" }, note),
  );
}

function outline({ shape, x, y, w, h: height }) {
  if (shape === "port") return h("circle", { cx: x + w / 2, cy: y + height / 2, r: w / 2 });
  if (shape === "store") {
    const lid = 6;
    return h("path", { d: `M${x} ${y + lid}a${w / 2} ${lid} 0 0 1 ${w} 0v${height - 2 * lid}a${w / 2} ${lid} 0 0 1 ${-w} 0zM${x} ${y + lid}a${w / 2} ${lid} 0 0 0 ${w} 0` });
  }
  return h("rect", { x, y, width: w, height, rx: shape === "topic" ? height / 2 : 8 });
}

function noteOf(box, live) {
  const query = box.shape === "node" ? live.parts.get(box.part)?.dataframe : null;
  if (query) return dataframeNote(query);
  if (box.shape !== "store") return null;
  const store = live.stores.get(box.name);
  if (!store || store.entries === null) return null;
  return [`about ${short(store.entries)} ${store.entries === 1 ? "entry" : "entries"}`, store.disk_bytes === null ? null : bytes(store.disk_bytes)].filter(Boolean).join(" · ");
}

function dataframeNote({ state, batch_ms: took, rows_per_s: speed }) {
  if (state !== "running" || took === null) return state ?? "not started";
  return [rate(speed), `${duration(took)} a batch`].join(" · ");
}

function ariaLabel(box, note) {
  const kind = { topic: "Topic", store: "Store", node: "Processor", port: box.kind === "sink" ? "Sink" : "Source" }[box.shape];
  const name = box.shape === "node" ? box.title : box.name;
  return [`${kind} ${name}`, note].filter(Boolean).join(", ");
}

/** Find the target of an arrow key: the nearest box in that direction, preferably a connected one. */
function neighbor(key, from, drawing) {
  const ways = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };
  const [dx, dy] = ways[key] ?? [];
  const here = drawing.boxes.find((box) => box.id === from);
  if (dx === undefined || !here) return null;
  const wired = new Set(drawing.edges.flatMap((edge) => (edge.source === from ? [edge.target] : edge.target === from ? [edge.source] : [])));
  let best = null;
  let least = Infinity;
  for (const box of drawing.boxes) {
    if (box.shape === "part" || box.id === from) continue;
    const x = box.x + box.w / 2 - here.x - here.w / 2;
    const y = box.y + box.h / 2 - here.y - here.h / 2;
    const forward = x * dx + y * dy;
    const aside = Math.abs(x * dy) + Math.abs(y * dx);
    if (forward < 8) continue;
    const cost = (forward + 2 * aside) * (wired.has(box.id) ? 0.3 : 1);
    if (cost < least) [best, least] = [box.id, cost];
  }
  return best;
}

function tools(redraw) {
  const tool = (name, picture, act) =>
    h("button", { class: "button icon", type: "button", "aria-label": name, title: name, onclick: () => { act(); redraw(); } }, icon(picture));
  return h(
    "div",
    { class: "tools", role: "toolbar", "aria-label": "Zoom" },
    tool("Zoom in", "plus", () => viewport.zoom(1.25)),
    tool("Zoom out", "minus", () => viewport.zoom(0.8)),
    tool("Show all", "fit", () => viewport.fit()),
  );
}

// --- details of the selection ----------------------------------------------------------------------

function about(state, live) {
  const box = laid.drawing.boxes.find((each) => each.id === chosen && each.shape !== "part");
  if (!box) return legend();
  if (box.shape === "store") return aboutStore(live.stores.get(box.name) ?? { name: box.name });
  if (box.shape === "topic") return aboutTopic(live.topics.get(box.id) ?? box, state.topology);
  return aboutNode(box, state);
}

function legend() {
  const mark = (kind, words) => h("li", null, h("span", { class: ["mark", kind] }), words);
  return h(
    "div",
    { class: "inside" },
    h("h2", null, "Legend"),
    h("ul", { class: "legend" }, mark("topic", "a topic"), mark("internal", "an internal topic"), mark("node", "a processor"), mark("store", "a store"), mark("port", "a source or a sink")),
    h("p", { class: "quiet" }, "Select an element for details. Pan with the mouse, navigate with Tab and the arrow keys, and zoom with Ctrl and the wheel."),
  );
}

function description(title, kind, list, ...more) {
  return h(
    "div",
    { class: "inside" },
    h("small", { class: "quiet" }, kind),
    h("h2", { class: "name" }, title),
    facts(list, "narrow"),
    ...more,
  );
}

function aboutNode(box, state) {
  const part = state.topology.parts.find((each) => each.id === box.part);
  if (part?.dataframe) return aboutDataFrame(box, part.dataframe);
  const kind = { source: "Source", processor: "Processor", sink: "Sink" }[box.kind];
  const incoming = state.topology.edges.filter((edge) => edge.target === box.id);
  const known = incoming.map((edge) => edge.records_per_s).filter((each) => each !== null);
  const letters = state.dead_letters.filter((each) => each.node === box.name);
  return description(box.title, `${kind} of sub-topology ${box.part}`, [
    ["Name", box.title === box.name ? null : h("span", { class: "mono" }, box.name)],
    ["Input", known.length ? rate(known.reduce((sum, each) => sum + each, 0)) : null],
    ["Stores", box.stores.length ? box.stores.map((name) => h("a", { class: "block", href: `#/stores/${encodeURIComponent(name)}` }, name)) : null],
    ["Dead letters", letters.length ? letters.map((each) => h("span", { class: "block" }, `${count(each.records_total)} to ${each.topic} (${each.handler})`)) : null],
    ["Declared at", box.declared_at && h("span", { class: "mono" }, box.declared_at)],
  ]);
}

function aboutDataFrame(box, query) {
  return description(query.name, `DataFrame function, sub-topology ${box.part}`, [
    ["State", query.state ?? "not started"],
    ["Input", rate(query.rows_per_s)],
    ["Last batch", query.batch_ms === null ? null : `${duration(query.batch_ms)}, ${rate(query.batch_rows_per_s)}`],
    ["Waiting", query.lag === null ? null : plural(query.lag, "record")],
    ["Total rows", count(query.rows_total)],
    ["Restarted", query.restarts ? plural(query.restarts, "time") : null],
    ["Declared at", box.declared_at && h("span", { class: "mono" }, box.declared_at)],
  ]);
}

function aboutTopic(topic, { edges }) {
  const sum = (list) => (list.some((each) => each.records_per_s !== null) ? rate(list.reduce((all, each) => all + (each.records_per_s ?? 0), 0)) : null);
  const kind = { input: "Input topic", output: "Output topic", internal: "Internal topic", both: "Input and output topic" }[topic.kind];
  return description(topic.name, kind, [
    ["Read", sum(edges.filter((edge) => edge.source === topic.id))],
    ["Written", sum(edges.filter((edge) => edge.target === topic.id))],
    ["Waiting", topic.lag === null || topic.lag === undefined ? null : plural(topic.lag, "record")],
  ]);
}

function aboutStore(store) {
  return description(store.name, `${store.form ?? ""} store`.trim(), [
    ["Entries", store.entries === null || store.entries === undefined ? null : `about ${count(store.entries)}`],
    ["On disk", store.disk_bytes === null || store.disk_bytes === undefined ? null : bytes(store.disk_bytes)],
    ["In memory", store.memory_bytes === null || store.memory_bytes === undefined ? null : bytes(store.memory_bytes)],
    ["Keys", store.key], ["Values", store.value],
    ["Changelog", store.changelog && h("span", { class: "mono" }, store.changelog)],
  ], h("a", { class: "button", href: `#/stores/${encodeURIComponent(store.name)}` }, "Browse"));
}

function asTable({ edges }, live) {
  const name = (id) => id.slice(id.indexOf(":") + 1);
  const rows = edges.map((edge) =>
    h("tr", { key: `${edge.source} ${edge.target}` }, h("td", { class: "mono" }, name(edge.source)), h("td", { class: "mono" }, name(edge.target)), h("td", { class: "right" }, rate(live.edges.get(`${edge.source} ${edge.target}`)?.records_per_s)), h("td", { class: "right" }, short(edge.lag))),
  );
  return table("Edges of the topology", ["From", "To", { name: "Records per second", right: true }, { name: "Waiting", right: true }], rows);
}
