// The throughput of the last minutes as an area chart.

import { h } from "./dom.js";
import { plural, rate } from "./format.js";

const WIDTH = 1000;
const HEIGHT = 160;
const SMOOTH = 3;

/** A chart of counts per second, with the latest on the right. */
export function chart(history, label) {
  const values = smoothed(history);
  const most = nice(Math.max(1, ...values));
  const x = (index) => (values.length < 2 ? WIDTH : (index / (values.length - 1)) * WIDTH);
  const y = (value) => HEIGHT - (value / most) * (HEIGHT - 6);
  const points = values.map((value, index) => `${x(index).toFixed(1)},${y(value).toFixed(1)}`);
  const line = points.length ? `M${points.join("L")}` : "";
  const words = `${label}: ${rate(values.at(-1) ?? 0)} now, maximum ${rate(Math.max(0, ...values))} in ${plural(values.length, "second")}`;
  return h(
    "figure",
    { class: "chart" },
    h(
      "div",
      { class: "plot" },
      h(
        "svg",
        { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": words },
        [0.25, 0.5, 0.75, 1].map((part) => h("path", { class: "grid", d: `M0 ${y(most * part)}H${WIDTH}` })),
        line && h("path", { class: "area", d: `${line}L${WIDTH},${HEIGHT}L0,${HEIGHT}Z` }),
        line && h("path", { class: "line", d: line }),
      ),
      h("span", { class: "most", "aria-hidden": "true" }, rate(most)),
      h("span", { class: "half", "aria-hidden": "true" }, rate(most / 2)),
    ),
    h(
      "figcaption",
      { "aria-hidden": "true" },
      h("span", null, `${span(values.length)} ago`),
      h("span", null, "now"),
    ),
  );
}

function smoothed(history) {
  return history.map((_, index) => {
    const near = history.slice(Math.max(0, index - SMOOTH + 1), index + 1);
    return near.reduce((sum, each) => sum + each, 0) / near.length;
  });
}

/** Round up to a number that is easy to halve. */
function nice(value) {
  const ten = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 6, 8, 10].map((each) => each * ten).find((each) => each >= value);
}

function span(seconds) {
  return seconds >= 120 ? `${Math.round(seconds / 60)} min` : `${Math.max(0, seconds - 1)} s`;
}
