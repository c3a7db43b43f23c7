// BullMQ draining a queue. Finished jobs are removed, as ChasquiMQ removes them; the other
// options keep their defaults, and so does ioredis: its autopipelining made this slower.
// Runs with NODE_PATH set to the node_modules of tests/peers/bullmq.
"use strict";
const readline = require("node:readline");
const { Queue, Worker } = require("bullmq");

const NAME = "job";
const BULK = 1000;
const LOOK_EVERY_MS = 1;

function connection(url) {
  const place = new URL(url);
  return { host: place.hostname, port: Number(place.port || 6379), maxRetriesPerRequest: null };
}

async function fill(queue, data, count) {
  for (let left = count; left > 0; left -= BULK) {
    const jobs = Array.from({ length: Math.min(left, BULK) }, () => ({ name: NAME, data }));
    await queue.addBulk(jobs);
  }
}

async function isEmpty(queue) {
  return (await queue.getJobCountByTypes("wait", "active", "completed", "failed")) === 0;
}

// Seconds from the worker's start until all is handled and nothing is left.
async function drain({ url, data, concurrency }, name, count) {
  const queue = new Queue(name, { connection: connection(url) });
  await fill(queue, data, count);
  let made = 0;
  let last;
  let finish;
  const allMade = new Promise((resolve) => {
    finish = resolve;
  });
  const handle = async (job) => {
    made += 1;
    if (made === count) {
      last = job;
      finish();
    }
  };
  const began = process.hrtime.bigint();
  const options = { connection: connection(url), concurrency, removeOnComplete: { count: 0 } };
  const worker = new Worker(name, handle, options);
  await allMade;
  while (!(await isEmpty(queue))) await new Promise((resolve) => setTimeout(resolve, LOOK_EVERY_MS));
  const tookS = Number(process.hrtime.bigint() - began) / 1e9;
  await worker.close();
  await queue.close();
  if (made !== count) throw new Error(`${made} calls for ${count} jobs`);
  if (last.name !== NAME || JSON.stringify(last.data) !== JSON.stringify(data)) {
    throw new Error("the last job is not what was added");
  }
  return tookS;
}

const tasks = {
  about: async () => {
    const [bullmq, ioredis] = ["bullmq", "ioredis"].map((name) => require(`${name}/package.json`).version);
    return { version: `BullMQ ${bullmq} (ioredis ${ioredis}, Node ${process.versions.node})` };
  },
  drain: async (order) => {
    await drain(order, order.warming.queue, order.warm);
    return { rate: order.count / (await drain(order, order.queue, order.count)) };
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
