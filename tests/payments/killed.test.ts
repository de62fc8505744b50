import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { StoreError } from '../../src/store/store-error.ts';
import { openSqliteStore } from '../../src/store/sqlite/store.ts';
import { openTill, wish } from './claims.ts';
import { creditOf } from './credit-of.ts';
import { balanceOf, customer, differencesOf, openStore, temporaryFolder } from '../store/fixture.ts';

const child = fileURLToPath(new URL('./transfer-and-die.js', import.meta.url));

test('killed before each statement of a credit in turn, the file has all of it or nothing, and in the end all, once', async (t) => {
  const file = join(temporaryFolder(t), 'x.db');
  const first = await openSqliteStore({ file, onFatal: assert.ifError });
  await customer(first, 'acct_a', 0n);
  const topup = await openTill({ store: first }).payments.createTopup(wish('acct_a'));
  await first.close();
  for (let count = 1; ; count++) {
    const { status, signal, stdout, stderr } = spawnSync(
      process.execPath,
      [child, file, 'acct_a', topup.id, String(count)],
      {
        encoding: 'utf8',
        timeout: 120_000,
      },
    );
    assert.ok(status === 0 || signal === 'SIGKILL', stderr);
    const store = await openSqliteStore({ file, onFatal: assert.ifError });
    const paid = await store.desk.getTopup({ id: topup.id });
    const event = await store.desk.findPaymentEvent({ provider: 'demo', id: `evt_${topup.id}` });
    const payment = await store.desk.findPayment({ provider: 'demo', id: `pi_${topup.id}` });
    const state = [await balanceOf(store, 'acct_a'), paid!.status, event, payment?.amountMicrocents];
    await store.close();
    assert.deepEqual(await differencesOf(file, false), []);
    if (status === 0) {
      assert.deepEqual([stdout, ...state], ['[{"value":true}]', 500_000_000n, 'paid', 'applied', 500_000_000n]);
      assert.ok(count > 8, `only ${count} statements`);
      break;
    }
    assert.deepEqual(state, [0n, 'pending', undefined, undefined], `killed at statement ${count}`);
  }
  const again = spawnSync(process.execPath, [child, file, 'acct_a', topup.id, '0'], { encoding: 'utf8' });
  assert.equal(again.stdout, '[{"value":false}]');
});

test('what a movement carries is written with it or refuses it, and never twice', async (t) => {
  const file = join(temporaryFolder(t), 'x.db');
  const store = await openStore(t, file);
  await customer(store, 'acct_a', 0n);
  const topup = await openTill({ store }).payments.createTopup(wish('acct_a'));
  const credit = creditOf('acct_a', topup.id);
  const conflict = (error: unknown): boolean => error instanceof StoreError && error.code === 'conflict';
  const event = credit.recording![0]!;
  await assert.rejects(store.ledger.transfer({ ...credit, recording: [event, event] }), conflict);
  const nobody = { name: 'topup_paid', values: ['pi', 1, 'top_none'] } as const;
  await assert.rejects(store.ledger.transfer({ ...credit, recording: [event, nobody] }), conflict);
  assert.equal(await balanceOf(store, 'acct_a'), 0n);
  assert.equal(await store.desk.findPaymentEvent({ provider: 'demo', id: `evt_${topup.id}` }), undefined);
  assert.deepEqual(await Promise.all([1, 2].map(() => store.ledger.transfer(credit))), [true, false]);
  assert.equal(await balanceOf(store, 'acct_a'), 500_000_000n);
  assert.deepEqual(await differencesOf(file), []);
});
