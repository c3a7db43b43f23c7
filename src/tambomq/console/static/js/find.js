// The search in the bar: queues by name at once, messages by id from the server.

import { get, listIn } from "./api.js";
import { h, replace } from "./dom.js";
import { live } from "./live.js";
import { later, link } from "./parts/ui.js";

const MOST = 8;

export function findBox({ go }) {
  const input = h("input", { id: "find", type: "search", placeholder: "Find a queue or an id", autocomplete: "off", spellcheck: "false",
    role: "combobox", "aria-expanded": "false", "aria-controls": "found", "aria-label": "Find a queue, a job or a message" });
  const list = h("ul", { id: "found", class: "found", role: "listbox", "aria-label": "Found", hidden: true });
  let entries = [];
  let chosen = 0;
  let asked = 0;

  function close() {
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
  }

  function draw(done) {
    replace(list, entries.map((entry, index) => h("li", { role: "option", "aria-selected": String(index === chosen), onmousedown: (event) => {
      event.preventDefault();
      open(entry);
    } }, h("span", { class: "id" }, entry.label), h("span", { class: "soft" }, entry.hint))),
    entries.length === 0 && h("li", { class: "soft", role: "option", "aria-disabled": "true", "aria-selected": "false" }, done ? "Nothing found. Ids are looked for in full." : "Looking"));
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
  }

  function open(entry) {
    close();
    input.value = "";
    input.blur();
    go(entry.href);
  }

  const ask = later(async (text, turn) => {
    try {
      const answer = await get("find", { text });
      if (turn !== asked) return;
      entries = merge(entries, fromServer(answer));
      draw(true);
    } catch (error) {
      if (turn === asked) replace(list, h("li", { role: "option", "aria-selected": "false", class: "alarm" }, error.message));
    }
  });

  input.addEventListener("input", () => {
    const text = input.value.trim();
    asked += 1;
    chosen = 0;
    if (!text) return close();
    entries = knownQueues(text);
    draw(false);
    ask(text, asked);
    return undefined;
  });
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      input.value = "";
      close();
      input.blur();
    } else if (event.key === "Enter") {
      event.preventDefault();
      if (entries[chosen]) open(entries[chosen]);
    } else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && entries.length) {
      event.preventDefault();
      chosen = (chosen + (event.key === "ArrowDown" ? 1 : entries.length - 1)) % entries.length;
      draw(true);
    }
  });
  return h("form", { class: "find", role: "search", onsubmit: (event) => event.preventDefault() }, input, h("kbd", { "aria-hidden": "true" }, "/"), list);
}

function knownQueues(text) {
  const wanted = text.toLowerCase();
  const queues = live.overview?.queues ?? [];
  return queues.filter((row) => row.queue.toLowerCase().includes(wanted)).slice(0, MOST).map((row) => queueEntry(row.queue));
}

const queueEntry = (queue) => ({ label: queue, hint: "queue", href: link.queue(queue) });

function fromServer(answer) {
  const queues = listIn(answer, "queues").map((found) => queueEntry(typeof found === "string" ? found : found.queue));
  const messages = (answer.messages ?? answer.ids ?? []).map((found) => ({ label: found.id, hint: found.queue, href: link.message(found.queue, found.id) }));
  return [...messages, ...queues];
}

function merge(first, second) {
  const known = new Set(first.map((entry) => entry.href));
  return [...first, ...second.filter((entry) => !known.has(entry.href))].slice(0, MOST);
}
