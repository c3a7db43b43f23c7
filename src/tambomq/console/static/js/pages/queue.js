// The page of one queue: what is wrong with it, its charts, its messages, its settings, and what can be done to it.

import { get, mayAct, post } from "../api.js";
import { h, named, replace } from "../dom.js";
import { bytes, cell, count, due, plural, rate, span } from "../format.js";
import { live, on } from "../live.js";
import { lastOf, lineChart } from "../parts/charts.js";
import { confirmation, followOperation, toast } from "../parts/confirm.js";
import { actButton, attempt, card, heading, link, load, note, pairs, picks, table, troubleBadge } from "../parts/ui.js";
import { messagesCard } from "./messages.js";
import { isAlarming } from "./queue_row.js";

const PROTOCOLS = { rsmq: "RSMQ", chasqui: "ChasquiMQ", gomq: "GOMQ", kqueue: "KqueueMsgQ" };
const TAKERS = { rsmq: { one: "lease", title: "Leases" }, chasqui: { one: "worker", title: "Workers" }, gomq: { one: "peer", title: "Peers" }, kqueue: { one: "subscriber", title: "Subscribers" } };
const DETAIL_EVERY_MS = 5000; // charts and workers; the numbers follow the live update

export const title = (query) => query.get("q") ?? "Queue";

export function show(root, query, signal, { go }) {
  const queue = query.get("q") ?? "";
  const read = () => get("queue", { queue }, signal);
  load(root, queue, read, (detail) => {
    const view = queueView(queue, query, signal, { go });
    root.append(...view.nodes);
    view.update(detail);
    on("overview", (overview) => {
      const row = overview.queues.find((one) => one.queue === queue);
      if (row) view.updateRow(row);
    }, signal);
    const timer = setInterval(() => live.connected && !document.hidden && read().then(view.update).catch(() => {}), DETAIL_EVERY_MS);
    signal.addEventListener("abort", () => clearInterval(timer));
  });
}

function queueView(queue, query, signal, { go }) {
  const place = { badge: h("span"), facts: h("p", { class: "facts" }), trouble: h("div"), buttons: h("div", { class: "buttons" }), confirm: h("div", { class: "in-place" }), rail: h("div", { class: "stack" }), charts: h("div", { class: "two" }) };
  const name = h("h1", {}, named(queue));
  const charts = chartCards(signal);
  const messages = messagesCard(queue, query, signal, { go });
  let detail = null;
  let actions = "";

  function updateRow(row) {
    replace(place.badge, troubleBadge(row));
    replace(place.facts, facts(row, detail));
    replace(place.trouble, row.trouble && troubleNote(row));
    messages.updateCounts(statesOf(row, detail));
    const wanted = JSON.stringify([detail.actions, row.paused]);
    if (wanted !== actions) {
      actions = wanted;
      replace(place.buttons, actionButtons(queue, row, detail.actions, place.confirm));
    }
  }

  return {
    nodes: [
      h("section", { class: "subject", "aria-label": "Queue" },
        h("p", { class: "trail" }, h("a", { href: "/" }, "Queues"), " / ", PROTOCOLS[queue.split(":")[0]] ?? ""),
        name, place.badge, place.buttons, place.facts),
      place.confirm, place.trouble, place.charts,
      h("div", { class: "rail" }, messages.node, place.rail),
    ],
    updateRow,
    update(next) {
      if (signal.aborted) return;
      const first = detail === null;
      detail = next;
      if (first) messages.start(detail);
      place.rail.classList.toggle("two", Object.keys(detail.states).length === 0);
      charts.update(detail, place.charts);
      replace(place.rail, settingsCard(detail), workersCard(detail), schedulesCard(detail));
      updateRow(detail.row);
    },
  };
}

function statesOf(row, detail) {
  const fresh = { visible: row.visible, in_flight: row.in_flight, delayed: row.delayed, dead: row.dead };
  return Object.fromEntries(Object.entries(detail.states).map(([state, many]) => [state, fresh[state] ?? many]));
}

function facts(row, detail) {
  const grows = row.grows_per_s ? ["drains: ", h("b", { class: isAlarming(row, "grows_per_s") ? "alarm" : null }, `grows ${rate(row.grows_per_s)}/s`)] : row.drain_s ? ["drains in ", h("b", {}, span(row.drain_s))] : null;
  const alive = detail.workers.filter((worker) => worker.alive);
  const takers = TAKERS[row.protocol];
  const places = alive.reduce((sum, worker) => sum + (worker.places ?? 0), 0);
  const word = row.protocol === "chasqui" ? "job" : "message";
  return [
    h("span", {}, h("b", {}, count(row.depth)), ` ${row.depth === 1 ? word : `${word}s`}`, row.size_bytes ? [", ", h("b", {}, bytes(row.size_bytes))] : null),
    row.oldest_s !== null && h("span", {}, "oldest ", h("b", {}, span(row.oldest_s))),
    h("span", {}, h("b", {}, rate(row.in_per_s)), "/s in, ", h("b", { class: isAlarming(row, "out_per_s") ? "alarm" : null }, rate(row.out_per_s)), "/s out"),
    grows && h("span", {}, grows),
    detail.workers.length ? h("span", {}, h("b", {}, count(alive.length)), ` ${alive.length === 1 ? takers.one : `${takers.one}s`}`, places ? [", ", h("b", {}, count(alive.reduce((sum, worker) => sum + worker.holds, 0))), " of ", h("b", {}, count(places)), " places taken"] : null) : null,
  ];
}

function troubleNote(row) {
  const { trouble } = row;
  const dead = row.dead ? h("a", { class: "button small", href: link.letters(row.queue) }, `${count(row.dead)} dead`) : null;
  const look = trouble.severity === "red" ? "bad" : "warn";
  return dead ? note(look, h("bdi", {}, trouble.why), dead) : note(look, h("bdi", {}, trouble.why));
}

/* actions: pause and resume act at once, since they undo each other; the others ask first, with a count. */

const ASKING = {
  drain: { label: "Drain…", verb: "Drain", keep: "Keep them" },
  purge: { label: "Purge…", verb: "Purge", keep: "Keep them" },
};

/* What each action removes, and what it leaves; `QueueActions` does it. */
const REMOVES = {
  chasqui: {
    drain: "Delayed jobs, those that run, and dead letters stay. This cannot be undone.",
    purge: "Jobs that run, and dead letters, stay. This cannot be undone.",
  },
  rsmq: { purge: "All messages are removed, also those in flight. The queue and its dead letters stay. This cannot be undone." },
  gomq: { purge: "Messages that no consumer has been given are removed. Those that peers hold stay. This cannot be undone." },
};

function actionButtons(queue, row, actions, place) {
  const noun = row.protocol === "chasqui" ? "a job" : "a message";
  const simple = (verb, label, shape) => actButton(label, (event) => attempt(event.currentTarget, place, async () => {
    toast((await post(`queue/${verb}`, { queue }, { dry_run: false, expected: null })).text);
  }), { shape });
  return [
    actions.includes("pause") && !row.paused && simple("pause", "Pause", "pause"),
    actions.includes("resume") && row.paused && simple("resume", "Resume", "run"),
    actions.includes("send") && mayAct() && h("a", { class: "button", href: `/send?${new URLSearchParams({ q: queue })}` }, `Send ${noun}`),
    ["drain", "purge"].filter((verb) => actions.includes(verb)).map((verb, index) => actButton(ASKING[verb].label, (event) => ask(queue, row.protocol, verb, event.currentTarget, place), { look: `danger ${index === 0 ? "apart" : ""}`, "aria-expanded": "false" })),
  ];
}

async function ask(queue, protocol, verb, opener, place) {
  const { keep, verb: name } = ASKING[verb];
  const close = () => {
    replace(place);
    opener.setAttribute("aria-expanded", "false");
    opener.focus();
  };
  if (opener.getAttribute("aria-expanded") === "true") return close();
  const counted = await attempt(opener, place, () => post(`queue/${verb}`, { queue }, { dry_run: true, expected: null }));
  if (!counted) return undefined;
  opener.setAttribute("aria-expanded", "true");
  const many = counted.count ?? 0;
  replace(place, h("div", { class: "selection still" }, confirmation({
    title: `${name} ${queue}?`, text: h("p", {}, counted.text, " ", REMOVES[protocol][verb]), verb: many ? `${name} ${count(many)}` : name, keep, danger: true,
    typed: many > 0 ? many : null, close,
    work: async () => {
      const result = await post(`queue/${verb}`, { queue }, { dry_run: false, expected: counted.count });
      if (result.operation) followOperation(result.operation);
      else toast(result.text);
    },
  })));
  place.querySelector("input, .main")?.focus();
  return undefined;
}

/* charts */

function chartCards(signal) {
  const throughput = lineChart({
    signal, unit: rate, height: 150,
    lines: [{ key: "in", label: "entered", series: "entered", area: true }, { key: "out", label: "done", series: "done", look: "dash" }, { key: "failed", label: "failed", series: "failed", look: "dots", optional: true }],
    describe: ({ values }) => `Throughput of the last hour, per second. Now ${rate(lastOf(values.in ?? []))} entered, ${rate(lastOf(values.out ?? []))} done.`,
  });
  const times = lineChart({
    signal, unit: (value) => span(value), height: 150,
    lines: [{ key: "p50", label: "p50", series: "p50" }, { key: "p95", label: "p95", series: "p95", look: "dash" }, { key: "p99", label: "p99", series: "p99", look: "dots" }],
    describe: ({ values }) => `Time in the last hour. Now p50 ${span(lastOf(values.p50 ?? []) ?? 0)}, p99 ${span(lastOf(values.p99 ?? []) ?? 0)}.`,
  });
  const throughputCard = card(heading("Throughput", "per second"), { end: throughput.legend }, h("div", { class: "inside" }, throughput.node));
  const none = h("div", { class: "inside soft" });
  let which = "run_times";
  let kept = null;
  const choice = picks("Time", [{ key: "run_times", label: "of a run" }, { key: "wait_times", label: "in line" }], which, (key) => {
    which = key;
    choice.choose(key);
    drawTimes();
  }, "small");
  const timesCard = h("section", { class: "card", "aria-label": "Time" }, h("header", {}, h("h2", {}, "Time"), choice.node, times.legend), none, h("div", { class: "inside" }, times.node));

  function drawTimes() {
    const series = kept[which];
    const known = Object.values(series?.values ?? {}).some((line) => line.some((value) => value !== null));
    none.hidden = known;
    replace(none, known ? null : which === "run_times" ? "No run has ended in the last hour while somebody looked." : "Nothing has left the line in the last hour while somebody looked.");
    times.node.hidden = !known;
    times.legend.hidden = !known;
    if (known) times.update(series);
  }

  return {
    update(detail, place) {
      kept = detail;
      if (!place.firstChild) {
        const timed = detail.run_times !== null || detail.wait_times !== null;
        if (detail.run_times === null && timed) {
          which = "wait_times";
          choice.choose(which);
        }
        place.classList.toggle("one", !timed);
        replace(place, throughputCard, timed && timesCard);
      }
      throughput.update(detail.throughput);
      if (timesCard.isConnected) drawTimes();
    },
  };
}

/* the rail */

function settingsCard(detail) {
  return detail.settings.length ? card("Settings", {}, h("div", { class: "inside" }, pairs(detail.settings))) : null;
}

const MOST_WORKERS = 12;

function workersCard(detail) {
  const { protocol } = detail.row;
  if (!detail.workers.length && !detail.leaders && protocol !== "kqueue") return null;
  const { one, title } = TAKERS[protocol];
  const buffered = protocol === "kqueue";
  const rows = detail.workers.slice(0, MOST_WORKERS).map((worker) => h("tr", {}, h("th", { scope: "row", class: "cut", title: worker.note || worker.id }, worker.id),
    buffered ? [] : h("td", { class: "n" }, worker.places ? `${count(worker.holds)} of ${count(worker.places)}` : count(worker.holds)),
    h("td", { class: "n" }, buffered ? bytes(worker.buffer_bytes ?? 0) : !worker.alive ? h("span", { class: "caution" }, "silent") : cell(worker.lease_s, span))));
  const lead = detail.leaders && (detail.leaders.promoter || detail.leaders.scheduler);
  return card(title, { end: h("a", { class: "end", href: `/workers?${new URLSearchParams({ q: detail.row.queue })}` }, `${count(detail.workers.filter((worker) => worker.alive).length)} alive`) },
    rows.length ? table(`${title} of this queue`, [one[0].toUpperCase() + one.slice(1), ...(buffered ? [{ label: "Buffer", look: "n" }] : [{ label: "Holds", look: "n" }, { label: "Lease", look: "n" }])], rows, { look: "fixed" }) : h("div", { class: "inside soft" }, "No consumer takes from this queue."),
    lead && h("div", { class: "foot" }, detail.leaders.promoter === detail.leaders.scheduler ? `Promoter and scheduler: ${detail.leaders.promoter}` : [`Promoter: ${detail.leaders.promoter ?? "none"}`, " ", `Scheduler: ${detail.leaders.scheduler ?? "none"}`]));
}

function schedulesCard(detail) {
  if (!detail.schedules.length) return null;
  return card("Schedules", { end: h("a", { class: "end", href: "/schedules" }, plural(detail.schedules.length, "schedule")) },
    h("div", { class: "inside" }, h("dl", { class: "pairs wide-label" }, detail.schedules.slice(0, 8).map((row) => [h("dt", {}, `${row.name || row.key}, ${row.pattern}`), h("dd", {}, due(row.next_ms))]))));
}
