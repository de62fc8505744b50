import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { serialize } from 'node:v8';

import type { Reinstatement, Reversal } from '../../../src/store/ledger.ts';
import { StoreError } from '../../../src/store/store-error.ts';
import type { LedgerOperation } from '../../../src/store/sqlite/ledger-batch.ts';
import { openSqliteStore, type SqliteStore } from '../../../src/store/sqlite/store.ts';
import { event, openTill, say, session, input } from './claims.ts';
import { creditOf } from './credit-of.ts';
import { balanceOf, customer, differencesOf, openStore, temporaryFolder, usage } from '../../store/fixture.ts';
import { built } from '../../support/built.ts';

const cent = 1_000_000n;
const child = built('tests/billing/payments/operate-and-die.ts');

/**
 * Carries out an operation in a process that is killed before its first statement, then one that is before its second, until
 * one lives; `state` is as it was `before` until then, and `after` it from then on, also when the same comes again.
 */
async function dieAtEach<State>(
  { file, folder }: { readonly file: string; readonly folder: string },
  operation: LedgerOperation,
  state: (store: SqliteStore) => Promise<State>,
  { before, after, again }: { readonly before: State; readonly after: State; readonly again: RegExp },
): Promise<void> {
  const operationFile = join(folder, 'operation');
  writeFileSync(operationFile, serialize(operation));
  const run = (count: number) =>
    spawnSync(process.execPath, [child, file, operationFile, String(count)], { encoding: 'utf8', timeout: 120_000 });
  const found = async (): Promise<State> => {
    const store = await openSqliteStore({ file, onFatal: assert.ifError });
    const value = await state(store);
    await store.close();
    assert.deepEqual(await differencesOf(file, false), []);
    return value;
  };
  for (let count = 1; ; count++) {
    const { status, signal, stdout, stderr } = run(count);
    assert.ok(status === 0 || signal === 'SIGKILL', stderr);
    if (status === 0) {
      assert.match(stdout, /"value"/);
      assert.deepEqual(await found(), after);
      assert.ok(count > 8, `only ${count} statements`);
      break;
    }
    assert.deepEqual(await found(), before, `killed at statement ${count}`);
  }
  assert.match(run(0).stdout, again);
  assert.deepEqual(await found(), after);
}

test('killed before each statement of a credit in turn, the file has all of it or nothing, and in the end all, once', async (t) => {
  const folder = temporaryFolder(t);
  const file = join(folder, 'x.db');
  const first = await openSqliteStore({ file, onFatal: assert.ifError });
  await customer(first, 'acct_a', 0n);
  const topup = await openTill({ store: first }).payments.createTopup(input('acct_a'));
  await first.close();
  await dieAtEach(
    { file, folder },
    { kind: 'transfer', transfer: creditOf('acct_a', topup.id) },
    async (store) => [
      await balanceOf(store, 'acct_a'),
      (await store.repositories.getTopup({ id: topup.id }))!.status,
      await store.repositories.findPaymentEvent({ provider: 'demo', id: `evt_${topup.id}` }),
      (await store.repositories.findPayment({ provider: 'demo', id: `pi_${topup.id}` }))?.amountMicrocents,
    ],
    {
      before: [0n, 'pending', undefined, undefined],
      after: [500_000_000n, 'paid', 'applied', 500_000_000n],
      again: /"value":false/,
    },
  );
});

for (const kind of ['reverse', 'reinstate'] as const)
  test(`killed before each statement of ${kind === 'reverse' ? 'a refund' : 'what gives back a refund that has failed'}: all of it or nothing, and in the end all, once`, async (t) => {
    const folder = temporaryFolder(t);
    const file = join(folder, 'x.db');
    const first = await openSqliteStore({ file, onFatal: assert.ifError });
    await customer(first, 'acct_a', 0n);
    const till = openTill({ store: first });
    const topup = await till.payments.createTopup(input('acct_a'));
    await say(till, event('checkout.session.completed', session(topup, 'pi_1')));
    // 100 of 500 are spent: the operator loses a part.
    await first.ledger.settle(usage('acct_a', 100n * cent, { promptTokens: 100_000_000 }));
    const object = { id: 'return_1', payment_intent: 'pi_1', amount: 500, currency: 'usd' };
    const taken = event('refund.created', { ...object, status: 'succeeded' });
    const failed = event('refund.failed', { ...object, status: 'failed' });
    if (kind === 'reinstate') await say(till, taken);
    // What the service itself would write, kept from being written.
    let operation: LedgerOperation | undefined;
    const keep = (wanted: LedgerOperation) => {
      operation = wanted;
      return Promise.reject(new Error('kept'));
    };
    const keeping = openTill({
      store: {
        repositories: first.repositories,
        now: () => first.now(),
        ledger: Object.assign(Object.create(first.ledger) as typeof first.ledger, {
          reverse: (request: Reversal) => keep({ kind: 'reverse', request }),
          reinstate: (request: Reinstatement) => keep({ kind: 'reinstate', request }),
        }),
      },
    });
    const said = kind === 'reverse' ? taken : failed;
    await assert.rejects(say(keeping, said), /kept/);
    await first.close();
    const paid = [400n * cent, 0n, 'paid', 0n, undefined, undefined, 0];
    const refunded = [0n, -100n * cent, 'refunded', 500n * cent, 'applied', null, 0];
    await dieAtEach(
      { file, folder },
      operation!,
      async (store) => {
        const after = (await store.repositories.getTopup({ id: topup.id }))!;
        const undoneAt = (await store.repositories.findPaymentReturn({ provider: 'demo', id: 'return_1' }))?.undoneAt;
        return [
          await balanceOf(store, 'acct_a'),
          await balanceOf(store, 'house_bad_debt'),
          after.status,
          after.returnedMicrocents,
          await store.repositories.findPaymentEvent({ provider: 'demo', id: said.id }),
          typeof undoneAt === 'number' ? 'undone' : undoneAt,
          (await store.repositories.listNotices({ after: '', limit: 10 })).length,
        ];
      },
      kind === 'reverse'
        ? { before: paid, after: refunded, again: /"isNew":false,.*"takenMicrocents":"0"/ }
        : {
            before: [...refunded.slice(0, 4), undefined, null, 0],
            after: [...paid.slice(0, 4), 'applied', 'undone', 1],
            again: /"isNew":false/,
          },
    );
  });

test('what a movement carries is written with it or refuses it, and never twice', async (t) => {
  const file = join(temporaryFolder(t), 'x.db');
  const store = await openStore(t, file);
  await customer(store, 'acct_a', 0n);
  const topup = await openTill({ store }).payments.createTopup(input('acct_a'));
  const credit = creditOf('acct_a', topup.id);
  const conflict = (error: unknown): boolean => error instanceof StoreError && error.code === 'conflict';
  const event = credit.recording![0]!;
  await assert.rejects(store.ledger.transfer({ ...credit, recording: [event, event] }), conflict);
  const nobody = { name: 'topup_paid', values: ['pi', 1, 'top_none'] } as const;
  await assert.rejects(store.ledger.transfer({ ...credit, recording: [event, nobody] }), conflict);
  assert.equal(await balanceOf(store, 'acct_a'), 0n);
  assert.equal(await store.repositories.findPaymentEvent({ provider: 'demo', id: `evt_${topup.id}` }), undefined);
  assert.deepEqual(await Promise.all([1, 2].map(() => store.ledger.transfer(credit))), [true, false]);
  assert.equal(await balanceOf(store, 'acct_a'), 500_000_000n);
  assert.deepEqual(await differencesOf(file), []);
});
