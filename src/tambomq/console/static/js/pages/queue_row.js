// One queue in the table of queues: its columns, and how a row is brought up to date in place.

import { h, named, replace } from "../dom.js";
import { bytes, cell, count, dash, rate, span } from "../format.js";
import { link, troubleBadge } from "../parts/ui.js";
import { drawSparkline, sparkline } from "../parts/svg.js";

const number = (key) => ({ value: (row) => row[key], show: (row) => row[key], node: (row) => cell(row[key]) });

/** Columns in their order: `value` sorts, `show` says whether a cell has changed, `node` draws it. */
export const COLUMNS = [
  { key: "name", label: "Queue", value: (row) => row.queue },
  { key: "depth", label: "Depth", title: "All that is kept: visible, in flight and delayed", ...number("depth") },
  { key: "visible", label: "Visible", deep: true, ...number("visible") },
  { key: "in_flight", label: "In flight", deep: true, ...number("in_flight") },
  { key: "delayed", label: "Delayed", deep: true, ...number("delayed") },
  { key: "dead", label: "Dead", ...number("dead"), node: (row) => alarmed(row, "dead", cell(row.dead)) },
  { key: "oldest_s", label: "Oldest", title: "Age of the oldest message that could run now", value: (row) => row.oldest_s, show: (row) => (row.oldest_s === null ? null : span(row.oldest_s)), node: (row) => alarmed(row, "oldest_s", cell(row.oldest_s, span)) },
  { key: "in_per_s", label: "In/s", value: (row) => row.in_per_s, show: (row) => rate(row.in_per_s), node: (row) => cell(row.in_per_s, rate) },
  { key: "out_per_s", label: "Out/s", value: (row) => row.out_per_s, show: (row) => rate(row.out_per_s), node: (row) => alarmed(row, "out_per_s", cell(row.out_per_s, rate)) },
  { key: "drain_s", label: "Drains in", value: (row) => (row.grows_per_s ? Number.MAX_VALUE : row.drain_s), show: drainText, node: (row) => alarmed(row, "grows_per_s", drainNode(row)), title: "How long until it is empty at the present rates" },
  { key: "size_bytes", label: "Size", title: "An estimate", deep: true, value: (row) => row.size_bytes, show: (row) => row.size_bytes, node: (row) => cell(row.size_bytes, bytes) },
  { key: "backlog", label: "Backlog", value: null },
];

const FINE_S = 10;
const FEWEST = 10; // steps: a shorter line would fill the whole width with next to nothing

/** What part of the last hour the backlogs show: all that was looked at, so that a short history fills the width. */
export function historyOf({ at_ms: at, watched_since_ms: since, queues }) {
  const fine = queues.some((row) => row.backlog_fine?.length);
  const step = fine ? FINE_S : 60;
  const known = since === null ? 60 : Math.ceil((at - since) / 1000 / step) + 1;
  const steps = Math.min(60, Math.max(FEWEST, known));
  const minutes = Math.ceil((steps * step) / 60);
  return { fine, steps, spanned: minutes >= 60 ? "1 h" : `${minutes} m` };
}

const backlogOf = (row, { fine, steps }) => (fine ? row.backlog_fine : row.backlog).slice(-steps);

function drainText(row) {
  if (row.paused) return "paused";
  if (row.grows_per_s) return `grows ${row.grows_per_s < 10 ? rate(row.grows_per_s) : count(row.grows_per_s)}/s`;
  if (row.drain_s === null || row.drain_s === 0) return null;
  return row.drain_s < 1 ? "< 1\u00a0s" : span(row.drain_s);
}

const drainNode = (row) => drainText(row) ?? dash();

/* Which numbers show each kind of trouble. */
const LATE = ["oldest_s", "grows_per_s"];
const ALARMING = { failing: [...LATE, "out_per_s", "dead"], "dead letters": ["dead"], "no workers": LATE, "no peers": LATE, "no leader": LATE, growing: LATE, "peer silent": LATE };
const LAGGING = 0.8; // of what enters: a retry leaves too, so failures alone do not show here

/** Whether this number of a queue shows what its trouble is. */
export function isAlarming(row, key) {
  if (!row[key] || !ALARMING[row.trouble?.kind]?.includes(key)) return false;
  return key !== "out_per_s" || row.out_per_s < LAGGING * row.in_per_s;
}

/** Colours what makes a queue one in trouble; nothing else has a colour. */
function alarmed(row, key, node) {
  if (!isAlarming(row, key)) return node;
  return h("span", { class: row.trouble.severity === "red" ? "alarm" : "caution" }, node);
}

const PHONE_LABELS = { drain_s: "Drain" };

export class QueueRowView {
  constructor(queue) {
    const colon = queue.indexOf(":") + 1;
    this.badge = h("span");
    this.kept = new Map();
    this.cells = new Map();
    this.spark = sparkline();
    const name = h("th", { role: "rowheader", scope: "row", class: "name c-name" },
      h("span", { class: "name-line" }, h("a", { href: link.queue(queue), "data-open": true, title: queue }, h("span", { class: "door" }, queue.slice(0, colon)), h("span", { class: "queue-name" }, named(queue.slice(colon)))), " ", this.badge));
    for (const column of COLUMNS.slice(1, -1)) {
      this.cells.set(column.key, h("td", { role: "cell", class: `n c-${column.key} ${column.deep ? "deep" : ""}`, "data-label": PHONE_LABELS[column.key] ?? column.label }));
    }
    this.row = h("tr", { role: "row", class: "row", "data-row": true }, name, [...this.cells.values()], h("td", { role: "cell", class: "n graph c-backlog" }, this.spark.svg));
    this.why = null;
  }

  nodes() {
    return this.why ? [this.row, this.why] : [this.row];
  }

  remove() {
    this.nodes().forEach((node) => node.remove());
  }

  update(row, history) {
    const look = `${row.trouble?.severity ?? ""}`;
    for (const column of COLUMNS.slice(1, -1)) {
      this.#change(column.key, `${look} ${column.show(row)}`, () => replace(this.cells.get(column.key), column.node(row)));
    }
    const depths = backlogOf(row, history);
    this.#change("backlog", depths.join(), () => drawSparkline(this.spark, depths));
    this.#change("trouble", JSON.stringify([row.trouble, row.paused]), () => this.#showTrouble(row));
  }

  #change(key, value, draw) {
    if (this.kept.get(key) === value) return;
    this.kept.set(key, value);
    draw();
  }

  #showTrouble(row) {
    const { trouble } = row;
    replace(this.badge, troubleBadge(row));
    this.row.className = `row ${trouble ? (trouble.severity === "red" ? "trouble" : "watch") : ""}`;
    if (!trouble) {
      this.why?.remove();
      this.why = null;
      return;
    }
    this.why ??= h("tr", { role: "row" });
    this.why.className = `why ${trouble.severity === "red" ? "bad" : "warn"}`;
    replace(this.why, h("td", { role: "cell", colspan: COLUMNS.length }, h("bdi", {}, trouble.why), " ", whereTo(row)));
  }
}

function whereTo(row) {
  const places = { queue: [link.queue(row.queue), "Open the queue"], dead_letters: [link.letters(row.queue), "Open its dead letters"], workers: ["/workers", "Open the workers"] };
  const [href, label] = places[row.trouble.link] ?? places.queue;
  return h("a", { href }, label);
}
