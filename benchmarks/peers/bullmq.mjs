// Owns BullMQ's side of the race: commands as lines of JSON in, answers as lines out.
// The commands are those of benchmarks/peer.py. process.hrtime reads CLOCK_MONOTONIC, as Python's
// time.monotonic_ns does, so moments of both can be compared.

import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { pathToFileURL } from "node:url";

const [packages, url, settings] = process.argv.slice(2);
const { chunk, concurrency } = JSON.parse(settings);
const path = createRequire(`${packages}/`).resolve("bullmq");
const { Queue, Worker } = await import(pathToFileURL(path).href);
const { hostname: host, port } = new URL(url);
const connection = { host, port: Number(port), maxRetriesPerRequest: null };
const defaultJobOptions = { removeOnComplete: true, removeOnFail: true };
const now = () => Number(process.hrtime.bigint());

const noted = [];
let expected = 0;
let reached = () => {};
function note(value) {
  noted.push(value);
  if (noted.length === expected) reached();
}
async function handle({ name, data }) {
  note(name === "stamped" ? now() - data.sent : now());
}

let queue, worker;
const commands = {
  async install() {},
  async open() {
    queue = new Queue("race", { connection, defaultJobOptions });
    await queue.waitUntilReady();
  },
  async enqueue({ count }) {
    const began = now();
    for (let number = 0; number < count; number++) await queue.add("noop", {});
    return (now() - began) / 1e9;
  },
  async bulk({ count }) {
    const began = now();
    for (let done = 0; done < count; done += chunk) {
      await queue.addBulk(Array(Math.min(chunk, count - done)).fill({ name: "noop", data: {} }));
    }
    return (now() - began) / 1e9;
  },
  async send({ count }) {
    const began = now();
    for (let number = 0; number < count; number++) {
      const ahead = (began - now()) / 1e6 + number * 20;
      if (ahead > 0) await sleep(ahead);
      await queue.add("stamped", { sent: now() });
    }
  },
  async work({ slots }) {
    worker = new Worker("race", handle, { connection, concurrency: slots ?? concurrency });
    worker.on("error", (error) => console.error(error));
  },
  async reach({ expected: count, patience }) {
    expected = count;
    const all = new Promise((resolve) => (reached = resolve));
    if (noted.length < count) await Promise.race([all, sleep(patience * 1000)]);
    return noted.length;
  },
  async stop() {
    await worker?.close();
    return noted;
  },
  async close() {
    await queue?.close();
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const { do: name, ...rest } = JSON.parse(line);
  const answer = (await commands[name](rest)) ?? null;
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
process.exit(0);
