import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { test } from 'node:test';
import { createLlamaEngine, type LlamaEngine } from '../../../../src/inference/engines/llama/engine.ts';
import { ApiError } from '../../../../src/platform/errors.ts';
import { chat, collect, deferred, never, says, startEngine, tinyModel, until, words } from './support.ts';
import { built } from '../../../support/built.ts';
import { pull } from '../pull.ts';

const refusal = (code: string) => (error: unknown) => error instanceof ApiError && error.code === code;

function kill(engine: LlamaEngine, signal: NodeJS.Signals): number {
  const { pid } = engine;
  assert.ok(pid !== undefined && pid > 1);
  process.kill(pid, signal);
  return pid;
}

/** Runs at this moment; one that is dead but not yet buried does not. */
function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
  } catch {
    return false;
  }
  const file = `/proc/${pid}/stat`;
  return !existsSync('/proc/self/stat') || (existsSync(file) && !/^\d+ \(.*\) [ZX]/s.test(readFileSync(file, 'utf8')));
}

for (const signal of ['SIGSEGV', 'SIGABRT', 'SIGKILL'] as const) {
  test(`a child that ends by ${signal} takes only its own requests along`, async (context) => {
    const model = tinyModel(context, { script: says(...words(800)) });
    const { engine, log } = await startEngine(context, model, { contextLength: 1024, slots: 1 });
    const other = await startEngine(context, model, { contextLength: 1024, name: 'other' });
    const running = pull(engine, chat('Hi', { maxTokens: 800 }), never);
    assert.equal((await running.next()).value?.[0]?.type, 'start');
    await running.next();
    // Waits for the only place: nothing has come of it yet.
    const waiting = collect(engine, chat('Ho'), never);
    const counting = engine.countTokens(chat('Hi'), never).catch((error: unknown) => error);
    const elsewhere = collect(other.engine, chat('Hi', { maxTokens: 800 }), never);
    const pid = kill(engine, signal);
    await Promise.all([
      assert.rejects(waiting, refusal('backend_http_error')),
      assert.rejects(async () => {
        for (;;) if ((await running.next()).done === true) return;
      }, refusal('backend_http_error')),
    ]);
    // Counted just before the end, or failed with it.
    const counted = await counting;
    assert.ok(typeof counted === 'number' || refusal('backend_http_error')(counted));
    assert.equal(engine.status().state, 'down');
    await assert.rejects(collect(engine, chat('Hi'), never), refusal('no_healthy_backends'));
    await assert.rejects(engine.countTokens(chat('Hi'), never), refusal('no_healthy_backends'));
    assert.equal((await elsewhere).usage?.completionTokens, 800);
    await until(() => engine.status().state === 'ready', 'the engine is back');
    assert.notEqual(engine.pid, pid);
    assert.equal((await collect(engine, chat('Hi', { maxTokens: 5 }), never)).text, ' w0 w1 w2 w3 w4');
    assert.deepEqual(
      log.map(({ event }) => event),
      ['ready', 'lost', 'ready'],
    );
    assert.deepEqual(
      other.log.map(({ event }) => event),
      ['ready'],
    );
  });
}

test('a child that stopped is noticed, ended and replaced', async (context) => {
  const { engine, log } = await startEngine(context, tinyModel(context, { script: says('x') }));
  const pid = kill(engine, 'SIGSTOP');
  const stoppedMs = performance.now();
  await assert.rejects(collect(engine, chat('Hi'), never), refusal('backend_http_error'));
  const noticedMs = performance.now() - stoppedMs;
  // 4 s of silence, looked at every second.
  assert.ok(noticedMs > 2000 && noticedMs < 9000, `${Math.round(noticedMs)} ms`);
  assert.equal(isAlive(pid), false);
  await until(() => engine.status().state === 'ready', 'the engine is back');
  assert.equal((await collect(engine, chat('Hi'), never)).text, 'x');
  assert.deepEqual(
    log.map(({ event }) => event),
    ['ready', 'unresponsive', 'lost', 'ready'],
  );
});

test('a child that dies again and again is started again later and later', async (context) => {
  const { engine, log } = await startEngine(context, tinyModel(context, { script: says('x') }));
  for (let death = 0; death < 3; death++) {
    kill(engine, 'SIGKILL');
    await until(() => engine.status().state === 'down', 'it is noticed');
    await until(() => engine.status().state === 'ready', 'the engine is back');
  }
  const waits = log.flatMap((event) => (event.event === 'lost' ? [event.restartMs] : []));
  assert.equal(waits.length, 3);
  for (const [index, waitMs] of waits.entries())
    assert.ok(waitMs >= 160 * 2 ** index && waitMs <= 240 * 2 ** index, `${waits.join()} ms`);
});

test('a request that was there at two deaths is not tried a third time, and others are', async (context) => {
  const { engine } = await startEngine(context, tinyModel(context, { script: says(...words(800)) }), {
    contextLength: 1024,
  });
  const poison = chat('poison', { maxTokens: 800 });
  for (let death = 0; death < 2; death++) {
    await assert.rejects(async () => {
      let killed = false;
      for await (const _ of pull(engine, { ...poison, id: String(death) }, never))
        if (!killed && (killed = true)) kill(engine, 'SIGKILL');
    }, refusal('backend_http_error'));
    await until(() => engine.status().state === 'ready', 'the engine is back');
  }
  const { pid } = engine;
  await assert.rejects(collect(engine, poison, never), refusal('backend_http_error'));
  assert.equal(engine.pid, pid);
  assert.equal((await collect(engine, chat('good', { maxTokens: 2 }), never)).text, ' w0 w1');
  // Nothing of this one may be remembered, so it is no suspect.
  assert.equal((await collect(engine, { ...poison, retain: false, maxTokens: 2 }, never)).text, ' w0 w1');
});

test('a child outlives its parent by less than a second, also in the middle of its work', async (context) => {
  const model = tinyModel(context, { dimensions: 512, layers: 6 });
  const parent = spawn(process.execPath, [built('tests/inference/engines/llama/parent.ts'), model], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  context.after(() => parent.kill('SIGKILL'));
  let output = '';
  parent.stdout.on('data', (chunk: Buffer) => (output += chunk.toString()));
  await until(() => output.includes('\n'), 'the parent reports its child');
  const pid = Number(output);
  assert.ok(isAlive(pid));
  parent.kill('SIGKILL');
  const killedMs = performance.now();
  await until(() => !isAlive(pid), 'the child is gone');
  // A user would notice a second; a busy machine is given ten.
  assert.ok(performance.now() - killedMs < 10_000);
});

test('a child that dies while it loads is started again', async (context) => {
  const engine = createLlamaEngine({
    name: 'tiny',
    modelFile: Promise.resolve(tinyModel(context, { script: says('x') })),
    contextLength: 256,
    defaultSystem: 'template',
    log: () => {},
  });
  context.after(() => engine.close());
  await until(() => engine.pid !== undefined, 'the child is started');
  assert.equal(engine.status().state, 'starting');
  await assert.rejects(collect(engine, chat('Hi'), never), refusal('no_healthy_backends'));
  kill(engine, 'SIGKILL');
  await engine.ready;
  assert.equal((await collect(engine, chat('Hi'), never)).text, 'x');
});

test('a file that is no model is reported, and not tried again', async (context) => {
  const model = tinyModel(context);
  writeFileSync(model, 'this is no model');
  const events: string[] = [];
  const engine = createLlamaEngine({
    name: 'tiny',
    modelFile: Promise.resolve(model),
    contextLength: 256,
    defaultSystem: 'template',
    log: ({ event }) => events.push(event),
  });
  context.after(() => engine.close());
  await assert.rejects(engine.ready, Error);
  const status = engine.status();
  assert.ok(status.state === 'down' && status.detail.startsWith('The model cannot be used: '), JSON.stringify(status));
  await assert.rejects(collect(engine, chat('Hi'), never), refusal('no_healthy_backends'));
  assert.deepEqual(events, ['failed']);
});

test('a model file that never comes is reported', async () => {
  const { promise, reject } = deferred<string>();
  const engine = createLlamaEngine({
    name: 'tiny',
    modelFile: promise,
    contextLength: 256,
    defaultSystem: 'template',
    log: () => {},
  });
  assert.equal(engine.status().state, 'starting');
  await assert.rejects(collect(engine, chat('Hi'), never), refusal('no_healthy_backends'));
  reject(new Error('no source answered'));
  await assert.rejects(engine.ready, /no source answered/);
  assert.deepEqual(engine.status(), {
    state: 'down',
    detail: 'The model file could not be fetched: no source answered',
  });
  await engine.close();
});

test('an engine that is closed before its model file comes starts nothing', async () => {
  const { promise, resolve } = deferred<string>();
  const engine = createLlamaEngine({
    name: 'tiny',
    modelFile: promise,
    contextLength: 256,
    defaultSystem: 'template',
    log: () => {},
  });
  await engine.close();
  resolve('/nowhere');
  await assert.rejects(engine.ready);
  assert.equal(engine.pid, undefined);
});

test('a child that has grown beyond its limit is replaced when nothing runs', async (context) => {
  const { engine, log } = await startEngine(context, tinyModel(context, { script: says(...words(800)) }), {
    contextLength: 1024,
    rssBytesMax: 1,
  });
  const { pid } = engine;
  assert.equal((await collect(engine, chat('Hi', { maxTokens: 800 }), never)).usage?.completionTokens, 800);
  await until(() => log.length >= 3, 'the next child');
  // Nobody is refused meanwhile: what comes waits for the next child (reliability E2).
  assert.equal(engine.status().state, 'ready');
  assert.notEqual(engine.pid, pid);
  assert.equal((await collect(engine, chat('Hi', { maxTokens: 2 }), never)).text, ' w0 w1');
  assert.deepEqual(
    log.slice(0, 3).map(({ event }) => event),
    ['ready', 'recycled', 'ready'],
  );
});
