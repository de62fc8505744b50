/** The order in which two tries of a request may end, each caused by hand. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { GenerationBatch, TakeBatch } from '../../../src/generation/event.ts';
import { hedge, type Runner } from '../../../src/inference/pipeline/hedge.ts';
import { StopSlot, type StopSignal } from '../../../src/platform/stop-signal.ts';
import { until } from '../../support/service.ts';

const start = (promptTokens: number): GenerationBatch => [{ type: 'start', promptTokens }];
const text = (said: string): GenerationBatch => [{ type: 'text', choice: 0, text: said }];
const saidIn = (batches: readonly GenerationBatch[]): readonly string[] =>
  batches
    .flat()
    .map((event) =>
      event.type === 'text' ? event.text : event.type === 'start' ? `start ${event.promptTokens}` : event.type,
    );

/** A try that a test plays; it is over when it is stopped, as an engine's is. */
class Played implements Runner {
  take: TakeBatch | undefined;
  end: (error?: Error) => void = () => {};
  readonly notes: string[] = [];

  generate(signal: StopSignal, take: TakeBatch): Promise<void> {
    this.take = take;
    return new Promise((resolve, reject) => {
      this.end = (error) => (error === undefined ? resolve() : reject(error));
      signal.addEventListener('abort', () => reject(new Error(`stopped: ${String(signal.reason)}`)));
    });
  }

  slower(): void {
    this.notes.push('slower');
  }

  ended(failed: { readonly error: unknown } | undefined): void {
    this.notes.push(failed === undefined ? 'ended' : `failed: ${(failed.error as Error).message}`);
  }
}

function race(afterMs = 0) {
  const [first, second] = [new Played(), new Played()];
  const signal = new StopSlot<string>();
  const taken: GenerationBatch[] = [];
  const wins: Played[] = [];
  const over = hedge(first, {
    signal,
    take: (batch) => taken.push(batch) > 0,
    hasContent: (batch) => batch.some(({ type }) => type === 'text'),
    afterMs,
    second: () => second,
    secondWins: (member) => wins.push(member),
  });
  // A rejection is looked at by each test.
  over.catch(() => {});
  return { first, second, signal, taken, wins, over, both: () => until(() => second.take !== undefined) };
}

test('only what the winner says is taken, from its beginning; what the other says before or after is not', async () => {
  const { first, second, taken, wins, over, both } = race();
  await both();
  await first.take!(start(1));
  await second.take!(start(2));
  await second.take!(text('two'));
  assert.equal(await first.take!(text('one')), false);
  await second.take!(text('more'));
  second.end();
  await over;
  assert.deepEqual(saidIn(taken), ['start 2', 'two', 'more']);
  assert.deepEqual([wins, first.notes, second.notes], [[second], ['slower', 'ended'], []]);
});

test('the first wins after all: the second is stopped, and the rest is as without it', async () => {
  const { first, second, taken, wins, over, both } = race();
  await both();
  await first.take!(text('one'));
  first.end();
  await over;
  assert.deepEqual([saidIn(taken), wins, first.notes, second.notes], [['one'], [], [], ['slower', 'ended']]);
});

test('a first that gives text or fails before its time is up has no second', async () => {
  const quick = race(600_000);
  await quick.first.take!(text('one'));
  quick.first.end();
  await quick.over;
  const failing = race(600_000);
  failing.first.end(new Error('one'));
  await assert.rejects(failing.over, /^Error: one$/);
  for (const { second, first } of [quick, failing]) assert.deepEqual([second.take, first.notes], [undefined, []]);
});

test("one fails and the other wins: the outcome is the winner's, and the other is told what it failed with", async () => {
  for (const which of ['first', 'second'] as const) {
    const one = race();
    await one.both();
    const [failing, other] = which === 'first' ? [one.first, one.second] : [one.second, one.first];
    failing.end(new Error('broken'));
    await until(() => which === 'first' || failing.notes.length > 0);
    await other.take!(text('other'));
    other.end();
    await one.over;
    assert.deepEqual([saidIn(one.taken), failing.notes, other.notes], [['other'], ['failed: broken'], []]);
  }
});

test('both fail, in either order: the first one decides, and the second is told', async () => {
  for (const order of ['first', 'second'] as const) {
    const { first, second, over, both } = race();
    await both();
    const errors = [() => first.end(new Error('one')), () => second.end(new Error('two'))];
    for (const fail of order === 'first' ? errors : errors.toReversed()) fail();
    await assert.rejects(over, /^Error: one$/);
    assert.deepEqual([first.notes, second.notes], [[], ['failed: two']]);
  }
});

test('a winner that fails in mid-answer is the failure: the other does not go on', async () => {
  const { first, second, over, both } = race();
  await both();
  await second.take!(text('two'));
  second.end(new Error('broken off'));
  await assert.rejects(over, /broken off/);
  await until(() => first.notes.length === 2);
  assert.deepEqual([first.notes, second.notes], [['slower', 'ended'], []]);
});

test('the end of the request stops both', async () => {
  const { first, second, signal, over, both } = race();
  await both();
  signal.stop('client-left');
  await assert.rejects(over, /stopped: client-left/);
  assert.deepEqual([first.notes, second.notes], [[], ['failed: stopped: client-left']]);
});
