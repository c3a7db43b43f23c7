// Starts the console: log-in, the live update, and which page is shown for which address.

import { forgetSession, openSession, session } from "./api.js";
import { showAlerts } from "./alerts.js";
import { buildBar, markPage } from "./bar.js";
import { h, replace } from "./dom.js";
import { tick } from "./format.js";
import { listenToKeys } from "./keys.js";
import { on, start, stop } from "./live.js";
import { followOperations } from "./parts/confirm.js";
import { failure, refreshActs } from "./parts/ui.js";

const PAGES = {
  "/": () => import("./pages/overview.js"),
  "/queue": () => import("./pages/queue.js"),
  "/message": () => import("./pages/message.js"),
  "/dead-letters": () => import("./pages/letters.js"),
  "/workers": () => import("./pages/workers.js"),
  "/schedules": () => import("./pages/schedules.js"),
  "/pipeline": () => import("./pages/pipeline.js"),
  "/send": () => import("./pages/send.js"),
  "/audit": () => import("./pages/audit.js"),
  "/login": () => import("./pages/login.js"),
};

const OF_QUEUE = new Set(["/queue", "/message"]); // they need a queue in their address

const main = document.getElementById("main");
let leaving = new AbortController();
const scrolls = new Map(); // where a page was left, by its address

/** Goes to an address of the console without loading the document again. */
export function go(href, { replaceEntry = false } = {}) {
  scrolls.set(location.href, scrollY);
  history[replaceEntry ? "replaceState" : "pushState"](null, "", href);
  return show();
}

async function show({ back = false } = {}) {
  leaving.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  const query = new URLSearchParams(location.search);
  const path = OF_QUEUE.has(location.pathname) && !query.get("q") ? "/" : location.pathname;
  const loader = PAGES[path] ?? PAGES["/"];
  const root = replace(main, h("div", { class: "page" })).firstChild;
  document.body.dataset.page = location.pathname;
  markPage(location.pathname);
  try {
    const page = await loader();
    if (signal.aborted) return;
    document.title = `${page.title(query)} · TamboMQ`;
    page.show(root, query, signal, { go });
  } catch (error) {
    root.append(failure(error));
  }
  scrollTo(0, back ? (scrolls.get(location.href) ?? 0) : 0);
  if (!back && !main.contains(document.activeElement)) main.focus({ preventScroll: true });
}

function followLinks(event) {
  const anchor = event.target.closest?.("a[href]");
  if (!anchor || event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey) return;
  const url = new URL(anchor.href);
  if (url.origin !== location.origin || !(url.pathname in PAGES) || anchor.getAttribute("href").startsWith("#")) return;
  event.preventDefault();
  go(anchor.getAttribute("href"));
}

function askForLogin() {
  stop();
  forgetSession();
  buildBar({ go });
  if (location.pathname !== "/login") go(`/login?${new URLSearchParams({ to: location.pathname + location.search })}`, { replaceEntry: true });
}

/** Draws the bar and starts the live update: after the start, and after a log-in. */
export function enter() {
  buildBar({ go });
  if (session.needs_login && !session.user) askForLogin();
  else start();
}

async function run() {
  document.addEventListener("click", followLinks);
  document.addEventListener("tambo:login", askForLogin);
  document.addEventListener("tambo:entered", enter);
  addEventListener("popstate", () => show({ back: true }));
  listenToKeys({ go });
  followOperations();
  on("overview", refreshActs);
  on("state", refreshActs);
  on("state", (state) => !state.connected && openSession().then(() => session.needs_login && !session.user && askForLogin()).catch(() => {}));
  showAlerts();
  setInterval(tick, 1000);
  await openSession().catch(() => {});
  enter();
  if (location.pathname !== "/login" || !main.firstChild) await show();
}

run();
