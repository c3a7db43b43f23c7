// Builds the page. Text enters through text nodes only, so no name or body can become markup;
// what would hide or reorder the text around it is spelled out.

const SVG = "http://www.w3.org/2000/svg";
const PROPERTIES = new Set(["checked", "disabled", "hidden", "indeterminate", "selected", "value"]);
const ATTRIBUTE = /^(aria-[a-z]+|data-[a-z-]+|[a-zA-Z]+)$/;
const FORBIDDEN = new Set(["style", "srcdoc", "src", "action", "formaction"]);
const SAID = new Set(["title", "aria-label"]);
// Control characters but line ends and tabs, and those that turn the direction of what follows.
const UNSEEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u2028\u2029\u202a-\u202e\u2066-\u2069]/g;
const SPACES = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };

const hex = (character, digits) => character.charCodeAt(0).toString(16).padStart(digits, "0");

/** Text in which nothing is unseen, as the commands print it: `\x1b`, `\u202e`. */
const spelled = (text) => text.replace(UNSEEN, (one) => (one <= "\u00ff" ? `\\x${hex(one, 2)}` : `\\u${hex(one, 4)}`));

/** A name that others chose, on one line and apart from the text around it. */
export const named = (text) => h("bdi", {}, text.replace(/[\n\r\t]/g, (one) => SPACES[one]));

/** Returns an element. `on…` properties are listeners; null and false leave an attribute out. */
export function h(tag, props, ...children) {
  return fill(document.createElement(tag), props, children);
}

/** Returns an SVG element, as `h` does. */
export function s(tag, props, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) set(element, name, value);
  put(element, children);
  return element;
}

function set(element, name, value) {
  if (value === null || value === undefined || value === false) return;
  if (name.startsWith("on") && typeof value === "function") {
    element.addEventListener(name.slice(2), value);
  } else if (PROPERTIES.has(name) && name in element) {
    element[name] = value;
  } else if (FORBIDDEN.has(name) || !ATTRIBUTE.test(name)) {
    throw new Error(`attribute ${name} is not allowed`);
  } else if (name === "href" && !/^(\/(?!\/)|#)/.test(value)) {
    throw new Error("a link must stay on this server");
  } else {
    const text = value === true ? "" : String(value);
    element.setAttribute(name, SAID.has(name) ? spelled(text) : text);
  }
}

function put(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(spelled(String(child))));
  }
}

/** Replaces all that is in `element`. */
export function replace(element, ...children) {
  element.replaceChildren();
  put(element, children);
  return element;
}

/** Sets the text of an element if it differs: an unchanged text node costs no layout. */
export function setText(element, text) {
  const safe = spelled(text);
  if (element.textContent !== safe) element.textContent = safe;
}

export function glyph(name) {
  return s("svg", { class: "glyph", "aria-hidden": "true" }, s("use", { href: `#g-${name}` }));
}
