/** A process that is killed while it issues: what it said is there, and the next one goes on without a gap and without a double. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { test } from 'node:test';

import { openSqliteStore } from '../../../src/store/sqlite/store.ts';
import { openStore, temporaryFolder } from '../../store/fixture.ts';
import { account, dayMs, moved, paperOn, spent } from './house.ts';
import { accountsOfKill, october, september } from './kill-accounts.ts';
import { built } from '../../support/built.ts';

const program = built('tests/billing/invoices/issue-until-killed.ts');

test('each account has one statement, and the numbers have no gap, however often the issuer is killed', async (t) => {
  const file = join(temporaryFolder(t), 'x.db');
  const store = await openSqliteStore({
    file,
    onFatal: (error) => {
      throw error;
    },
  });
  const before = paperOn(store, september);
  for (const id of accountsOfKill) {
    await account(before, id, september);
    await moved(before, id, 100n, september + 1);
    await spent(before, id, 7n, september + dayMs);
  }
  await store.close();
  const said = new Set<string>();
  for (let kills = 0; kills < 4; kills++) {
    const child = spawn(process.execPath, [program, file], { stdio: ['ignore', 'pipe', 'inherit'] });
    const ended = once(child, 'exit');
    let lines = 0;
    for await (const line of createInterface({ input: child.stdout })) {
      if (line.startsWith('acct_')) said.add(line);
      // Somewhere in the next one.
      if (++lines === 8 + 9 * kills) child.kill('SIGKILL');
    }
    await ended;
  }
  assert.ok(said.size > 8);
  const after = paperOn(await openStore(t, file), october + dayMs);
  const { repositories } = after.store;
  const issued = async () => (await repositories.listInvoices({ limit: 100 })).toReversed();
  const survivors = new Set((await issued()).map(({ accountId }) => accountId));
  for (const id of said) assert.ok(survivors.has(id), `${id} was said to be issued`);
  while (await after.invoices.issueDue());
  const all = await issued();
  assert.deepEqual(all.map(({ accountId }) => accountId).sort(), accountsOfKill);
  assert.deepEqual(
    all.map(({ number }) => number),
    accountsOfKill.map((_, index) => `TH-2026-${String(index + 1).padStart(6, '0')}`),
  );
  for (const { totalMicrocents, closingMicrocents } of all)
    assert.deepEqual([totalMicrocents, closingMicrocents], [7n, 93n]);
  const notices = await repositories.listNotices({ after: '', limit: 1_000 });
  assert.deepEqual(
    notices.map(({ data }) => (JSON.parse(data) as { invoice_id: string }).invoice_id).sort(),
    all.map(({ id }) => id).sort(),
    'each is to be told once',
  );
});
