// The alert above every page: the server or Redis does not answer, or an alarm stops producers.

import { h, replace, setText } from "./dom.js";
import { at, now, span } from "./format.js";
import { live, on, tryNow } from "./live.js";
import { button, note } from "./parts/ui.js";

let shown = "";

export function showAlerts() {
  on("overview", render);
  on("state", render);
  on("ended", render);
  setInterval(countDown, 1000);
}

function render() {
  const redis = live.overview?.redis;
  const kind = !live.connected && live.lostSince ? "server" : redis && !redis.ok ? "redis" : "";
  document.body.classList.toggle("stale", kind !== "");
  const alarms = kind ? [] : redis?.alarms ?? [];
  const wanted = kind || alarms.join("\n");
  if (wanted !== shown) {
    shown = wanted;
    const alarm = alarms.length ? alarmRaised(alarms) : null;
    replace(document.getElementById("alerts"), kind === "server" ? serverLost() : kind === "redis" ? redisLost(redis) : alarm);
  }
  countDown();
}

function serverLost() {
  return note("bad", [h("strong", {}, "The console's server does not answer"), " since ", at(live.lostSince), ", ", h("span", { "data-since": live.lostSince }), ".", h("br"),
    "The numbers below are from then. Queues and workers do not need the console. Is ", h("code", {}, "tambo"), " still running?"], ...tries());
}

function redisLost(redis) {
  const since = redis.lost_since_ms;
  return note("bad", [h("strong", {}, "Redis does not answer"), since && [" since ", at(since), ", ", h("span", { "data-since": since })], ": ",
    redis.why.includes(redis.url) ? redis.why : [h("code", {}, redis.url), redis.why && `, ${redis.why}`], h("br"),
    "The numbers below are from then. Workers keep trying, and what was accepted is where it was. KqueueMsgQ needs no Redis and goes on. Actions are off until Redis is back."],
  ...tries());
}

const alarmRaised = (alarms) => note("bad", alarms.map((text) => [h("strong", {}, "Alarm: "), text, ".", h("br")]));

const tries = () => [h("span", { class: "soft nowrap next-try" }), button("Try now", tryNow)];

function countDown() {
  const alerts = document.getElementById("alerts");
  for (const element of alerts.querySelectorAll("[data-since]")) setText(element, `${span((now() - Number(element.dataset.since)) / 1000)} ago`);
  const next = live.connected ? live.overview?.redis.next_try_ms : live.nextTry;
  const left = next ? Math.ceil((next - (live.connected ? now() : Date.now())) / 1000) : 0;
  for (const element of alerts.querySelectorAll(".next-try")) setText(element, left > 0 ? `Next try in ${left} s` : "Trying");
}
