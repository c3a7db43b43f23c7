// The selection of dead letters: counted exactly by the server and fixed when made. Its confirmations open under it.

import { get, post } from "../api.js";
import { glyph, h, replace } from "../dom.js";
import { at, clock, count, plural, span } from "../format.js";
import { confirmation, followOperation, toast } from "../parts/confirm.js";
import { actButton, button, failure, later } from "../parts/ui.js";

const PER_S = 50;
const AHEAD_FROM = 20; // with fewer letters, sending some ahead tells nothing

export class Selection {
  reasons = new Set();
  groups = new Map();
  ids = new Map(); // of the messages, by what identifies a letter
  #queue = "";
  #idQueue = "";
  #find = "";
  #summary = null;
  #made = null;
  #turn = 0;

  constructor({ changed, acted }) {
    this.changed = changed;
    this.acted = acted;
    this.node = h("section", { class: "selection", "aria-label": "Selection", hidden: true });
    this.select = later(() => this.#select(), 200);
  }

  /** What the page shows now. A selection made in another scope is dropped. */
  scope(queue, find, summary) {
    if (queue !== this.#queue || find !== this.#find) this.#forget();
    this.#queue = queue;
    this.#find = find;
    this.#summary = summary;
    const there = new Set(summary.groups.map((group) => group.id));
    for (const id of this.groups.keys()) if (!there.has(id)) this.groups.delete(id);
    if (this.isEmpty()) this.#forget();
  }

  isEmpty() {
    return this.reasons.size === 0 && this.groups.size === 0 && this.ids.size === 0;
  }

  hasGroup = (group) => this.groups.has(group.id) || this.reasons.has(group.reason);
  hasLetter = (row) => this.ids.has(row.letter_id ?? row.id) || (this.ids.size === 0 && !this.isEmpty());

  /** As the API takes it. Ticked letters count alone; otherwise groups, or whole reasons. */
  selector() {
    if (this.ids.size) return { queue: this.#idQueue, groups: [], reasons: [], ids: [...this.ids.keys()], find: "" };
    return { queue: this.#queue || null, groups: [...this.groups.keys()], reasons: [...this.reasons], ids: [], find: this.#find };
  }

  toggleReason(reason, on) {
    this.ids.clear();
    this.#spread();
    if (on && this.groups.size === 0) this.reasons.add(reason);
    else this.reasons.delete(reason);
    if (this.groups.size) for (const group of this.#summary.groups) if (group.reason === reason) this.groups[on ? "set" : "delete"](group.id, group);
    this.#gather();
    this.#altered();
  }

  toggleGroup(group, on) {
    this.ids.clear();
    for (const one of this.#summary.groups) if (this.reasons.has(one.reason)) this.groups.set(one.id, one);
    this.reasons.clear();
    if (on) this.groups.set(group.id, group);
    else this.groups.delete(group.id);
    this.#altered();
  }

  toggleLetter(row, on) {
    if (this.ids.size === 0 || row.queue !== this.#idQueue) this.ids.clear();
    this.#idQueue = row.queue;
    this.ids[on ? "set" : "delete"](row.letter_id ?? row.id, row.id);
    const anew = this.reasons.size + this.groups.size > 0;
    this.reasons.clear();
    this.groups.clear();
    if (anew) this.changed();
    this.select();
  }

  /** Groups and reasons are never mixed: reasons become their groups as soon as one group differs. */
  #spread() {
    if (this.groups.size === 0) return;
    for (const one of this.#summary.groups) if (this.reasons.has(one.reason)) this.groups.set(one.id, one);
    this.reasons.clear();
  }

  #gather() {
    if (this.groups.size === 0) return;
    const whole = Object.keys(this.#summary.by_reason).filter((reason) => this.#summary.groups.every((group) => group.reason !== reason || this.groups.has(group.id)));
    const covered = [...this.groups.values()].every((group) => whole.includes(group.reason));
    if (!covered || this.#summary.cut_off) return;
    this.groups.clear();
    whole.forEach((reason) => this.reasons.add(reason));
  }

  #altered() {
    this.changed();
    this.select();
  }

  #forget() {
    this.reasons.clear();
    this.groups.clear();
    this.ids.clear();
    this.#made = null;
    this.node.hidden = true;
    replace(this.node);
  }

  clear() {
    this.#forget();
    this.changed();
  }

  async #select() {
    if (this.isEmpty()) return this.#forget();
    const turn = ++this.#turn;
    this.node.hidden = false;
    if (!this.#made) replace(this.node, h("span", { class: "many" }, "Counting"));
    try {
      const made = await post("dead-letters/selections", {}, this.selector());
      if (turn !== this.#turn) return undefined;
      this.#made = made;
      this.#draw();
    } catch (error) {
      if (turn === this.#turn) replace(this.node, failure(error, button("Try again", () => this.select()), button("Clear", () => this.clear(), { look: "quiet" })));
    }
    return undefined;
  }

  #draw(opened = "") {
    const made = this.#made;
    const queues = Object.keys(made.by_queue);
    const of = queues.length === 1 ? queues[0] : plural(queues.length, "queue");
    const kinds = this.ids.size ? `Ticked letters of ${of}.` : `${plural(this.groups.size || this.reasons.size, this.groups.size ? "kind" : "reason")} of ${of}.`;
    const opener = (key, label, look = "") => actButton(label, () => this.#draw(opened === key ? "" : key), { look, "aria-expanded": String(opened === key) });
    replace(this.node, h("span", { class: "many" }, plural(made.count, "letter")), h("p", {}, kinds, " What dies from now on is not in it."),
      made.cut_off && h("p", { class: "caution" }, "There are more letters than one selection looks at or holds: the oldest are left for the next one."),
      h("div", { class: "buttons" },
        opener("dry", "Dry run"), opener("replay", "Replay…"), made.count === 1 && opener("edit", "Edit and replay…"), opener("delete", "Delete…", "danger apart"),
        button("Clear", () => this.clear(), { look: "quiet" })),
      made.count === 0 && opened ? h("div", { class: "confirm" }, h("p", {}, "These letters are gone: somebody else has replayed or deleted them.")) : opened && this.#opened(opened, of));
    if (opened) this.node.querySelector(".confirm input, .confirm textarea, .confirm .main")?.focus();
  }

  #opened(key, of) {
    const made = this.#made;
    const close = () => this.#draw();
    const dryRun = h("p", {}, "Dry run at ", at(made.at_ms), ": ", h("b", {}, made.dry_run));
    const warning = made.warning && h("p", { class: "caution" }, glyph("warn"), made.warning);
    const total = plural(made.count, "letter");
    if (key === "dry") return h("div", { class: "confirm" }, h("div", {}, h("h3", {}, `What would happen to ${total}`), dryRun, warning), h("div", { class: "buttons" }, button("Close", close)));
    const run = (verb, body) => post(`dead-letters/selections/${encodeURIComponent(made.id)}/${verb}`, {}, body).then((result) => {
      if (result.state) followOperation(result);
      else toast(result.text);
      this.#forget();
      setTimeout(this.acted, 400); // a short operation has done its work by then
    });
    if (key === "replay") return this.#replay({ of, total, dryRun, warning, close, run });
    if (key === "edit") return editing({ made, dryRun, warning, close, run, letter: () => get(`dead-letters/selections/${encodeURIComponent(made.id)}/body`) });
    return confirmation({
      title: `Delete ${total} of ${of}?`, verb: `Delete ${count(made.count)}`, keep: "Keep them", danger: true, typed: made.count, close,
      text: h("p", {}, `Selected at ${clock(made.at_ms)}: `, h("b", {}, `${count(made.count)} would be deleted.`), names(made), " They are kept aside for ten minutes, so that you can undo it, and then they are gone."),
      work: () => run("delete", { typed_count: made.count }),
    });
  }

  #replay({ of, total, dryRun, warning, close, run }) {
    const made = this.#made;
    const time = h("span");
    const perS = h("input", { type: "text", inputmode: "numeric", value: String(PER_S), "aria-label": "Letters per second", oninput: () => estimate() });
    const ahead = Math.max(1, Math.ceil(made.count / 100));
    const mayTry = made.count >= AHEAD_FROM && Object.keys(made.by_queue).length === 1; // outcomes are followed within one queue
    const box = h("input", { type: "checkbox", checked: mayTry });
    const estimate = () => replace(time, Number(perS.value) > 0 ? ` per second, ${span(made.count / Number(perS.value))} in all` : " per second");
    estimate();
    return confirmation({
      title: `Replay ${total} into ${of}?`, text: [dryRun, warning], verb: `Replay ${count(made.count)}`, keep: "Keep them", close,
      options: h("div", { class: "options" }, h("span", {}, "At ", perS, time), mayTry && h("label", {}, box, ` Send ${count(ahead)} ahead, and stop unless all are done`)),
      work: () => {
        const speed = Number(perS.value);
        if (!(speed > 0)) throw new Error("Give a number of letters per second, more than 0.");
        return run("replay", { per_s: speed, ahead: box.checked ? ahead : 0 });
      },
    });
  }
}

function names(made) {
  const list = Object.entries(made.by_name).filter(([name], _, all) => name && (name !== "unnamed" || all.length > 1)).sort((a, b) => b[1] - a[1]).slice(0, 4);
  return list.length ? ` By name: ${list.map(([name, many]) => `${count(many)} ${name}`).join(", ")}.` : "";
}

/** One letter is edited at a time: its body stands in the form, once it is read. */
function editing({ made, letter, dryRun, warning, close, run }) {
  const area = h("textarea", { rows: 8, spellcheck: "false", "aria-label": "The new body", disabled: true });
  const says = h("p", {}, "Reading its body.");
  let encoding = "json";
  letter().then((body) => {
    if (body.cut_off) {
      replace(says, "This body is too long to be edited here.");
      return;
    }
    encoding = body.json !== null ? "json" : body.msgpack !== null ? "msgpack" : "text";
    area.value = body.json ?? body.msgpack ?? body.text ?? "";
    area.disabled = false;
    area.focus();
    replace(says, encoding === "text" ? "As text." : encoding === "msgpack" ? "As JSON; it is stored as MessagePack." : "As JSON.");
  }).catch((error) => replace(says, error.message));
  return confirmation({
    title: `Edit and replay 1 letter of ${Object.keys(made.by_queue)[0] ?? "this queue"}?`, verb: "Replay it", keep: "Keep it", close,
    text: [dryRun, warning, says, area],
    work: () => {
      if (area.disabled) throw new Error("The body is not there yet, or cannot be edited.");
      return run("edit", { body: area.value, encoding });
    },
  });
}
