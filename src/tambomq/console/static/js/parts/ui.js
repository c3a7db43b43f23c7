// Components that several pages use: badges, notes, buttons, pairs, tabs, picks, pagers, copying.

import { mayAct } from "../api.js";
import { glyph, h, replace } from "../dom.js";
import { live, on } from "../live.js";

export const link = {
  queue: (queue, state = "") => `/queue?${new URLSearchParams({ q: queue, ...(state && { state }) })}`,
  message: (queue, id) => `/message?${new URLSearchParams({ q: queue, id })}`,
  letters: (queue = "", find = "") => `/dead-letters${queue ? `?${new URLSearchParams({ q: queue, ...(find && { find }) })}` : ""}`,
};

export function badge(kind, look, shape) {
  return h("span", { class: `badge ${look}` }, glyph(shape), kind);
}

const STATES = {
  visible: ["waiting", "info", "ring"], in_flight: ["active", "info", "run"], delayed: ["delayed", "warn", "clock"],
  dead: ["dead", "bad", "bad"], done: ["done", "good", "tick"],
};

export const stateName = (state) => STATES[state]?.[0] ?? state;
export const stateBadge = (state) => badge(...(STATES[state] ?? [state, "still", "ring"]));

export function troubleBadge(row) {
  if (row.trouble) return row.trouble.severity === "red" ? badge(row.trouble.kind, "bad", "bad") : badge(row.trouble.kind, "warn", "warn");
  return row.paused ? badge("paused", "still", "pause") : null;
}

/** A sentence that says what is the matter, and buttons that do something about it. */
export function note(look, text, ...buttons) {
  return h("div", { class: `note ${look}` }, glyph(look === "bad" ? "bad" : look === "warn" ? "warn" : "ring"), h("div", {}, text),
    buttons.length ? h("div", { class: "buttons" }, buttons) : null);
}

export const failure = (error, ...buttons) => note("bad", error.message, ...buttons);

export function button(label, onclick, { look = "", shape = null, ...props } = {}) {
  return h("button", { class: `button ${look}`, type: "button", onclick, ...props }, shape && glyph(shape), label);
}

export const isLost = () => !live.connected || (live.overview !== null && !live.overview.redis.ok);

/** A button that changes something: not drawn for those who may not, disabled while Redis is lost. */
export function actButton(label, onclick, options = {}) {
  return mayAct() ? button(label, onclick, { "data-act": true, disabled: isLost(), ...options }) : null;
}

export function refreshActs() {
  const lost = isLost();
  for (const element of document.querySelectorAll("button[data-act]")) element.disabled = lost || element.dataset.unready === "true";
}

export function pairs(list, value = (text) => text) {
  return h("dl", { class: "pairs" }, list.map(([label, text]) => [h("dt", {}, label), h("dd", { class: isNone(text) ? "none" : null }, value(text))]));
}

const isNone = (text) => text === "none" || text === "–" || text === "none yet";

export function card(title, { end = null, label = null, look = "" } = {}, ...children) {
  return h("section", { class: `card ${look}`, "aria-label": label },
    h("header", {}, title instanceof Node ? title : h("h2", {}, title), end && (end instanceof Node ? end : h("span", { class: "end" }, end))), children);
}

export const heading = (text, unit) => h("h2", {}, text, " ", h("span", { class: "unit" }, unit));

/** A toggle group. `items` are {key, label, count}; returns a node whose `choose(key)` sets what is pressed. */
export function picks(label, items, chosen, onpick, look = "") {
  const buttons = new Map();
  const node = h("div", { class: `picks ${look}`, role: "group", "aria-label": label }, items.map((item) => {
    const number = item.count === undefined ? null : h("small", {}, item.count);
    const element = h("button", { type: "button", "aria-pressed": String(item.key === chosen), onclick: () => onpick(item.key) }, item.label, number && " ", number);
    buttons.set(item.key, { element, number });
    return element;
  }));
  return {
    node,
    choose: (key) => buttons.forEach(({ element }, k) => element.setAttribute("aria-pressed", String(k === key))),
    setCount: (key, text) => replace(buttons.get(key).number, text),
  };
}

export function field(label, input) {
  return h("label", {}, h("span", { class: "hidden-text" }, label), input);
}

export function sortHead(label, { sorted = null, onclick = null, look = "n", title = null } = {}) {
  return h("th", { scope: "col", role: "columnheader", class: look, "aria-sort": sorted },
    onclick ? h("button", { class: "sort", type: "button", title, onclick }, label, glyph("down")) : label);
}

export function table(caption, heads, rows, { look = "" } = {}) {
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption }, h("table", { class: look },
    h("caption", { class: "hidden-text" }, caption),
    h("thead", {}, h("tr", {}, heads.map((head) => (head instanceof Node ? head : h("th", { scope: "col", class: head.look ?? null }, head.label ?? head))))),
    h("tbody", {}, rows)));
}

export async function copy(text, element) {
  const label = element.textContent;
  try {
    await navigator.clipboard.writeText(text);
    element.textContent = "Copied";
  } catch {
    element.textContent = "Not copied: the browser refuses";
  }
  setTimeout(() => (element.textContent = label), 1500);
}

/** Calls `work` while `element` is disabled, and shows the server's sentence in `place` if it fails. */
export async function attempt(element, place, work) {
  element.disabled = true;
  replace(place);
  try {
    return await work();
  } catch (error) {
    replace(place, failure(error));
    return null;
  } finally {
    element.disabled = false;
  }
}

export function later(work, ms = 250) {
  let timer = 0;
  return (...args) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...args), ms);
  };
}

/** What stands in a page until its data are here: nothing, then bars after 300 ms, then a sentence after 2 s. */
export function waiting(root, what) {
  const bars = h("div", { class: "waiting", "aria-busy": "true" });
  root.append(bars);
  const first = setTimeout(() => bars.append(...Array.from({ length: 6 }, () => h("span", { class: "waiting-bar" }))), 300);
  const second = setTimeout(() => bars.prepend(h("p", { role: "status", class: "soft" }, `Reading ${what}, for more than 2 s now.`)), 2000);
  return () => {
    clearTimeout(first);
    clearTimeout(second);
    bars.remove();
  };
}

const AWAY = [0, 502, 503, 504]; // the server, or Redis behind it

/** Reads with `work`, shows with `show`; failures are shown in place, with a button to try again. What was away for a while is read again by itself. */
export async function load(root, what, work, show) {
  const done = waiting(root, what);
  try {
    const answer = await work();
    done();
    show(answer);
  } catch (error) {
    done();
    if (error.name === "AbortError") return;
    const waits = new AbortController();
    const again = () => {
      waits.abort();
      replace(root);
      load(root, what, work, show);
    };
    root.append(error.status === 404 ? notThere(what, error, button("Try again", again)) : failure(error, button("Try again", again)));
    if (!AWAY.includes(error.status)) return;
    on("overview", ({ redis }) => {
      if (!root.isConnected) waits.abort();
      else if (redis.ok) again();
    }, waits.signal);
  }
}

/** What an address names is not there: it has gone, or never was. */
function notThere(what, error, again) {
  return h("section", { class: "card blank" }, h("h1", { class: "big" }, h("bdi", {}, what), " is not there"),
    h("p", { class: "soft" }, error.message, error.kind === "queue_not_found" ? " It was deleted, or it has another name." : ""),
    h("div", { class: "buttons" }, h("a", { class: "button main", href: "/" }, "All queues"), again));
}
