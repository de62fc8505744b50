/** Counts in windows (money.md, "Limits across replicas"): when one begins and ends, and what of it is written, when. */
import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';

import { Windows } from '../../../src/billing/rate-limits/windows.ts';
import type { WindowCount } from '../../../src/store/repositories/limit-windows.ts';
import { MemoryWindows } from './memory-windows.ts';

const minuteMs = 60_000;
const rule = { subject: 'acct_a', kind: 'requests', lengthMs: minuteMs, limit: 5 } as const;

/** Windows under a clock that the test moves, at the beginning of a window of `rule`. */
class Scene {
  readonly store = new MemoryWindows();
  readonly reported: boolean[] = [];
  /** What was written, a batch each. */
  readonly batches: (readonly WindowCount[])[] = [];
  ms = 0;
  readonly windows: Windows;

  constructor() {
    const begunAt = new Windows({ store: this.store, now: () => 1_800_000_000_000 }).startOf(rule);
    this.windows = new Windows({
      store: {
        load: (request) => this.store.load(request),
        add: (changes) => {
          this.batches.push(changes);
          return this.store.add(changes);
        },
      },
      now: () => begunAt + this.ms,
      kept: (isKept) => this.reported.push(isKept),
    });
  }

  get written(): readonly number[] {
    return [...this.store.rows.values()].map(({ used }) => used);
  }
}

test('a window is over with its last millisecond: the next begins at nothing, and says when it ends', () => {
  const scene = new Scene();
  const { windows } = scene;
  const begunAt = windows.add(rule, 3);
  scene.ms = minuteMs - 1;
  assert.deepEqual([windows.used(rule), windows.startOf(rule), windows.restMs(rule)], [3, begunAt, 1]);
  scene.ms = minuteMs;
  const next = begunAt + minuteMs;
  assert.deepEqual([windows.used(rule), windows.startOf(rule), windows.restMs(rule)], [0, next, minuteMs]);
  assert.equal(windows.add(rule, 2), next);
  assert.equal(windows.used(rule), 2);
});

test('no more is given back than was counted here', () => {
  const { windows } = new Scene();
  windows.add(rule, 3);
  windows.add(rule, -2);
  assert.equal(windows.used(rule), 1);
  windows.add(rule, -2);
  assert.equal(windows.used(rule), 0);
  windows.add(rule, 1);
  assert.equal(windows.used(rule), 1);
});

test('counts are written half a second after the first, once, and after a failure every second until they are kept', async (t) => {
  const { store, windows, batches, reported, ...scene } = sceneOnTimers(t);
  windows.add(rule, 2);
  await scene.passes(250);
  windows.add(rule, 1);
  await scene.passes(249);
  assert.equal(batches.length, 0);
  await scene.passes(1);
  assert.deepEqual(
    [...store.rows.values()].map(({ used }) => used),
    [3],
  );
  await scene.passes(10_000);
  assert.equal(batches.length, 1, 'nothing more to write');

  store.isBroken = true;
  windows.add(rule, 4);
  await scene.passes(500);
  assert.deepEqual([batches.length, reported], [2, [false]]);
  await scene.passes(999);
  assert.equal(batches.length, 2);
  await scene.passes(1);
  assert.deepEqual([batches.length, reported], [3, [false]], 'that they are not kept is said once');
  windows.add(rule, 1);
  store.isBroken = false;
  await scene.passes(1_000);
  assert.deepEqual(
    [...store.rows.values()].map(({ used }) => used),
    [8],
  );
  assert.deepEqual(reported, [false, true]);
  windows.add(rule, 1);
  await windows.write();
  assert.deepEqual(
    [...store.rows.values()].map(({ used }) => used),
    [9],
  );
  assert.deepEqual(reported, [false, true]);
});

/** The timers of the windows are the test's, too. */
function sceneOnTimers(t: TestContext) {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const { store, windows, batches, reported } = new Scene();
  const passes = async (ms: number): Promise<void> => {
    t.mock.timers.tick(ms);
    for (let turns = 0; turns < 5; turns++) await new Promise(setImmediate);
  };
  return { store, windows, batches, reported, passes };
}

test('what a store refused of a window that is over is not written into the next', async () => {
  const scene = new Scene();
  const { store, windows } = scene;
  store.isBroken = true;
  windows.add(rule, 4);
  const writing = windows.write();
  await Promise.resolve();
  assert.equal(scene.batches.length, 1, 'it has begun');
  scene.ms = minuteMs;
  windows.add(rule, 1);
  await writing;
  store.isBroken = false;
  await windows.write();
  assert.deepEqual(scene.written, [1]);
});

test('what is counted while it is written follows, and is written once', async () => {
  const scene = new Scene();
  const { windows } = scene;
  windows.add(rule, 4);
  const writing = windows.write();
  await Promise.resolve();
  assert.equal(scene.batches.length, 1, 'it has begun');
  windows.add(rule, 2);
  await Promise.all([writing, windows.write()]);
  assert.deepEqual(scene.written, [6]);
  assert.deepEqual(
    scene.batches.map((batch) => batch.map(({ used }) => used)),
    [[4], [2]],
  );
});

test('many counts are written in batches of five hundred', async () => {
  const scene = new Scene();
  for (let index = 0; index < 1_001; index++) scene.windows.add({ ...rule, subject: `acct_${index}` }, 1);
  await scene.windows.write();
  assert.deepEqual(
    scene.batches.map(({ length }) => length),
    [500, 500, 1],
  );
});

test('what another process counted goes on, page by page, and an earlier window is not loaded, whatever the store says', async () => {
  const { store, windows } = new Scene();
  windows.add(rule, 4);
  windows.add({ ...rule, subject: 'acct_b' }, 7);
  const third = { ...rule, subject: 'acct_c' };
  windows.add(third, 8);
  await windows.write();
  const rows = [...store.rows.values()];
  const startsAt = windows.startOf(rule);
  let reads = 0;
  const loaded = async (ms: number): Promise<Windows> => {
    const later = new Windows({
      store: {
        load: ({ after }) => {
          reads++;
          const from = after === undefined ? 0 : rows.indexOf(after) + 1;
          return Promise.resolve(rows.slice(from, from + 2));
        },
        add: (changes) => store.add(changes),
      },
      now: () => startsAt + ms,
    });
    await later.load();
    return later;
  };
  assert.deepEqual([(await loaded(0)).used(rule), (await loaded(minuteMs)).used(rule)], [4, 0]);
  reads = 0;
  const later = await loaded(minuteMs - 1);
  assert.deepEqual([reads, (await loaded(0)).used(third)], [3, 8]);
  assert.equal(later.used(rule), 4);
  later.add(rule, 2);
  await later.write();
  assert.deepEqual(
    [...store.rows.values()].map(({ used }) => used),
    [6, 7, 8],
  );
});

test('windows that are over are forgotten, looked for once a minute', async () => {
  const scene = new Scene();
  const { windows } = scene;
  const write = async (ms: number): Promise<number> => {
    scene.ms = ms;
    await windows.write();
    return windows.size;
  };
  windows.add(rule, 1);
  windows.add({ ...rule, lengthMs: 10 * minuteMs }, 1);
  windows.add({ ...rule, lengthMs: 1_000 }, 1);
  assert.equal(await write(0), 3);
  assert.equal(await write(minuteMs - 1), 3);
  assert.equal(await write(minuteMs), 1);
  windows.add(rule, 1);
  assert.equal(await write(2 * minuteMs - 1), 2);
  // What could not be written of them goes, too.
  scene.store.isBroken = true;
  windows.add(rule, 1);
  assert.equal(await write(2 * minuteMs), 1);
  scene.store.isBroken = false;
  await windows.write();
  assert.equal(scene.batches.flat().filter(({ startsAt }) => startsAt === windows.startOf(rule) - minuteMs).length, 1);
});
