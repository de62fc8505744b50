/**
 * Whoever acquires gives back: however the reader of a run ends, and whenever, its slot, its hold and its backend are
 * free again, its row is there once, and the money adds up (architecture, "Every ending settles once").
 */
import fc from 'fast-check';
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Catalog } from '../../src/catalog/catalog.ts';
import { textCapabilities } from '../../src/catalog/model.ts';
import { chat } from '../../src/dialects/chat/chat.ts';
import { scriptRule } from '../../src/engines/scripted/script-schema.ts';
import type { ScriptSettings } from '../../src/engines/scripted/script-schema.ts';
import { createScriptedEngine } from '../../src/engines/scripted/scripted-engine.ts';
import type { GenerationStream } from '../../src/generation/event.ts';
import { Concurrency } from '../../src/limits/concurrency.ts';
import type { Backend } from '../../src/pipeline/dispatch.ts';
import { prime } from '../../src/pipeline/prime.ts';
import { run } from '../../src/pipeline/run.ts';
import { serve } from '../../src/pipeline/serve.ts';
import { openCounter, prices } from '../billing/bills.ts';
import type { Counter } from '../billing/bills.ts';
import { balanceOf, customer, differencesOf, uuid } from '../store/fixture.ts';

/** As the cancellations from outside, and none. */
const reasons = ['client-left', 'reader-stalled', 'revoked', 'drain', 'deadline'] as const;
const endingOf = {
  'client-left': 'client_left',
  'reader-stalled': 'reader_stalled',
  revoked: 'revoked',
  drain: 'drained',
  deadline: 'deadline',
} as const;

type Reader =
  /** Never asks for the first batch: nothing is ever acquired. */
  | { readonly does: 'nothing' }
  /** Waits for the first batch, or some milliseconds, and goes away. */
  | { readonly does: 'prime'; readonly limitMs: number; readonly abortsFirst: boolean }
  /** Reads so many batches, then leaves its loop. */
  | { readonly does: 'leave'; readonly afterBatches: number }
  /** Reads so many batches; then the request is cancelled, while the next one is awaited or before. */
  | {
      readonly does: 'cancel';
      readonly afterBatches: number;
      readonly reason: (typeof reasons)[number];
      readonly whileWaiting: boolean;
    }
  | { readonly does: 'read' };

const reader: fc.Arbitrary<Reader> = fc.oneof(
  fc.constant({ does: 'nothing' } as const),
  fc.record({ does: fc.constant('prime' as const), limitMs: fc.constantFrom(0, 5, 1_000), abortsFirst: fc.boolean() }),
  fc.record({ does: fc.constant('leave' as const), afterBatches: fc.nat(4) }),
  fc.record({
    does: fc.constant('cancel' as const),
    afterBatches: fc.nat(4),
    reason: fc.constantFrom(...reasons),
    whileWaiting: fc.boolean(),
  }),
  fc.constant({ does: 'read' } as const),
);

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

      assert.equal(service.concurrency.total, 0, 'slots');
      assert.equal(service.backend.running, 0, 'requests at the backend');
      assert.equal(counter.billing.openHolds, 0, 'holds');
      const rows = await counter.store.desk.listUsage({ accountId });
      const held = readers.filter(({ does }) => does !== 'nothing').length;
      assert.equal(rows.length, held);
      assert.deepEqual(service.ended.toSorted(), rows.map(({ ending }) => ending).toSorted());
      const balance = credit - rows.reduce((sum, { costMicrocents }) => sum + costMicrocents, 0n);
      assert.equal(await balanceOf(counter.store, accountId), balance);
      assert.equal(counter.billing.freeMicrocents(accountId) ?? credit, balance);
    }),
    { numRuns: 150 },
  );
  assert.deepEqual(await differencesOf(counter.file), []);
});

test('a stream that was primed and never read pays what was produced, and gives everything back', async (t) => {
  const counter = await openCounter(t);
  await customer(counter.store, 'acct_primed', 1_000_000n);
  const service = servicesFor({ say: [{ text: ['word '] }], repeat: 600 }, counter);
  await play({ does: 'prime', limitMs: 1_000, abortsFirst: true }, 'acct_primed', service);
  const [row] = await counter.store.desk.listUsage({ accountId: 'acct_primed' });
  assert.deepEqual([row?.ending, row?.completionTokens], ['client_left', 256]);
  assert.deepEqual([service.concurrency.total, counter.billing.openHolds], [0, 0]);
});

function servicesFor(settings: ScriptSettings, { billing }: Counter) {
  const engine = createScriptedEngine({ name: 'demo', contextLength: 4_096, scripts: [scriptRule(settings)] });
  const backend: Backend = { label: 'scripted', engine, concurrencyMax: Infinity, zdr: false, running: 0 };
  const model = {
    id: 'demo',
    displayName: 'Demo',
    description: undefined,
    ownedBy: 'test',
    contextLength: 4_096,
    maxOutputTokens: null,
    prices,
    sampling: 'honor' as const,
    capabilities: textCapabilities,
  };
  const ended: string[] = [];
  return {
    ended,
    backend,
    catalog: new Catalog([model]),
    concurrency: new Concurrency(64),
    billing,
    newId: uuid,
    backendsOf: () => [backend],
  };
}

/** One request from its order to its end, as `http` reads it. */
async function play(reader: Reader, accountId: string, services: ReturnType<typeof servicesFor>): Promise<void> {
  const cancelled = new AbortController();
  const id = uuid();
  const call = {
    id,
    route: {
      api: 'chat',
      dialect: chat,
      defaultMaxTokens: 'card' as const,
      retryWithoutMaxTokens: true,
      unknownEffort: 'reject' as const,
    },
    caller: {
      account: { id: accountId },
      key: { id: 'key_000000000000', accountId, name: '', limits: null, expiresAt: null },
    },
    zdr: false,
    publicId: `req_${Buffer.from(id).toString('hex').slice(-12)}`,
    clientId: null,
    startedAt: Date.now(),
    signal: cancelled.signal,
  };
  const body = { model: 'demo', max_tokens: 1_000, messages: [{ role: 'user', content: 'hi' }] };
  // `serve` needs no directory: the caller is known.
  const order = await serve(body, call, services as unknown as Parameters<typeof serve>[2]);
  let ends = 0;
  const stream = run(
    order,
    {
      ...services,
      ended: ({ ending }) => {
        ends++;
        services.ended.push(ending);
      },
    },
    cancelled.signal,
  );
  await read(reader, stream, cancelled).catch((error: unknown) => {
    // What a script fails with, and what a cancelled request is told; a broken promise of our own has another name.
    assert.ok(error instanceof Error && error.name === 'ApiError', String(error));
  });
  assert.equal(ends, reader.does === 'nothing' ? 0 : 1);
  if (reader.does === 'cancel' && cancelled.signal.aborted && services.ended.length === 1) {
    assert.ok([endingOf[reader.reason], 'failed', 'finished'].includes(services.ended[0]!));
  }
}

async function read(reader: Reader, stream: GenerationStream, cancelled: AbortController): Promise<void> {
  const rest = stream[Symbol.asyncIterator]();
  switch (reader.does) {
    case 'nothing':
      await rest.return?.();
      return;
    case 'prime': {
      const primed = await prime(stream, reader.limitMs);
      // As `respond` does it: abort first, because `return` waits for a pending `next`.
      if (reader.abortsFirst || primed.state === 'waiting') cancelled.abort('client-left');
      if (primed.state === 'waiting') await primed.first.catch(() => {});
      await primed.rest.return?.();
      return;
    }
    case 'leave':
      for (let batch = 0; batch < reader.afterBatches; batch++) if ((await rest.next()).done === true) return;
      if (reader.afterBatches === 0) await rest.next();
      await rest.return?.();
      return;
    case 'cancel': {
      for (let batch = 0; batch < reader.afterBatches; batch++) if ((await rest.next()).done === true) return;
      const waiting = reader.whileWaiting ? rest.next() : undefined;
      cancelled.abort(reader.reason);
      await (waiting ?? rest.next());
      // Whatever was on its way may still arrive once; then it is over.
      for (let batch = 0; (await rest.next()).done !== true; batch++) assert.ok(batch < 3);
      return;
    }
    case 'read':
      while ((await rest.next()).done !== true);
  }
}
