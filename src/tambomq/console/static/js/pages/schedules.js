// Schedules: when each fired last, when it fires next; run one now, or skip its next fire.

import { get, listIn, mayAct, post } from "../api.js";
import { h, replace } from "../dom.js";
import { ago, cell, count, due, plural } from "../format.js";
import { confirmation, toast } from "../parts/confirm.js";
import { actButton, attempt, card, field, later, link, load, table } from "../parts/ui.js";

export const title = () => "Schedules";

export function show(root, query, signal) {
  const place = { facts: h("span", { class: "soft" }), list: h("div", { class: "page" }), confirm: h("div", { class: "in-place" }) };
  const filter = h("input", { type: "search", placeholder: "Filter by queue or name", "data-filter": true, oninput: later(() => draw(), 80) });
  let rows = [];
  root.append(h("section", { class: "subject", "aria-label": "Schedules" }, h("h1", {}, "Schedules"), place.facts, h("div", { class: "buttons" }, field("Filter", filter))), place.confirm, place.list);
  const read = () => get("schedules", {}, signal);
  const again = async () => {
    rows = listIn(await read(), "schedules");
    draw();
  };

  function draw() {
    const text = filter.value.trim().toLowerCase();
    const shown = rows.filter((row) => !text || `${row.queue} ${row.name} ${row.key}`.toLowerCase().includes(text));
    replace(place.facts, plural(rows.length, "schedule"));
    replace(place.list, rows.length === 0 ? blank() : card("Recurring jobs", { end: shown.length === rows.length ? null : `${count(shown.length)} of ${count(rows.length)}` },
      table("Schedules", ["Queue", "Name", "Key", "When", { label: "Next", look: "n" }, { label: "Last", look: "n" }, { label: "Fired", look: "n" }, ...(shown.some((row) => row.note) ? ["Note"] : []), ...(mayAct() ? [h("th", { scope: "col" }, h("span", { class: "hidden-text" }, "Actions"))] : [])],
        shown.map((row) => line(row, shown.some((one) => one.note))))));
  }

  function line(row, noted) {
    return h("tr", { "data-row": true }, h("th", { scope: "row", class: "name-cell" }, h("a", { href: link.queue(row.queue), "data-open": true }, h("bdi", {}, row.queue))), h("td", { class: "name-cell" }, row.name), h("td", { class: "id name-cell" }, row.key), h("td", {}, row.pattern),
      h("td", { class: "n" }, due(row.next_ms)), h("td", { class: "n" }, ago(row.last_ms)), h("td", { class: "n" }, cell(row.fired)), noted && h("td", { class: "cut" }, row.note),
      mayAct() && h("td", { class: "n acts" }, actButton("Run now", (event) => attempt(event.currentTarget, place.confirm, async () => {
        toast((await post("schedules/run-now", { queue: row.queue, key: row.key })).text);
        await again();
      }), { look: "small" }), " ", actButton("Skip next…", (event) => skip(row, event.currentTarget), { look: "small" })));
  }

  function skip(row, opener) {
    const close = () => {
      replace(place.confirm);
      opener.focus();
    };
    replace(place.confirm, h("div", { class: "selection still" }, confirmation({
      title: `Skip the next fire of ${row.name || row.key}?`, text: h("p", {}, `It is due `, ago(row.next_ms), ` in ${row.queue}. The fires after it stay.`), verb: "Skip one fire", keep: "Keep it", close,
      work: async () => {
        toast((await post("schedules/skip", { queue: row.queue, key: row.key })).text);
        await again();
      },
    })));
    place.confirm.querySelector(".main").focus();
  }

  load(place.list, "schedules", read, (answer) => {
    rows = listIn(answer, "schedules");
    draw();
    const timer = setInterval(() => !document.hidden && !place.list.matches(":hover, :focus-within") && again().catch(() => {}), 5000);
    signal.addEventListener("abort", () => clearInterval(timer));
  });
}

const blank = () => h("section", { class: "card blank" }, h("h2", { class: "big" }, "No schedules"),
  h("p", { class: "soft" }, "A schedule adds a ChasquiMQ job again and again: by a cron pattern, or every so many seconds. It is kept in Redis, and one worker of the queue, its scheduler, fires it."));
