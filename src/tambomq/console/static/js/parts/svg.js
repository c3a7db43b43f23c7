// Small drawings whose lengths come from data: sparklines and meters. SVG attributes, so that no style is set.

import { s } from "../dom.js";

const WIDTH = 104;
const HEIGHT = 20;
const ALONE = 4; // how long the line of a single value is

/** A sparkline that `drawSparkline` fills. */
export function sparkline() {
  const area = s("path", { class: "area backlog" });
  const line = s("path", { class: "line backlog" });
  const svg = s("svg", { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" }, area, line);
  return { svg, area, line };
}

/** Draws values, oldest first; null leaves a gap. A value between gaps is a short line; one that is always 0 lies at the foot. */
export function drawSparkline({ area, line }, values) {
  const known = values.filter((value) => value !== null);
  const top = Math.max(1, ...known);
  const step = WIDTH / Math.max(1, values.length - 1);
  const y = (value) => (HEIGHT - 1.5 - (value / top) * (HEIGHT - 3)).toFixed(1);
  let path = "";
  let filled = "";
  let first = null;
  values.forEach((value, index) => {
    const x = (index * step).toFixed(1);
    if (value === null) {
      if (first !== null) filled += `L${((index - 1) * step).toFixed(1)} ${HEIGHT}H${first}Z`;
      first = null;
      return;
    }
    path += `${first === null ? "M" : "L"}${x} ${y(value)}`;
    if ((values[index - 1] ?? null) === null && (values[index + 1] ?? null) === null) path += `h${index ? -ALONE : ALONE}`;
    filled += first === null ? `M${x} ${HEIGHT}L${x} ${y(value)}` : `L${x} ${y(value)}`;
    first ??= x;
  });
  if (first !== null) filled += `L${WIDTH} ${HEIGHT}H${first}Z`;
  line.setAttribute("d", path);
  area.setAttribute("d", filled);
}

/** A bar of `part` in `all`; something is always visible of what is not zero. */
export function meter(part, all, series) {
  const width = all > 0 ? Math.min(100, Math.max(part > 0 ? 1 : 0, (100 * part) / all)) : 0;
  return s("svg", { class: "meter", viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" },
    s("rect", { class: "bar track", width: 100, height: 8 }),
    s("rect", { class: `bar ${series}`, width: width.toFixed(1), height: 8 }));
}

/** The sample of a line in a legend. */
export function lineSample(series, look) {
  return s("svg", { viewBox: "0 0 16 8", "aria-hidden": "true" }, s("path", { class: `line ${series} ${look}`, d: "M0 4H16" }));
}

export function barSample(series) {
  return s("svg", { viewBox: "0 0 16 8", "aria-hidden": "true" }, s("rect", { class: `bar ${series}`, x: 4, width: 8, height: 8 }));
}
