// The messages of a queue: a tab for each state, a bounded search, paging by cursor.

import { get, mayAct, post } from "../api.js";
import { h, replace } from "../dom.js";
import { ago, bytes, cell, count, dash, plural, shortened } from "../format.js";
import { live } from "../live.js";
import { confirmation, toast } from "../parts/confirm.js";
import { actButton, button, failure, field, later, link, stateName, table } from "../parts/ui.js";

const LIMIT = 50;
const REFRESH_MS = 4000;
const SINCE = [["", "At any time"], ["15m", "In the last 15 minutes"], ["1h", "In the last hour"], ["1d", "In the last day"], ["7d", "In the last week"]];
const LABELS = { visible: "Waiting", in_flight: "Active", delayed: "Delayed", dead: "Dead", done: "Results" };
const ORDER = { visible: "oldest first", in_flight: "by when they were taken", delayed: "by when they are due", dead: "newest first", done: "newest first" };

export function messagesCard(queue, query, signal) {
  const view = { queue, state: query.get("state"), find: query.get("find") ?? "", name: "", since: "", cursors: [null], page: null, chosen: new Set(), busy: false, counts: {} };
  const place = { tabs: h("nav", { class: "tabs", "aria-label": "States" }), tools: h("div", { class: "tools" }), list: h("div"), foot: h("div", { class: "foot" }), confirm: h("div", { class: "in-place" }) };
  const node = h("section", { class: "card messages", "aria-label": "Messages" }, place.tabs, place.tools, place.confirm, place.list, place.foot);
  const search = h("input", { type: "search", class: "long", placeholder: "Id, name or error text", title: "Words that all must match. Also id:…, name:…, error:…, body:…, since:2h, until:2030-01-31T09:00", value: view.find, "data-filter": true, spellcheck: "false", oninput: later(() => {
    view.find = search.value.trim();
    restart();
  }, 350) });
  const name = h("input", { type: "search", placeholder: "Any name", spellcheck: "false", oninput: later(() => {
    view.name = name.value.trim();
    restart();
  }, 350) });
  const since = h("select", { onchange: () => {
    view.since = since.value;
    restart();
  } }, SINCE.map(([value, label]) => h("option", { value }, label)));
  const side = h("div", { class: "end" });

  function restart() {
    view.cursors = [null];
    view.chosen.clear();
    replace(place.confirm);
    return read();
  }

  async function read({ quiet = false } = {}) {
    const turn = (view.turn = (view.turn ?? 0) + 1);
    try {
      const page = await get("messages", { queue, state: view.state, cursor: view.cursors.at(-1), limit: LIMIT, find: searched(view), name: view.name }, signal);
      if (turn !== view.turn || signal.aborted) return;
      view.page = page;
      draw();
    } catch (error) {
      if (error.name !== "AbortError" && turn === view.turn && !quiet) {
        replace(place.list, h("div", { class: "inside" }, failure(error, button("Try again", () => read()))));
        replace(place.foot);
      }
    }
  }

  function draw() {
    const { rows } = view.page;
    const there = new Set(rows.map((row) => row.id));
    view.chosen.forEach((id) => there.has(id) || view.chosen.delete(id));
    replace(place.list, rows.length ? messageTable(view, drawSide) : h("div", { class: "inside soft nothing" }, nothing(view)));
    replace(place.foot, footer(view, read));
    drawSide();
  }

  function drawSide() {
    if (view.state === "dead" && view.counts.dead && mayAct()) return replace(side, h("a", { class: "button small", href: link.letters(queue) }, "Replay or delete…"));
    const acts = actionsOn(view);
    if (!acts.length || !mayAct()) return replace(side);
    const many = view.chosen.size;
    return replace(side, many ? `${count(many)} selected` : "Nothing selected", acts.map(([verb, label, danger]) => {
      const element = actButton(label, () => askFor(view, verb, place.confirm, restart), { look: `small ${danger ? "danger" : ""}`, "data-unready": String(many === 0) });
      if (element && many === 0) element.disabled = true;
      return element;
    }));
  }

  function drawTabs() {
    replace(place.tabs, Object.entries(view.counts).map(([state, many]) => h("a", {
      href: link.queue(queue, state), "aria-current": state === view.state ? "page" : null, class: state === "dead" && many ? "alarm" : null, onclick: (event) => {
        if (event.metaKey || event.ctrlKey) return;
        event.preventDefault();
        view.state = state;
        history.replaceState(null, "", link.queue(queue, state));
        drawTabs();
        restart();
      } }, LABELS[state] ?? stateName(state), h("b", {}, many === null ? "–" : count(many)))));
  }

  return {
    node,
    start(detail) {
      const states = Object.keys(detail.states);
      if (!states.includes(view.state)) view.state = firstState(detail);
      const named = detail.row.protocol === "chasqui";
      replace(place.tools, field("Id, name or error text", search), named && field("Only this name", name), field("Added or ended", since), side);
      if (!states.length) {
        node.hidden = true;
        return;
      }
      read();
      const calm = () => view.cursors.length === 1 && !searched(view) && !view.name && view.chosen.size === 0 && !place.confirm.firstChild && !(view.page?.rows.length && place.list.matches(":hover, :focus-within"));
      const timer = setInterval(() => live.connected && !document.hidden && calm() && read({ quiet: true }), REFRESH_MS);
      signal.addEventListener("abort", () => clearInterval(timer));
    },
    updateCounts(states) {
      if (JSON.stringify(states) === JSON.stringify(view.counts)) return;
      view.counts = states;
      drawTabs();
    },
  };
}

/** Where to begin: with what is the matter, else with the first state that has something. */
function firstState({ row, states }) {
  const names = Object.keys(states);
  if (row.trouble?.link === "dead_letters" && states.dead) return "dead";
  return names.find((state) => states[state]) ?? names[0] ?? "visible";
}

/** What to search for, as the API takes it; a time is compared with when a message died or ended, else was added. */
const searched = (view) => [view.find, view.since && `since:${view.since}`].filter(Boolean).join(" ");

function nothing(view) {
  if (view.page.note) return view.page.note;
  if (searched(view) || view.name) return view.page.cut_off ? "Nothing found yet. The search stopped at its limit; go on below." : `Nothing found among ${plural(view.page.looked_at, "message")}.`;
  return { visible: "Nothing waits.", in_flight: "Nothing runs now.", delayed: "Nothing is delayed.", dead: "Nothing died here.", done: "No results are kept." }[view.state];
}

const TIMES = { delayed: ["Due", "due_ms"], in_flight: ["Lease ends", "due_ms"], dead: ["Died", "died_ms"], done: ["Ended", "ended_ms"] };

function messageTable(view, changed) {
  const { rows } = view.page;
  const selectable = mayAct() && actionsOn(view).length > 0;
  const [label, key] = TIMES[view.state] ?? [null, null];
  const has = (field) => rows.some((row) => row[field] !== null && row[field] !== "");
  const columns = [
    { label: "Id", head: true, node: (row) => h("a", { class: "id", href: link.message(row.queue, row.id), "data-open": true }, row.id) },
    has("name") && { label: "Name", look: "name-cell", node: (row) => row.name ?? dash() },
    has("attempt") && { label: "Runs", look: "n", node: (row) => (row.max_attempts ? `${count(row.attempt ?? 0)} of ${count(row.max_attempts)}` : cell(row.attempt)) },
    key && { label, look: "n", node: (row) => ago(row[key]) },
    has("added_ms") && { label: "Added", look: "n", node: (row) => ago(row.added_ms) },
    has("holder") && { label: "Held by", look: "name-cell", node: (row) => row.holder ?? dash() },
    has("size_bytes") && !has("error") && { label: "Size", look: "n", node: (row) => cell(row.size_bytes, bytes) },
    has("error") ? { label: "Last error", look: "cut", node: (row) => h("bdi", { title: row.error }, shortened(row.error ?? "")) } : { label: "Body", look: "cut", node: (row) => h("bdi", { class: "id soft" }, row.preview) },
  ].filter(Boolean);
  const all = selectable && h("input", { type: "checkbox", "aria-label": "All on this page", checked: rows.length > 0 && rows.every((row) => view.chosen.has(row.id)), onchange: () => {
    rows.forEach((row) => view.chosen[all.checked ? "add" : "delete"](row.id));
    body.querySelectorAll("input[type=checkbox]").forEach((box) => (box.checked = all.checked));
    body.querySelectorAll("tr").forEach((row) => row.classList.toggle("chosen", all.checked));
    changed();
  } });
  const lines = rows.map((row) => h("tr", { "data-row": true, class: view.chosen.has(row.id) ? "chosen" : null },
    selectable && h("td", { class: "pick" }, h("input", { type: "checkbox", "aria-label": `Select ${row.id}`, checked: view.chosen.has(row.id), onchange: (event) => {
      view.chosen[event.target.checked ? "add" : "delete"](row.id);
      event.target.closest("tr").classList.toggle("chosen", event.target.checked);
      changed();
    } })),
    columns.map((column) => h(column.head ? "th" : "td", { scope: column.head ? "row" : null, class: column.look ?? null }, column.node(row)))));
  const body = table(`Messages, ${stateName(view.state)}`, [selectable && h("th", { scope: "col", class: "pick" }, all), ...columns.map((column) => ({ label: column.label, look: column.look }))].filter(Boolean), lines);
  return body;
}

function footer(view, read) {
  const { page } = view;
  const searching = searched(view) || view.name;
  const said = searching
    ? `${plural(page.rows.length, "message")} found among ${count(page.looked_at)}${page.cut_off ? ": the search stopped there" : ""}`
    : view.cursors.length === 1
      ? `The first ${count(page.rows.length)}${page.total === null ? "" : ` of ${count(page.total)}`}, ${ORDER[view.state]}`
      : `${count(page.rows.length)} more${page.total === null ? "" : ` of ${count(page.total)}`}, ${ORDER[view.state]}`;
  const back = view.cursors.length > 1 ? button("Back", () => view.cursors.pop() !== undefined && read(), { look: "quiet small" }) : h("span", { class: "none" }, "Back");
  const next = page.next ? button(page.cut_off ? "Go on searching" : `Next ${LIMIT}`, () => view.cursors.push(page.next) && read(), { look: "quiet small" }) : h("span", { class: "none" }, page.cut_off ? "" : "Next");
  return page.rows.length || page.cut_off || view.cursors.length > 1 ? [h("span", { class: page.cut_off ? "caution" : null }, said), h("span", { class: "end pager" }, back, " · ", next)] : [];
}

/* What can be done to several at once. Each goes to the server by itself, so that a refusal names its message. */

const RUN = ["run-now", "Run now", false];
const CANCEL = ["cancel", "Cancel…", true];
const DELETE = ["delete", "Delete…", true];
const ACTIONS = { chasqui: { delayed: [RUN, CANCEL], visible: [CANCEL] }, rsmq: { delayed: [RUN, DELETE], visible: [DELETE] } };
const DONE = { "run-now": "Set to run now:", cancel: "Cancelled", delete: "Deleted" };

const actionsOn = ({ queue, state }) => ACTIONS[queue.split(":")[0]]?.[state] ?? [];

function askFor(view, verb, place, done) {
  const ids = [...view.chosen];
  const act = async () => {
    let many = 0;
    try {
      for (const id of ids) {
        await post(`message/${verb}`, { queue: view.queue, id }, verb === "cancel" ? { reason: "cancelled in the console" } : {});
        view.chosen.delete(id);
        many += 1;
      }
    } finally {
      if (many) toast(`${DONE[verb]} ${plural(many, "message")} of ${view.queue}.`);
    }
    await done();
  };
  const name = { "run-now": "Run", cancel: "Cancel", delete: "Delete" }[verb];
  const means = { "run-now": "They join the line at once, whatever they were delayed for.", cancel: "They end without a result, a retry or a dead letter. This cannot be undone.", delete: "They are removed from Redis. This cannot be undone." }[verb];
  replace(place, h("div", { class: "selection still" }, confirmation({
    title: `${name} ${plural(ids.length, "message")} of ${view.queue}?`,
    text: h("p", {}, means),
    verb: `${name} ${count(ids.length)}`, keep: "Keep them", danger: verb !== "run-now", work: act, close: () => replace(place),
  })));
  place.querySelector(".main")?.focus();
}
