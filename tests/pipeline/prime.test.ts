import assert from 'node:assert/strict';
import { test } from 'node:test';

import type { GenerationBatch, GenerationStream } from '../../src/generation/event.ts';
import { prime } from '../../src/pipeline/prime.ts';

const batch: GenerationBatch = [{ type: 'text', choice: 0, text: 'x' }];
const longMs = 60_000;

async function* streamOf(...batches: readonly GenerationBatch[]): GenerationStream {
  yield* batches;
}

test('the first batch comes with the rest still to be read', async () => {
  const primed = await prime(streamOf(batch, batch), longMs);
  assert.equal(primed.state, 'batch');
  assert.deepEqual(primed.first, { done: false, value: batch });
  assert.deepEqual(await primed.rest.next(), { done: false, value: batch });
  assert.equal((await primed.rest.next()).done, true);
});

test('a failure before the first batch is thrown, so that it keeps its status', async () => {
  const failure = new Error('refused');
  async function* failing(): GenerationStream {
    throw failure;
  }
  await assert.rejects(prime(failing(), longMs), (error) => error === failure);
});

test('an empty stream is told as its end', async () => {
  const primed = await prime(streamOf(), longMs);
  assert.equal((await primed.first).done, true);
});

test('when the time is up the first batch is still under way and arrives', async () => {
  let release = (): void => undefined;
  const released = new Promise<void>((resolve) => (release = resolve));
  async function* slow(): GenerationStream {
    await released;
    yield batch;
  }
  const primed = await prime(slow(), 1);
  assert.equal(primed.state, 'waiting');
  release();
  assert.deepEqual(await primed.first, { done: false, value: batch });
});

test('a failure after the time is up reaches whoever waits for the first batch', async () => {
  let fail = (_error: Error): void => undefined;
  const failed = new Promise<never>((_, reject) => (fail = reject));
  async function* failing(): GenerationStream {
    await failed;
  }
  const primed = await prime(failing(), 1);
  assert.equal(primed.state, 'waiting');
  const failure = new Error('late');
  fail(failure);
  await assert.rejects(
    async () => await primed.first,
    (error) => error === failure,
  );
});

test('ending the rest runs the stream’s own finally, also when nothing more was read', async () => {
  let ended = false;
  async function* watched(): GenerationStream {
    try {
      yield batch;
      yield batch;
    } finally {
      ended = true;
    }
  }
  const primed = await prime(watched(), longMs);
  assert.equal(ended, false);
  await primed.rest.return?.();
  assert.equal(ended, true);
});
