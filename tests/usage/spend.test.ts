import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { issueKey } from '../../src/accounts/key.ts';
import { openSecret } from '../../src/accounts/secret.ts';
import { customer, openStore, temporaryFolder, usage, uuid } from '../store/fixture.ts';

const hourMs = 3_600_000;
const secret = openSecret({ fromEnvironment: 's'.repeat(32), dataFolder: '/nowhere', warn: assert.fail });

test('what was spent since a time, by account, key, person and label', async (t) => {
  const store = await openStore(t, join(temporaryFolder(t), 'spend.db'));
  await customer(store, 'acct_a', 10_000n);
  await customer(store, 'acct_b', 10_000n);
  const keyOf = async (accountId: string, userId: string | null): Promise<string> => {
    const { row } = issueKey({ accountId, userId, name: 'x', secret, now: 0 });
    await store.repositories.createKey({ key: row, changeId: uuid() });
    return row.id;
  };
  const [first, second, other] = [
    await keyOf('acct_a', 'ann'),
    await keyOf('acct_a', 'ann'),
    await keyOf('acct_b', 'ann'),
  ];
  const now = Math.floor(Date.now() / hourMs) * hourMs + 5;
  const spend = (accountId: string, keyId: string, cost: bigint, endedAt: number, tags: readonly string[] = []) =>
    store.ledger.settle(
      usage(accountId, cost, {
        keyId,
        startedAt: endedAt,
        endedAt,
        tags: tags.length === 0 ? null : JSON.stringify(tags),
      }),
    );
  await spend('acct_a', first, 32n, now - 50 * hourMs, ['red']);
  await spend('acct_b', other, 16n, now, ['red']);
  await spend('acct_a', 'key_legacy', 8n, now - 32 * hourMs);
  await spend('acct_a', second, 4n, now - 31 * hourMs);
  await spend('acct_a', first, 2n, now - 30 * hourMs, ['red', 'blue']);
  await spend('acct_a', first, 1n, now, ['red']);
  for (const isRolledUp of [false, true]) {
    if (isRolledUp) await store.repositories.recomputeUsageHours({ now });
    for (const [by, id, expected] of [
      ['account', undefined, 15n],
      ['key', first, 3n],
      ['key', other, 0n],
      ['user', 'ann', 7n],
      ['user', 'bob', 0n],
      ['tag', 'red', 3n],
      ['tag', 'blue', 2n],
      ['tag', 're', 0n],
    ] as const) {
      const from = now - 32 * hourMs;
      const request = { accountId: 'acct_a', from, to: now + 1, by, ...(id === undefined ? {} : { id }) };
      assert.equal(await store.repositories.spendSince(request), expected, `${by} ${id}`);
    }
    const ends = { accountId: 'acct_a', by: 'account' } as const;
    assert.equal(await store.repositories.spendSince({ ...ends, from: now - 30 * hourMs, to: now }), 2n, '`to` is out');
    assert.equal(await store.repositories.spendSince({ ...ends, from: now, to: now }), 0n);
  }
});
