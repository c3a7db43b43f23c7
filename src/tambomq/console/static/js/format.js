// Numbers, sizes and times as a person reads them. No DOM but `time` elements.

import { h } from "./dom.js";

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const NBSP = "\u00a0";
let skewMs = null;

/** Follows the server's clock, so that ages are right on a machine whose clock is not. */
export function followClock(serverMs) {
  // What the server says is old by the time it took to arrive: the largest difference is the nearest.
  skewMs = Math.max(skewMs ?? -Infinity, serverMs - Date.now());
}

export const now = () => Date.now() + (skewMs ?? 0);

export const count = (n) => whole.format(n);

export function rate(perSecond) {
  if (!perSecond) return "0";
  if (perSecond < 0.05) return "< 0.1";
  return perSecond < 1000 ? perSecond.toFixed(1) : whole.format(perSecond);
}

export function bytes(n) {
  if (n < 1000) return `${n}${NBSP}B`;
  let value = n;
  let unit = 0;
  while (value >= 999.5 && unit < 4) {
    value /= 1000;
    unit += 1;
  }
  return `${value < 99.95 ? value.toFixed(1) : whole.format(value)}${NBSP}${["B", "kB", "MB", "GB", "TB"][unit]}`;
}

export const percent = (part, all) => (all ? `${((100 * part) / all).toFixed(1)}${NBSP}%` : "–");

const two = (n) => String(Math.floor(n)).padStart(2, "0");

/** A duration in two units at most: `18 m 04 s`. */
export function span(seconds) {
  const x = Math.max(0, seconds);
  if (x && x < 0.00005) return `< 0.1${NBSP}ms`;
  if (x < 0.00995) return `${(x * 1000).toFixed(1).replace(".0", "")}${NBSP}ms`;
  if (x < 0.9995) return `${Math.round(x * 1000)}${NBSP}ms`;
  if (x < 9.95) return `${x.toFixed(1)}${NBSP}s`;
  if (x < 60) return `${Math.floor(x)}${NBSP}s`;
  if (x < 3600) return `${Math.floor(x / 60)}${NBSP}m${NBSP}${two(x % 60)}${NBSP}s`;
  if (x < 86400) return `${Math.floor(x / 3600)}${NBSP}h${NBSP}${two((x % 3600) / 60)}${NBSP}m`;
  return `${whole.format(Math.floor(x / 86400))}${NBSP}d${NBSP}${two((x % 86400) / 3600)}${NBSP}h`;
}

export function relative(ms) {
  const away = (ms - now()) / 1000;
  return away > 0 ? `in ${span(away)}` : `${span(-away)} ago`;
}

export function clock(ms, { millis = false, seconds = true } = {}) {
  const t = new Date(ms);
  const text = `${two(t.getHours())}:${two(t.getMinutes())}`;
  if (!seconds) return text;
  const exact = `${text}:${two(t.getSeconds())}`;
  return millis ? `${exact}.${String(t.getMilliseconds()).padStart(3, "0")}` : exact;
}

/** The time of today, or the date before it. */
export function moment(ms) {
  const t = new Date(ms);
  if (t.toDateString() === new Date(now()).toDateString()) return clock(ms);
  return `${t.getFullYear()}-${two(t.getMonth() + 1)}-${two(t.getDate())} ${clock(ms, { seconds: false })}`;
}

function exact(ms) {
  const t = new Date(ms);
  return Number.isNaN(t.getTime()) ? "" : `${t.toISOString().replace("T", " ").replace("Z", "")} UTC`;
}

const FAR_MS = 8.6e15; // what Date can hold

/** A `time` element that counts on by itself: see `tick`. */
export function ago(ms) {
  if (!known(ms)) return dash();
  return h("time", { datetime: iso(ms), title: exact(ms), "data-at": ms }, relative(ms));
}

/** A `time` element with the text of `show`. */
export function at(ms, show = clock) {
  if (!known(ms)) return dash();
  return h("time", { datetime: iso(ms), title: exact(ms) }, show(ms));
}

/** A sentence of the server, with its times, which are in UTC, in the time of this place. */
export function timed(text) {
  return text.split(/(\d{4,}-\d\d-\d\dT[\d:]{8}\.\d{3}Z)/).map((part, index) => (index % 2 ? at(Date.parse(part), moment) : part));
}

const known = (ms) => ms !== null && ms !== undefined && Math.abs(ms) < FAR_MS;
const iso = (ms) => new Date(ms).toISOString();

/** Brings all relative times up to date. */
export function tick() {
  for (const element of document.querySelectorAll("time[data-at]")) {
    const ms = Number(element.dataset.at);
    const text = "due" in element.dataset && ms <= now() ? "now" : relative(ms);
    if (element.textContent !== text) element.textContent = text;
  }
}

/** When something is planned: what is overdue happens now. */
export function due(ms) {
  if (!known(ms)) return dash();
  return h("time", { datetime: iso(ms), title: exact(ms), "data-at": ms, "data-due": true }, ms <= now() ? "now" : relative(ms));
}

export const dash = () => h("span", { class: "none" }, "–");

/** What stands in a cell: zeros are faint, and a dash means none. */
export function cell(value, show = count) {
  if (value === null || value === undefined) return dash();
  return value === 0 ? h("span", { class: "none" }, "0") : show(value);
}

/** An error without the modules before the name of its type. */
export const shortened = (error) => error.replace(/(^|: )(?:\w+\.)+(?=[A-Z]\w*(?::|$))/g, "$1");

export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;
