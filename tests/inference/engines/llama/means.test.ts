import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Compute } from '../../../../src/inference/engines/llama/compute.ts';
import { Means, processorOnly } from '../../../../src/inference/engines/llama/means.ts';
import { MemoryBudget } from '../../../../src/inference/engines/llama/memory-budget.ts';
import { needsBeside, type MemoryNeeds } from '../../../../src/inference/engines/llama/memory-needs.ts';

const onGpu: Compute = {
  ...{ on: 'gpu', build: { kind: 'cuda', folder: '/builds/cuda', furtherFolder: undefined }, devices: ['NVIDIA L4'] },
  ...{ isUnified: false, layers: 33, layersMax: 33, bytes: 6e9 },
};

const needs: MemoryNeeds = {
  fileBytes: 5e9,
  slots: 2,
  workBytes: (slots) => slots * 1e9,
  placesInWords: () => '2 slots',
};

const occupant = {
  ...{ isPinned: false, isIdle: true, isWanted: false, usedMs: 0 },
  ...{ enter: () => {}, hold: () => {}, leave: () => Promise.resolve() },
};

function meansOf(compute: Compute, freeBytes = 100e9) {
  const memory = new MemoryBudget({ cacheBytesMax: undefined, models: 1, freeBytes: () => freeBytes });
  const claim = memory.register(needsBeside(needs, compute), occupant);
  const said: string[] = [];
  let nowMs = 0;
  let released = 0;
  const means = new Means(compute, {
    ...{ memory: claim, needs, release: () => released++, now: () => nowMs },
    onLost: (reason, next) => said.push(`${reason} → ${next}`),
  });
  return { means, claim, said, released: () => released, wait: (ms: number) => (nowMs += ms) };
}

const died = { loaded: true, reason: 'it ended by SIGABRT' };
const refused = { loaded: false, reason: 'the GPU is not there any more' };

test('a GPU that dies once while it works is tried again', () => {
  const { means, claim, said, released } = meansOf(onGpu);
  assert.equal(claim.bytes, 200e6);
  assert.equal(means.retreat(died), false);
  assert.deepEqual([means.wasOnGpu, means.use !== false, released()], [true, true, 0]);
  assert.deepEqual(said, ['it ended by SIGABRT → gpu']);
});

test('one that dies again within ten minutes is given up, and its model takes the memory of the computer', () => {
  const { means, claim, said, released, wait } = meansOf(onGpu);
  assert.equal(means.retreat(died), false);
  wait(599_000);
  assert.equal(means.retreat(died), true);
  assert.deepEqual([means.wasOnGpu, means.use, released()], [true, false, 1]);
  assert.equal(claim.bytes, 5e9 + 2e9 + 200e6);
  assert.equal(said.at(-1), 'it ended by SIGABRT → processor');
  assert.deepEqual(means.report, {
    ...{ with: 'the processor', isOfNote: true },
    note: 'CUDA on NVIDIA L4, 33 of 33 layers failed: it ended by SIGABRT',
  });
  // The death of a child that computes with the processor is another matter.
  assert.equal(means.retreat(died), false);
  assert.equal(means.wasOnGpu, false);
});

test('deaths with longer between them do not add up', () => {
  const { means, wait } = meansOf(onGpu);
  for (let times = 0; times < 5; times++) {
    assert.equal(means.retreat(died), false);
    wait(601_000);
  }
});

test('one that a model cannot be loaded with is given up at once', () => {
  const { means, said } = meansOf(onGpu);
  assert.equal(means.retreat(refused), true);
  assert.equal(means.use, false);
  assert.deepEqual(said, ['the GPU is not there any more → processor']);
});

test('a model that fits nowhere else waits for its GPU, and says so', () => {
  const { means, claim, said, released } = meansOf(onGpu, 6e9);
  assert.equal(means.retreat(refused), false);
  assert.deepEqual([means.use !== false, released(), claim.bytes], [true, 0, 200e6]);
  assert.match(said[0]!, /^the GPU is not there any more; without it, it needs 7\.2 GB with 2 slots, .* → gpu$/);
});

test('the processor alone is nothing to speak of', () => {
  const { means, said } = meansOf(processorOnly);
  assert.equal(means.retreat(refused), false);
  assert.deepEqual([means.report, said], [{ with: 'the processor', isOfNote: false }, []]);
});
