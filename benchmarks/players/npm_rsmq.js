// npm's rsmq with its promises, one or several operations in flight.
// Runs with NODE_PATH set to the node_modules of tests/peers/npm_rsmq.
"use strict";
const readline = require("node:readline");
const RSMQ = require("rsmq");

const clients = new Map();
function client(url) {
  if (!clients.has(url)) {
    const place = new URL(url);
    clients.set(url, new RSMQ({ host: place.hostname, port: Number(place.port || 6379) }));
  }
  return clients.get(url);
}

async function several(act, count, flights) {
  let left = count;
  const fly = async () => {
    while (left-- > 0) await act();
  };
  await Promise.all(Array.from({ length: flights }, fly));
}

async function rate(act, { count, warm, flights = 1 }) {
  await several(act, warm, flights);
  const began = process.hrtime.bigint();
  await several(act, count, flights);
  return { rate: count / (Number(process.hrtime.bigint() - began) / 1e9) };
}

const tasks = {
  about: async () => {
    const library = require("rsmq/package.json").version;
    return { version: `rsmq ${library} (Node ${process.versions.node})` };
  },
  send: async (order) => {
    const rsmq = client(order.url);
    return rate(() => rsmq.sendMessageAsync({ qname: order.queue, message: order.body }), order);
  },
  receive: async (order) => {
    const rsmq = client(order.url);
    const qname = order.queue;
    return rate(async () => {
      const { id } = await rsmq.receiveMessageAsync({ qname });
      if (!(await rsmq.deleteMessageAsync({ qname, id }))) throw new Error("the message was gone");
    }, order);
  },
};

const lines = readline.createInterface({ input: process.stdin });
lines.on("line", async (line) => {
  const order = JSON.parse(line);
  let answer;
  try {
    answer = await tasks[order.task](order);
  } catch (error) {
    answer = { error: String(error) };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
});
lines.on("close", () => process.exit(0));
