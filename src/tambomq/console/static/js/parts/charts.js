// Charts over time, drawn by uPlot at their width. The legend has the values; a text says what is shown.

import uPlot from "../../vendor/uplot/uPlot.esm.js";
import { h, replace, setText } from "../dom.js";
import { clock } from "../format.js";
import { barSample, lineSample } from "./svg.js";

const STEPS = [-5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9].flatMap((power) => [1, 2, 5].map((n) => n * 10 ** power)); // between marks: one decimal says each exactly
const DASHES = { "": [], dash: [5, 3], dots: [1.5, 2.5] };
const charts = new Set();

function colour(name) {
  const probe = document.getElementById("bar");
  const kept = probe.style.caretColor;
  probe.style.caretColor = `var(--${name})`; // custom properties hold light-dark(): only a used colour is resolved
  const found = getComputedStyle(probe).caretColor;
  probe.style.caretColor = kept;
  return found;
}

const faded = (rgb) => rgb.replace(/^rgb\((.*)\)$/, "rgba($1, 0.13)");

function axes(unit) {
  const font = `11px ${getComputedStyle(document.body).fontFamily}`;
  const shared = { font, stroke: colour("text-quiet"), ticks: { show: false } };
  return [
    { ...shared, size: 27, gap: 9, grid: { show: false }, space: 90, values: (_, at) => at.map((t) => clock(t * 1000, { seconds: at[1] - at[0] < 60 })) },
    { ...shared, gap: 6, size: (plot, values) => 12 + Math.max(14, ...(values ?? []).map((v) => v.length * 6.4)), space: 21, incrs: STEPS,
      grid: { stroke: colour("line-hair"), width: 1 }, values: (_, at) => at.map((value) => (value === 0 ? "0" : unit(value).replace(/\.0(?=\D|$)/, ""))) },
  ];
}

/**
 * A chart of lines. `lines` are {key, label, series, look, area, optional}, where an
 * optional one without any value is not in the legend; `unit` formats a value; `height` is in pixels.
 * A `plain` legend has no values; `legendValue` says which one of a column it has otherwise. Returns {node, legend, update(series)}; `series` has times_ms and values by key.
 */
export function lineChart({ lines, unit, height = 118, describe, signal, plain = false, legendValue = lastOf }) {
  return chart({
    samples: lines.map((line) => lineSample(line.series, line.look ?? "")),
    lines, unit, height, describe, signal, plain, legendValue,
    series: () => lines.map((line) => ({
      stroke: colour(`series-${line.series}`), width: 1.75, dash: DASHES[line.look ?? ""], spanGaps: false, points: { show: fewPoints, size: 4 },
      fill: line.area ? faded(colour(`series-${line.series}`)) : undefined,
    })),
    data: (given) => [given.times_ms.map((t) => t / 1000), ...lines.map((line) => given.values[line.key] ?? given.times_ms.map(() => null))],
  });
}

/** A chart of stacked bars, as `lineChart`. The first of `lines` stands at the foot. */
export function barChart({ lines, unit, height = 118, describe, signal, legendValue = lastOf }) {
  const bars = uPlot.paths.bars({ size: [0.8, 40], align: 0 });
  return chart({
    samples: lines.map((line) => barSample(line.series)),
    lines, unit, height, describe, signal, legendValue,
    // The highest stack is drawn first, and those below it over it.
    series: () => lines.map((line) => ({ stroke: colour(`series-${line.series}`), fill: colour(`series-${line.series}`), width: 0, paths: bars, points: { show: false } })).reverse(),
    data: (given) => [given.times_ms.map((t) => t / 1000), ...stacked(lines.map((line) => given.values[line.key] ?? [])).reverse()],
  });
}

function stacked(columns) {
  let below = [];
  return columns.map((column) => {
    below = column.map((value, index) => (value ?? 0) + (below[index] ?? 0));
    return below;
  });
}

function chart({ samples, lines, unit, height, describe, signal, plain = false, legendValue, series, data }) {
  const node = h("div", { class: "plot", role: "img" });
  const values = lines.map(() => h("b"));
  const items = lines.map((line, index) => h("li", {}, samples[index], line.label, plain ? null : [" ", values[index]]));
  const legend = h("ul", { class: "legend" }, items);
  let plot = null;
  let given = null;

  function showValues(index) {
    lines.forEach((line, i) => {
      const column = given?.values[line.key] ?? [];
      const value = index === null ? legendValue(column) : column[index];
      items[i].hidden = !plain && !!line.optional && lastOf(column) === null;
      setText(values[i], value === null || value === undefined ? "–" : unit(value));
    });
  }

  function draw() {
    plot?.destroy();
    plot = null;
    replace(node);
    if (!given || node.clientWidth < 40) return;
    plot = new uPlot({
      width: node.clientWidth, height, padding: [8, 26, 0, 0], legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false }, points: { show: false } },
      scales: { x: { time: true }, y: { range: (_, low, high) => [0, niceTop(high)] } },
      axes: axes(unit), series: [{}, ...series()],
      hooks: { setCursor: [(self) => showValues(self.cursor.idx ?? null)] },
    }, data(given), node);
  }

  const sized = new ResizeObserver(() => {
    if (plot === null) draw();
    else if (node.clientWidth >= 40 && node.clientWidth !== plot.width) plot.setSize({ width: node.clientWidth, height });
  });
  sized.observe(node);
  charts.add(draw);
  signal?.addEventListener("abort", () => {
    sized.disconnect();
    charts.delete(draw);
    plot?.destroy();
  });

  return {
    node, legend,
    update(next) {
      given = known(next);
      if (plot) plot.setData(data(given));
      else draw();
      showValues(plot?.cursor.idx ?? null);
      node.setAttribute("aria-label", describe(given));
    },
  };
}

const MIN_POINTS = 10;

/** Leaves out the time before anybody looked, so that a short history fills the chart. */
function known({ times_ms: times, values }) {
  const columns = Object.values(values);
  const first = times.findIndex((_, index) => columns.some((column) => column[index] !== null));
  const from = Math.max(0, Math.min(first === -1 ? 0 : first, times.length - MIN_POINTS));
  return { times_ms: times.slice(from), values: Object.fromEntries(Object.entries(values).map(([key, column]) => [key, column.slice(from)])) };
}

/** A line through less than three points is hard to see: the points are drawn too. */
const fewPoints = (plot, series) => plot.data[series].filter((value) => value !== null).length < 3;

function niceTop(high) {
  if (!high || high <= 0) return 1;
  const step = 10 ** Math.floor(Math.log10(high));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].map((n) => n * step).find((top) => top >= high * 1.02) ?? 12 * step;
}

export const sumOf = (column) => column.reduce((sum, value) => sum + (value ?? 0), 0);

export const lastOf = (column) => column.findLast((value) => value !== null) ?? null;

/** Draws all charts again, in the colours of the theme that holds now. */
export function recolour() {
  for (const draw of charts) draw();
}
