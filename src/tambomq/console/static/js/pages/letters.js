// Dead letters: what died of what, a selection counted exactly, and what can be done with it.

import { get, listIn, mayAct } from "../api.js";
import { h, replace, setText } from "../dom.js";
import { ago, at, cell, count, dash, now, percent, plural, shortened } from "../format.js";
import { on } from "../live.js";
import { barChart, sumOf } from "../parts/charts.js";
import { followOperation } from "../parts/confirm.js";
import { button, card, failure, field, heading, later, link, load, note, table } from "../parts/ui.js";
import { meter } from "../parts/svg.js";
import { Selection } from "./selection.js";

const HOUR_MS = 3_600_000;
const SINCE = [["", "Died at any time"], ["1", "Died in the last hour"], ["24", "Died in the last day"], ["168", "Died in the last week"]];
const SERIES = { retries_exhausted: "failed", unrecoverable: "dead", "gave up after receives": "still" };
const OTHER_SERIES = ["backlog", "entered", "done"];
const FIRST_SHAPES = 10;
const MOST_REASONS = 6; // of the chart
const LIMIT = 25;

export const title = () => "Dead letters";

export function show(root, query, signal) {
  const view = { queue: query.get("q") ?? "", hours: "", find: query.get("find") ?? "", summary: null, allShapes: false, cursors: [null], page: null };
  const place = { total: h("span", { class: "soft" }), filters: h("div", { class: "buttons" }), parts: h("div", { class: "page" }), list: h("div") };
  const selection = new Selection({ changed: () => {
    drawShapes(view, selection, place);
    view.cursors = [null];
    readLetters();
  }, acted: () => again() });
  root.append(h("section", { class: "subject", "aria-label": "Dead letters" }, h("h1", {}, "Dead letters"), place.total, place.filters), place.parts, selection.node, place.list);

  const read = () => get("dead-letters", { queue: view.queue, since_ms: view.hours ? Math.round(now() - view.hours * HOUR_MS) : null, find: view.find }, signal);

  async function readLetters() {
    const turn = (view.turn = (view.turn ?? 0) + 1);
    const { groups, reasons } = selection.selector();
    try {
      const page = await get("dead-letters/letters", { queue: view.queue, groups, reasons, find: view.find, cursor: view.cursors.at(-1), limit: LIMIT }, signal);
      if (turn !== view.turn) return;
      view.page = page;
      replace(place.list, lettersCard(view, selection, readLetters));
    } catch (error) {
      if (error.name !== "AbortError" && turn === view.turn) replace(place.list, failure(error, button("Try again", readLetters)));
    }
  }

  function draw(summary) {
    view.summary = summary;
    selection.scope(view.queue, view.find, summary);
    replace(place.total, h("b", { class: summary.total ? "alarm" : "" }, count(summary.total)), ` in ${plural(Object.keys(summary.by_queue).length, "queue")}, as of `, at(summary.at_ms));
    drawFilters(view, place, again);
    if (!summary.total) {
      replace(place.parts, h("section", { class: "card blank" }, h("h2", { class: "big" }, view.find || view.queue || view.hours ? "No dead letter matches" : "No dead letters"),
        h("p", { class: "soft" }, "A message comes here when it failed too often, was rejected, or could not be read. It stays until somebody replays or deletes it.")));
      replace(place.list);
      return;
    }
    replace(place.parts, summary.cut_off && note("warn", `There are more letters than were looked at: the parts below are of ${count(summary.looked_at)}, the total is exact. Narrow it down by queue or text.`),
      h("div", { class: "two" }, reasonsCard(view, selection), perMinuteCard(summary, signal)), h("div", { class: "shapes-place" }));
    drawShapes(view, selection, place);
    readLetters();
  }

  async function again() {
    try {
      draw(await read());
    } catch (error) {
      if (error.name !== "AbortError") replace(place.parts, failure(error, button("Try again", again)));
    }
  }

  load(place.parts, "dead letters", read, draw);
  // A long operation has changed more than was seen when it began.
  on("operation", (operation) => operation.state !== "running" && view.summary && again(), signal);
  get("operations", {}, signal).then((answer) => listIn(answer, "operations").filter((one) => one.state === "running").forEach(followOperation)).catch(() => {});
}

function drawFilters(view, place, again) {
  if (place.filters.firstChild) return;
  const queues = Object.entries(view.summary.by_queue).sort((a, b) => b[1] - a[1]);
  if (view.queue && !queues.some(([queue]) => queue === view.queue)) queues.unshift([view.queue, 0]);
  const queue = h("select", { onchange: () => {
    view.queue = queue.value;
    history.replaceState(null, "", link.letters(view.queue));
    again();
  } }, h("option", { value: "" }, "All queues"), queues.map(([name, many]) => h("option", { value: name, selected: name === view.queue }, `${name} (${count(many)})`)));
  const since = h("select", { onchange: () => {
    view.hours = since.value;
    again();
  } }, SINCE.map(([value, label]) => h("option", { value }, label)));
  const find = h("input", { type: "search", placeholder: "Id, name or error text", value: view.find, "data-filter": true, spellcheck: "false", oninput: later(() => {
    view.find = find.value.trim();
    again();
  }, 350) });
  replace(place.filters, field("Queue", queue), field("Died", since), field("Search", find));
}

/** Selecting is for those who may act on what is selected. */
const pickHead = () => (mayAct() ? [h("th", { scope: "col", class: "pick" }, h("span", { class: "hidden-text" }, "Select"))] : []);

/** The same reason has the same colour in every part of the page, however many died of it. */
function seriesOf(summary, reason) {
  if (SERIES[reason]) return SERIES[reason];
  const others = Object.keys(summary.by_reason).filter((name) => !SERIES[name]).sort();
  return OTHER_SERIES[Math.max(0, others.indexOf(reason)) % OTHER_SERIES.length];
}

function reasonsCard(view, selection) {
  const { summary } = view;
  const reasons = Object.entries(summary.by_reason).sort((a, b) => b[1] - a[1]);
  const most = Math.max(...reasons.map(([, many]) => many));
  return card("By reason", { end: plural(summary.total, "letter") }, table("Dead letters by reason",
    [...pickHead(), "Reason", { label: "Letters", look: "n" }, { label: "Share", look: "n" }, h("th", { scope: "col" }, h("span", { class: "hidden-text" }, "Bar"))],
    reasons.map(([reason, many]) => h("tr", {},
      mayAct() && h("td", { class: "pick" }, h("input", { type: "checkbox", "aria-label": `Select ${reason}, ${plural(many, "letter")}`, "data-reason": reason, checked: selection.reasons.has(reason), onchange: (event) => selection.toggleReason(reason, event.target.checked) })),
      h("th", { scope: "row", class: "reason-cell" }, reason), h("td", { class: "n" }, count(many)), h("td", { class: "n soft" }, percent(many, summary.looked_at || summary.total)), h("td", {}, meter(many, most, seriesOf(summary, reason))))),
    { look: "reasons" }));
}

/** Those that most died of, in an order that stays the same while their numbers change. */
function chartedReasons({ per_minute: { values }, by_reason: many }) {
  const most = Object.keys(values).sort((a, b) => (many[b] ?? 0) - (many[a] ?? 0)).slice(0, MOST_REASONS);
  const known = Object.keys(SERIES);
  const place = (reason) => (known.includes(reason) ? known.indexOf(reason) : known.length);
  return most.sort((a, b) => place(a) - place(b) || (a < b ? -1 : 1));
}

function perMinuteCard(summary, signal) {
  const reasons = chartedReasons(summary);
  const chart = barChart({
    signal, unit: count, height: 132, legendValue: sumOf,
    lines: reasons.map((reason) => ({ key: reason, label: reason.replaceAll("_", " "), series: seriesOf(summary, reason) })),
    describe: ({ values }) => `Died per minute in the last hour: ${Object.entries(values).map(([reason, column]) => `${count(sumOf(column))} ${reason}`).join(", ") || "none"}.`,
  });
  const node = card(heading("Died per minute", "1 h"), { end: chart.legend }, h("div", { class: "inside" }, reasons.length ? chart.node : h("p", { class: "soft" }, "Nothing died in the last hour.")));
  if (reasons.length) chart.update(summary.per_minute);
  return node;
}

function drawShapes(view, selection, place) {
  const { summary } = view;
  const groups = view.allShapes ? summary.groups : summary.groups.slice(0, FIRST_SHAPES);
  const most = Math.max(1, ...summary.groups.map((group) => group.count));
  const rest = summary.groups.slice(FIRST_SHAPES);
  const rows = groups.map((group) => {
    const chosen = selection.hasGroup(group);
    return h("tr", { class: chosen ? "chosen" : null, "data-row": true },
      mayAct() && h("td", { class: "pick" }, h("input", { type: "checkbox", "aria-label": `Select ${plural(group.count, "letter")}: ${group.shape}`, "data-group": group.id, checked: chosen, onchange: (event) => selection.toggleGroup(group, event.target.checked) })),
      h("th", { scope: "row", class: "id cut shape", title: group.shape }, h("bdi", {}, shortened(group.shape) || "no error text")),
      h("td", { class: "deep" }, group.reason || dash()), h("td", { class: "deep" }, h("a", { href: link.queue(group.queue, "dead"), "data-open": true }, h("bdi", {}, group.queue))), h("td", { class: "deep" }, group.name ?? dash()),
      h("td", { class: "n" }, count(group.count)), h("td", { class: "deep" }, meter(group.count, most, seriesOf(summary, group.reason))), h("td", { class: "n deep" }, ago(group.first_ms)), h("td", { class: "n" }, ago(group.last_ms)));
  });
  const more = !view.allShapes && rest.length ? h("div", { class: "foot" }, button(`${plural(rest.length, "more shape")}, ${plural(rest.reduce((sum, group) => sum + group.count, 0), "letter")}`, () => {
    view.allShapes = true;
    drawShapes(view, selection, place);
  }, { look: "quiet small" })) : null;
  document.querySelectorAll("[data-reason]").forEach((box) => (box.checked = selection.reasons.has(box.dataset.reason)));
  const target = place.parts.querySelector(".shapes-place");
  const focused = document.activeElement?.dataset?.group;
  if (target) replace(target, card("By error shape", { end: "What differs from case to case is left out: <n>, <id>, '…'" }, table("Dead letters by error shape",
    [...pickHead(), "Error", { label: "Reason", look: "deep" }, { label: "Queue", look: "deep" }, { label: "Name", look: "deep" }, { label: "Letters", look: "n" }, h("th", { scope: "col", class: "deep" }, h("span", { class: "hidden-text" }, "Bar")), { label: "First", look: "n deep" }, { label: "Last", look: "n" }],
    rows, { look: "shapes" }), more));
  if (focused) [...document.querySelectorAll("[data-group]")].find((box) => box.dataset.group === focused)?.focus();
}

function lettersCard(view, selection, read) {
  const { page } = view;
  const end = h("span", { class: "end" });
  const tell = () => setText(end, selection.ids.size ? `${count(selection.ids.size)} ticked` : page.total === null ? "" : `${count(page.rows.length)} of ${count(page.total)} shown`);
  tell();
  const rows = page.rows.map((row) => {
    const chosen = selection.hasLetter(row);
    return h("tr", { class: chosen ? "chosen" : null },
      mayAct() && h("td", { class: "pick" }, h("input", { type: "checkbox", "aria-label": `Select ${row.id}`, "data-letter": row.letter_id ?? row.id, checked: chosen, onchange: (event) => {
        selection.toggleLetter(row, event.target.checked);
        event.target.closest("tr").classList.toggle("chosen", event.target.checked);
        tell();
      } })),
      h("th", { scope: "row" }, h("a", { class: "id", href: link.message(row.queue, row.id) }, row.id)), h("td", { class: "deep" }, h("a", { href: link.queue(row.queue) }, h("bdi", {}, row.queue))), h("td", { class: "deep" }, row.name ?? dash()),
      h("td", { class: "n deep" }, row.max_attempts ? `${count(row.attempt ?? 0)} of ${count(row.max_attempts)}` : cell(row.attempt)), h("td", { class: "n deep" }, ago(row.added_ms)), h("td", { class: "n" }, ago(row.died_ms)), h("td", { class: "cut" }, h("bdi", { title: row.error }, shortened(row.error ?? "") || row.preview)));
  });
  const back = view.cursors.length > 1 ? button("Back", () => view.cursors.pop() !== undefined && read(), { look: "quiet small" }) : h("span", { class: "none" }, "Back");
  const next = page.next ? button(page.cut_off ? "Go on searching" : `Next ${LIMIT}`, () => view.cursors.push(page.next) && read(), { look: "quiet small" }) : h("span", { class: "none" }, "Next");
  return card(heading("Letters", selection.isEmpty() || selection.ids.size ? "newest first" : "selected ones"), { label: "Letters", end },
    page.rows.length ? table("Dead letters", [...pickHead(), "Id", { label: "Queue", look: "deep" }, { label: "Name", look: "deep" }, { label: "Runs", look: "n deep" }, { label: "Added", look: "n deep" }, { label: "Died", look: "n" }, { label: "Error", look: "cut" }], rows, { look: "letters" }) : h("div", { class: "inside soft" }, page.cut_off ? "Nothing found yet: the search stopped at its limit." : "No letter matches."),
    h("div", { class: "foot" }, h("span", { class: page.cut_off ? "caution" : null }, page.cut_off ? `Looked at ${count(page.looked_at)}, then stopped` : "Newest first"), h("span", { class: "end pager" }, back, " · ", next)));
}
