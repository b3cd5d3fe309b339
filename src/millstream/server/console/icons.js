// Line icons. They are decorative: each has text beside it.

import { h } from "./dom.js";

const PATHS = {
  overview: "M4 13a8 8 0 1 1 16 0M12 13l4-4M4 17h16",
  topology: "M5 4h5v5H5zM14 15h5v5h-5zM5 15h5v5H5zM7.5 9v6M10 17.5h4",
  tasks: "M4 5h16v5H4zM4 14h16v5H4zM7.5 7.5h.01M7.5 16.5h.01M11 7.5h6M11 16.5h6",
  restore: "M4 12a8 8 0 1 0 2.6-5.9M4 4v4.5h4.5M12 8v4.5l3 1.8",
  stores: "M4 6.5C4 5 7.6 4 12 4s8 1 8 2.5S16.4 9 12 9 4 8 4 6.5zM4 6.5v11C4 19 7.6 20 12 20s8-1 8-2.5v-11M4 12c0 1.5 3.6 2.5 8 2.5s8-1 8-2.5",
  errors: "M12 4 2.8 20h18.4zM12 10v4.5M12 17.3h.01",
  timeline: "M4 6h9M8 12h12M4 18h7M16.5 6h.01M4.5 12h.01M14.5 18h.01",
  subscriptions: "M4 7h10M18 7h2M4 17h2M10 17h10M16 7m-2 0a2 2 0 1 0 4 0a2 2 0 1 0-4 0M8 17m-2 0a2 2 0 1 0 4 0a2 2 0 1 0-4 0",
  sun: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM12 2.5v2M12 19.5v2M2.5 12h2M19.5 12h2M5.3 5.3l1.4 1.4M17.3 17.3l1.4 1.4M5.3 18.7l1.4-1.4M17.3 6.7l1.4-1.4",
  moon: "M20 14.5A8.5 8.5 0 0 1 9.5 4a8.5 8.5 0 1 0 10.5 10.5z",
  plus: "M12 5v14M5 12h14",
  minus: "M5 12h14",
  fit: "M4 9V4h5M20 9V4h-5M4 15v5h5M20 15v5h-5",
  check: "M5 12.5l4.5 4.5L19 7.5",
  key: "M14.5 9.5a4 4 0 1 0-3.4 4L13 15.5h2v2h2v2h3v-3l-5.5-5.5z",
  search: "M11 4a7 7 0 1 0 0 14 7 7 0 0 0 0-14zM16 16l4.5 4.5",
};

export function icon(name) {
  return h(
    "svg",
    {
      viewBox: "0 0 24 24", fill: "none", stroke: "currentColor", "stroke-width": "1.7",
      "stroke-linecap": "round", "stroke-linejoin": "round", "aria-hidden": "true", focusable: "false",
    },
    h("path", { d: PATHS[name] }),
  );
}

/** The logo, as in `icon.svg`: a wheel above water. */
export function brand() {
  return h(
    "svg",
    { class: "mark-of-brand", viewBox: "0 0 32 32", "aria-hidden": "true", focusable: "false" },
    h("rect", { width: 32, height: 32, rx: 8 }),
    h("path", { d: "M9.4 14a6.6 6.6 0 1 0 13.2 0a6.6 6.6 0 1 0-13.2 0M16 7.4v13.2M9.4 14h13.2M5 24.6c2.2-1.8 4.4-1.8 6.6 0s4.4 1.8 6.6 0 4.4-1.8 6.6 0" }),
  );
}
