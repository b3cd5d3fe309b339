// The layout of a topology. No DOM: computes coordinates from data.
//
// Sub-topologies and topics are the vertices of an outer graph; the nodes of each sub-topology are
// the vertices of an inner graph. Both are drawn in layers, sources before their readers. An edge
// across several layers gets a bend in each of them, so that it does not cross other vertices.
// Vertices of a layer are placed as close as possible to their neighbors. The layout runs from left
// to right or from top to bottom, whichever can be drawn larger.

import { shortened } from "./format.js";

const HEIGHTS = { topic: 30, processor: 30, dataframe: 44, store: 52 };
// The size of a port: the mark of a source or sink on the border of a sub-topology.
const PORT_SIZE = 13;
const MIN_WIDTH = 84;
// Fits two lines: the name, and the state of the query.
const MIN_DATAFRAME_WIDTH = 190;
// Fits two lines: the name, and the approximate size.
const MIN_STORE_WIDTH = 190;
const MAX_CAPTION_LENGTH = 26;
const PADDING = 16;
const HEADER_HEIGHT = 44;
const LANE_WIDTH = 24;

/** The name of a box, shortened to fit. */
export function caption(text) {
  return shortened(text, MAX_CAPTION_LENGTH);
}

/**
 * Lay out `topology` for a canvas of `width` × `height`:
 * { width, height, across, boxes: [{ id, kind, x, y, w, h, part, ... }], edges: [{ ..., path, label }] }.
 */
export function layOut(topology, width, height) {
  const drawings = [true, false].map((across) => drawing(topology, across));
  const scale = (each) => Math.min(width / each.width, height / each.height, 1);
  return scale(drawings[0]) >= scale(drawings[1]) ? drawings[0] : drawings[1];
}

function drawing(topology, across) {
  const parts = topology.parts.map((part) => layOutPart(part, topology.edges, across));
  const owner = new Map();
  for (const part of parts) for (const box of part.boxes) owner.set(box.id, `part:${part.id}`);
  const vertices = [
    ...topology.topics.map((topic) => ({ id: topic.id, ...size(topic.label, "topic", across), topic })),
    ...parts.map((part) => ({ id: `part:${part.id}`, along: part.along, cross: part.cross, part })),
  ];
  const outer = topology.edges.filter((edge) => edge.kind !== "flow");
  const ports = new Map(parts.flatMap((part) => part.boxes).map((box) => [box.id, across ? box.y + box.h / 2 : box.x + box.w / 2]));
  const edges = outer.map((edge) => [owner.get(edge.source) ?? edge.source, owner.get(edge.target) ?? edge.target, ports.get(edge.source), ports.get(edge.target)]);
  const ways = place(vertices, edges, across ? 84 : 46, across ? 24 : 30);
  return finished(vertices, topology, new Map(outer.map((edge, index) => [edge, ways[index]])), across);
}

function finished(vertices, topology, ways, across) {
  const boxes = [];
  for (const vertex of vertices) {
    const corner = turned(vertex.at, vertex.off, across);
    if (vertex.topic) {
      boxes.push({ ...vertex.topic, shape: "topic", ...corner, ...extent(vertex, across) });
      continue;
    }
    const { part } = vertex;
    boxes.push({ id: vertex.id, shape: "part", name: part.name, isGlobal: part.isGlobal, number: part.id, ...corner, ...extent(vertex, across) });
    for (const box of part.boxes) boxes.push({ ...box, x: box.x + corner.x, y: box.y + corner.y });
    for (const [edge, way] of part.ways) ways.set(edge, way.map(([x, y]) => [x + corner.x, y + corner.y]));
  }
  const byId = new Map(boxes.map((box) => [box.id, box]));
  const edges = topology.edges.map((edge) => {
    const way = edge.kind === "flow" ? ways.get(edge) : ways.get(edge).map(([at, off]) => point(at, off, across));
    return { ...edge, ...wire(byId.get(edge.source), byId.get(edge.target), way, across) };
  });
  for (const box of boxes.filter((each) => each.shape === "store")) {
    for (const user of box.users) {
      edges.push({ kind: "store", source: user, target: box.id, ...link(byId.get(user), box, across) });
    }
  }
  const right = Math.max(0, ...boxes.map((box) => box.x + box.w));
  const bottom = Math.max(0, ...boxes.map((box) => box.y + box.h));
  return { width: right, height: bottom, across, boxes, edges };
}

/** Lay out a sub-topology: its nodes in layers, its stores in a row beside them. */
function layOutPart(part, edges, across) {
  const nodes = part.nodes.map((node) => ({ id: node.id, ...(node.kind === "processor" ? size(node.title, part.dataframe ? "dataframe" : node.kind, across) : portSize(across)), node, isLast: node.kind === "sink" }));
  const inside = new Set(nodes.map((node) => node.id));
  const flows = edges.filter((edge) => edge.kind === "flow" && inside.has(edge.target));
  const gap = across ? 36 : 20;
  const ways = place(nodes, flows.map((edge) => [edge.source, edge.target]), gap, across ? 14 : 18);
  // Sources are on the border, so the following layer starts inside.
  const outside = nodes.some(({ node }) => node.kind === "source") ? gap : 0;
  const shift = across ? [PADDING - outside + 8, HEADER_HEIGHT] : [HEADER_HEIGHT - outside, PADDING];
  const boxes = nodes.map((vertex) => {
    const { x, y } = turned(vertex.at + shift[0], vertex.off + shift[1], across);
    const { w, h } = extent(vertex, across);
    const isPort = vertex.node.kind !== "processor";
    const box = isPort ? { x: x + w / 2 - PORT_SIZE / 2, y: y + h / 2 - PORT_SIZE / 2, w: PORT_SIZE, h: PORT_SIZE } : { x, y, w, h };
    return { ...vertex.node, shape: isPort ? "port" : "node", part: part.id, ...box };
  });
  const inner = boxes.filter((box) => box.shape !== "port");
  inner.push(...storeBoxes(part, boxes, across));
  const wide = [...(across ? inner : boxes), ...inner];
  const w = Math.max(MIN_WIDTH, ...wide.map((box) => box.x + box.w + (box.shape === "port" ? (MIN_WIDTH - PORT_SIZE) / 2 - PADDING : 0))) + PADDING + (across ? 8 : 0);
  const h = Math.max(HEADER_HEIGHT + 12, ...[...(across ? boxes : inner), ...inner].map((box) => box.y + box.h)) + PADDING;
  for (const box of boxes.filter((each) => each.shape === "port")) {
    const border = box.kind === "source" ? 0 : across ? w : h;
    box[across ? "x" : "y"] = border - PORT_SIZE / 2;
  }
  const stores = inner.filter((box) => box.shape === "store");
  boxes.push(...stores);
  return {
    id: part.id,
    name: part.is_global ? "Global store" : `Sub-topology ${part.id}`,
    isGlobal: part.is_global,
    boxes,
    ways: flows.map((edge, index) => [edge, ways[index].map(([at, off]) => point(at + shift[0], off + shift[1], across))]),
    along: across ? w : h,
    cross: across ? h : w,
  };
}

function storeBoxes(part, nodes, across) {
  const users = new Map();
  for (const node of part.nodes) {
    for (const store of node.stores) users.set(store, [...(users.get(store) ?? []), node.id]);
  }
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const inside = nodes.filter((node) => node.shape === "node");
  const below = Math.max(0, ...inside.map((node) => node.y + node.h)) + 24;
  const beside = Math.max(0, ...inside.map((node) => node.x + node.w)) + 36;
  const h = HEIGHTS.store;
  const found = [...users].map(([name, ids]) => {
    const last = byId.get(ids.at(-1));
    const w = Math.max(MIN_STORE_WIDTH, size(name, "store", true).along);
    const place = across ? { x: last.x, y: below } : { x: beside, y: last.y + last.h / 2 - h / 2 };
    return { id: `store:${part.id}:${name}`, name, shape: "store", part: part.id, users: ids, ...place, w, h };
  });
  // Move overlapping stores apart within their row or column.
  found.sort((one, other) => (across ? one.x - other.x : one.y - other.y));
  for (let index = 1; index < found.length; index += 1) {
    const before = found[index - 1];
    if (across) found[index].x = Math.max(found[index].x, before.x + before.w + 16);
    else found[index].y = Math.max(found[index].y, before.y + h + 12);
  }
  return found;
}

// --- layers ---------------------------------------------------------------------------------------

/**
 * Set `at` (along the flow) and `off` (across it) of each vertex, and return the bends of each edge.
 * An edge is [source, target], optionally with the positions at which it leaves and meets them.
 */
function place(vertices, edges, gapAlong, gapCross) {
  const depth = depths(vertices, edges);
  const layers = [];
  for (const vertex of vertices) (layers[depth.get(vertex.id)] ??= []).push(vertex);
  const bends = edges.map(([source, target], index) => {
    const passed = [];
    for (let layer = depth.get(source) + 1; layer < depth.get(target); layer += 1) {
      const bend = { id: `bend ${index} ${layer}`, along: 0, cross: LANE_WIDTH, isBend: true };
      passed.push(bend);
      (layers[layer] ??= []).push(bend);
    }
    return passed;
  });
  const links = edges.flatMap(([source, target, leaves, meets], index) => {
    const stations = [[source, leaves], ...bends[index].map((bend) => [bend.id]), [target, meets]];
    return stations.slice(1).map((station, from) => [stations[from], station]);
  });
  const filled = layers.filter(Boolean);
  const all = filled.flat();
  assignOffsets(filled, links, new Map(all.map((each) => [each.id, each])), gapCross);
  let at = 0;
  for (const layer of filled) {
    const deepest = Math.max(...layer.map((each) => each.along));
    for (const each of layer) {
      each.at = at + (deepest - each.along) / 2;
      each.end = [at, at + deepest];
    }
    at += deepest + gapAlong;
  }
  const least = Math.min(...all.map((each) => each.off));
  for (const each of all) each.off -= least;
  return bends.map((passed) => passed.flatMap((bend) => bend.end.map((end) => [end, bend.off + LANE_WIDTH / 2])));
}

function depths(vertices, edges) {
  const targets = new Map(vertices.map((vertex) => [vertex.id, []]));
  for (const [source, target] of edges) {
    if (targets.has(source) && targets.has(target)) targets.get(source).push(target);
  }
  const order = [];
  const seen = new Set();
  const visit = (id) => {
    seen.add(id);
    for (const target of targets.get(id)) if (!seen.has(target)) visit(target);
    order.unshift(id);
  };
  const read = new Set(edges.map(([, target]) => target));
  for (const vertex of [...vertices].sort((one, other) => read.has(one.id) - read.has(other.id))) {
    if (!seen.has(vertex.id)) visit(vertex.id);
  }
  // Back edges, as in a loop through a topic, are ignored.
  const position = new Map(order.map((id, index) => [id, index]));
  const depth = new Map(order.map((id) => [id, 0]));
  for (const id of order) {
    for (const target of targets.get(id)) {
      if (position.get(target) > position.get(id)) depth.set(target, Math.max(depth.get(target), depth.get(id) + 1));
    }
  }
  // Sources are placed directly before their readers, final vertices in the last layer.
  for (const id of order.filter((each) => !read.has(each))) {
    const next = targets.get(id).map((target) => depth.get(target));
    if (next.length) depth.set(id, Math.max(0, Math.min(...next) - 1));
  }
  const deepest = Math.max(0, ...depth.values());
  for (const vertex of vertices) {
    if (vertex.isLast && !targets.get(vertex.id).length) depth.set(vertex.id, deepest);
  }
  return depth;
}

function assignOffsets(layers, links, byId, gap) {
  const before = neighbors(links, 1, 0, byId);
  const after = neighbors(links, 0, 1, byId);
  for (const layer of layers) {
    let off = 0;
    for (const each of layer) {
      each.off = off;
      off += each.cross + gap;
    }
  }
  for (let sweep = 0; sweep < 8; sweep += 1) {
    for (const layer of layers.slice(1)) align(layer, before, gap);
    for (const layer of layers.slice(0, -1).reverse()) align(layer, after, gap);
  }
  for (const layer of layers.slice(1)) align(layer, before, gap);
}

function neighbors(links, from, to, byId) {
  const found = new Map();
  for (const each of links) {
    const [id, own] = each[from];
    const [otherId, at] = each[to];
    const other = byId.get(otherId);
    const near = other && { at: () => other.off + (at ?? other.cross / 2), own: own ?? byId.get(id)?.cross / 2 };
    if (near) found.set(id, [...(found.get(id) ?? []), near]);
  }
  return found;
}

/** Align each vertex with the center of its neighbors, and resolve collisions. */
function align(layer, neighborsOf, gap) {
  for (const vertex of layer) {
    const near = neighborsOf.get(vertex.id) ?? [];
    vertex.wish = near.length
      ? near.reduce((sum, each) => sum + each.at() - each.own, 0) / near.length
      : vertex.off;
  }
  layer.sort((one, other) => one.wish + one.cross / 2 - (other.wish + other.cross / 2));
  const groups = [];
  for (const vertex of layer) {
    let group = { wish: vertex.wish, size: vertex.cross, members: [vertex], count: 1 };
    while (groups.length && groups.at(-1).wish + groups.at(-1).size + gap > group.wish) {
      const before = groups.pop();
      const count = before.count + group.count;
      const wish = (before.wish * before.count + (group.wish - before.size - gap) * group.count) / count;
      group = { wish, size: before.size + gap + group.size, members: [...before.members, ...group.members], count };
    }
    groups.push(group);
  }
  for (const group of groups) {
    let off = group.wish;
    for (const vertex of group.members) {
      vertex.off = off;
      off += vertex.cross + gap;
    }
  }
}

// --- directions -----------------------------------------------------------------------------------

function size(text, kind, across) {
  const w = Math.max(kind === "dataframe" ? MIN_DATAFRAME_WIDTH : MIN_WIDTH, caption(text).length * 7.4 + (kind === "topic" ? 34 : 24));
  const h = HEIGHTS[kind];
  return across ? { along: w, cross: h } : { along: h, cross: w };
}

function portSize(across) {
  return across ? { along: 0, cross: HEIGHTS.processor } : { along: 0, cross: MIN_WIDTH };
}

function extent(vertex, across) {
  return across ? { w: vertex.along, h: vertex.cross } : { w: vertex.cross, h: vertex.along };
}

function turned(at, off, across) {
  return across ? { x: at, y: off } : { x: off, y: at };
}

function point(at, off, across) {
  return across ? [at, off] : [off, at];
}

/** The path of an edge through its bends, and the position of its label. */
function wire(from, to, bends, across) {
  const start = across ? [from.x + from.w, from.y + from.h / 2] : [from.x + from.w / 2, from.y + from.h];
  const end = across ? [to.x, to.y + to.h / 2] : [to.x + to.w / 2, to.y];
  const stations = [start, ...bends, end];
  const curves = stations.slice(1).map((b, index) => curve(stations[index], b, across));
  // Edges from topics have their label on the first curve, where there is room before the box.
  const [a, c, d, b] = curves.length > 1 && from.shape !== "topic" ? curves.at(-1) : curves[0];
  return {
    path: `M${start}${curves.map(([, one, other, last]) => ` C${one} ${other} ${last}`).join("")}`,
    label: [(a[0] + 3 * c[0] + 3 * d[0] + b[0]) / 8, (a[1] + 3 * c[1] + 3 * d[1] + b[1]) / 8],
  };
}

function curve(a, b, across) {
  const along = across ? b[0] - a[0] : b[1] - a[1];
  const bend = along > 0 ? along / 2 : 60;
  const c = across ? [a[0] + bend, a[1]] : [a[0], a[1] + bend];
  const d = across ? [b[0] - bend, b[1]] : [b[0], b[1] - bend];
  return [a, c, d, b];
}

function link(from, to, across) {
  const a = across ? [from.x + from.w / 2, from.y + from.h] : [from.x + from.w, from.y + from.h / 2];
  const b = across ? [to.x + to.w / 2, to.y] : [to.x, to.y + to.h / 2];
  const middle = across ? (a[1] + b[1]) / 2 : (a[0] + b[0]) / 2;
  const path = across ? `M${a} C${a[0]},${middle} ${b[0]},${middle} ${b}` : `M${a} C${middle},${a[1]} ${middle},${b[1]} ${b}`;
  return { path, label: null };
}
