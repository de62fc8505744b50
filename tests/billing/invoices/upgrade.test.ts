/** A database from before there were invoices: its months are closed, and nobody is sent a year of statements at once. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';

import { invoiceRoutes } from '../../../src/account-api/routes/invoices.ts';
import type { Config } from '../../../src/config/config.ts';
import { startOfMonth } from '../../../src/store/reports/usage-months.ts';
import { migrate } from '../../../src/store/migrations/migrate.ts';
import { openConnection } from '../../../src/store/sqlite/connection.ts';
import { kyselyOn } from '../../../src/store/sqlite/dialect.ts';
import { openHost } from '../../account-api/host.ts';
import { openStore, temporaryFolder, usage, uuid } from '../../store/fixture.ts';
import { noTax } from '../../notifications/webhooks/receiver.ts';
import { makeAccounts } from '../../usage/accounts.ts';
import { insertUsage } from '../../usage/ledger-of-rows.ts';
import { dayMs, issuedTo, spent } from './invoicing.ts';

test('months from before an upgrade get their statements and numbers, and are not mailed; those after it are', async (t) => {
  const file = join(temporaryFolder(t), 'old.db');
  const upgradedAt = Date.now();
  const first = startOfMonth(upgradedAt, -4);
  const old = kyselyOn(openConnection(file));
  await migrate(old, 'sqlite');
  await makeAccounts(old, ['acct_a'], []);
  await old.updateTable('account').set({ created_at: first }).where('id', '=', 'acct_a').execute();
  const rows = [0, 1, 2, 3].map((month) => {
    const at = startOfMonth(first, month) + 3 * dayMs;
    return usage('acct_a', 1_000n + BigInt(month), { startedAt: at - 1, endedAt: at });
  });
  await insertUsage(old, rows);
  await old.destroy();

  const store = await openStore(t, file);
  const clock = { now: upgradedAt + 2 * 3_600_000 };
  const config = { invoices: { seller: undefined, tax: noTax, prefix: 'TH-' } } as Partial<Config>;
  const host = await openHost(t, invoiceRoutes, () => clock.now, { store, config });
  await store.repositories.editAccount({
    accountId: 'acct_a',
    billing: { invoiceEmail: 'bills@example.org' },
    at: clock.now,
    changeId: uuid(),
  });
  const report = async (): Promise<readonly string[]> => {
    assert.ok(await host.jobs.run('invoices'));
    assert.ok(await host.jobs.run('notices'));
    return host.mails.map(({ subject }) => subject);
  };
  const monthsOf = async () => (await issuedTo({ store }, 'acct_a')).map(({ month, total }) => [month, total]);
  const monthText = (ms: number): string => new Date(ms).toISOString().slice(0, 7);

  // The service has run into the next month in the hours of the upgrade at most, which is then told as any other.
  clock.now = Math.min(clock.now, startOfMonth(upgradedAt, 1));
  assert.deepEqual(await report(), []);
  assert.deepEqual(
    await monthsOf(),
    rows.map((row) => [monthText(row.endedAt), row.costMicrocents]),
  );
  assert.deepEqual(await store.repositories.listNotices({ after: '', limit: 10 }), []);

  await spent({ store }, 'acct_a', 5n, upgradedAt);
  clock.now = startOfMonth(upgradedAt, 1) + dayMs;
  const [mail, ...others] = await report();
  assert.deepEqual(others, []);
  assert.match(mail!, /^Monthly statement TH-\d{4}-00000\d$/);
  assert.deepEqual((await monthsOf()).at(-1), [monthText(upgradedAt), 5n]);
  const numbers = (await issuedTo({ store }, 'acct_a')).map(({ number }) => Number(number.split('-').at(-1)));
  const year = new Date(clock.now).getUTCFullYear();
  const isSameYear = year === new Date(upgradedAt).getUTCFullYear();
  assert.deepEqual(numbers, isSameYear ? [1, 2, 3, 4, 5] : [1, 2, 3, 4, 1]);
});
