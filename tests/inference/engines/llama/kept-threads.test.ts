import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { after, describe, test } from 'node:test';
import { keepThreads } from '../../../../src/inference/engines/llama/addon.ts';
import { openModel } from '../../../../src/inference/engines/llama/bindings.ts';
import type { LlamaModel } from '../../../../src/inference/engines/llama/llama-model.ts';
import { llamaLibraryUrl } from '../../../../src/platform/entries.ts';
import { writeTinyGguf } from '../../../support/tiny-gguf.ts';
import { eventually } from '../../../support/upstream.ts';

// Each step takes the threads that the one before had (docs/decisions/042-embedded-speed.md): counted, not timed.

const folder = mkdtempSync(join(tmpdir(), 'tokenhouse-threads-'));
after(() => rmSync(folder, { recursive: true, force: true }));

const isLinux = process.platform === 'linux';

test('the library is there where the system is Linux', () => {
  assert.equal(
    keepThreads(),
    isLinux,
    'no C compiler when the program was built: install one (apt-get install -y gcc)',
  );
  assert.equal(existsSync(fileURLToPath(llamaLibraryUrl())), isLinux);
});

/** Threads of this process. */
const threads = (): readonly string[] => readdirSync('/proc/self/task').toSorted();
const without = (some: readonly string[], others: readonly string[]): readonly string[] =>
  some.filter((thread) => !others.includes(thread));

async function open(): Promise<LlamaModel> {
  const modelFile = join(folder, 'model.gguf');
  writeTinyGguf(modelFile);
  return await openModel({ modelFile, contextLength: 256, slots: 1, batchTokens: 32, threadsMax: 3, gpu: false });
}

/** The likeliest next tokens after the one token of a prompt. */
async function steps(model: LlamaModel, counts: readonly number[]): Promise<readonly number[]> {
  const sampler = model.createSampler();
  sampler.configure({ temperature: 0, topK: 1, topP: 1, minP: 0, seed: 1 });
  const ids = [5];
  model.truncate(0, 0);
  for (const [position, count] of counts.entries()) {
    model.beginBatch(1);
    const logits = model.addToBatch(0, position, Uint32Array.of(ids.at(-1)!), true)!;
    await model.decode(count);
    ids.push(...(await model.sample([{ logits, sampler }])));
  }
  sampler.dispose();
  return ids;
}

describe('threads of the embedded engine', { skip: isLinux ? false : 'other systems start them at each step' }, () => {
  // With two threads where that shows it: those of a step wait for each other by spinning, which takes long where processors are few.
  test('stay from step to step, whatever number a step takes, and end with the model', async () => {
    const model = await open();
    const alone = await steps(model, [1, 1, 1, 1, 1, 1, 1, 1]);
    const before = threads();
    await steps(model, [2]);
    const kept = without(threads(), before);
    assert.equal(kept.length, 1, 'the other is the one that steps');
    assert.deepEqual(await steps(model, [2, 2, 1, 2, 1, 1, 2, 1]), alone);
    assert.deepEqual(without(threads(), before), kept);
    await model.dispose();
    await eventually('the thread ends', () => !threads().some((thread) => kept.includes(thread)));
  });

  test('belong to one model each, and become more', async () => {
    const [first, second] = [await open(), await open()];
    await steps(first, [1]);
    const before = threads();
    const added = (): number => without(threads(), before).length;
    await steps(first, [2]);
    assert.equal(added(), 1);
    const [one, other] = await Promise.all([steps(first, [2, 1, 2]), steps(second, [2, 1, 2])]);
    assert.deepEqual(one, other);
    assert.equal(added(), 2);
    // Another pool, with two more threads, beside the first one.
    assert.deepEqual(await steps(first, [3, 2, 3]), one);
    assert.equal(added(), 4);
    await first.dispose();
    await eventually('the threads of the first end', () => added() === 1);
    assert.deepEqual(await steps(second, [2, 2, 1]), one);
    await second.dispose();
  });
});
