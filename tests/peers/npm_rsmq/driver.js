// npm rsmq, driven by JSON lines: {"op": …} on stdin, {"ok": …} or {"error": …} on stdout.
//
// Bodies travel as base64. They are text to this client, so bytes that are no
// UTF-8 do not survive it. The end of stdin ends the process, whatever it does.
"use strict";

const events = require("events");
const readline = require("readline");
const redis = require("redis");
const RSMQ = require("rsmq");

let client = null;
let ears = null;
let heard = [];

const decode = (body) => Buffer.from(body, "base64").toString("utf8");
const encode = (text) => Buffer.from(text, "utf8").toString("base64");

function received(message) {
  if (!message.id) return null;
  const { id, rc, fr, sent } = message;
  return { id, body: encode(message.message), rc, fr, sent };
}

async function hangUp() {
  if (client) await client.quitAsync();
  if (ears) ears.end(true);
  client = ears = null;
  heard = [];
}

const ops = {
  async open({ port, ns, realtime }) {
    await hangUp();
    client = new RSMQ({ host: "127.0.0.1", port, ns, realtime });
    // The last of its scripts: with it, all of them are loaded.
    await events.once(client, "scriptload:changeMessageVisibility");
  },
  close: hangUp,

  create: ({ queue, vt, delay, maxsize }) =>
    client.createQueueAsync({ qname: queue, vt, delay, maxsize }),
  drop: ({ queue }) => client.deleteQueueAsync({ qname: queue }),
  names: () => client.listQueuesAsync(),
  attributes: ({ queue }) => client.getQueueAttributesAsync({ qname: queue }),
  change: ({ queue, ...changes }) => client.setQueueAttributesAsync({ qname: queue, ...changes }),

  send: ({ queue, body, delay }) =>
    client.sendMessageAsync({ qname: queue, message: decode(body), delay }),
  receive: async ({ queue, vt }) => received(await client.receiveMessageAsync({ qname: queue, vt })),
  pop: async ({ queue }) => received(await client.popMessageAsync({ qname: queue })),
  delete: ({ queue, id }) => client.deleteMessageAsync({ qname: queue, id }),
  hide: ({ queue, id, vt }) => client.changeMessageVisibilityAsync({ qname: queue, id, vt }),

  // Receive until the queue counts `total` receives, by whomever.
  async drain({ queue, total, forget }) {
    const taken = [];
    for (;;) {
      const message = await client.receiveMessageAsync({ qname: queue });
      if (message.id) {
        taken.push(received(message));
        if (forget) await client.deleteMessageAsync({ qname: queue, id: message.id });
      } else if ((await client.getQueueAttributesAsync({ qname: queue })).totalrecv >= total) {
        return taken;
      }
    }
  },

  async listen({ port, channel }) {
    ears = redis.createClient({ host: "127.0.0.1", port });
    ears.on("message", (_, notice) => heard.push(notice));
    ears.subscribe(channel);
    await events.once(ears, "subscribe");
  },
  heard: () => heard,
};

async function answer(line) {
  const { op, ...fields } = JSON.parse(line);
  try {
    return { ok: (await ops[op](fields)) ?? null };
  } catch (error) {
    return { error: error.name, text: String(error.message) };
  }
}

const input = readline.createInterface({ input: process.stdin });
let last = Promise.resolve();
input.on("line", (line) => {
  last = last.then(async () => process.stdout.write(`${JSON.stringify(await answer(line))}\n`));
});
input.on("close", () => process.exit(0));
