// Owns graphile-worker's side of the race: commands as lines of JSON in, answers as lines out.
// The commands are those of benchmarks/peer.py. process.hrtime reads CLOCK_MONOTONIC, as Python's
// time.monotonic_ns does, so moments of both can be compared.

import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { pathToFileURL } from "node:url";

const [packages, connectionString, settings] = process.argv.slice(2);
const { chunk, ...options } = JSON.parse(settings);
const path = createRequire(`${packages}/`).resolve("graphile-worker");
const { Logger, makeWorkerUtils, run, runMigrations } = await import(pathToFileURL(path).href);
const logger = new Logger(() => () => {});
const now = () => Number(process.hrtime.bigint());

const noted = [];
let expected = 0;
let reached = () => {};
function note(value) {
  noted.push(value);
  if (noted.length === expected) reached();
}
const taskList = {
  noop: async () => note(now()),
  nap: async () => {
    note(now());
    await sleep(10);
  },
  stamped: async ({ sent }) => note(now() - sent),
};

let utils, runner;
const commands = {
  async install() {
    await runMigrations({ connectionString, logger });
  },
  async open() {
    utils = await makeWorkerUtils({ connectionString, logger });
  },
  async enqueue({ count }) {
    const began = now();
    for (let number = 0; number < count; number++) await utils.addJob("noop", {});
    return (now() - began) / 1e9;
  },
  async bulk({ count, kind = "noop", priorities = 1 }) {
    const each = Math.min(chunk, Math.ceil(count / priorities));
    const began = now();
    for (let done = 0, number = 0; done < count; done += each, number++) {
      const job = { identifier: kind, payload: {}, priority: number % priorities };
      await utils.addJobs(Array(Math.min(each, count - done)).fill(job));
    }
    return (now() - began) / 1e9;
  },
  async send({ count }) {
    const began = now();
    for (let number = 0; number < count; number++) {
      const ahead = (began - now()) / 1e6 + number * 20;
      if (ahead > 0) await sleep(ahead);
      await utils.addJob("stamped", { sent: now() });
    }
  },
  async work({ slots }) {
    const worker = slots ? { ...options, concurrentJobs: slots } : options;
    const preset = { worker: { connectionString, logger, ...worker } };
    runner = await run({ preset, taskList, noHandleSignals: true });
  },
  async reach({ expected: count, patience }) {
    expected = count;
    const told = new Promise((resolve) => (reached = resolve));
    if (noted.length < count) await Promise.race([told, sleep(patience * 1000)]);
    return noted.length;
  },
  async stop() {
    await runner?.stop();
    return noted;
  },
  async close() {
    await utils?.release();
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const { do: name, ...rest } = JSON.parse(line);
  const answer = (await commands[name](rest)) ?? null;
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
process.exit(0);
