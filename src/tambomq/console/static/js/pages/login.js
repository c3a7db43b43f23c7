// The log-in: a token, as `tambo serve` was given it.

import { logIn, session } from "../api.js";
import { h } from "../dom.js";
import { attempt, button } from "../parts/ui.js";

export const title = () => "Log in";

export function show(root, query, signal, { go }) {
  const token = h("input", { type: "password", autocomplete: "current-password", spellcheck: "false", id: "token" });
  const place = h("div", { role: "alert" });
  const target = () => {
    const to = query.get("to") ?? "/";
    return /^\/(?!\/)/.test(to) && !to.startsWith("/login") ? to : "/";
  };
  const enter = button("Log in", () => attempt(enter, place, async () => {
    if (!token.value.trim()) throw new Error("Give a token.");
    await logIn(token.value.trim());
    document.dispatchEvent(new CustomEvent("tambo:entered"));
    await go(target(), { replaceEntry: true });
  }), { look: "main" });
  root.append(h("form", { class: "card form login", onsubmit: (event) => {
    event.preventDefault();
    enter.click();
  } }, h("h1", {}, "Log in"), h("p", { class: "soft" }, "With the token of a viewer or an operator. Whoever started this console has it."),
  h("label", { class: "form-row", for: "token" }, h("span", {}, "Token"), token), h("div", { class: "buttons" }, enter), place));
  if (session.user) root.append(h("p", { class: "soft" }, `You are logged in as ${session.user}.`));
  token.focus();
}
