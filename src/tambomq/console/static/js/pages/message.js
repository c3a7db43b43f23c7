// The page of one message: why it is not running, its timeline, its body, and the commands that show the same.

import { get, post } from "../api.js";
import { glyph, h, named, replace } from "../dom.js";
import { at, clock, plural, relative, span, timed } from "../format.js";
import { live } from "../live.js";
import { bodyCard } from "../parts/body.js";
import { confirmation, followOperation, toast } from "../parts/confirm.js";
import { actButton, attempt, button, card, copy, link, load, pairs, stateBadge, stateName } from "../parts/ui.js";

const REFRESH_MS = 4000;
const LONG_HEADER = 160; // characters

export const title = (query) => query.get("id") ?? "Message";

export function show(root, query, signal, { go }) {
  const queue = query.get("q") ?? "";
  const id = query.get("id") ?? "";
  const read = () => get("message", { queue, id }, signal);
  load(root, id, read, (first) => {
    const place = { head: h("div"), confirm: h("div", { class: "in-place" }), why: h("div"), timeline: h("div"), texts: h("div", { class: "stack" }), commands: h("div"), facts: h("div", { class: "stack" }), body: h("div") };
    root.append(place.head, place.confirm, h("div", { class: "rail" }, h("div", { class: "stack" }, place.why, place.timeline, place.texts, place.commands), h("div", { class: "stack" }, place.body, place.facts)));
    let kept = "";
    const update = (detail) => {
      if (signal.aborted) return;
      const shape = JSON.stringify([detail.row.state, detail.actions, detail.row.name]);
      if (shape !== kept) {
        kept = shape;
        replace(place.head, subject(queue, id, detail, place, { go, again }));
        replace(place.body, detail.body && bodyCard(detail.body));
        replace(place.commands, commandsCard(detail));
      }
      replace(place.why, whyBox(detail));
      replace(place.timeline, timelineCard(detail));
      replace(place.texts, textsCards(detail));
      replace(place.facts, factsCard(detail), headersCard(detail), logsCard(detail));
    };
    const again = () => read().then(update).catch((error) => error.name === "AbortError" || replace(place.why, h("div", { class: "note" }, glyph("ring"), h("div", {}, error.message))));
    update(first);
    const timer = setInterval(() => live.connected && !document.hidden && !root.querySelector(".stack:hover time") && again(), REFRESH_MS);
    signal.addEventListener("abort", () => clearInterval(timer));
  });
}

function subject(queue, id, detail, place, { go, again }) {
  const { row, actions } = detail;
  const copyId = button("Copy id", () => copy(id, copyId));
  return h("section", { class: "subject", "aria-label": "Message" },
    h("p", { class: "trail" }, h("a", { href: "/" }, "Queues"), " / ", h("a", { href: link.queue(queue) }, named(queue)), " / ", h("a", { href: link.queue(queue, row.state) }, stateName(row.state))),
    h("h1", {}, row.name && [named(row.name), " "], h("span", { class: "id soft" }, id)), stateBadge(row.state),
    h("div", { class: "buttons" },
      actions.includes("run_now") && actButton("Run now", (event) => attempt(event.currentTarget, place.confirm, async () => {
        toast((await post("message/run-now", { queue, id })).text);
        await again();
      }), { look: "main" }),
      actions.includes("replay") && actButton("Replay…", (event) => replay(queue, id, detail, event.currentTarget, place.confirm, { again }), { look: "main" }),
      actions.includes("edit") && actButton(row.state === "dead" ? "Edit and replay…" : "Edit and run…", () => edit(queue, id, detail, place.confirm, { again, go })),
      copyId,
      ["cancel", "delete"].filter((verb) => actions.includes(verb)).map((verb, index) => actButton(verb === "cancel" ? "Cancel…" : "Delete…", (event) => end(verb, queue, id, event.currentTarget, place.confirm, { again, go }), { look: `danger ${index ? "" : "apart"}` }))));
}

function end(verb, queue, id, opener, place, { again, go }) {
  const reason = h("input", { type: "text", class: "reason", maxlength: 200, placeholder: "for the audit log" });
  const close = () => {
    replace(place);
    opener.focus();
  };
  replace(place, h("div", { class: "selection still" }, confirmation({
    title: verb === "cancel" ? "Cancel this job?" : "Delete this message?",
    text: h("p", {}, verb === "cancel" ? "It ends without a result, a retry or a dead letter. If it runs now, its handler is told. This cannot be undone." : "It is removed from Redis. This cannot be undone."),
    options: verb === "cancel" && h("div", { class: "options" }, h("label", {}, "Reason ", reason)),
    verb: verb === "cancel" ? "Cancel the job" : "Delete it", keep: "Keep it", danger: true, close,
    work: async () => {
      toast((await post(`message/${verb}`, { queue, id }, verb === "cancel" ? { reason: reason.value } : {})).text);
      if (verb === "delete") go(link.queue(queue));
      else await again();
    },
  })));
  place.querySelector("input, .main")?.focus();
}

async function replay(queue, id, detail, opener, place, { again }) {
  const selector = { queue, groups: [], reasons: [], ids: [detail.row.letter_id ?? id], find: "" };
  const made = await attempt(opener, place, () => post("dead-letters/selections", {}, selector));
  if (!made) return;
  if (!made.count) return void again();
  const close = () => {
    replace(place);
    opener.focus();
  };
  replace(place, h("div", { class: "selection still" }, confirmation({
    title: `Replay it into ${queue}?`, text: [h("p", {}, "It waits there again, with its runs reset, and its dead letter is gone. This can be undone until a consumer has received it."), made.warning && h("p", { class: "caution" }, glyph("warn"), made.warning)],
    verb: "Replay it", keep: "Keep it", close,
    work: async () => {
      followOperation(await post(`dead-letters/selections/${encodeURIComponent(made.id)}/replay`, {}, { per_s: null, ahead: 0 }));
      setTimeout(again, 400); // it has moved by then
    },
  })));
  place.querySelector(".main").focus();
}

function edit(queue, id, detail, place, { go }) {
  const { body } = detail;
  const encoding = body?.json !== null ? "json" : body?.msgpack !== null ? "msgpack" : "text";
  const area = h("textarea", { rows: 12, spellcheck: "false", "aria-label": "The new body" });
  area.value = body?.json ?? body?.msgpack ?? body?.text ?? "";
  const whole = body && !body.cut_off;
  replace(place, h("div", { class: "selection still" }, confirmation({
    title: "Edit the body and run it", text: [h("p", {}, whole ? `As ${encoding === "msgpack" ? "JSON, stored as MessagePack" : encoding === "json" ? "JSON" : "text"}. ${detail.row.name === null ? "It" : "The job keeps its name and"} joins the line at once.` : "Only a part of this body is shown, so it cannot be edited here: what you see would replace all of it."), area],
    verb: "Run it", keep: "Keep it as it is", close: () => replace(place),
    work: async () => {
      if (!whole) throw new Error("This body is too long to be edited here.");
      const result = await post("message/edit", { queue, id }, { body: area.value, encoding });
      toast(result.text);
      go(result.id ? link.message(queue, result.id) : link.queue(queue));
    },
  })));
  area.focus();
}

const VERDICTS = { holds: ["now", "clock", "holds it now"], next: ["next", "ring", "holds it next"], open: ["open", "tick", "open"] };

function whyBox(detail) {
  const { why, row } = detail;
  const calm = row.state === "done" || row.state === "in_flight";
  const question = { done: "Has it run?", in_flight: "Who has it?", dead: "Why is it dead?" }[row.state] ?? "Why is it not running?";
  return h("section", { class: `why-box ${row.state === "dead" ? "is-dead" : calm ? "is-calm" : ""}`, "aria-labelledby": "why" },
    h("div", { class: "answer" }, h("h2", { id: "why" }, question), h("p", { class: "headline" }, h("bdi", {}, why.headline)), why.detail && h("p", {}, h("bdi", {}, timed(why.detail)))),
    why.gates.length ? h("div", { class: "scroll" }, h("table", {},
      h("caption", { class: "hidden-text" }, "What can hold a message back, and whether it does"),
      h("thead", {}, h("tr", {}, ["Gate", "Now", "Verdict"].map((label) => h("th", { scope: "col" }, label)))),
      h("tbody", {}, why.gates.map((gate) => {
        const [look, shape, words] = VERDICTS[gate.verdict];
        return h("tr", { class: look === "now" ? "now" : null }, h("th", { scope: "row" }, gate.name), h("td", { class: "wrap" }, timed(gate.now)), h("td", {}, h("span", { class: `verdict ${look}` }, glyph(shape), words)));
      })))) : null);
}

const ENTRIES = { added: ["", "ring"], due: ["", "ring"], started: ["run", "run"], failed: ["bad", "bad"], done: ["good", "tick"], dead: ["bad", "bad"], other: ["", "ring"], future: ["ahead", "clock"] };

function timelineCard(detail) {
  const { timeline } = detail;
  const sources = [...new Set(timeline.map((entry) => entry.source))].map((source) => ({ events: "events", journal: "the journal", state: "its state" })[source]);
  return card("Timeline", { label: "Timeline", end: timeline.length ? `newest first, from ${sources.join(" and ")}` : null },
    timeline.length ? h("ol", { class: "timeline" }, timeline.map((entry, index) => timelineItem(entry, timeline[index + 1]))) : h("div", { class: "inside soft" }, "Nothing is known of what happened to it."),
    detail.timeline_note && h("div", { class: "foot" }, timed(detail.timeline_note)));
}

function timelineItem(entry, before) {
  const [look, shape] = ENTRIES[entry.kind] ?? ["", "ring"];
  const step = entry.kind === "future" && entry.at_ms ? relative(entry.at_ms) : entry.at_ms && before?.at_ms ? `+${span((entry.at_ms - before.at_ms) / 1000)}` : "";
  const [, first, rest] = /^([^]*?)((?:[:,.](?=\s|$)[^]*)?)$/.exec(entry.text);
  return h("li", { class: look }, entry.at_ms === null ? h("span", { class: "none" }, "–") : at(entry.at_ms, (ms) => clock(ms, { millis: true })), h("span", { class: "step" }, step), glyph(shape),
    h("span", {}, h("bdi", {}, entry.kind === "added" || look ? [h("b", {}, first), rest] : entry.text)));
}

function commandsCard(detail) {
  if (!detail.commands.length) return null;
  const text = detail.commands.map(([says, command]) => `# ${says}\n${command}`).join("\n");
  const all = button("Copy all", () => copy(text, all), { look: "small" });
  return card("The same from Redis", { end: h("span", { class: "end" }, all) }, h("div", { class: "inside soft" }, "These commands only read."),
    h("pre", { tabindex: 0, role: "region", "aria-label": "Commands" }, detail.commands.map(([says, command], index) => [index ? "\n" : null, h("span", { class: "c" }, `# ${says}`), "\n", command])));
}

const factsCard = (detail) => card(detail.row.name === null ? "Message" : "Job", {}, h("div", { class: "inside" }, pairs(detail.facts, timed), progress(detail)));

function progress(detail) {
  if (detail.progress === null || detail.progress === undefined) return null;
  const text = typeof detail.progress === "number" ? `${detail.progress} %` : JSON.stringify(detail.progress);
  return pairs([["Progress", text]]);
}

const isLong = ([, text]) => text.includes("\n") || text.length > LONG_HEADER;

function headersCard({ headers }) {
  const short = headers.filter((header) => !isLong(header));
  return short.length ? card("Headers", {}, h("div", { class: "inside" }, pairs(short))) : null;
}

/** Headers of many lines, such as a traceback, where there is room for them. */
function textsCards({ headers }) {
  return headers.filter(isLong).map(([name, text]) => card(name[0].toUpperCase() + name.slice(1), {}, h("pre", { tabindex: 0, role: "region", "aria-label": name, class: "logs" }, text)));
}

function logsCard(detail) {
  return detail.logs.length ? card("Logs", { end: plural(detail.logs.length, "line") }, h("pre", { tabindex: 0, role: "region", "aria-label": "Logs", class: "logs" }, detail.logs.join("\n"))) : null;
}
