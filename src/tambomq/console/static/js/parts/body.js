// A message body, shown in each way it could be decoded. It is hostile input: text nodes only, long ones in parts.

import { h, replace } from "../dom.js";
import { bytes } from "../format.js";
import { button, copy } from "./ui.js";

const FORMS = [["json", "JSON"], ["msgpack", "MessagePack"], ["text", "Text"], ["hex", "Hex"]];
const FIRST = 20_000; // characters: what is longer waits for a click
const COLOURED = 50_000; // characters: colours cost a node for each word
const TOKEN = /("(?:[^"\\]|\\.)*")(\s*:)?|(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null)/g;

export function bodyCard(body) {
  const forms = FORMS.filter(([key]) => body[key] !== null && (key !== "hex" || body.hex));
  const place = h("div");
  const tabs = h("div", { class: "tabs plain", role: "tablist", "aria-label": "Show as" });
  const copyAll = button("Copy", () => copy(body[shown] ?? "", copyAll), { look: "small" });
  let shown = body.best;

  function draw(key, all = false) {
    shown = key;
    replace(tabs, forms.map(([form, label]) => h("button", { type: "button", role: "tab", "aria-selected": String(form === key), onclick: () => draw(form) }, label)));
    const text = body[key] ?? "";
    const part = all ? text : text.slice(0, FIRST);
    replace(place, h("pre", { tabindex: 0, role: "tabpanel", dir: key === "text" ? "auto" : "ltr", "aria-label": `Body as ${label(key)}`, class: key === "hex" ? "hex" : null }, (key === "json" || key === "msgpack") && part.length <= COLOURED ? coloured(part) : part),
      part.length < text.length && h("div", { class: "foot" }, `The first ${bytes(part.length)} of ${bytes(text.length)}.`, button("Show all of it", () => draw(key, true), { look: "quiet small" })));
  }

  draw(forms.some(([key]) => key === shown) ? shown : (forms[0]?.[0] ?? "text"));
  return h("section", { class: "card body", "aria-label": "Body" }, h("header", {}, h("h2", {}, "Body"), h("span", { class: "end" }, bytes(body.size_bytes), body.cut_off ? ", cut off here" : "", " ", copyAll)), tabs, place,
    body.cut_off && h("div", { class: "foot" }, "Only its beginning was read: the whole of it would be too long for a page."));
}

const label = (key) => FORMS.find(([form]) => form === key)?.[1] ?? key;

/** Text nodes and spans: keys, strings and values of JSON in their colours. */
function coloured(text) {
  const nodes = [];
  let end = 0;
  for (const match of text.matchAll(TOKEN)) {
    if (match.index > end) nodes.push(text.slice(end, match.index));
    const [all, string, colon] = match;
    nodes.push(h("span", { class: string ? (colon ? "k" : "s") : "v" }, string ?? all), colon ?? "");
    end = match.index + all.length;
  }
  nodes.push(text.slice(end));
  return nodes;
}
