/** A process that is killed while it issues: what it said is there, and the next one goes on without a gap and without a double. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { test } from 'node:test';

import { openSqliteStore } from '../../../src/store/sqlite/store.ts';
import { openStore, temporaryFolder } from '../../store/fixture.ts';
import { receiptsOn } from './receipts-on.ts';
import { account, dayMs, moved, paperOn, spent } from './invoicing.ts';
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
  const said = await issueUntilKilled(file, 'statements', [8, 17, 26, 35]);
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
    'each is to be notified of once',
  );
});

test('each credited payment has one receipt, and the numbers have no gap, however often the issuer is killed between the two', async (t) => {
  const file = join(temporaryFolder(t), 'x.db');
  const store = await openSqliteStore({
    file,
    onFatal: (error) => {
      throw error;
    },
  });
  const at = store.now();
  const before = paperOn(store, at);
  for (const id of accountsOfKill) {
    await account(before, id, at);
    await moved(before, id, 100n, at);
  }
  await store.close();
  const begun = await issueUntilKilled(file, 'receipts', [8, 8, 8, 8]);
  assert.ok(begun.size > 8 && begun.size < accountsOfKill.length, 'it was killed among them');
  const after = await openStore(t, file);
  const issued = async () => (await after.repositories.listReceipts({ limit: 100 })).toReversed();
  const survivors = new Set((await issued()).map(({ accountId }) => accountId));
  // The last one that each process began may be there or not.
  assert.ok(begun.size - survivors.size <= 4);
  const receipts = receiptsOn(after);
  for (let times = 0; times < 2; times++) await receipts.issueDue(AbortSignal.timeout(60_000));
  const all = await issued();
  assert.deepEqual(all.map(({ accountId }) => accountId).sort(), accountsOfKill);
  const year = new Date().getUTCFullYear();
  assert.deepEqual(
    all.map(({ number }) => number),
    accountsOfKill.map((_, index) => `TH-R${year}-${String(index + 1).padStart(6, '0')}`),
  );
  for (const { totalMicrocents } of all) assert.equal(totalMicrocents, 100n);
  const notices = await after.repositories.listNotices({ after: '', limit: 1_000 });
  assert.deepEqual(
    notices.map(({ data }) => (JSON.parse(data) as { receipt_id: string }).receipt_id).sort(),
    all.map(({ id }) => id).sort(),
    'each is announced once',
  );
});

/** Runs the issuer several times, and kills it somewhere in the document after a line; the accounts that it has printed. */
async function issueUntilKilled(
  file: string,
  documents: 'statements' | 'receipts',
  killedAfter: readonly number[],
): Promise<ReadonlySet<string>> {
  const printed = new Set<string>();
  for (const last of killedAfter) {
    const child = spawn(process.execPath, [program, file, documents], { stdio: ['ignore', 'pipe', 'inherit'] });
    const ended = once(child, 'exit');
    let lines = 0;
    for await (const line of createInterface({ input: child.stdout })) {
      if (line.startsWith('acct_')) printed.add(line);
      if (++lines === last) child.kill('SIGKILL');
    }
    await ended;
  }
  return printed;
}
