/** Jobs: each at its own pace, one at a time where they must be, and an end that leaves nothing under way. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { Jobs } from '../../../src/platform/jobs/jobs.ts';
import type { Job } from '../../../src/platform/jobs/jobs.ts';
import type { ServiceRecord } from '../../../src/platform/log.ts';

const silentLog = { answer: () => {}, request: () => {}, replay: () => {}, linesDropped: 0 };

/** Pauses of jobs keep no process alive; a service has its sockets for that. */
let alive: NodeJS.Timeout;
before(() => (alive = setInterval(() => {}, 60_000)));
after(() => clearInterval(alive));

/** A promise that is kept from outside. */
function gateOf(): { readonly opened: Promise<void>; readonly open: () => void } {
  let open = (): void => {};
  const opened = new Promise<void>((resolve) => (open = resolve));
  return { opened, open };
}

function jobsOf(...list: readonly Job[]) {
  const records: ServiceRecord[] = [];
  const jobs = new Jobs({
    alone: (work) => work(),
    log: { ...silentLog, service: (record) => records.push(record) },
    codeOf: (error) => (error instanceof RangeError ? 'range' : 'unexpected'),
  });
  for (const job of list) jobs.add(job);
  return { jobs, records };
}

test('a job is run again and again after the start, and never after the end', async () => {
  let runs = 0;
  const third = gateOf();
  const { jobs } = jobsOf({
    name: 'count',
    everyMs: 1,
    runs: 'anywhere',
    run: async () => {
      if (++runs === 3) third.open();
    },
  });
  jobs.start();
  await third.opened;
  await jobs.close();
  const before = runs;
  assert.equal(await jobs.run('count'), true);
  assert.equal(runs, before, 'a closed mechanism runs nothing');
});

test('a job that has more to do is run at once, a bounded number of times', async () => {
  let runs = 0;
  const { jobs } = jobsOf({
    name: 'endless',
    everyMs: 3_600_000,
    runs: 'anywhere',
    run: async () => {
      runs++;
      return true;
    },
  });
  await jobs.run('endless');
  assert.equal(runs, 100);
  await jobs.close();
});

test('jobs that run alone wait for each other, others do not', async () => {
  let inside = 0;
  let most = 0;
  let anywhere = 0;
  const gate = gateOf();
  const alone = (name: string): Job => ({
    name,
    everyMs: 3_600_000,
    runs: 'alone',
    run: async () => {
      most = Math.max(most, ++inside);
      await gate.opened;
      inside--;
    },
  });
  const { jobs } = jobsOf(alone('one'), alone('two'), alone('three'), {
    name: 'beside',
    everyMs: 3_600_000,
    runs: 'anywhere',
    run: async () => void anywhere++,
  });
  const runs = ['one', 'two', 'three'].map((name) => jobs.run(name));
  await jobs.run('beside');
  assert.equal(anywhere, 1, 'it ran while the others waited');
  gate.open();
  assert.deepEqual(await Promise.all(runs), [true, true, true]);
  assert.equal(most, 1);
  await jobs.close();
});

test('two calls for one job are one run', async () => {
  let runs = 0;
  const gate = gateOf();
  const { jobs } = jobsOf({
    name: 'slow',
    everyMs: 3_600_000,
    runs: 'alone',
    run: async () => {
      runs++;
      await gate.opened;
    },
  });
  const both = [jobs.run('slow'), jobs.run('slow')];
  gate.open();
  await Promise.all(both);
  assert.equal(runs, 1);
  await jobs.close();
});

test('a failure is logged with its code, counted, and tried again; a success is dated', async () => {
  let fails = true;
  const { jobs, records } = jobsOf({
    name: 'mend',
    everyMs: 3_600_000,
    runs: 'alone',
    run: async () => {
      if (fails) throw new RangeError('a secret');
    },
  });
  assert.equal(await jobs.run('mend'), false);
  assert.deepEqual(records, [{ level: 'warn', event: 'mend_failed', detail: { code: 'range' } }]);
  assert.deepEqual(jobs.readings, [{ name: 'mend', lastSuccessSeconds: 0, failures: 1 }]);
  fails = false;
  assert.equal(await jobs.run('mend'), true);
  const [reading] = jobs.readings;
  assert.ok(reading!.lastSuccessSeconds > 1_700_000_000);
  await jobs.close();
});

test('the end calls off what is under way and waits for it', async () => {
  const begun = gateOf();
  let ended = false;
  const { jobs } = jobsOf({
    name: 'long',
    everyMs: 1,
    runs: 'anywhere',
    run: (signal) =>
      new Promise((resolve) => {
        begun.open();
        signal.addEventListener('abort', () => {
          ended = true;
          resolve();
        });
      }),
  });
  jobs.start();
  await begun.opened;
  await jobs.close();
  assert.equal(ended, true);
});
