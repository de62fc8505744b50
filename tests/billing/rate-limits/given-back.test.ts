/**
 * What is acquired is released: however the reader of a run ends, and whenever, its slot, its hold and its backend are
 * free again, its row is there once, and the money adds up (architecture, "Every ending settles once").
 */
import fc from 'fast-check';
import assert from 'node:assert/strict';
import { test } from 'node:test';

import type { ScriptSettings } from '../../../src/inference/engines/scripted/script-schema.ts';
import type { TakeBatch } from '../../../src/generation/event.ts';
import { balanceOf, customer, differencesOf } from '../../store/fixture.ts';
import { requestOf, servicesFor } from '../../inference/pipeline/runs.ts';
import { openCounter } from '../bills.ts';

/** As the cancellations from outside, and none. */
const reasons = ['client-left', 'reader-stalled', 'revoked', 'drain', 'deadline', 'lost'] as const;
const endingOf = {
  'client-left': 'client_left',
  'reader-stalled': 'reader_stalled',
  revoked: 'revoked',
  drain: 'drained',
  cancelled: 'cancelled',
  deadline: 'deadline',
  lost: 'lost',
} as const;

type Reader = ReaderKind & {
  /** Takes each batch in a later turn. */
  readonly isSlow: boolean;
};

type ReaderKind =
  /** Never begins: nothing is ever acquired. */
  | { readonly does: 'nothing' }
  /** Is gone when the first batch comes, or after some milliseconds without one. */
  | { readonly does: 'peek'; readonly limitMs: number; readonly abortsFirst: boolean }
  /** Takes this many batches, the last of them while it goes away. */
  | { readonly does: 'leave'; readonly atBatch: number }
  /** Takes this many batches; then the request is cancelled, while the next one is awaited or before. */
  | {
      readonly does: 'cancel';
      readonly afterBatches: number;
      readonly reason: (typeof reasons)[number];
      readonly whileWaiting: boolean;
    }
  | { readonly does: 'read' };

const kind: fc.Arbitrary<ReaderKind> = fc.oneof(
  fc.constant({ does: 'nothing' } as const),
  fc.record({ does: fc.constant('peek' as const), limitMs: fc.constantFrom(0, 5, 1_000), abortsFirst: fc.boolean() }),
  fc.record({ does: fc.constant('leave' as const), atBatch: fc.integer({ min: 1, max: 4 }) }),
  fc.record({
    does: fc.constant('cancel' as const),
    afterBatches: fc.nat(4),
    reason: fc.constantFrom(...reasons),
    whileWaiting: fc.boolean(),
  }),
  fc.constant({ does: 'read' } as const),
);

const reader: fc.Arbitrary<Reader> = fc
  .tuple(kind, fc.boolean())
  .map(([does, isSlow]): Reader => ({ ...does, isSlow }));

/** Scripts end well, at once or later, or fail, at once or later; none of them is ever silent for long. */
const script: fc.Arbitrary<ScriptSettings> = fc
  .record({
    repeat: fc.constantFrom(1, 3, 600),
    pace_ms: fc.constantFrom(0, 0, 1),
    first_token_ms: fc.constantFrom(0, 0, 10),
    fault: fc.option(
      fc.record({ after_tokens: fc.constantFrom(0, 2), type: fc.constantFrom('cut' as const, 'error' as const) }),
    ),
  })
  .map(({ fault, ...rest }) => ({ say: [{ text: ['word '] }], ...rest, ...(fault === null ? {} : { fault }) }));

test('whatever a reader does, nothing is left, and every request that had a hold is recorded once', async (t) => {
  const counter = await openCounter(t);
  let runs = 0;
  await fc.assert(
    fc.asyncProperty(script, fc.array(reader, { minLength: 1, maxLength: 8 }), async (settings, readers) => {
      const accountId = `acct_${runs++}`;
      const credit = 1_000_000n;
      await customer(counter.store, accountId, credit);
      const service = servicesFor(settings, counter);
      await Promise.all(readers.map((reader) => play(reader, accountId, service)));

      assert.equal(service.limits.running, 0, 'slots');
      assert.equal(service.backend.running, 0, 'requests at the backend');
      assert.equal(counter.billing.openHolds, 0, 'holds');
      const rows = await counter.store.repositories.listUsage({ accountId });
      const held = readers.filter(({ does }) => does !== 'nothing').length;
      assert.equal(rows.length, held);
      assert.deepEqual(
        service.ended.map(({ ending }) => ending).toSorted(),
        rows.map(({ ending }) => ending).toSorted(),
      );
      const balance = credit - rows.reduce((sum, { costMicrocents }) => sum + costMicrocents, 0n);
      assert.equal(await balanceOf(counter.store, accountId), balance);
      assert.equal(counter.billing.freeMicrocents(accountId) ?? credit, balance);
    }),
    { numRuns: 150 },
  );
  assert.deepEqual(await differencesOf(counter.file), []);
});

test('a reader that is gone at the first batch pays what was produced, and everything is released', async (t) => {
  const counter = await openCounter(t);
  await customer(counter.store, 'acct_gone', 1_000_000n);
  const service = servicesFor({ say: [{ text: ['word '] }], repeat: 600 }, counter);
  await play({ does: 'peek', limitMs: 1_000, abortsFirst: true, isSlow: false }, 'acct_gone', service);
  const [row] = await counter.store.repositories.listUsage({ accountId: 'acct_gone' });
  assert.deepEqual([row?.ending, row?.completionTokens], ['client_left', 256]);
  assert.deepEqual([service.limits.running, counter.billing.openHolds], [0, 0]);
});

/** One request from its order to its end, as `http` runs it. */
async function play(reader: Reader, accountId: string, services: ReturnType<typeof servicesFor>): Promise<void> {
  const cancelled = new AbortController();
  let ends = 0;
  const begin = await requestOf(services, accountId, cancelled.signal, { ended: () => ends++ });
  await read(reader, begin, cancelled).catch((error: unknown) => {
    // What a script fails with, and what a cancelled request gets; a broken promise of our own has another name.
    assert.ok(error instanceof Error && error.name === 'ApiError', String(error));
  });
  assert.equal(ends, reader.does === 'nothing' ? 0 : 1);
  if (reader.does === 'cancel' && cancelled.signal.aborted && services.ended.length === 1) {
    assert.ok([endingOf[reader.reason], 'failed', 'finished'].includes(services.ended[0]!.ending));
  }
}

async function read(
  reader: Reader,
  begin: (deliver: TakeBatch) => Promise<void>,
  cancelled: AbortController,
): Promise<void> {
  let batches = 0;
  let isGone = false;
  const running = (take: () => boolean): Promise<void> =>
    begin((batch) => {
      assert.ok(batch.length > 0, 'a batch is never empty');
      assert.ok(!isGone, 'nothing is delivered to a reader that is gone');
      batches++;
      const goesOn = take();
      isGone = !goesOn;
      return reader.isSlow ? new Promise((resolve) => setImmediate(resolve, goesOn)) : goesOn;
    });
  switch (reader.does) {
    case 'nothing':
      return;
    case 'peek': {
      const timer = setTimeout(() => cancelled.abort('client-left'), reader.limitMs);
      await running(() => {
        clearTimeout(timer);
        if (reader.abortsFirst) cancelled.abort('client-left');
        return false;
      }).finally(() => clearTimeout(timer));
      return;
    }
    case 'leave':
      await running(() => batches < reader.atBatch);
      return;
    case 'cancel': {
      let later = 0;
      const cancel = (): void => {
        later = 1;
        cancelled.abort(reader.reason);
      };
      const cancelNow = (): void => {
        if (reader.whileWaiting) setImmediate(cancel);
        else cancel();
      };
      if (reader.afterBatches === 0) cancelNow();
      await running(() => {
        // Whatever was on its way may still arrive once; then it is over.
        if (later > 0) assert.ok(later++ <= 3);
        if (batches === reader.afterBatches) cancelNow();
        return true;
      });
      return;
    }
    case 'read':
      await running(() => true);
  }
}
