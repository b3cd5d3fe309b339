// A small virtual DOM: `h` describes elements, and `draw` updates the page to match. Existing
// elements are reused where possible, which preserves focus, selection and scroll positions.

const SVG = "http://www.w3.org/2000/svg";

/** Describe an element: `h("a", { href, class: ["x", on && "y"], onclick }, "text", child, ...)`. */
export function h(tag, attributes, ...children) {
  const { key = null, ...rest } = attributes || {};
  const flat = children
    .flat(Infinity)
    .filter((each) => each !== null && each !== undefined && each !== false && each !== "");
  return { tag, key, attributes: rest, children: flat };
}

/** Update the children of an element to match the description. */
export function draw(parent, ...wanted) {
  const flat = wanted.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false);
  arrange(parent, flat, parent.namespaceURI === SVG);
}

function arrange(parent, wanted, inSvg) {
  const keyed = new Map();
  for (const child of parent.childNodes) {
    if (child.drawnKey) keyed.set(child.drawnKey, child);
  }
  let at = parent.firstChild;
  for (const each of wanted) {
    const found = reusable(each, at, keyed);
    const made = found ?? create(each, inSvg);
    if (made === at) {
      at = at.nextSibling;
    } else {
      parent.insertBefore(made, at);
    }
    if (typeof each === "object") {
      update(made, each, inSvg);
    } else if (made.data !== String(each)) {
      made.data = String(each);
    }
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

function reusable(wanted, at, keyed) {
  if (typeof wanted !== "object") return at?.nodeType === Node.TEXT_NODE ? at : null;
  if (wanted.key !== null) {
    const found = keyed.get(`${wanted.tag} ${wanted.key}`);
    keyed.delete(`${wanted.tag} ${wanted.key}`);
    return found ?? null;
  }
  return at?.drawnTag === wanted.tag && !at.drawnKey ? at : null;
}

function create(wanted, inSvg) {
  if (typeof wanted !== "object") return document.createTextNode(String(wanted));
  const svg = inSvg || wanted.tag === "svg";
  const made = svg ? document.createElementNS(SVG, wanted.tag) : document.createElement(wanted.tag);
  made.drawnTag = wanted.tag;
  made.drawnKey = wanted.key === null ? null : `${wanted.tag} ${wanted.key}`;
  made.drawn = {};
  return made;
}

function update(element, wanted, inSvg) {
  const before = element.drawn;
  for (const name of Object.keys(before)) {
    if (!(name in wanted.attributes)) change(element, name, null, before[name]);
  }
  for (const [name, value] of Object.entries(wanted.attributes)) {
    const plain = name === "class" ? [value].flat().filter(Boolean).join(" ") : value;
    wanted.attributes[name] = plain;
    if (plain !== before[name]) change(element, name, plain, before[name]);
  }
  element.drawn = wanted.attributes;
  arrange(element, wanted.children, inSvg || wanted.tag === "svg");
}

function change(element, name, value, before) {
  if (name.startsWith("on")) {
    if (before) element.removeEventListener(name.slice(2), before);
    if (value) element.addEventListener(name.slice(2), value);
  } else if (name === "vars") {
    // The content security policy forbids style attributes, but not custom properties set by scripts.
    for (const [variable, number] of Object.entries(value ?? {})) {
      element.style.setProperty(`--${variable}`, String(number));
    }
  } else if (name === "value" || name === "checked" || name === "open") {
    // User input since the last update is preserved until the data changes.
    element[name] = value ?? "";
  } else if (value === null || value === undefined || value === false) {
    element.removeAttribute(name);
  } else {
    element.setAttribute(name, value === true ? "" : String(value));
  }
}
