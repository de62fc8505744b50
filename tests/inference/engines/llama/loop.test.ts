import assert from 'node:assert/strict';
import { after, before, describe, test, type TestContext } from 'node:test';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { openModel } from '../../../../src/inference/engines/llama/bindings.ts';
import type { LlamaModel } from '../../../../src/inference/engines/llama/llama-model.ts';
import type { Job, JobEnding } from '../../../../src/inference/engines/llama/job.ts';
import { Loop, type Step } from '../../../../src/inference/engines/llama/loop.ts';
import { samplingSettings } from '../../../../src/inference/engines/llama/sampling.ts';
import { writeTinyGguf } from '../../../support/tiny-gguf.ts';
import { openSampling, until, words } from './support.ts';

const folder = mkdtempSync(join(tmpdir(), 'tokenhouse-loop-'));

interface Run {
  readonly job: Job;
  readonly ids: number[];
  readonly cached: number | undefined;
  readonly ending: JobEnding | undefined;
  reading: boolean;
}

describe('the loop', () => {
  let scripted: LlamaModel;
  let random: LlamaModel;
  let slow: LlamaModel;
  let wide: LlamaModel;
  const open = async (
    name: string,
    slots: number,
    contextLength: number,
    options: Parameters<typeof writeTinyGguf>[1],
  ) => {
    const path = join(folder, `${name}.gguf`);
    writeTinyGguf(path, options);
    return openModel({ modelFile: path, contextLength, slots, batchTokens: 128, threadsMax: 1, gpu: false });
  };
  before(async () => {
    scripted = await open('scripted', 2, 256, {
      script: [
        ['assistant\n', ...words(200), '<|im_end|>'],
        ['user', ' again', ' and', ' again'],
      ],
    });
    random = await open('random', 3, 512, {});
    wide = await open('wide', 6, 128, {});
    slow = await open('slow', 3, 2048, { dimensions: 512, layers: 6 });
  });
  after(async () => {
    for (const model of [scripted, random, slow, wide]) await model.dispose();
    rmSync(folder, { recursive: true, force: true });
  });

  const trigger = () => [...scripted.tokenize('assistant\n', true)];
  const someTokens = (count: number, first = 40) => Array.from({ length: count }, (_, index) => first + (index % 50));

  /** Choices that do not repeat themselves. */
  const oftenRandom = () => samplingSettings({ ...openSampling, temperature: 1 }, undefined, 0, () => 1);

  function start(context: TestContext, model: LlamaModel, observe?: (step: Step) => void, broken?: () => void): Loop {
    const loop = new Loop(model, {
      decodeThreads: 1,
      threadsMax: 1,
      ...(observe === undefined ? {} : { observe }),
      ...(broken === undefined ? {} : { broken }),
    });
    context.after(async () => {
      await loop.close();
      for (let slot = 0; slot < model.facts.slots; slot++) model.truncate(slot, 0);
    });
    return loop;
  }

  function run(
    loop: Loop,
    prompt: readonly number[],
    overrides: Partial<Omit<Job, 'prompt' | 'reader'>> & { onToken?: (run: Run) => string | undefined } = {},
  ): Run {
    const { onToken, ...rest } = overrides;
    const made: { -readonly [K in keyof Run]: Run[K] } = {
      job: undefined as unknown as Job,
      ids: [],
      cached: undefined,
      ending: undefined,
      reading: true,
    };
    made.job = {
      prompt,
      maxTokens: 32,
      sampling: samplingSettings({ ...openSampling, temperature: 0 }, undefined, 0, () => 1),
      cacheScope: 'a',
      retain: true,
      ...rest,
      reader: {
        get takesMore() {
          return made.reading;
        },
        started: (cached) => {
          assert.equal(made.cached, undefined, 'started once');
          made.cached = cached;
        },
        token: ({ id }) => {
          assert.equal(made.ending, undefined, 'no token after the end');
          made.ids.push(id);
          const stopSequence = onToken?.(made);
          return stopSequence === undefined ? undefined : { stop: { sequence: stopSequence } };
        },
        ended: (ending) => {
          assert.equal(made.ending, undefined, 'ends once');
          made.ending = ending;
        },
      },
    };
    loop.submit(made.job);
    return made;
  }
  const ended = (...runs: Run[]) => until(() => runs.every(({ ending }) => ending !== undefined), 'all runs ended');

  test('writes the whole script and ends with the model', async (context) => {
    const made = run(start(context, scripted), trigger(), { maxTokens: 250 });
    await ended(made);
    assert.equal(scripted.detokenize(made.ids), words(200).join(''));
    assert.deepEqual(made.ending, { type: 'stop' });
    assert.equal(made.cached, 0);
  });

  test('ends by length: tokens, window, repetition, nothing to make', async (context) => {
    const loop = start(context, scripted);
    const tokens = run(loop, trigger(), { maxTokens: 7 });
    const window = run(loop, [...someTokens(249), ...trigger()], { maxTokens: 100 });
    const repetition = run(loop, [...scripted.tokenize('user', true)], { maxTokens: 250 });
    const nothing = run(loop, trigger(), { maxTokens: 0 });
    await ended(tokens, window, repetition, nothing);
    assert.deepEqual([tokens.ids.length, tokens.ending], [7, { type: 'length', cause: 'max-tokens' }]);
    assert.deepEqual([window.ids.length, window.ending], [6, { type: 'length', cause: 'window' }]);
    assert.deepEqual([nothing.ids.length, nothing.ending], [0, { type: 'length', cause: 'max-tokens' }]);
    assert.deepEqual(repetition.ending, { type: 'length', cause: 'repetition' });
    // The 20-gram of a cycle of two comes for the fifth time with token 20 + 4 × 2.
    assert.equal(repetition.ids.length, 100);
  });

  test('ends where its reader says', async (context) => {
    const made = run(start(context, scripted), trigger(), {
      onToken: ({ ids }) => (ids.length === 3 ? 'w2' : undefined),
    });
    await ended(made);
    assert.deepEqual(made.ending, { type: 'stop', stopSequence: 'w2' });
  });

  test('a reader that fails ends its own answer, and the log gets nothing of the text', async (context) => {
    const loop = start(context, scripted);
    const failing = run(loop, trigger(), {
      onToken: ({ ids }) => (ids.length < 3 ? undefined : (JSON.parse('secret') as undefined)),
    });
    const other = run(loop, trigger(), { maxTokens: 20 });
    await until(() => failing.ending !== undefined && other.ending !== undefined, 'both have ended');
    assert.deepEqual(failing.ending, { type: 'failed', detail: 'the reader failed: SyntaxError' });
    assert.deepEqual(other.ending, { type: 'length', cause: 'max-tokens' });
    assert.equal(other.ids.length, 20);
  });

  test('gives waiting jobs their turn in order', async (context) => {
    const order: number[] = [];
    const loop = start(context, scripted);
    const runs = Array.from({ length: 8 }, (_, index) =>
      run(loop, trigger(), {
        maxTokens: 10,
        onToken: ({ ids }) => (ids.length === 1 ? void order.push(index) : undefined),
      }),
    );
    await ended(...runs);
    for (const { ids } of runs) assert.equal(scripted.detokenize(ids), words(10).join(''));
    assert.deepEqual(order, [0, 1, 2, 3, 4, 5, 6, 7]);
  });

  test('gives the next place to the account that holds fewest', async (context) => {
    const order: string[] = [];
    const loop = start(context, scripted);
    const of = (cacheScope: string) =>
      run(loop, trigger(), {
        cacheScope,
        maxTokens: 20,
        onToken: ({ ids }) => (ids.length === 1 ? void order.push(cacheScope) : undefined),
      });
    // Two places: one account asks for ten answers, then others come.
    const runs = [...Array.from({ length: 10 }, () => of('many')), of('one'), of('two')];
    await ended(...runs);
    assert.ok(order.indexOf('one') <= 4 && order.indexOf('two') <= 5, order.join());
    assert.equal(order.length, 12);
  });

  test('goes on writing while it reads long prompts, and reads them side by side', async (context) => {
    const steps: Step[] = [];
    const loop = start(context, slow, (step) => steps.push(step));
    const writing = run(loop, someTokens(4), { maxTokens: 400, sampling: banEnd(slow) });
    await until(() => writing.ids.length > 2, 'the first is writing');
    const first = run(loop, someTokens(900), { maxTokens: 1, cacheScope: 'b' });
    const second = run(loop, someTokens(900, 41), { maxTokens: 1, cacheScope: 'c' });
    await ended(first, second);
    loop.cancel(writing.job);
    const reading = steps.filter(({ prefilled }) =>
      prefilled.some(({ job }) => job === first.job || job === second.job),
    );
    assert.ok(reading.length >= 8, `${reading.length} steps`);
    for (const { decodedTokens, prefilled } of reading) {
      assert.equal(decodedTokens, 1);
      assert.ok(prefilled.reduce((sum, { tokens }) => sum + tokens, 0) <= 127);
    }
    const stepsOf = ({ job }: Run) =>
      reading.flatMap(({ prefilled }, index) => (prefilled.some((part) => part.job === job) ? [index] : []));
    assert.ok(
      (stepsOf(second)[0] ?? Infinity) < (stepsOf(first).at(-1) ?? 0),
      'the second is read before the first is done',
    );
    for (const made of [first, second]) {
      const total = steps
        .flatMap(({ prefilled }) => prefilled.filter(({ job }) => job === made.job))
        .reduce((sum, { tokens }) => sum + tokens, 0);
      assert.equal(total, 900);
    }
  });

  test('drops a cancelled prompt after the step that is under way', async (context) => {
    const steps: Step[] = [];
    let cancelledAt: number | undefined;
    const loop = start(context, slow, (step) => {
      steps.push(step);
      // The step that ends here was the one under way.
      if (steps.length === 3 && cancelledAt === undefined) {
        cancelledAt = steps.length;
        loop.cancel(made.job);
      }
    });
    const made = run(loop, someTokens(2000));
    await ended(made);
    assert.deepEqual(made.ending, { type: 'cancelled' });
    assert.equal(steps.length, cancelledAt);
    const read = steps.flatMap(({ prefilled }) => prefilled).reduce((sum, { tokens }) => sum + tokens, 0);
    assert.ok(read < 1000, `${read} of 2000 tokens were read`);
  });

  test('goes on with a cancelled prompt where it was, though short ones of the same account came in between', async (context) => {
    const prompt = someTokens(700);
    let read = 0;
    let steps = 0;
    const loop = start(context, slow, ({ prefilled }) => {
      for (const { job, tokens } of prefilled) if (job === given.job) read += tokens;
      if (++steps === 4) loop.cancel(given.job);
    });
    const given = run(loop, prompt);
    await ended(given);
    assert.deepEqual(given.ending, { type: 'cancelled' });
    for (let index = 0; index < 6; index++)
      await ended(run(loop, [...prompt.slice(0, 3), ...someTokens(9, 60 + index)], { maxTokens: 1 }));
    const again = run(loop, prompt, { maxTokens: 1 });
    await ended(again);
    assert.ok(read >= 128, `${read} tokens were read`);
    assert.equal(again.cached, read);
  });

  test('one that comes new waits for the step that is under way, and then for small ones', async (context) => {
    const steps: Step[] = [];
    let second: Run | undefined;
    let askedAt = 0;
    const loop = start(context, slow, (step) => {
      steps.push(step);
      if (steps.length !== 6) return;
      askedAt = steps.length;
      second = run(loop, someTokens(100, 41), { maxTokens: 1, cacheScope: 'b' });
    });
    const first = run(loop, someTokens(1000), { maxTokens: 1 });
    await until(() => second !== undefined, 'the second has come');
    await ended(first, second!);
    const places = steps.map(({ prefilled }) => prefilled.map(({ job }) => job));
    const begun = places.findIndex((jobs) => jobs.includes(second!.job));
    assert.ok(begun - askedAt <= 1, `it waited for ${begun - askedAt} steps`);
    for (const { prefilled } of steps.slice(askedAt, begun))
      for (const { tokens } of prefilled) assert.ok(tokens <= 64, `a step of ${tokens} tokens`);
  });

  test('drops a cancelled job that waits or writes, and no other', async (context) => {
    const loop = start(context, scripted);
    const writing = run(loop, trigger(), {
      maxTokens: 250,
      onToken: ({ ids }) => (ids.length === 5 ? void loop.cancel(writing.job) : undefined),
    });
    const other = run(loop, trigger(), { maxTokens: 250 });
    const waiting = run(loop, trigger());
    const last = run(loop, trigger());
    loop.cancel(waiting.job);
    assert.deepEqual(waiting.ending, { type: 'cancelled' });
    await ended(writing, other, last);
    assert.deepEqual([writing.ending, writing.ids.length], [{ type: 'cancelled' }, 5]);
    assert.equal(other.ids.length, 200);
    assert.equal(last.ids.length, 32);
    assert.equal(waiting.cached, undefined);
  });

  test('passes over a job whose reader is behind, and goes on when it reads again', async (context) => {
    const loop = start(context, scripted);
    const paused = run(loop, trigger(), {
      maxTokens: 100,
      onToken: (made) => void (made.reading = made.ids.length !== 20),
    });
    const other = run(loop, trigger(), { maxTokens: 150 });
    await ended(other);
    assert.equal(paused.ids.length, 20);
    paused.reading = true;
    loop.wake();
    await ended(paused);
    assert.equal(scripted.detokenize(paused.ids), words(100).join(''));
  });

  test('shares a prefix inside a scope, and never outside of it', async (context) => {
    const loop = start(context, random);
    const prompt = someTokens(60);
    const once = async (tokens: readonly number[], cacheScope: string, retain = true) => {
      const made = run(loop, tokens, { cacheScope, retain, maxTokens: 8 });
      await ended(made);
      return made;
    };
    const first = await once(prompt, 'a');
    assert.equal(first.cached, 0);
    const again = await once(prompt, 'a');
    assert.equal(again.cached, 59, 'all but the last, whose logits are needed');
    assert.deepEqual(again.ids, first.ids, 'the same text from the cache');
    assert.equal((await once([...prompt.slice(0, 50), 99, 98], 'a')).cached, 50);
    // Six more scopes than slots: every slot is used by somebody else in between.
    for (const scope of ['b', 'c', 'd', 'e', 'f', 'g']) assert.equal((await once(prompt, scope)).cached, 0, scope);
    assert.equal((await once(prompt, 'a')).cached, 0);
    assert.equal((await once(prompt, 'a')).cached, 59);
  });

  test('reads a long prompt once for several answers to it, and short ones side by side', async (context) => {
    const steps: Step[] = [];
    const loop = start(context, random, (step) => steps.push(step));
    const read = async (promptTokens: number, maxTokens: number, first: number) => {
      const group = {};
      const prompt = someTokens(promptTokens, first);
      steps.length = 0;
      const runs = [1, 2, 3].map(() =>
        run(loop, prompt, { group, maxTokens, cacheScope: String(first), sampling: banEnd(random) }),
      );
      await ended(...runs);
      return steps.flatMap(({ prefilled }) => prefilled).reduce((sum, { tokens }) => sum + tokens, 0);
    };
    assert.equal(await read(100, 20, 30), 102, 'the last token again for each of the others');
    assert.equal(await read(20, 20, 45), 60);
  });

  test('says what it is made to say, and keeps to a grammar from where the reader says so', async (context) => {
    const grammar = random.createGrammar('root ::= "x" [yz] "x"');
    const opening = [...random.tokenize('The', false)];
    const loop = start(context, random);
    const made = run(loop, someTokens(10), {
      opening,
      constraint: { grammar, from: 'opening' },
      sampling: settings(),
    });
    await ended(made);
    assert.match(random.detokenize(made.ids), /^Thex[yz]x$/);
    assert.deepEqual(made.ending, { type: 'stop' });
  });

  test('writes answers in slots beside each other, in their order', async (context) => {
    const batches: number[][] = [];
    const model: LlamaModel = {
      ...wide,
      beginBatch: (tokens) => {
        batches.push([]);
        wide.beginBatch(tokens);
      },
      addToBatch: (slot, position, tokens, sampled) => {
        batches.at(-1)?.push(slot);
        return wide.addToBatch(slot, position, tokens, sampled);
      },
    };
    const loop = start(context, model);
    // Each of these stays in its slot after two tokens until it is read again.
    const held = (first: number): Run =>
      run(loop, someTokens(8, first), {
        maxTokens: 6,
        retain: false,
        sampling: banEnd(wide),
        onToken: (made) => void (made.reading = made.ids.length !== 2),
      });
    const over = (first: number): Run =>
      run(loop, someTokens(8, first), { maxTokens: 2, retain: false, sampling: banEnd(wide) });
    const areHeld = (...runs: Run[]) => until(() => runs.every(({ reading }) => !reading), 'they are held');
    const [a, b, c, d] = [held(40), over(41), held(42), over(43)];
    await ended(b, d);
    await areHeld(a, c);
    const [e, f] = [held(44), held(45)];
    await areHeld(e, f);
    batches.length = 0;
    for (const each of [a, c, e, f]) each.reading = true;
    loop.wake();
    await ended(a, c, e, f);
    const slots = [...new Set(batches.flat())].sort((one, other) => one - other);
    assert.deepEqual(slots, [0, 1, 2, 3]);
    for (const batch of batches)
      assert.deepEqual(
        batch,
        batch.toSorted((one, other) => one - other),
      );
  });

  test('takes nothing from the cache and leaves nothing in it when nothing may be retained', async (context) => {
    const loop = start(context, random);
    const prompt = someTokens(60, 30);
    const once = async (retain: boolean) => {
      const made = run(loop, prompt, { cacheScope: 'z', retain, maxTokens: 4 });
      await ended(made);
      return made.cached;
    };
    assert.equal(await once(false), 0);
    for (let slot = 0; slot < random.facts.slots; slot++) assert.equal(random.cachedTokens(slot), 0, `slot ${slot}`);
    assert.equal(await once(true), 0);
    assert.equal(await once(false), 0);
    assert.equal(await once(true), 59, 'what was retained is still there');
  });

  test('leaves nothing of a cancelled job that may not be retained', async (context) => {
    const loop = start(context, random);
    const made = run(loop, someTokens(60), {
      retain: false,
      sampling: banEnd(random),
      maxTokens: 400,
      onToken: ({ ids }) => (ids.length === 3 ? void loop.cancel(made.job) : undefined),
    });
    await ended(made);
    for (let slot = 0; slot < random.facts.slots; slot++) assert.equal(random.cachedTokens(slot), 0);
  });

  test('keeps two conversations of one scope in two slots, though they begin alike', async (context) => {
    const loop = start(context, random);
    const template = someTokens(4);
    const [one, two] = [
      [...template, ...someTokens(60, 50)],
      [...template, ...someTokens(60, 70)],
    ];
    for (const prompt of [one, two]) await ended(run(loop, prompt, { maxTokens: 2 }));
    for (const prompt of [one, two]) {
      const made = run(loop, prompt, { maxTokens: 2 });
      await ended(made);
      assert.equal(made.cached, 63);
    }
  });

  test('fails the jobs of a step that llama.cpp could not do, and serves the next', async (context) => {
    let failing = 0;
    let brokenCalls = 0;
    const model: LlamaModel = {
      ...random,
      decode: (threads) => (failing-- > 0 ? Promise.reject(new Error('Eval has failed')) : random.decode(threads)),
    };
    const loop = start(context, model, undefined, () => brokenCalls++);
    failing = 1;
    const doomed = run(loop, someTokens(20));
    await ended(doomed);
    assert.deepEqual(doomed.ending, { type: 'failed', detail: 'Eval has failed' });
    const next = run(loop, someTokens(20), { maxTokens: 3, sampling: banEnd(random) });
    await ended(next);
    assert.deepEqual([next.cached, next.ids.length, brokenCalls], [0, 3, 0]);
    failing = 3;
    for (let count = 0; count < 3; count++) await ended(run(loop, someTokens(20)));
    assert.equal(brokenCalls, 1);
  });

  test('leaves steps to another thread for a while after one that was given up in this one', async (context) => {
    const tried: number[] = [];
    let steps = 0;
    const crowded: LlamaModel = {
      ...random,
      decode: (threads, hereMs = 0) => {
        steps++;
        if (hereMs > 0) tried.push(performance.now());
        return random.decode(threads);
      },
    };
    const job = run(start(context, crowded), someTokens(8), { maxTokens: 40, sampling: oftenRandom() });
    await until(() => job.ending !== undefined, 'it has ended');
    assert.ok(steps >= 40, `${steps}`);
    assert.ok(tried.length > 0);
    for (const [index, at] of tried.slice(1).entries())
      assert.ok(at - tried[index]! >= 3000, `${at - tried[index]!} ms`);
  });

  test('does background tasks one a step while it works, and at once when it does not', async (context) => {
    const loop = start(context, scripted);
    const done: number[] = [];
    const made = run(loop, trigger(), {
      maxTokens: 100,
      onToken: ({ ids }) =>
        ids.length === 10
          ? void [1, 2, 3].forEach((backgroundTask) =>
              loop.backgroundTask(
                backgroundTask,
                once(() => done.push(backgroundTask, ids.length)),
              ),
            )
          : undefined,
    });
    await ended(made);
    assert.deepEqual(
      done.filter((_, index) => index % 2 === 0),
      [1, 2, 3],
    );
    const at = done.filter((_, index) => index % 2 === 1);
    assert.deepEqual([(at[1] ?? 0) - (at[0] ?? 0), (at[2] ?? 0) - (at[1] ?? 0)], [1, 1]);
    loop.backgroundTask(
      5,
      once(() => done.push(5)),
    );
    loop.backgroundTask(
      4,
      once(() => done.push(4)),
    );
    loop.dropBackgroundTask(5);
    await until(() => done.at(-1) === 4, 'the last task');
    assert.ok(!done.includes(5), 'what is dropped is not done');
    assert.equal(loop.working, 0);
  });

  test('does a long background task in pieces, and others between them', async (context) => {
    const done: string[] = [];
    const loop = start(context, scripted);
    const long = function* (name: string): Generator<void> {
      for (let piece = 0; piece < 3; piece++) {
        done.push(`${name}${piece}`);
        yield;
      }
    };
    loop.backgroundTask(1, long('a'));
    loop.backgroundTask(2, long('b'));
    loop.backgroundTask(3, long('c'));
    loop.dropBackgroundTask(3);
    await until(() => done.length === 6, 'both tasks');
    assert.deepEqual(done, ['a0', 'b0', 'a1', 'b1', 'a2', 'b2']);
  });

  test('ends everything when it is closed', async (context) => {
    const loop = start(context, scripted);
    const runs = Array.from({ length: 5 }, () => run(loop, trigger(), { maxTokens: 250 }));
    await loop.close();
    for (const { ending } of runs) assert.deepEqual(ending, { type: 'cancelled' });
  });
});

const settings = () => samplingSettings({ ...openSampling, seed: 3 }, undefined, 0, () => 1);

/** Random weights may end an answer at any moment: this one may not. */
function banEnd(model: LlamaModel) {
  const ends = Array.from({ length: model.facts.vocabularySize }, (_, id) => id).filter((id) =>
    model.isEndOfGeneration(id),
  );
  return samplingSettings(
    { ...openSampling, seed: 3 },
    Object.fromEntries(ends.map((id) => [String(id), -100])),
    0,
    () => 1,
  );
}

/** A background task of one piece. */
function once(work: () => unknown): Iterator<void> {
  return {
    next: () => {
      work();
      return { done: true, value: undefined };
    },
  };
}
