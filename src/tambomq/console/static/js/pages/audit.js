// The audit log: who did what, from where, and what came of it. Newest first.

import { get, listIn } from "../api.js";
import { h, replace } from "../dom.js";
import { at, moment, plural } from "../format.js";
import { badge, card, field, later, load, table } from "../parts/ui.js";

const LIMIT = 200;
const OUTCOMES = { done: ["good", "tick"], refused: ["warn", "warn"], failed: ["bad", "bad"] };

export const title = () => "Audit";

export function show(root, query, signal) {
  const place = h("div", { class: "page" });
  const filter = h("input", { type: "search", placeholder: "Who, what or where", "data-filter": true, oninput: later(() => draw(), 80) });
  let entries = [];
  root.append(h("section", { class: "subject", "aria-label": "Audit" }, h("h1", {}, "Audit"), h("span", { class: "soft" }, "every action, and every refusal"), h("div", { class: "buttons" }, field("Filter", filter))), place);

  function draw() {
    const text = filter.value.trim().toLowerCase();
    const shown = entries.filter((entry) => !text || Object.values(entry).join(" ").toLowerCase().includes(text));
    replace(place, entries.length === 0 ? h("section", { class: "card blank" }, h("h2", { class: "big" }, "Nobody has done anything yet"), h("p", { class: "soft" }, "Pausing, replaying, deleting and sending are written down here, and so are log-ins that were refused.")) :
      card("Actions", { end: entries.length >= LIMIT ? `the last ${LIMIT}` : plural(entries.length, "entry", "entries") }, table("Audit log", ["When", "Who", "From", "Action", "On", "Outcome", { label: "Detail", look: "cut" }], shown.map(line))));
  }

  load(place, "the audit log", () => get("audit", { limit: LIMIT }, signal), (answer) => {
    entries = listIn(answer, "entries");
    draw();
  });
}

function line(entry) {
  const [look, shape] = OUTCOMES[entry.outcome] ?? ["still", "ring"];
  return h("tr", {}, h("td", {}, at(entry.at_ms, moment)), h("th", { scope: "row", class: "name-cell" }, h("bdi", {}, entry.user), entry.role ? h("span", { class: "soft" }, `, ${entry.role}`) : null), h("td", { class: "id" }, entry.address), h("td", {}, entry.verb),
    h("td", { class: "name-cell" }, h("bdi", {}, entry.target)), h("td", {}, badge(entry.outcome, look, shape)), h("td", { class: "cut" }, h("bdi", { title: entry.detail }, entry.detail)));
}
