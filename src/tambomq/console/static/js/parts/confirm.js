// Confirmations that open in place, and the toasts that say what was done and offer to undo it.

import { post } from "../api.js";
import { glyph, h, replace, setText } from "../dom.js";
import { count, now, span } from "../format.js";
import { on } from "../live.js";
import { attempt, button } from "./ui.js";

/**
 * A confirmation: `title` and `text` say what will happen, `verb` is on the button that does it.
 * `typed` is a number that has to be typed first. `work` returns when it is done.
 */
export function confirmation({ title, text, options = null, verb, keep, danger = false, typed = null, work, close }) {
  const place = h("div", { class: "confirm-error", role: "alert" });
  const input = typed === null ? null : h("input", { type: "text", inputmode: "numeric", autocomplete: "off", oninput: check });
  const go = button(verb, () => attempt(go, place, async () => {
    await work();
    close();
  }), { look: danger ? "danger main" : "main" });
  check();

  function check() {
    if (input) go.disabled = input.value.replace(/[\s,.]/g, "") !== String(typed);
  }

  return h("div", { class: "confirm", role: "group", "aria-label": title, onkeydown: (event) => {
    if (event.key !== "Escape") return;
    event.stopPropagation();
    close();
  } },
  h("div", {}, h("h3", {}, title), text, options,
    input && h("div", { class: "options" }, h("label", {}, `Type ${count(typed)} to go on `, input)), place),
  h("div", { class: "buttons" }, button(keep, close), go));
}

const toasts = () => document.getElementById("toasts");

/** Says that something was done. */
export function toast(text, { look = "good", forMs = 8000 } = {}) {
  const node = h("div", { class: `toast ${look}` }, glyph(look === "bad" ? "bad" : "tick"), h("span", {}, text),
    button("Close", () => node.remove(), { look: "small quiet" }));
  toasts().append(node);
  setTimeout(() => node.remove(), forMs);
}

const shown = new Map();

/** Follows an operation in a toast: how far it is, a button to stop it, then one to undo it. */
export function followOperation(operation) {
  if (!shown.has(operation.id)) shown.set(operation.id, operationToast(operation.id));
  shown.get(operation.id).update(operation);
}

function operationToast(id) {
  const shape = h("span", { class: "toast-shape" });
  const text = h("span");
  const side = h("span", { class: "buttons" });
  const place = h("div", { class: "toast-error" });
  const node = h("div", { class: "toast" }, shape, h("div", {}, text, place), side);
  toasts().append(node);
  let state = null;
  let timer = 0;

  const act = (verb) => (event) => attempt(event.target, place, async () => followOperation(await post(`operations/${encodeURIComponent(id)}/${verb}`)));
  const close = () => {
    clearInterval(timer);
    node.remove();
    shown.delete(id);
  };

  function settle(operation) {
    const undo = button("Undo", act("undo"), { look: "small" });
    const until = operation.undo_until_ms;
    const canUndo = until !== null && operation.state !== "undone" && until > now();
    replace(side, canUndo && undo, button("Close", close, { look: "small quiet" }));
    clearInterval(timer);
    const end = canUndo ? until : now() + 8000;
    timer = setInterval(() => {
      if (now() > end) close();
      else if (canUndo) setText(undo, `Undo, ${span(Math.ceil((end - now()) / 1000))}`);
    }, 500);
  }

  return {
    update(operation) {
      setText(text, operation.text);
      const bad = operation.failed > 0 || operation.state === "stopped";
      node.className = `toast ${operation.state === "running" ? "running" : bad ? "bad" : "good"}`;
      replace(shape, glyph(operation.state === "running" ? "run" : bad ? "warn" : "tick"));
      if (state === operation.state) return;
      state = operation.state;
      if (state === "running") replace(side, button("Stop", act("stop"), { look: "small" }));
      else settle(operation);
    },
  };
}

/** Keeps the toasts of known operations up to date. */
export function followOperations() {
  on("operation", (operation) => {
    if (shown.has(operation.id) || operation.state === "running") followOperation(operation);
  });
}
