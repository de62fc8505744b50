/** Models of which not all fit into memory at once, each in a real child. */
import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import {
  createLlamaEngine,
  type LlamaEngine,
  type LlamaEngineEvent,
} from '../../../../src/inference/engines/llama/engine.ts';
import { MemoryBudget } from '../../../../src/inference/engines/llama/memory-budget.ts';
import { ApiError } from '../../../../src/platform/errors.ts';
import { pull } from '../pull.ts';
import { chat, collect, never, says, tinyModel, until, words } from './support.ts';

const refusal = (code: string) => (error: unknown) => error instanceof ApiError && error.code === code;

interface Models {
  readonly engines: Readonly<Record<string, LlamaEngine>>;
  readonly log: (LlamaEngineEvent & { readonly model: string })[];
}

/** There is room for one of them: a tiny model and its process take 200 MB. */
async function modelsOf(
  context: TestContext,
  names: readonly string[],
  pinned: readonly string[] = [],
): Promise<Models> {
  const memory = new MemoryBudget({ bytesMax: 390e6, cacheBytesMax: undefined, models: names.length, turnMs: 50 });
  const log: (LlamaEngineEvent & { readonly model: string })[] = [];
  const engines: Record<string, LlamaEngine> = {};
  for (const name of names) {
    const engine = createLlamaEngine({
      name,
      modelFile: Promise.resolve(tinyModel(context, { script: says(...words(400, name)) })),
      contextLength: 512,
      slots: 2,
      threads: 1,
      defaultSystem: 'template',
      memory,
      isPinned: pinned.includes(name),
      log: (event) => log.push(event),
    });
    engines[name] = engine;
    context.after(() => engine.close());
    await engine.ready;
  }
  return { engines, log };
}

const textOf = (name: string, tokens: number): string => words(tokens, name).join('');
const ask = async (engine: LlamaEngine, tokens = 3): Promise<string> =>
  (await collect(engine, chat('Hi', { maxTokens: tokens }), never)).text;
/** Whose child runs, or ran last. */
const loaded = (engines: Models['engines']): readonly string[] =>
  Object.entries(engines).flatMap(([name, { residence }]) => (residence?.state === 'loaded' ? [name] : []));

test('all requests to all of them are answered, and never two are in memory', async (context) => {
  const { engines, log } = await modelsOf(context, ['a', 'b', 'c']);
  assert.deepEqual(loaded(engines), ['a']);
  assert.equal(engines['b']!.residence?.state, 'unloaded');
  assert.equal(engines['b']!.status().state, 'ready');
  const watched = setInterval(() => assert.ok(loaded(engines).length <= 1), 5);
  context.after(() => clearInterval(watched));
  const asked = Array.from({ length: 12 }, (_, index) => ['a', 'b', 'c'][index % 3]!);
  const answers = await Promise.all(asked.map((name) => ask(engines[name]!, 20)));
  for (const [index, name] of asked.entries()) assert.equal(answers[index], textOf(name, 20));
  const loads = log.filter(({ event }) => event === 'ready');
  assert.ok(loads.length <= 4, `${loads.length} loads: requests of a model are answered together`);
  assert.ok(log.some(({ event }) => event === 'waits-for-memory'));
  const unloads = log.filter((event) => event.event === 'unloaded');
  assert.ok(unloads.length >= 2 && unloads.every((event) => event.event === 'unloaded' && event.reason === 'room'));
});

test('a model under constant load makes room after its turn, and its answer is finished first', async (context) => {
  const { engines } = await modelsOf(context, ['a', 'b']);
  let asking = true;
  let answered = 0;
  const load = Promise.all(
    [1, 2, 3].map(async () => {
      while (asking) {
        assert.equal(await ask(engines['a']!, 50), textOf('a', 50));
        answered++;
      }
    }),
  );
  await until(() => answered > 3, 'a works');
  assert.equal(await ask(engines['b']!), textOf('b', 3));
  const before = answered;
  await until(() => answered > before, 'a has its turn again');
  asking = false;
  await load;
});

test('a request that is cancelled while it waits for the memory lets the others go on', async (context) => {
  const { engines } = await modelsOf(context, ['a', 'b']);
  const stream = pull(engines['a']!, chat('Hi', { maxTokens: 300 }), never);
  await stream.next();
  const abort = new AbortController();
  const waiting = collect(engines['b']!, chat('Hi'), abort.signal);
  waiting.catch(() => {});
  await until(() => engines['b']!.residence?.state === 'waiting', 'b waits');
  const reason = new Error('left');
  abort.abort(reason);
  await assert.rejects(waiting, (error) => error === reason);
  assert.equal(engines['b']!.residence?.state, 'unloaded');
  assert.equal(await ask(engines['a']!), textOf('a', 3), 'a takes new requests');
  while (!(await stream.next()).done);
  assert.deepEqual(loaded(engines), ['a']);
});

test('a child that is killed while it loads is started again, and what waits for it is answered', async (context) => {
  const { engines, log } = await modelsOf(context, ['a', 'b']);
  const answer = ask(engines['b']!);
  await until(() => engines['b']!.pid !== undefined, 'b is being loaded');
  process.kill(engines['b']!.pid!, 'SIGKILL');
  assert.equal(await answer, textOf('b', 3));
  assert.ok(log.some(({ event, model }) => event === 'lost' && model === 'b'));
});

test('an engine that is closed while its model loads ends what waits, and gives its room back', async (context) => {
  const { engines } = await modelsOf(context, ['a', 'b']);
  const answer = ask(engines['b']!);
  answer.catch(() => {});
  await until(() => engines['b']!.pid !== undefined, 'b is being loaded');
  await engines['b']!.close();
  await assert.rejects(answer, refusal('no_healthy_backends'));
  assert.equal(await ask(engines['a']!), textOf('a', 3));
});

test('a pinned model stays; one that has no room beside it is refused, in words', async (context) => {
  await assert.rejects(modelsOf(context, ['a', 'b'], ['a']), /beside the pinned models/);
});

test('a wait that is too long says why', async (context) => {
  const memory = new MemoryBudget({ bytesMax: 390e6, cacheBytesMax: undefined, models: 2 });
  const engineOf = (name: string, firstTokenTimeoutMs: number) => {
    const engine = createLlamaEngine({
      name,
      modelFile: Promise.resolve(tinyModel(context, { script: says(...words(400, name)) })),
      contextLength: 512,
      slots: 1,
      threads: 1,
      defaultSystem: 'template',
      memory,
      firstTokenTimeoutMs,
      log: () => {},
    });
    context.after(() => engine.close());
    return engine;
  };
  const a = engineOf('a', 60_000);
  await a.ready;
  const b = engineOf('b', 50);
  await b.ready;
  const stream = pull(a, chat('Hi', { maxTokens: 400 }), never);
  await stream.next();
  await assert.rejects(
    collect(b, chat('Hi'), never),
    (error) => error instanceof ApiError && error.code === 'backend_timeout' && /memory/.test(error.message),
  );
});
