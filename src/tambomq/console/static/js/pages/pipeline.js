// The data pipeline: tables of the lake, how far it lags, its last batches, gold, leases and journals.

import { get } from "../api.js";
import { h, replace } from "../dom.js";
import { ago, bytes, cell, count, dash, plural, rate, span } from "../format.js";
import { live } from "../live.js";
import { lineChart } from "../parts/charts.js";
import { card, heading, load, table } from "../parts/ui.js";

const REFRESH_MS = 5000;
const LOOKS = [["entered", ""], ["done", "dash"], ["failed", "dots"], ["dead", ""], ["backlog", "dash"]];

export const title = () => "Pipeline";

export function show(root, query, signal) {
  const facts = h("p", { class: "facts" });
  const place = h("div", { class: "page" });
  root.append(h("section", { class: "subject", "aria-label": "Pipeline" }, h("h1", {}, "Pipeline"), facts), place);
  const read = () => get("pipeline", {}, signal);
  let gold = null;
  const parts = h("div", { class: "page" });
  const update = (status) => {
    if (signal.aborted) return;
    replace(facts, status.lake && [h("span", {}, "lag ", h("b", {}, status.lag_s === null ? "–" : span(status.lag_s))), h("span", {}, "lake ", h("code", {}, status.lake))]);
    if (!status.lake && !status.journals.length) {
      replace(place, blank(status));
      return;
    }
    if (status.gold?.times_ms.length && !gold) {
      gold = goldChart(status, signal);
      replace(place, gold.card, parts);
    } else if (!parts.isConnected) replace(place, parts);
    replace(parts, status.note && h("p", { class: "soft" }, coded(status.note)), h("div", { class: "two" }, tablesCard(status), batchesCard(status)), h("div", { class: "two" }, journalsCard(status), leasesCard(status)));
    if (gold && status.gold) gold.update(status.gold);
  };
  load(place, "the lake", read, (status) => {
    update(status);
    const timer = setInterval(() => live.connected && !document.hidden && read().then(update).catch(() => {}), REFRESH_MS);
    signal.addEventListener("abort", () => clearInterval(timer));
  });
}

function goldChart(status, signal) {
  const keys = Object.keys(status.gold.values).slice(0, LOOKS.length);
  const chart = lineChart({ signal, unit: rate, height: 150, lines: keys.map((key, index) => ({ key, label: key.replaceAll("_", " "), series: LOOKS[index][0], look: LOOKS[index][1] })), describe: () => `Gold: ${keys.join(", ")}.` });
  return { card: card(heading("Gold", "what the pipeline has counted"), { end: chart.legend }, h("div", { class: "inside" }, chart.node)), update: chart.update };
}

function tablesCard({ tables }) {
  return card("Tables of the lake", { end: plural(tables.length, "table") }, tables.length ? table("Tables of the lake", ["Table", { label: "Rows", look: "n" }, { label: "Files", look: "n" }, { label: "Size", look: "n" }, { label: "Newest", look: "n" }],
    tables.map((row) => h("tr", {}, h("th", { scope: "row" }, row.name), h("td", { class: "n" }, cell(row.rows)), h("td", { class: "n" }, cell(row.files)), h("td", { class: "n" }, cell(row.size_bytes, bytes)), h("td", { class: "n" }, ago(row.newest_ms))))) : h("div", { class: "inside soft" }, "Nothing is written yet."));
}

function batchesCard({ batches }) {
  return card("Last batches", {}, batches.length ? table("Last batches", ["Table", { label: "Rows", look: "n" }, { label: "Written", look: "n" }],
    batches.slice(0, 12).map(([ms, rows, name]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", { class: "n" }, count(rows)), h("td", { class: "n" }, ago(ms))))) : h("div", { class: "inside soft" }, "No batch is written yet."));
}

function journalsCard({ journals }) {
  return card("Journals", {}, journals.length ? table("Journals", ["Queue", { label: "Entries", look: "n" }, { label: "Not read yet", look: "n" }],
    journals.map(([queue, entries, unread]) => h("tr", {}, h("th", { scope: "row", class: "name-cell" }, h("bdi", {}, queue)), h("td", { class: "n" }, cell(entries)), h("td", { class: "n" }, cell(unread))))) : h("div", { class: "inside soft" }, "No queue has a journal. The pipeline then sees only what waits."));
}

function leasesCard({ leases }) {
  return card("Leases", {}, leases.length ? table("Leases", ["Query", "Queue", { label: "Ends in", look: "n" }],
    leases.map((row) => h("tr", {}, h("th", { scope: "row", class: "name-cell" }, h("bdi", {}, row.id), row.alive ? null : h("span", { class: "caution" }, " ended")), h("td", { class: "name-cell" }, h("bdi", {}, row.queue)), h("td", { class: "n" }, row.lease_s === null ? dash() : span(row.lease_s))))) : h("div", { class: "inside soft" }, "No query holds a queue."));
}

const blank = (status) => h("section", { class: "card blank" }, h("h2", { class: "big" }, "No lake here"),
  h("p", { class: "soft" }, status.note ? coded(status.note) : "The pipeline turns what passes through the queues into tables: bronze, silver and gold. This console looks for its lake on its own machine and found none."),
  h("pre", { tabindex: 0, role: "region", "aria-label": "A command to try" }, h("span", { class: "c" }, "$"), " tambo pipeline run"),
  h("p", { class: "soft" }, "It needs Spark, which ", h("code", {}, "make spark"), " installs."));

/** A sentence of the server, whose commands stand between backquotes. */
const coded = (text) => text.split("`").map((part, index) => (index % 2 ? h("code", {}, part) : part));
