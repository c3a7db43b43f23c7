// The bar: pages, what is in trouble, the search, the lamp of Redis, who is logged in, the theme.

import { logOut, session } from "./api.js";
import { glyph, h, replace, s } from "./dom.js";
import { bytes, count } from "./format.js";
import { findBox } from "./find.js";
import { live, on } from "./live.js";
import { recolour } from "./parts/charts.js";
import { toast } from "./parts/confirm.js";

const PLACES = [["/", "Queues"], ["/dead-letters", "Dead letters"], ["/workers", "Workers"], ["/schedules", "Schedules"], ["/pipeline", "Pipeline"], ["/send", "Send"], ["/audit", "Audit"]];
const UNDER = { "/queue": "/", "/message": "/" };

const trouble = h("span", { class: "count bad", hidden: true });
const dead = h("span", { class: "count bad", hidden: true });
const lamp = h("span", { class: "lamp" });
let links = new Map();

export function buildBar({ go }) {
  links = new Map(PLACES.map(([path, label]) => [path, h("a", { href: path }, label, path === "/" && [" ", trouble], path === "/dead-letters" && [" ", dead])]));
  if (session.role !== "operator" || session.read_only) links.delete("/send");
  const away = session.needs_login && !session.user;
  replace(document.getElementById("bar"),
    h("a", { class: "brand", href: "/" }, s("svg", { viewBox: "0 0 18 18", "aria-hidden": "true" }, s("rect", { class: "from", x: 1, y: 3, width: 11, height: 5, rx: 1 }), s("rect", { class: "to", x: 6, y: 10, width: 11, height: 5, rx: 1 })), "TamboMQ"),
    !away && h("nav", { "aria-label": "Main" }, [...links.values()]),
    !away && findBox({ go }),
    h("div", { class: "status" }, !away && lamp, themeButton(), !away && who()));
  markPage(location.pathname);
}

on("overview", showNumbers);
on("state", showLamp);

function showNumbers(overview) {
  const troubled = overview.queues.filter((row) => row.trouble).length;
  trouble.hidden = troubled === 0;
  replace(trouble, count(troubled), h("span", { class: "hidden-text" }, " in trouble"));
  dead.hidden = overview.totals.dead === 0;
  replace(dead, count(overview.totals.dead));
  showLamp();
}

function showLamp() {
  const redis = live.overview?.redis;
  const lost = !live.connected && live.lostSince;
  const ok = redis?.ok && !lost;
  lamp.className = `lamp ${ok || !redis ? "" : "bad"}`;
  lamp.title = redis ? `${redis.version || "Redis"} at ${redis.url}. ${memory(redis)}` : "";
  const said = lost ? "Server lost" : !redis ? "Redis" : !ok ? "Redis lost" : `Redis ${redis.latency_ms === null ? "" : `${redis.latency_ms.toFixed(1)} ms`}`;
  replace(lamp, glyph(lost || (redis && !ok) ? "bad" : redis ? "ok" : "ring"), said);
}

function memory(redis) {
  const limit = redis.max_memory_bytes ? ` of ${bytes(redis.max_memory_bytes)}` : ", without a limit";
  return `${bytes(redis.memory_bytes)}${limit}${redis.policy ? `, ${redis.policy}` : ""}.`;
}

export function markPage(path) {
  const here = UNDER[path] ?? path;
  for (const [place, anchor] of links) {
    if (place === here) anchor.setAttribute("aria-current", "page");
    else anchor.removeAttribute("aria-current");
  }
}

function who() {
  const role = session.read_only ? "read-only" : session.role;
  const title = session.read_only ? "This console was started read-only: nobody may change anything here." : "Operators may change queues; viewers may look.";
  const leave = session.can_log_out && h("button", { class: "button quiet small", type: "button", onclick: async () => {
    try {
      await logOut();
      document.dispatchEvent(new CustomEvent("tambo:login"));
    } catch (error) {
      toast(error.message, { look: "bad" });
    }
  } }, "Log out");
  return h("span", { class: "who", title }, session.user && session.user !== role ? `${session.user}, ${role}` : role, leave);
}

function themeButton() {
  const root = document.documentElement;
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
  const label = () => (isDark() ? "Switch to light" : "Switch to dark");
  const element = h("button", { class: "button quiet theme", type: "button", "aria-label": label(), title: label(), onclick: () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try {
      localStorage.setItem("tambo.theme", root.dataset.theme);
    } catch {
      // No storage: the choice holds until the page is loaded again.
    }
    element.title = label();
    element.setAttribute("aria-label", label());
    recolour();
  } }, glyph("theme"));
  return element;
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
