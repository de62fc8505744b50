import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { slowness } from '../../support/busy.ts';
import { ApiError } from '../../../src/platform/errors.ts';
import type { Engine } from '../../../src/inference/engines/engine.ts';
import type { GenerationBatch, GenerationEvent } from '../../../src/generation/event.ts';
import type { EngineRequest } from '../../../src/generation/request.ts';
import { pull } from './pull.ts';

/** An engine with a backend that behaves, and requests whose course is known. */
export interface ContractEngine {
  readonly engine: Engine;
  /** Ends by itself, within a second, after at least two tokens. */
  readonly brief: EngineRequest;
  /** The same with two choices; `undefined`: the engine answers one at a time. */
  readonly twoChoices: EngineRequest | undefined;
  /** Begins to write and goes on for longer than any test waits. */
  readonly endless: EngineRequest;
  /** Writes no text for longer than any test waits; its `start` may come. */
  readonly silent: EngineRequest;
  /** Begins to write; then its backend ends without a finish. `undefined`: this backend cannot be made to. */
  readonly broken: EngineRequest | undefined;
  /** For a backend whose requests cannot make it end: called once, when `broken` has begun to write. */
  breakBackend?(): void;
  /** How many generations the backend is working on. */
  working(): number | Promise<number>;
  dispose(): Promise<void>;
}

/** The promises of `src/inference/engines/engine.ts`, for any engine. `stopWithinMs`: 100 ms, or what a prefill chunk takes. */
export function engineContract(name: string, make: () => Promise<ContractEngine>, stopWithinMs = 100): void {
  const withEngine = (act: (subject: ContractEngine) => Promise<void>) => async (): Promise<void> => {
    const subject = await make();
    try {
      await act(subject);
    } finally {
      await subject.dispose();
    }
  };

  describe(`${name} keeps the promises of an engine`, { timeout: 600_000 }, () => {
    it(
      'starts with start, finishes every choice, returns, and says the usage',
      withEngine(async ({ engine, brief }) => {
        const batches = await all(engine, brief, new AbortController().signal);
        assertWhole(batches, 1);
      }),
    );

    it(
      'finishes each of two choices',
      withEngine(async ({ engine, twoChoices }) => {
        if (twoChoices === undefined) return;
        const batches = await all(engine, twoChoices, new AbortController().signal);
        assertWhole(batches, 2);
      }),
    );

    it(
      'serves one request after the other and several at once',
      withEngine(async ({ engine, brief, working }) => {
        const run = (id: string): Promise<GenerationBatch[]> =>
          all(engine, { ...brief, id }, new AbortController().signal);
        const first = textOf(await run(id(1)));
        assert.equal(textOf(await run(id(2))), first);
        const texts = (await Promise.all([3, 4, 5].map((i) => run(id(i))))).map(textOf);
        assert.deepEqual(texts, [first, first, first]);
        await stopped(working, 5_000);
      }),
    );

    it(
      'rejects with the reason of a signal that was aborted before',
      withEngine(async ({ engine, brief, working }) => {
        const reason = new Error('left before');
        await assert.rejects(all(engine, brief, AbortSignal.abort(reason)), (error) => error === reason);
        assert.equal(await working(), 0);
      }),
    );

    it(
      'rejects a pending read at once when the signal aborts before the first text, and stops the work',
      withEngine(async ({ engine, silent, working }) => {
        const abort = new AbortController();
        // An engine may tell the prompt's length before it reads it: that is not the answer yet.
        const read = (async () => {
          for await (const batch of pull(engine, silent, abort.signal))
            assert.deepEqual(new Set(batch.map(({ type }) => type)), new Set(['start']), 'no text comes');
        })();
        read.catch(() => {});
        await started(working);
        const reason = new Error('left early');
        const atMs = performance.now();
        abort.abort(reason);
        await assert.rejects(read, (error) => error === reason);
        assert.ok(performance.now() - atMs < 50 * slowness, 'the read was rejected at once');
        await stopped(working, stopWithinMs);
      }),
    );

    it(
      'rejects a pending read when the signal aborts in the middle, and stops the work',
      withEngine(async ({ engine, endless, working }) => {
        const abort = new AbortController();
        const iterator = pull(engine, endless, abort.signal);
        const first = await iterator.next();
        assert.equal(first.value?.[0]?.type, 'start');
        const reason = new Error('left in the middle');
        const rest = (async () => {
          while (!(await iterator.next()).done);
        })();
        rest.catch(() => {});
        abort.abort(reason);
        await assert.rejects(rest, (error) => error === reason);
        await stopped(working, stopWithinMs);
      }),
    );

    it(
      'stops the work on abort when nobody reads',
      withEngine(async ({ engine, endless, working }) => {
        const abort = new AbortController();
        const iterator = pull(engine, endless, abort.signal);
        await iterator.next();
        const reason = new Error('left while nobody read');
        abort.abort(reason);
        await stopped(working, stopWithinMs);
        await assert.rejects(
          async () => {
            // Batches that were read before the abort may still come.
            while (!(await iterator.next()).done);
          },
          (error) => error === reason,
        );
      }),
    );

    it(
      'stops the work when the reader leaves the loop',
      withEngine(async ({ engine, endless, working }) => {
        for await (const batch of pull(engine, endless, new AbortController().signal)) {
          assert.ok(batch.length > 0);
          break;
        }
        await stopped(working, stopWithinMs);
      }),
    );

    it(
      'throws an ApiError when the backend ends early',
      withEngine(async ({ engine, broken, breakBackend, working }) => {
        if (broken === undefined) return;
        let writes = false;
        const batches: GenerationBatch[] = [];
        await assert.rejects(
          async () => {
            for await (const batch of pull(engine, broken, new AbortController().signal)) {
              batches.push(batch);
              if (writes || !batch.some(({ type }) => type === 'text')) continue;
              writes = true;
              breakBackend?.();
            }
          },
          (error) => error instanceof ApiError && /^(backend_|no_healthy_backends)/.test(error.code),
        );
        assert.equal(batches[0]?.[0]?.type, 'start');
        assert.ok(!batches.flat().some((event) => event.type === 'finish'));
        await stopped(working, stopWithinMs);
      }),
    );

    it(
      'hands over one batch at a time, also to a reader that takes its time',
      withEngine(async ({ engine, brief }) => {
        const batches: GenerationBatch[] = [];
        let taking = 0;
        await engine.generate(brief, new AbortController().signal, async (batch) => {
          assert.equal(taking++, 0, 'the next batch waits for this one');
          await new Promise((resolve) => setImmediate(resolve));
          taking--;
          return batches.push(batch) > 0;
        });
        assertWhole(batches, 1);
        const atOnce: GenerationBatch[] = [];
        await engine.generate(brief, new AbortController().signal, (batch) => atOnce.push(batch) > 0);
        assertWhole(atOnce, 1);
        assert.equal(textOf(atOnce), textOf(batches));
      }),
    );

    it(
      'stops the work when the reader wants no more, at once or in a while, or throws',
      withEngine(async ({ engine, endless, working }) => {
        const { signal } = new AbortController();
        let calls = 0;
        const refusing = (): boolean => ++calls === 0;
        await engine.generate(endless, signal, refusing);
        await stopped(working, stopWithinMs);
        await engine.generate(endless, signal, () => Promise.resolve(refusing()));
        await stopped(working, stopWithinMs);
        const failure = new Error('of the reader');
        const failing = (): never => {
          calls++;
          throw failure;
        };
        const isFailure = (error: unknown): boolean => error === failure;
        await assert.rejects(engine.generate(endless, signal, failing), isFailure);
        await stopped(working, stopWithinMs);
        await assert.rejects(
          engine.generate(endless, signal, async () => failing()),
          isFailure,
        );
        await stopped(working, stopWithinMs);
        assert.equal(calls, 4, 'none is called again');
      }),
    );

    it(
      'rejects with the reason when the signal aborts, between two batches and during one',
      withEngine(async ({ engine, endless, silent, working }) => {
        const reason = new Error('left');
        const isReason = (error: unknown): boolean => error === reason;
        await assert.rejects(
          engine.generate(silent, AbortSignal.abort(reason), () => true),
          isReason,
        );
        const between = new AbortController();
        const read = engine.generate(silent, between.signal, () => true);
        read.catch(() => {});
        await started(working);
        between.abort(reason);
        await assert.rejects(read, isReason);
        await stopped(working, stopWithinMs);
        for (const isSlow of [false, true]) {
          const during = new AbortController();
          const aborting = (): boolean | Promise<boolean> => {
            during.abort(reason);
            return isSlow ? Promise.resolve(true) : true;
          };
          await assert.rejects(engine.generate(endless, during.signal, aborting), isReason);
          await stopped(working, stopWithinMs);
        }
      }),
    );

    it(
      'counts the prompt that it then reports, where it can count',
      withEngine(async ({ engine, brief }) => {
        const counted = await engine.countTokens(brief, new AbortController().signal);
        if (counted === undefined) return;
        const batches = await all(engine, brief, new AbortController().signal);
        assert.equal(lastUsage(batches)?.usage.promptTokens, counted);
      }),
    );

    it(
      'ends what runs and takes no more after close',
      withEngine(async ({ engine, endless, brief, working }) => {
        assert.equal(engine.status().state, 'ready');
        const iterator = pull(engine, endless, new AbortController().signal);
        await iterator.next();
        const rest = (async () => {
          while (!(await iterator.next()).done);
        })();
        rest.catch(() => {});
        await engine.close();
        await assert.rejects(rest, (error) => error instanceof ApiError);
        await stopped(working, 2_000);
        assert.equal(engine.status().state, 'down');
        await assert.rejects(
          all(engine, brief, new AbortController().signal),
          (error) => error instanceof ApiError && error.code === 'no_healthy_backends',
        );
        await engine.close();
      }),
    );
  });
}

/** A request of one user message, for tests of engines. */
export function engineRequest(text: string, more: Partial<EngineRequest> = {}): EngineRequest {
  return {
    id: id(0),
    prompt: { type: 'messages', messages: [{ role: 'user', content: [{ type: 'text', text }] }] },
    choices: 1,
    maxTokens: 100_000,
    sampling: {
      temperature: undefined,
      topP: undefined,
      topK: undefined,
      minP: undefined,
      presencePenalty: undefined,
      frequencyPenalty: undefined,
      repetitionPenalty: undefined,
      seed: undefined,
    },
    stop: [],
    tools: [],
    toolChoice: { type: 'auto' },
    parallelToolCalls: true,
    constraint: undefined,
    effort: 'none',
    reasoningForm: 'separate',
    reasoningRoomTokens: 0,
    logprobs: undefined,
    logitBias: undefined,
    cacheScope: 'account-1',
    retain: true,
    ...more,
  };
}

/** All batches of an answer. */
export async function all(
  engine: Pick<Engine, 'generate'>,
  request: EngineRequest,
  signal: AbortSignal,
): Promise<GenerationBatch[]> {
  const batches: GenerationBatch[] = [];
  await engine.generate(request, signal, (batch) => batches.push(batch) > 0);
  return batches;
}

/** The visible text of the first choice. */
export function textOf(batches: readonly GenerationBatch[]): string {
  return batches
    .flat()
    .map((event) => (event.type === 'text' && event.choice === 0 ? event.text : ''))
    .join('');
}

export function lastUsage(
  batches: readonly GenerationBatch[],
): Extract<GenerationEvent, { type: 'usage' }> | undefined {
  return batches.flat().findLast((event) => event.type === 'usage');
}

function assertWhole(batches: readonly GenerationBatch[], choices: number): void {
  for (const batch of batches) assert.ok(batch.length > 0, 'no batch is empty');
  const events = batches.flat();
  assert.equal(events[0]?.type, 'start');
  assert.equal(events.filter((event) => event.type === 'start').length, 1);
  for (let choice = 0; choice < choices; choice++) {
    const own = events.filter((event) => 'choice' in event && event.choice === choice);
    assert.equal(own.at(-1)?.type, 'finish', `the last event of choice ${choice} is its finish`);
    assert.equal(own.filter((event) => event.type === 'finish').length, 1);
    assert.ok(own.length > 1, `choice ${choice} says something`);
  }
  assert.ok(events.every((event) => !('choice' in event) || event.choice < choices));
  const usage = lastUsage(batches)?.usage;
  assert.ok(usage !== undefined, 'usage is said');
  const { promptTokens, cachedTokens, completionTokens, reasoningTokens } = usage;
  for (const count of [promptTokens ?? 0, cachedTokens, completionTokens, reasoningTokens]) {
    assert.ok(Number.isSafeInteger(count) && count >= 0);
  }
  assert.ok(cachedTokens <= (promptTokens ?? 0));
  assert.ok(reasoningTokens <= completionTokens);
}

function id(number: number): string {
  return `0198f00000007000${number.toString(16).padStart(16, '0')}`;
}

async function started(working: ContractEngine['working']): Promise<void> {
  await reach('the backend works', working, (count) => count > 0, 5_000);
}

async function stopped(working: ContractEngine['working'], withinMs: number): Promise<void> {
  await reach('the backend has stopped', working, (count) => count === 0, withinMs);
}

async function reach(
  what: string,
  working: ContractEngine['working'],
  holds: (count: number) => boolean,
  withinMs: number,
): Promise<void> {
  const deadlineMs = performance.now() + withinMs * slowness;
  for (;;) {
    if (holds(await working())) return;
    // Asked once more after the deadline: on a busy machine the asking may be what was late.
    if (performance.now() > deadlineMs) break;
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
  assert.ok(holds(await working()), `${what} within ${withinMs} ms`);
}
