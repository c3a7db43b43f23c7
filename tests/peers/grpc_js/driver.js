// npm @grpc/grpc-js, driven by JSON lines: {"op": …} on stdin, {"ok": …} or {"error": …} on stdout.
//
// Payloads travel as base64. Clients have names, and a connection each; a stream belongs to the
// client that watches. The end of stdin ends the process, whatever it does.
"use strict";

const fs = require("fs");
const readline = require("readline");
const grpc = require("@grpc/grpc-js");
const loader = require("@grpc/proto-loader");

const clients = new Map();
const streams = new Map();
let Service = null;

const statusName = (code) => grpc.status[code];

function metadataOf(words) {
  const metadata = new grpc.Metadata();
  for (const [name, word] of Object.entries(words ?? {})) metadata.set(name, word);
  return metadata;
}

function optionsOf(deadlineMs) {
  return { deadline: deadlineMs === undefined ? Infinity : Date.now() + deadlineMs };
}

// Resolves with the reply and its metadata. `started` is given the call, to cancel it.
function call(client, method, request, { words, deadlineMs, started } = {}) {
  return new Promise((resolve, reject) => {
    let headers = {};
    const answered = (error, reply) => (error ? reject(error) : resolve({ reply, headers }));
    const under = client[method](request, metadataOf(words), optionsOf(deadlineMs), answered);
    under.on("metadata", (metadata) => {
      headers = metadata.getMap();
    });
    if (started) started(under);
  });
}

function watch(client, consumerID, { words, deadlineMs } = {}) {
  const stream = { records: [], status: null, wake: () => {} };
  stream.under = client.Watch({ consumerID }, metadataOf(words), optionsOf(deadlineMs));
  stream.under.on("data", (set) => {
    stream.records.push(...set.records);
    stream.wake();
  });
  stream.under.on("status", ({ code }) => {
    stream.status = statusName(code);
    stream.wake();
  });
  // Its status tells the same.
  stream.under.on("error", () => {});
  return stream;
}

const woken = (stream) => new Promise((resolve) => { stream.wake = resolve; });

async function publishAll(client, key, name, count) {
  for (let n = 0; n < count; n += 1) {
    await call(client, "Publish", { key, payload: Buffer.from(`${name} ${n}`) });
  }
}

const textOf = (record) => Buffer.from(record.value.payload, "base64").toString();

async function collect(client, { consumer, count, watches }) {
  const texts = [];
  if (watches) {
    const stream = watch(client, consumer);
    while (stream.records.length < count && stream.status === null) await woken(stream);
    stream.under.cancel();
    return stream.records.map(textOf);
  }
  while (texts.length < count) {
    const { reply } = await call(client, "Observe", { consumerID: consumer });
    texts.push(...reply.records.map(textOf));
    if (!reply.records.length) await new Promise((resolve) => { setTimeout(resolve, 5); });
  }
  return texts;
}

const ops = {
  load({ proto }) {
    const shape = { keepCase: true, bytes: String, defaults: true, arrays: true };
    Service = grpc.loadPackageDefinition(loader.loadSync(proto, shape)).routeguide.RouteGuide;
  },

  async open({ client_id, address, ca, token }) {
    let credentials = grpc.credentials.createInsecure();
    if (ca) credentials = grpc.credentials.createSsl(fs.readFileSync(ca));
    if (ca && token) {
      const give = (_, next) => next(null, metadataOf({ authorization: `Bearer ${token}` }));
      const bearer = grpc.credentials.createFromMetadataGenerator(give);
      credentials = grpc.credentials.combineChannelCredentials(credentials, bearer);
    }
    // Else clients of one address would share a connection, and be one peer.
    const client = new Service(address, credentials, { "grpc.use_local_subchannel_pool": 1 });
    clients.set(client_id, client);
    await new Promise((resolve, reject) => {
      client.waitForReady(Date.now() + 20000, (error) => (error ? reject(error) : resolve()));
    });
  },
  close({ client_id }) {
    if (streams.has(client_id)) streams.get(client_id).under.cancel();
    clients.get(client_id).close();
    streams.delete(client_id);
    clients.delete(client_id);
  },

  call: ({ client_id, method, request, words, deadline_ms: deadlineMs }) =>
    call(clients.get(client_id), method, request, { words, deadlineMs }),

  // Cancel a call as soon as it was begun.
  give_up: ({ client_id, method, request, words }) =>
    call(clients.get(client_id), method, request, { words, started: (under) => under.cancel() }),

  watch({ client_id, consumer, words, deadline_ms: deadlineMs }) {
    streams.set(client_id, watch(clients.get(client_id), consumer, { words, deadlineMs }));
  },
  // Wait until so many records have come, or the stream has ended.
  async seen({ client_id, count }) {
    const stream = streams.get(client_id);
    while (stream.records.length < count && stream.status === null) await woken(stream);
    return { records: stream.records, status: stream.status };
  },
  // Wait until the stream has ended, and tell how.
  async ended({ client_id }) {
    const stream = streams.get(client_id);
    while (stream.status === null) await woken(stream);
    return stream.status;
  },
  unwatch({ client_id }) {
    streams.get(client_id).under.cancel();
  },

  // All of them publish at once, each one message after the other.
  publish_all: ({ names, key, count }) =>
    Promise.all(names.map((name) => publishAll(clients.get(name), key, name, count))).then(() => null),
  // All of them receive at once.
  collect_all: ({ jobs }) => Promise.all(jobs.map((job) => collect(clients.get(job.client_id), job))),
};

async function answer(line) {
  const { op, ...fields } = JSON.parse(line);
  try {
    return { ok: (await ops[op](fields)) ?? null };
  } catch (error) {
    return { error: statusName(error.code) ?? error.name, text: String(error.details ?? error.stack) };
  }
}

const input = readline.createInterface({ input: process.stdin });
let last = Promise.resolve();
input.on("line", (line) => {
  last = last.then(async () => process.stdout.write(`${JSON.stringify(await answer(line))}\n`));
});
input.on("close", () => process.exit(0));
