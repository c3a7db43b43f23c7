// The live update: one event stream for the whole console, closed while nobody looks at the tab.

import { followClock } from "./format.js";

const FIRST_DELAY_MS = 1000;
const MAX_DELAY_MS = 10_000;
const SILENT_MS = 45_000; // a connection that says nothing for so long is opened again

const listeners = new Map();
let wanted = false; // by somebody who may see it
let source = null;
let delayMs = FIRST_DELAY_MS;
let timer = 0;
let watchdog = 0;

/** The last overview, if the connection stands, since when not, and when it is tried again. */
export const live = { overview: null, connected: false, lostSince: null, nextTry: null };

/** Calls `listener` on each event of this kind until `signal` is aborted. Kinds: overview, operation, state, ended. */
export function on(kind, listener, signal) {
  if (!listeners.has(kind)) listeners.set(kind, new Set());
  listeners.get(kind).add(listener);
  signal?.addEventListener("abort", () => listeners.get(kind).delete(listener));
}

function tell(kind, value) {
  for (const listener of [...(listeners.get(kind) ?? [])]) listener(value);
}

document.addEventListener("visibilitychange", () => wanted && (document.hidden ? close() : open()));

export function start() {
  wanted = true;
  if (!document.hidden) open();
}

/** Ends the update and forgets what it said: who logs in next may see other queues. */
export function stop() {
  wanted = false;
  close();
  Object.assign(live, { overview: null, connected: false, lostSince: null, nextTry: null });
  tell("ended", live);
}

function close() {
  clearTimeout(timer);
  clearTimeout(watchdog);
  source?.close();
  source = null;
}

export function tryNow() {
  delayMs = FIRST_DELAY_MS;
  open();
}

function open() {
  close();
  live.nextTry = null;
  source = new EventSource("/api/v1/live");
  source.addEventListener("overview", (event) => received(JSON.parse(event.data)));
  source.addEventListener("operation", (event) => tell("operation", JSON.parse(event.data)));
  source.addEventListener("error", lost);
  watch();
}

function watch() {
  clearTimeout(watchdog);
  watchdog = setTimeout(lost, SILENT_MS);
}

function received(overview) {
  watch();
  if (overview.redis.ok) followClock(overview.at_ms);
  delayMs = FIRST_DELAY_MS;
  const was = live.connected;
  Object.assign(live, { overview, connected: true, lostSince: null, nextTry: null });
  if (!was) tell("state", live);
  tell("overview", overview);
}

function lost() {
  close();
  Object.assign(live, { connected: false, lostSince: live.lostSince ?? Date.now(), nextTry: Date.now() + delayMs });
  timer = setTimeout(open, delayMs);
  delayMs = Math.min(MAX_DELAY_MS, delayMs * 2);
  tell("state", live);
}
