// A form that puts a message into any queue.

import { get, mayAct, post } from "../api.js";
import { h, replace } from "../dom.js";
import { live } from "../live.js";
import { actButton, attempt, link, note } from "../parts/ui.js";

const NEW = [["rsmq", "RSMQ"], ["chasqui", "ChasquiMQ"], ["gomq", "GOMQ"], ["kqueue", "KqueueMsgQ"]];
const ENCODINGS = [["json", "JSON"], ["msgpack", "JSON, sent as MessagePack"], ["text", "Text"], ["base64", "Base64, for binary bodies"]];

export const title = () => "Send";

export function show(root, query, signal) {
  root.append(h("section", { class: "subject", "aria-label": "Send" }, h("h1", {}, "Send a message")));
  if (!mayAct()) {
    root.append(note("", "You may look, but not send. Log in as an operator, on a console that is not read-only."));
    return;
  }
  const queue = h("input", { type: "text", list: "queues", value: query.get("q") ?? "", placeholder: "chasqui:mail", spellcheck: "false", autocomplete: "off", "aria-required": "true", oninput: () => shape() });
  const list = h("datalist", { id: "queues" });
  const name = h("input", { type: "text", placeholder: "welcome", spellcheck: "false" });
  const encoding = h("select", {}, ENCODINGS.map(([value, label]) => h("option", { value }, label)));
  const body = h("textarea", { rows: 10, spellcheck: "false", placeholder: '{"to": "ada@example.com"}' });
  const delay = h("input", { type: "text", inputmode: "decimal", placeholder: "0" });
  const jobId = h("input", { type: "text", placeholder: "one is made", spellcheck: "false" });
  const attempts = h("input", { type: "text", inputmode: "numeric", placeholder: "as the queue has it" });
  const place = h("div", { role: "status" });
  const onlyJobs = [];
  const row = (label, input, hint, { jobs = false, delays = false } = {}) => {
    const id = `send-${label.toLowerCase().replaceAll(" ", "-")}`;
    const [main] = [input].flat();
    main.id = id;
    if (hint) main.setAttribute("aria-describedby", `${id}-hint`);
    const node = h("div", { class: "form-row" }, h("label", { for: id }, label), input, hint && h("span", { class: "soft", id: `${id}-hint` }, hint));
    if (jobs || delays) onlyJobs.push([node, delays]);
    return node;
  };
  const send = actButton("Send", () => attempt(send, place, async () => {
    const number = (input, what) => {
      if (!input.value.trim() || input.closest(".form-row").hidden) return null;
      const value = Number(input.value);
      if (!(value >= 0)) throw new Error(`${what} has to be a number, not “${input.value}”.`);
      return value;
    };
    const visible = (input) => (input.closest(".form-row").hidden ? null : input.value.trim() || null);
    const given = { body: body.value, encoding: encoding.value, name: visible(name), delay_s: number(delay, "The delay"), job_id: visible(jobId), attempts: number(attempts, "The number of runs") };
    const result = await post("messages/send", { queue: queue.value.trim() }, Object.fromEntries(Object.entries(given).filter(([, value]) => value !== null)));
    replace(place, note("good", [result.text, " ", result.id && h("a", { href: link.message(queue.value.trim(), result.id) }, "Open it")]));
  }), { look: "main" });

  function shape() {
    const protocol = queue.value.split(":")[0];
    for (const [node, delays] of onlyJobs) node.hidden = !(protocol === "chasqui" || (delays && protocol === "rsmq") || !NEW.some(([key]) => key === protocol));
  }

  root.append(h("form", { class: "card form", onsubmit: (event) => {
    event.preventDefault();
    send.click();
  }, onkeydown: (event) => {
    if (event.key === "Enter" && event.ctrlKey) send.click();
  } },
  row("Queue", [queue, list], "protocol, colon, name"), row("Name", name, "by which a worker chooses its handler", { jobs: true }), row("Format", encoding), row("Body", body),
  row("Delay", delay, "seconds", { delays: true }), row("Job id", jobId, "the same id is added once", { jobs: true }), row("Runs", attempts, "before it is dead", { jobs: true }),
  h("div", { class: "buttons" }, send, h("span", { class: "soft wide" }, h("kbd", {}, "Ctrl"), " ", h("kbd", {}, "Enter"))), place));
  shape();
  const known = (overview) => replace(list, overview.queues.slice(0, 500).map((one) => h("option", { value: one.queue })));
  if (live.overview) known(live.overview);
  else get("overview", {}, signal).then(known).catch(() => {});
  (queue.value ? body : queue).focus();
}
