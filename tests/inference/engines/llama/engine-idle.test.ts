import assert from 'node:assert/strict';
import { existsSync, readFileSync, renameSync } from 'node:fs';
import { test } from 'node:test';
import { createLlamaEngine, type LlamaEngine } from '../../../../src/inference/engines/llama/engine.ts';
import { MemoryBudget } from '../../../../src/inference/engines/llama/memory-budget.ts';
import { ApiError } from '../../../../src/platform/errors.ts';
import { chat, collect, never, says, startEngine, tinyModel, until, words } from './support.ts';
import { pull } from '../pull.ts';

const refusal = (code: string) => (error: unknown) => error instanceof ApiError && error.code === code;

function isAlive(pid: number): boolean {
  const file = `/proc/${pid}/stat`;
  return existsSync(file) && !/^\d+ \(.*\) [ZX]/s.test(readFileSync(file, 'utf8'));
}

const script = { script: says(...words(800)) };

async function unloaded(engine: LlamaEngine): Promise<void> {
  await until(() => engine.pid === undefined, 'the model is unloaded');
}

test('a model that nobody asks for is unloaded, stays ready, and answers the next request', async (context) => {
  const { engine, log } = await startEngine(context, tinyModel(context, script), { idleUnloadMs: 50 });
  const { pid } = engine;
  assert.ok(pid !== undefined);
  await unloaded(engine);
  await until(() => !isAlive(pid), 'the child is gone');
  const status = engine.status();
  assert.equal(status.state, 'ready');
  assert.match(status.detail ?? '', /unloaded/);
  assert.deepEqual(await engine.measure(), { rssBytes: 0, working: 0 });

  const answers = await Promise.all([1, 2, 3].map(() => collect(engine, chat('Hi', { maxTokens: 3 }), never)));
  for (const { text } of answers) assert.equal(text, ' w0 w1 w2');
  assert.deepEqual(
    log.slice(0, 3).map(({ event }) => event),
    ['ready', 'unloaded', 'ready'],
  );
  await unloaded(engine);
  assert.equal(typeof (await engine.countTokens(chat('Hi'), never)), 'number');
});

test('requests at every moment around an unloading are served', async (context) => {
  const { engine, log } = await startEngine(context, tinyModel(context, script), { idleUnloadMs: 1 });
  // Each asks again as soon as the child is let go, or just before, or while the next one loads.
  for (const early of [false, true, false, true]) {
    if (early) await new Promise((resolve) => setTimeout(resolve, Math.random() * 1000));
    else await unloaded(engine);
    const answer = collect(engine, chat('Hi', { maxTokens: 2 }), never);
    assert.equal(engine.status().state, 'ready');
    const left = new AbortController();
    const leaver = collect(engine, chat('Ho', { maxTokens: 2 }), left.signal);
    left.abort(new Error('left'));
    await assert.rejects(leaver, /left/);
    assert.equal((await answer).text, ' w0 w1');
  }
  assert.ok(log.every(({ event }) => event === 'ready' || event === 'unloaded'));
  assert.ok(log.filter(({ event }) => event === 'unloaded').length >= 2);
});

test('a model that works is not unloaded, however long that takes', async (context) => {
  const { engine, log } = await startEngine(context, tinyModel(context, script), {
    idleUnloadMs: 1,
    contextLength: 1024,
  });
  const stream = pull(engine, chat('Hi', { maxTokens: 800 }), never);
  await stream.next();
  const { pid } = engine;
  // Nobody reads, so it stays in the middle of its work for three heartbeats.
  const fromMs = performance.now();
  await until(() => performance.now() - fromMs > 3500, 'time passes');
  assert.equal(engine.pid, pid);
  while (!(await stream.next()).done);
  assert.deepEqual(
    log.filter(({ event }) => event !== 'unloaded').map(({ event }) => event),
    ['ready'],
  );
});

test('a wait for an unloaded model ends with the limit of the first token', async (context) => {
  const { engine } = await startEngine(context, tinyModel(context, script), {
    idleUnloadMs: 1,
    firstTokenTimeoutMs: 1,
  });
  await unloaded(engine);
  await assert.rejects(collect(engine, chat('Hi'), never), refusal('backend_timeout'));
});

test('a model whose file is gone when it is loaded again fails the request, and heals with the file', async (context) => {
  const file = tinyModel(context, script);
  const { engine, log } = await startEngine(context, file, { idleUnloadMs: 1 });
  await unloaded(engine);
  renameSync(file, `${file}.away`);
  await assert.rejects(collect(engine, chat('Hi'), never), refusal('backend_http_error'));
  assert.equal(engine.status().state, 'down');
  renameSync(`${file}.away`, file);
  await until(() => engine.status().state === 'ready', 'it is loaded again');
  assert.equal((await collect(engine, chat('Hi', { maxTokens: 1 }), never)).text, ' w0');
  assert.ok(!log.some(({ event }) => event === 'failed'));
});

test('an unloaded engine can be closed, also while it wakes', async (context) => {
  const { engine } = await startEngine(context, tinyModel(context, script), { idleUnloadMs: 1 });
  await unloaded(engine);
  const answer = collect(engine, chat('Hi'), never);
  answer.catch(() => {});
  const { pid } = engine;
  await engine.close();
  await assert.rejects(answer, refusal('no_healthy_backends'));
  assert.ok(pid === undefined || !isAlive(pid));
  assert.equal(engine.status().state, 'down');
});

test('a model that does not fit the memory is refused before anything is loaded, in words', async (context) => {
  const events: string[] = [];
  // 256 bytes a token.
  const memory = new MemoryBudget({ cacheBytesMax: 256 * 512 * 3, models: 2 });
  const engineOf = (slots: number) => {
    const engine = createLlamaEngine({
      name: 'tiny',
      modelFile: Promise.resolve(tinyModel(context, script)),
      contextLength: 512,
      slots,
      memory,
      defaultSystem: 'template',
      log: ({ event }) => events.push(event),
    });
    context.after(() => engine.close());
    return engine;
  };
  const refused = engineOf(4);
  await assert.rejects(refused.ready, /4 slots of 512 tokens needs 1 MB, and cache_bytes_max is 1 MB: lower slots/);
  const status = refused.status();
  assert.ok(status.state === 'down' && /cannot be used: the cache for 4 slots/.test(status.detail));
  assert.equal(refused.pid, undefined);
  await engineOf(3).ready;
  assert.deepEqual(events, ['failed', 'ready']);
  // What does not fit beside it now is loaded when it is asked for.
  const second = engineOf(1);
  await second.ready;
  assert.deepEqual([second.pid, second.residence?.state], [undefined, 'unloaded']);
});
