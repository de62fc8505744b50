// Alone in its process: it counts the memory of the process.
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { LoopWatch } from '../../../src/platform/loop-watch.ts';
import { Shedding, monitorLoad } from '../../../src/billing/rate-limits/load.ts';
import type { LoadSample, ShedLevel } from '../../../src/billing/rate-limits/load.ts';
import { until } from '../../support/service.ts';

const limits = { largeBodiesLagMs: 50, newWorkLagMs: 100, newWorkMemoryShare: 0.85, idleConnectionsMemoryShare: 0.95 };

const calm: LoadSample = { lagMs: 1, busyShare: 0.2, memoryShare: 0.3 };
const busy = (lagMs: number): LoadSample => ({ lagMs, busyShare: 1, memoryShare: 0.3 });
const full = (memoryShare: number): LoadSample => ({ ...calm, memoryShare });
const times = (count: number, sample: LoadSample): LoadSample[] => Array.from({ length: count }, () => sample);

/** The level after each sample, runs of the same one written once. */
function shedLevelsOf(samples: readonly LoadSample[]): string {
  const shedding = new Shedding(limits);
  return samples
    .map((sample) => shedding.judge(sample))
    .filter((shedLevel, index, all) => shedLevel !== all[index - 1])
    .join(' ');
}

test('the levels of shedding (reliability §5, "shedding")', () => {
  const table: readonly (readonly [string, readonly LoadSample[], string])[] = [
    ['nothing to do', times(20, calm), '0'],
    ['lag of 50 ms', times(20, busy(50)), '0 1'],
    ['lag of 100 ms', times(20, busy(100)), '0 2'],
    ['lag that is just bearable', times(20, busy(49)), '0'],
    ['memory 85 % full', times(20, full(0.85)), '0 2'],
    ['memory 95 % full', times(20, full(0.95)), '0 3'],
    ['memory that is just not full', times(20, full(0.84)), '0'],
    ['and down again when all is over', [...times(8, busy(200)), ...times(8, calm)], '0 2 0'],
    ['one level down', [...times(8, busy(200)), ...times(8, busy(60))], '0 2 1'],
    // What must not shed.
    ['one pause of five seconds', [...times(8, calm), busy(5_000), ...times(8, calm)], '0'],
    ['two pauses in a second', [...times(8, calm), busy(200), busy(200), ...times(8, calm)], '0'],
    ['a pause each second', times(6, calm).flatMap(() => [busy(300), calm, calm, calm]), '0'],
    ['something else has the processor', times(40, { lagMs: 900, busyShare: 0.3, memoryShare: 0.3 }), '0'],
    ['memory that is full for a moment', [...times(8, calm), full(0.99), full(0.99), ...times(8, calm)], '0'],
    // What must not flap.
    ['about the threshold', times(20, busy(101)).flatMap((one) => [one, busy(95)]), '0 1'],
    ['three of four', times(20, calm).flatMap((one) => [busy(120), busy(120), busy(120), one]), '0 2'],
    ['memory about the threshold', times(20, full(0.86)).flatMap((one) => [one, one, one, full(0.83)]), '0 2'],
    ['memory that shrinks', [...times(8, full(0.97)), ...times(8, full(0.88)), ...times(8, full(0.5))], '0 3 2 0'],
  ];
  for (const [what, samples, expected] of table) assert.equal(shedLevelsOf(samples), expected, what);
});

test('it takes three looks to go up and four to come down', () => {
  const shedding = new Shedding(limits);
  const judged = [...times(3, busy(200)), ...times(4, calm)].map((sample) => shedding.judge(sample));
  assert.deepEqual(judged, [0, 0, 2, 2, 2, 2, 0]);
});

test('an event loop that is kept busy is seen, and that it is free again', async (t) => {
  let shedLevel: ShedLevel = 0;
  const loop = new LoopWatch();
  t.after(() => loop.stop());
  t.after(
    monitorLoad({
      limits: { ...limits, newWorkLagMs: 150 },
      memoryBytesMax: undefined,
      loop,
      isBusy: () => false,
      judged: (now) => (shedLevel = now),
    }),
  );
  let isBusy = true;
  t.after(() => (isBusy = false));
  const work = (): void => {
    const endAt = performance.now() + 300;
    while (performance.now() < endAt);
    if (isBusy) setImmediate(work);
  };
  work();
  await until(() => shedLevel === 2, 60_000);
  isBusy = false;
  await until(() => shedLevel === 0, 60_000);
});

test('memory is held against the limit that is given', async (t) => {
  let seen: LoadSample | undefined;
  const rss = process.memoryUsage.rss();
  const loop = new LoopWatch();
  t.after(() => loop.stop());
  const judged = (_shedLevel: ShedLevel, sample: LoadSample): unknown => (seen = sample);
  t.after(monitorLoad({ limits, memoryBytesMax: rss * 2, loop, isBusy: () => false, judged }));
  await until(() => seen !== undefined, 60_000);
  assert.ok(seen!.memoryShare > 0.2 && seen!.memoryShare < 2, String(seen!.memoryShare));
});
