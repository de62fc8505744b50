import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test, type TestContext } from 'node:test';
import type { Compute } from '../../../../src/inference/engines/llama/compute.ts';
import type { LlamaEngineEvent } from '../../../../src/inference/engines/llama/engine.ts';
import { ApiError } from '../../../../src/platform/errors.ts';
import { inRepository } from '../../../support/repository.ts';
import { pull } from '../pull.ts';
import { chat, collect, never, says, startEngine, tinyModel, until, words } from './support.ts';

/**
 * The build of this platform for the processor, in the place of one for GPUs: with no layers it works like one that has a device, with
 * layers it is one that has lost it.
 */
function buildInPlace(): string {
  const name = `${{ linux: 'linux', darwin: 'mac', win32: 'win' }[process.platform as string]}-${process.arch}`;
  const packages = inRepository('node_modules', '@node-llama-cpp');
  const found = readdirSync(packages).find((each) => each.startsWith(name))!;
  return join(packages, found, 'bins', found);
}

/** A search that has found one GPU, and how often its memory was given back. */
function onGpu(layers: number) {
  const compute: Compute = {
    ...{ on: 'gpu', build: { kind: 'vulkan', folder: buildInPlace(), furtherFolder: undefined }, devices: ['GPU'] },
    ...{ isUnified: false, layers, layersMax: 3, bytes: 1e6 },
  };
  let released = 0;
  const search = { reserve: () => Promise.resolve({ compute, release: () => void released++ }) };
  return { gpu: { setting: 'auto', search } as const, released: () => released };
}

const gpuEvents = (log: readonly LlamaEngineEvent[]): readonly unknown[] =>
  log.flatMap((event) =>
    event.event === 'gpu-lost' ? [`lost, next: ${event.next}`] : event.event === 'ready' ? [`ready: ${event.gpu}`] : [],
  );

const started = (context: TestContext, gpu: ReturnType<typeof onGpu>['gpu']) =>
  startEngine(context, tinyModel(context, { script: says(...words(800)) }), { contextLength: 1024, slots: 1, gpu });

const stopped = (error: unknown): boolean => error instanceof ApiError && error.code === 'backend_http_error';

describe('a GPU that is lost', () => {
  test('before the model is loaded: the processor takes over, and the first requests are answered', async (context) => {
    const { gpu, released } = onGpu(3);
    const { engine, log } = await started(context, gpu);
    assert.equal((await collect(engine, chat('Hi', { maxTokens: 3 }), never)).text, ' w0 w1 w2');
    assert.deepEqual(gpuEvents(log), ['lost, next: processor', 'ready: none']);
    const [lost] = log.flatMap((event) => (event.event === 'gpu-lost' ? [event.reason] : []));
    assert.equal(lost, 'the GPU is not there any more');
    assert.deepEqual(engine.residence?.compute, {
      ...{ with: 'the processor', isOfNote: true },
      note: 'Vulkan on GPU, 3 of 3 layers failed: the GPU is not there any more',
    });
    assert.equal(released(), 1);
  });

  test('while it works: what waits in the child goes to the next one, what is being written ends', async (context) => {
    const { gpu, released } = onGpu(0);
    const { engine, log } = await started(context, gpu);
    const running = pull(engine, chat('Hi', { maxTokens: 800 }), never);
    assert.equal((await running.next()).value?.[0]?.type, 'start');
    await running.next();
    const waiting = [3, 4].map((maxTokens) => collect(engine, chat('Ho', { maxTokens }), never));
    // In the child, where it waits for the only place.
    await until(async () => (await engine.measure()).working === 3, 'all three are in the child');
    process.kill(engine.pid!, 'SIGABRT');
    const texts = (await Promise.all(waiting)).map(({ text }) => text);
    assert.deepEqual(texts, [' w0 w1 w2', ' w0 w1 w2 w3']);
    await assert.rejects(toTheEnd(running), stopped);
    assert.deepEqual(gpuEvents(log), ['ready: vulkan', 'lost, next: gpu', 'ready: vulkan']);
    assert.equal(released(), 0);
  });

  test('twice: the second time the processor takes over, with what was not answered', async (context) => {
    const { gpu, released } = onGpu(0);
    const { engine, log } = await started(context, gpu);
    // Neither is read further, so that neither comes to its end by itself, nor makes room for the next one.
    const first = pull(engine, chat('First', { maxTokens: 800 }), never);
    await first.next();
    await first.next();
    const second = pull(engine, chat('Second', { maxTokens: 800 }), never);
    const secondBegins = second.next();
    const last = collect(engine, chat('Last', { maxTokens: 3 }), never);
    await until(async () => (await engine.measure()).working === 3, 'all three are in the child');
    process.kill(engine.pid!, 'SIGABRT');
    await assert.rejects(toTheEnd(first), stopped);
    await secondBegins;
    await until(async () => (await engine.measure()).working === 2, 'two are in the second child');
    process.kill(engine.pid!, 'SIGABRT');
    await assert.rejects(toTheEnd(second), stopped);
    assert.equal((await last).text, ' w0 w1 w2');
    assert.deepEqual(gpuEvents(log), [
      'ready: vulkan',
      'lost, next: gpu',
      'ready: vulkan',
      'lost, next: processor',
      'ready: none',
    ]);
    assert.equal(released(), 1);
    // Two deaths with a GPU are none of the requests' making.
    assert.equal((await collect(engine, chat('Second', { maxTokens: 2 }), never)).text, ' w0 w1');
  });
});

async function toTheEnd(reading: ReturnType<typeof pull>): Promise<void> {
  for (;;) if ((await reading.next()).done === true) return;
}
