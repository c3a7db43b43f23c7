// Workers and peers: who is alive, what each holds, and the rest of its lease; leaders; connections with their buffers.

import { get, listIn } from "../api.js";
import { h, named, replace } from "../dom.js";
import { bytes, cell, count, dash, plural, span } from "../format.js";
import { live } from "../live.js";
import { card, link, load, table } from "../parts/ui.js";

const REFRESH_MS = 3000;
const GROUPS = [
  { label: "Workers", test: (row) => row.kind === "worker", id: "Worker", empty: "No ChasquiMQ worker has registered in any queue." },
  { label: "RSMQ leases", test: (row) => row.kind === "lease", id: "Holder", empty: "Nobody holds a received message." },
  { label: "GOMQ peers", test: (row) => row.kind === "peer", id: "Peer", empty: "No peer observes a key." },
  { label: "KqueueMsgQ connections", test: (row) => row.kind === "producer" || row.kind === "consumer", id: "Connection", empty: "No connection is open. The console of the tambo serve that clients connect to shows them." },
];

export const title = () => "Workers and peers";

export function show(root, query, signal) {
  const queue = query.get("q") ?? "";
  const read = () => get("workers", { queue }, signal);
  const place = h("div", { class: "page" });
  const facts = h("p", { class: "facts" });
  root.append(h("section", { class: "subject", "aria-label": "Workers" }, queue && h("p", { class: "trail" }, h("a", { href: "/workers" }, "Workers"), " / ", h("a", { href: link.queue(queue) }, h("bdi", {}, queue))), h("h1", {}, "Workers and peers"), facts), place);
  const update = (answer) => {
    if (signal.aborted || place.matches(":focus-within")) return;
    const rows = listIn(answer, "workers").filter((row) => !queue || row.queue === queue || !row.queue.includes(":"));
    const leaders = (answer.leaders ?? []).filter((row) => !queue || row.queue === queue);
    const alive = rows.filter((row) => row.alive);
    replace(facts, h("span", {}, h("b", {}, count(alive.length)), ` of ${count(rows.length)} alive`), h("span", {}, "they hold ", h("b", {}, count(rows.reduce((sum, row) => sum + row.holds, 0)))));
    const groups = queue ? GROUPS.filter((group) => rows.some(group.test)) : GROUPS;
    replace(place, groups.map((group) => groupCard(group, rows.filter(group.test))), queue && !rows.length ? h("p", { class: "soft" }, "No consumer takes from this queue.") : null, leadersCard(leaders));
  };
  load(place, "workers", read, (answer) => {
    update(answer);
    const timer = setInterval(() => live.connected && !document.hidden && read().then(update).catch(() => {}), REFRESH_MS);
    signal.addEventListener("abort", () => clearInterval(timer));
  });
}

function groupCard(group, rows) {
  const has = (key) => rows.some((row) => row[key] !== null && row[key] !== "" && row[key].length !== 0);
  const columns = [
    { label: group.id, head: true, look: "name-cell", node: (row) => [h("bdi", {}, row.id), row.alive ? null : [" ", h("span", { class: "caution" }, "silent")]] },
    rows.some((row) => row.queue.includes(":")) && { label: "Queue", look: "name-cell", node: (row) => (row.queue.includes(":") ? h("a", { href: link.queue(row.queue) }, h("bdi", {}, row.queue)) : dash()) },
    rows.some((row) => row.kind === "producer" || row.kind === "consumer") && { label: "Role", node: (row) => row.kind },
    { label: "Holds", look: "n", node: (row) => (row.places ? `${count(row.holds)} of ${count(row.places)}` : cell(row.holds)) },
    has("lease_s") && { label: "Lease ends in", look: "n", node: (row) => cell(row.lease_s, span) },
    has("idle_s") && { label: "Silent for", look: "n", node: (row) => cell(row.idle_s, span) },
    has("buffer_bytes") && { label: "Buffer", look: "n", node: (row) => cell(row.buffer_bytes, bytes) },
    has("subscriptions") && { label: "Subscriptions", look: "cut", node: (row) => h("bdi", { title: row.subscriptions.join(", ") }, row.subscriptions.join(", ") || "–") },
    rows.some((row) => row.address && row.address !== row.id) && { label: "Address", look: "id", node: (row) => row.address || dash() },
    has("note") && { label: "Note", look: "wrap sentence", node: (row) => h("bdi", {}, row.note) },
  ].filter(Boolean);
  const lines = rows.map((row) => h("tr", {}, columns.map((column) => h(column.head ? "th" : "td", { scope: column.head ? "row" : null, class: column.look ?? null }, column.node(row)))));
  return card(group.label, { end: rows.length ? `${count(rows.filter((row) => row.alive).length)} of ${count(rows.length)} alive` : null },
    rows.length ? table(group.label, columns.map((column) => ({ label: column.label, look: column.look })), lines) : h("div", { class: "inside soft" }, group.empty));
}

function leadersCard(rows) {
  if (!rows.length) return null;
  return card("Leaders", { end: plural(rows.length, "queue") }, table("Who promotes and schedules", ["Queue", "Promoter", "Scheduler"], rows.map((row) => h("tr", {},
    h("th", { scope: "row", class: "name-cell" }, h("a", { href: link.queue(row.queue), title: row.queue }, named(row.queue))), h("td", { class: "name-cell" }, row.promoter ?? dash()), h("td", { class: "name-cell" }, row.scheduler ?? dash())))));
}
