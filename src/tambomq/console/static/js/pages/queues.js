// The table of queues. Cells are updated in place; the order is kept while the pointer is over it, or while frozen.

import { glyph, h, replace, setText } from "../dom.js";
import { clock, count } from "../format.js";
import { live, on } from "../live.js";
import { button, field, isLost, later, picks, sortHead } from "../parts/ui.js";
import { COLUMNS, historyOf, QueueRowView } from "./queue_row.js";

const PROTOCOLS = [["", "All"], ["rsmq", "RSMQ"], ["chasqui", "ChasquiMQ"], ["gomq", "GOMQ"], ["kqueue", "KqueueMsgQ"]];
const STATES = {
  trouble: ["In trouble", (row) => row.trouble !== null],
  dead: ["With dead", (row) => (row.dead ?? 0) > 0],
  paused: ["Paused", (row) => row.paused],
};
const PAGE = 150; // rows drawn at a time: more are drawn when the end comes into sight

const remembered = { text: "", protocol: "", state: "", sort: "depth", down: true };

export function queuesCard(signal, query) {
  const view = { ...remembered, frozen: false, over: false, limit: PAGE, rows: new Map(), order: [], overview: null };
  if (query.get("protocol")) view.protocol = query.get("protocol");
  if (query.get("state")) view.state = query.get("state");
  const heads = new Map();
  const bodies = { trouble: h("tbody", { role: "rowgroup" }), others: h("tbody", { role: "rowgroup" }) };
  const foot = h("span");
  const end = h("div", { class: "table-end" });
  const again = () => {
    Object.assign(remembered, { text: view.text, protocol: view.protocol, state: view.state, sort: view.sort, down: view.down });
    if (view.overview) draw(view, bodies, foot, { anew: true });
  };
  const sort = (column) => {
    view.down = view.sort === column.key ? !view.down : column.key !== "name";
    view.sort = column.key;
    markSort();
    again();
  };
  const markSort = () => heads.forEach((head, key) => (key === view.sort ? head.setAttribute("aria-sort", view.down ? "descending" : "ascending") : head.removeAttribute("aria-sort")));
  for (const column of COLUMNS) heads.set(column.key, sortHead(column.label, { look: `${column.key === "name" ? "" : "n"} c-${column.key}`, title: column.title, onclick: column.value && (() => sort(column)) }));
  markSort();

  const table = h("table", { role: "table", onpointerenter: () => (view.over = true), onpointerleave: () => (view.over = false) },
    h("caption", { class: "hidden-text" }, "Queues of all four protocols, those in trouble first"),
    h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, [...heads.values()])), bodies.trouble, bodies.others);
  const tools = toolbar(view, table, again, signal);
  const node = h("section", { class: "card queues", "aria-label": "Queues" }, tools.node, h("div", { class: "scroll" }, table), end,
    h("div", { class: "foot" }, foot, h("span", { class: "wide" }, "Rates are means of the last 10 s"), h("span", { class: "wide" }, "– does not apply to this protocol, or there is none"),
      h("span", { class: "end wide" }, h("kbd", {}, "j"), " ", h("kbd", {}, "k"), " move · ", h("kbd", {}, "Enter"), " open · ", h("kbd", {}, "f"), " filter")));

  const nearEnd = new IntersectionObserver(([entry]) => {
    if (!entry.isIntersecting || view.limit >= view.order.length) return;
    view.limit += PAGE;
    draw(view, bodies, foot, { anew: false });
  }, { rootMargin: "1200px" });
  nearEnd.observe(end);
  signal.addEventListener("abort", () => nearEnd.disconnect());

  return {
    node,
    update(overview) {
      if (view.frozen) return;
      const first = view.overview === null;
      view.overview = overview;
      view.history = historyOf(overview);
      setText(heads.get("backlog"), `Backlog, ${view.history.spanned}`);
      tools.update(overview);
      draw(view, bodies, foot, { anew: first || !view.over });
      // The observer reports changes only: when rows left or came, the end may have been in sight all along.
      nearEnd.unobserve(end);
      nearEnd.observe(end);
    },
  };
}

function wantedRows(view) {
  const text = view.text.toLowerCase();
  const state = STATES[view.state]?.[1];
  return view.overview.queues.filter((row) => (!view.protocol || row.protocol === view.protocol) && (!state || state(row)) && (!text || row.queue.toLowerCase().includes(text)));
}

function compare(view) {
  const column = COLUMNS.find((one) => one.key === view.sort);
  const sign = view.down ? -1 : 1;
  return (a, b) => {
    const x = column.value(a);
    const y = column.value(b);
    if (x === y) return a.queue < b.queue ? -1 : 1;
    if (x === null) return 1; // what does not apply stands last, whichever way
    if (y === null) return -1;
    return x < y ? -sign : sign;
  };
}

function draw(view, bodies, foot, { anew }) {
  const wanted = wantedRows(view);
  const known = new Map(wanted.map((row) => [row.queue, row]));
  if (anew) {
    const order = compare(view);
    const urgency = (row) => (row.trouble ? (row.trouble.severity === "red" ? 0 : 1) : 2);
    view.order = wanted.sort((a, b) => urgency(a) - urgency(b) || order(a, b)).map((row) => row.queue);
    view.troubled = new Set(view.order.filter((queue) => known.get(queue).trouble));
  } else {
    const kept = view.order.filter((queue) => known.has(queue));
    const there = new Set(kept);
    view.order = [...kept, ...wanted.filter((row) => !there.has(row.queue)).map((row) => row.queue)];
  }
  const troubled = view.order.filter((queue) => view.troubled.has(queue));
  const others = view.order.filter((queue) => !view.troubled.has(queue));
  const shown = [...troubled, ...others].slice(0, view.limit);
  const there = new Set(shown);
  for (const [queue, row] of view.rows) {
    if (!there.has(queue)) {
      row.remove();
      view.rows.delete(queue);
    }
  }
  place(view, known, bodies.trouble, "In trouble", troubled, shown);
  place(view, known, bodies.others, troubled.length ? "All others" : "", others, shown);
  const hidden = view.overview.cut_off;
  replace(foot, `${count(view.order.length)} of ${count(view.overview.queues.length + hidden)} queues`, hidden ? `, ${count(hidden)} more ${hidden === 1 ? "is" : "are"} not read: there are too many` : "");
}

function place(view, known, body, label, queues, shown) {
  const there = new Set(shown);
  const nodes = label && queues.length ? [groupRow(body, label, queues.length)] : [];
  for (const queue of queues) {
    if (!there.has(queue)) break;
    let row = view.rows.get(queue);
    if (!row) view.rows.set(queue, (row = new QueueRowView(queue)));
    row.update(known.get(queue), view.history);
    nodes.push(...row.nodes());
  }
  arrange(body, nodes);
}

function groupRow(body, label, many) {
  const kept = body.querySelector(".group") ?? h("tr", { role: "row", class: "group" }, h("th", { role: "rowheader", scope: "rowgroup", colspan: COLUMNS.length }, h("b"), h("span")));
  replace(kept.firstChild, h("b", {}, label), ` · ${count(many)}`);
  return kept;
}

/** Puts nodes in order and moves only those which are not where they should be. */
function arrange(body, nodes) {
  let here = body.firstChild;
  for (const node of nodes) {
    if (node === here) here = here.nextSibling;
    else body.insertBefore(node, here);
  }
  while (here) {
    const next = here.nextSibling;
    here.remove();
    here = next;
  }
}

function toolbar(view, table, again, signal) {
  const filter = h("input", { type: "search", placeholder: "Filter by name", value: view.text, "data-filter": true, spellcheck: "false", oninput: later(() => {
    view.text = filter.value.trim();
    again();
  }, 80) });
  const protocols = picks("Protocol", PROTOCOLS.map(([key, label]) => ({ key, label, count: "" })), view.protocol, (key) => {
    view.protocol = key;
    protocols.choose(key);
    again();
  });
  const states = picks("State", Object.entries(STATES).map(([key, [label]]) => ({ key, label, count: "" })), view.state, (key) => {
    view.state = view.state === key ? "" : key;
    states.choose(view.state);
    again();
  });
  const lamp = h("span", { class: "lamp" });
  const showLamp = () => {
    const still = view.frozen || isLost();
    const text = view.frozen ? "Frozen" : still && live.overview ? `As of ${clock(live.overview.at_ms)}` : "Live, 2 s";
    replace(lamp, glyph(still ? "pause" : "ok"), text);
    lamp.classList.toggle("still", still);
  };
  on("state", showLamp, signal);
  on("overview", showLamp, signal);
  showLamp();
  const freeze = button("Freeze", () => {
    view.frozen = !view.frozen;
    freeze.setAttribute("aria-pressed", String(view.frozen));
    replace(freeze, view.frozen ? "Go on" : "Freeze");
    showLamp();
  }, { look: "small", "aria-pressed": "false" });
  const node = h("div", { class: "tools" }, field("Filter by name", filter), protocols.node, states.node, h("div", { class: "end" }, lamp, freeze, columnMenu(table)));
  return {
    node,
    update({ queues }) {
      for (const [key] of PROTOCOLS) protocols.setCount(key, count(queues.filter((row) => !key || row.protocol === key).length));
      for (const [key, [, test]] of Object.entries(STATES)) states.setCount(key, count(queues.filter(test).length));
    },
  };
}

function columnMenu(table) {
  const key = "tambo.columns";
  let hidden = new Set();
  try {
    hidden = new Set(JSON.parse(localStorage.getItem(key) ?? "[]"));
  } catch {
    // No storage, or not ours: all columns are shown.
  }
  const apply = () => COLUMNS.forEach((column) => table.classList.toggle(`without-${column.key}`, hidden.has(column.key)));
  apply();
  const boxes = COLUMNS.filter((column) => column.key !== "name").map((column) => h("label", {}, h("input", { type: "checkbox", checked: !hidden.has(column.key), onchange: (event) => {
    hidden[event.target.checked ? "delete" : "add"](column.key);
    apply();
    try {
      localStorage.setItem(key, JSON.stringify([...hidden]));
    } catch {
      // No storage: the choice holds until the page is loaded again.
    }
  } }), " ", column.label));
  const menu = h("details", { class: "menu wide", onkeydown: (event) => {
    if (event.key !== "Escape") return;
    event.stopPropagation();
    menu.open = false;
  } }, h("summary", { class: "button small" }, "Columns"), h("div", { class: "menu-items", role: "group", "aria-label": "Columns that are shown" }, boxes));
  return menu;
}
