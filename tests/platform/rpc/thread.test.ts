import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { pathToFileURL } from 'node:url';

import { RpcError } from '../../../src/platform/rpc/failure.ts';
import { ThreadPool, type ThreadPoolOptions } from '../../../src/platform/rpc/thread-pool.ts';
import { Thread } from '../../../src/platform/rpc/thread.ts';
import { built } from '../../support/built.ts';
import { until } from '../../support/service.ts';
import type { Answering } from './answering.ts';

const program = pathToFileURL(built('tests/platform/rpc/answering.ts'));
const waitMs = 60_000;

function thread(t: TestContext, onDied: (error: Error) => void = () => {}): Thread<Answering> {
  const one = new Thread<Answering>({ program, name: 'test', onDied });
  t.after(() => one.terminate());
  return one;
}

function pool(t: TestContext, options: Partial<ThreadPoolOptions> = {}): ThreadPool<Answering> {
  const one = new ThreadPool<Answering>({
    program,
    name: 'test',
    resourceLimits: {},
    threadsMax: 2,
    waitingMax: 100,
    timeLimitMs: waitMs,
    idleMs: Infinity,
    refusal: (why) => new Error(why),
    ...options,
  });
  t.after(() => one.close());
  return one;
}

for (const death of ['exit', 'throwOutside'] as const) {
  test(`a thread that dies (${death}) rejects what waits for it, and is reported once`, async (t) => {
    const events: string[] = [];
    const { rpc } = thread(t, () => events.push('died'));
    const rejected = (error: unknown): void => void events.push(error instanceof RpcError ? error.code : String(error));
    const waiting = rpc.call('silence', null).catch(rejected);
    await rpc.call(death, null).catch(rejected);
    await waiting;
    await until(() => events.includes('died'), waitMs);
    await new Promise((resolve) => setTimeout(resolve, 50));
    assert.deepEqual(events.toSorted(), ['closed', 'closed', 'died']);
  });
}

test('closing lets the thread finish what it was asked before, and is no death', async (t) => {
  const died: Error[] = [];
  const one = thread(t, (error) => died.push(error));
  const before = one.rpc.call('block', 200);
  await one.close(() => one.rpc.call('close', null), waitMs);
  assert.equal(await before, null);
  await assert.rejects(one.rpc.call('echo', 1), RpcError);
  assert.deepEqual(died, []);
});

test('a thread that does not end in time is ended', async (t) => {
  const one = thread(t);
  const stuck = assert.rejects(one.rpc.call('block', waitMs), RpcError);
  await one.close(() => one.rpc.call('close', null), 100);
  await stuck;
});

test('a pool has as many threads as calls need, up to its bound, and each works on one call at a time', async (t) => {
  const two = pool(t);
  assert.equal(two.count, 0);
  await two.call('echo', 1);
  await two.call('echo', 2);
  assert.equal(two.count, 1, 'the idle thread is used again');
  const values = Array.from({ length: 20 }, (_, index) => index);
  assert.deepEqual(await Promise.all(values.map((value) => two.call('later', { ms: 5, value }))), values);
  assert.equal(two.count, 2);
});

test('a call in a pool fails alone when its thread dies or is too slow; those that wait get another thread', async (t) => {
  const one = pool(t, { threadsMax: 1, timeLimitMs: 2_000 });
  const outcomes = await Promise.allSettled([
    one.call('exit', null),
    one.call('echo', 1),
    one.call('silence', null),
    one.call('fail', 'plain'),
    one.call('echo', 2),
  ]);
  assert.deepEqual(
    outcomes.map((outcome) => (outcome.status === 'fulfilled' ? outcome.value : (outcome.reason as Error).message)),
    ['died', 1, 'slow', 'plain', 2],
  );
});

test('a pool refuses what cannot wait, and drops what has left', async (t) => {
  const one = pool(t, { threadsMax: 1, waitingMax: 1 });
  const running = one.call('later', { ms: 100, value: 1 });
  const leaving = new AbortController();
  const waiting = one.call('echo', 2, { signal: leaving.signal });
  await assert.rejects(one.call('echo', 3), /full/);
  leaving.abort(new Error('left'));
  await assert.rejects(waiting, /left/);
  assert.equal(await one.call('echo', 4), 4);
  assert.equal(await running, 1);
  assert.equal(await one.call('count', null), 1, 'the one that left was not carried out');
});

test('a pool whose caller leaves keeps the thread for the next call', async (t) => {
  const one = pool(t, { threadsMax: 1 });
  const leaving = new AbortController();
  const running = one.call('later', { ms: 100, value: 1 }, { signal: leaving.signal });
  leaving.abort(new Error('left'));
  await assert.rejects(running, /left/);
  assert.equal(await one.call('echo', 2), 2);
  assert.equal(one.count, 1);
});

test('idle threads end, and a closed pool refuses everything', async (t) => {
  const short = pool(t, { idleMs: 1 });
  await short.call('echo', 1);
  await until(() => short.count === 0, waitMs);
  assert.equal(await short.call('echo', 2), 2);
  const running = assert.rejects(short.call('silence', null), /closed/);
  await short.close();
  await running;
  await assert.rejects(short.call('echo', 3), /closed/);
  assert.equal(short.count, 0);
});
