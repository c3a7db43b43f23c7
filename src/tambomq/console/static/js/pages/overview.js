// The overview: figures, throughput, and every queue, those in trouble first.

import { get, mayAct } from "../api.js";
import { h, replace, setText } from "../dom.js";
import { bytes, clock, count, plural, rate, span } from "../format.js";
import { live, on } from "../live.js";
import { card, failure, button, heading, link, pairs, waiting } from "../parts/ui.js";
import { lastOf, lineChart } from "../parts/charts.js";
import { historyOf } from "./queue_row.js";
import { queuesCard } from "./queues.js";

export const title = () => "Queues";

export function show(root, query, signal) {
  root.append(h("h1", { class: "hidden-text" }, "Queues"));
  const place = h("div", { class: "page" });
  root.append(place);
  let view = null;
  let pipeline = null;
  const done = waiting(place, "queues");

  function update(overview) {
    if (signal.aborted) return;
    done();
    const kind = overview.queues.length || !overview.redis.ok ? "queues" : "empty";
    if (view?.kind !== kind) {
      view = kind === "queues" ? queuesView(signal, query) : emptyView(overview.redis.url, signal);
      replace(place, view.nodes);
    }
    view.update?.(overview, pipeline);
  }

  on("overview", update, signal);
  if (live.overview) update(live.overview);
  else get("overview", {}, signal).then((overview) => view || update(overview)).catch((error) => {
    if (error.name === "AbortError" || view) return;
    done();
    replace(place, failure(error, button("Try again", () => location.reload())));
  });
  get("pipeline", {}, signal).then((status) => {
    pipeline = status;
  }).catch(() => {});
}

function queuesView(signal, query) {
  const chart = lineChart({
    signal, plain: true, height: 112, unit: (value) => (value >= 1000 ? count(value) : rate(value)),
    lines: [
      { key: "in", label: "entered", series: "entered" },
      { key: "out", label: "done", series: "done", look: "dash" },
      { key: "failed", label: "failed", series: "failed", look: "dots" },
    ],
    describe: ({ values }) => `Per second in the last hour. Now ${["in", "out", "failed"].map((key) => rate(lastOf(values[key] ?? []))).join(" entered, ").replace(/entered, ([^,]*)$/, "done, $1")} failed.`,
  });
  const figures = figureCard();
  const title = heading("Throughput", "per second");
  const queues = queuesCard(signal, query);
  return {
    kind: "queues",
    nodes: [
      h("section", { class: "pulse", "aria-label": "Now" },
        card(title, { end: chart.legend }, h("div", { class: "inside" }, chart.node)), figures.node),
      queues.node,
    ],
    update(overview, pipeline) {
      chart.update(overview.throughput);
      setText(title.querySelector(".unit"), `per second, ${historyOf(overview).spanned}`);
      figures.update(overview, pipeline);
      queues.update(overview);
    },
  };
}

function figureCard() {
  const keys = ["Entered", "Done", "Failed runs", "Dead letters", "Backlog", "Workers", "Redis memory", "Pipeline lag"];
  const parts = new Map(keys.map((key) => [key, { box: h("div"), number: document.createTextNode(""), unit: h("span", { class: "unit" }), hint: h("dd", { class: "hint" }) }]));
  const node = h("dl", { class: "card figures" }, keys.map((key) => {
    const part = parts.get(key);
    part.box.append(h("dt", {}, key), h("dd", {}, part.number, " ", part.unit), part.hint);
    return part.box;
  }));
  const put = (key, number, unit, hint, bad = false) => {
    const part = parts.get(key);
    if (part.number.data !== number) part.number.data = number;
    setText(part.unit, unit);
    if (typeof hint === "string") setText(part.hint, hint);
    else replace(part.hint, hint);
    part.box.className = bad ? "bad" : "";
  };
  return {
    node,
    update(overview, pipeline) {
      const { totals, throughput, redis } = overview;
      const before = (key) => hourAgo(overview, throughput.values[key]);
      put("Entered", figureRate(totals.in_per_s), "/s", before("in"));
      put("Done", figureRate(totals.out_per_s), "/s", before("out"));
      put("Failed runs", figureRate(totals.failed_per_s), "/s", mostFailing(overview), totals.failed_per_s >= 0.05);
      put("Dead letters", count(totals.dead), "", totals.dead ? h("a", { href: link.letters() }, whenTheyDied(overview)) : "none", totals.dead > 0);
      put("Backlog", count(totals.backlog), "", "delayed ones included");
      put("Workers", count(totals.workers), "alive", totals.places ? `${count(totals.places_taken ?? 0)} of ${count(totals.places)} places taken` : "of all protocols");
      const [size, sizeUnit] = bytes(redis.memory_bytes).split("\u00a0");
      put("Redis memory", size, redis.max_memory_bytes ? `${sizeUnit} of ${bytes(redis.max_memory_bytes)}` : sizeUnit, redis.policy ? `${redis.policy}${redis.max_memory_bytes ? "" : ", no limit"}` : "");
      showLag(pipeline);
    },
  };

  function showLag(pipeline) {
    const lag = pipeline?.lag_s ?? null;
    const [number, ...unit] = lag === null ? ["–"] : span(lag).split("\u00a0");
    put("Pipeline lag", number, unit.join("\u00a0"), pipeline?.lake ? h("a", { href: "/pipeline" }, plural(pipeline.tables.length, "table")) : "no lake");
  }
}

const figureRate = (perSecond) => (perSecond >= 100 ? count(perSecond) : rate(perSecond));

function hourAgo(overview, column) {
  const first = column?.findIndex((value) => value !== null) ?? -1;
  if (first === -1) return "no history yet";
  const then = overview.throughput.times_ms[first];
  if (overview.at_ms - then < 120_000) return "history begins now";
  return `${figureRate(column[first])} /s at ${clock(then, { seconds: false })}`;
}

/** How many died lately: since when is said, as long as it is less than an hour. */
function whenTheyDied({ at_ms: at, totals, watched_since_ms: since }) {
  const many = totals.dead_last_hour;
  if (many === null || since === null || at - since < 60_000) return "What they died of";
  return `${many ? count(many) : "none"} ${at - since < 3_600_000 ? `since ${clock(since, { seconds: false })}` : "in the last hour"}`;
}

function mostFailing(overview) {
  const total = overview.totals.failed_per_s;
  if (total < 0.05) return "none";
  const most = overview.queues.reduce((best, row) => ((row.failed_per_s ?? 0) > (best?.failed_per_s ?? 0) ? row : best), null);
  if (!most) return "";
  return [`${Math.min(100, Math.round((100 * most.failed_per_s) / total))} % in `, h("a", { href: link.queue(most.queue) }, most.name)];
}

const DEFAULT_URL = /^redis:\/\/(127\.0\.0\.1|localhost):6379(\/0)?$/;
const STORED = ["RSMQ", "ChasquiMQ"]; // clients of these talk to Redis itself
const SERVED = [["gomq", "GOMQ"], ["kqueue", "KqueueMsgQ"]];
const DEMO_FLAGS = [["gomq", "--gomq-address", "127.0.0.1:10001"], ["kqueue", "--kqueue-address", "127.0.0.1:8000"]];
const EVERYWHERE = /^(0\.0\.0\.0|\[::\])(?=:)/;

function emptyView(url, signal) {
  const redis = url.replace(/\/0$/, "");
  const to = DEFAULT_URL.test(url) ? "" : ` \\\n    --redis-url ${redis}`;
  const said = h("p", { class: "soft" });
  const places = h("div", { class: "places" });
  const demo = document.createTextNode("");
  const show = (endpoints) => {
    const all = SERVED.every(([name]) => endpoints[name]);
    replace(said, `${all ? "Everything is open and nobody" : "Nobody"} has sent anything. A queue appears here a few seconds after its first message.`);
    replace(places, pairs([...STORED.map((label) => [label, h("code", {}, redis)]), ...SERVED.map(([name, label]) => [label, placeOf(endpoints[name])])]));
    demo.data = demoCommand(endpoints, to);
  };
  show({});
  fetch("/endpoints", { signal }).then((answer) => answer.json()).then(({ endpoints }) => show(endpoints)).catch(() => {});
  return { kind: "empty", nodes: [h("section", { class: "card blank" },
    h("h2", { class: "big" }, "No queues yet"), said, places,
    h("h3", {}, "See something move"),
    h("pre", { tabindex: 0, role: "region", "aria-label": "Commands to try" }, h("span", { class: "c" }, "$"), demo, "\n",
      h("span", { class: "c" }, "$"), ` tambo chasqui add mail welcome '{"to": "ada@example.com"}'${to}`),
    h("div", { class: "buttons" }, mayAct() && h("a", { class: "button main", href: "/send" }, "Send a message"), h("a", { class: "button", href: "/workers" }, "Workers and peers")))] };
}

/** Where clients find it; what listens on all addresses is found at the one of this page. */
function placeOf(endpoint) {
  if (!endpoint) return h("span", { class: "soft" }, "not served by this process");
  return [h("code", {}, endpoint.address.replace(EVERYWHERE, location.hostname)), hasTls(endpoint) && ", with TLS"];
}

const hasTls = (endpoint) => endpoint.try.includes("--tls");

/** The demo with the addresses that it cannot guess; a protocol that needs more, or is not there, is left out. */
function demoCommand(endpoints, to) {
  const isPlain = ([name]) => endpoints[name] && !hasTls(endpoints[name]);
  const flags = DEMO_FLAGS.filter(isPlain).map(([name, flag, usual]) => [flag, endpoints[name].address.replace(EVERYWHERE, location.hostname), usual]);
  const more = flags.filter(([, address, usual]) => address !== usual).map(([flag, address]) => ` \\\n    ${flag} ${address}`);
  return ` tambo demo --live${DEMO_FLAGS.every(isPlain) ? "" : " --skip-missing"}${to}${more.join("")}`;
}
