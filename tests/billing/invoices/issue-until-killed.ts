/**
 * A process that issues documents of many accounts, and prints the id of each account whose document is issued, until it is killed:
 * `node … <file> statements|receipts`.
 */
import { setTimeout } from 'node:timers/promises';

import { openSqliteStore } from '../../../src/store/sqlite/store.ts';
import { accountsOfKill, october } from './kill-accounts.ts';
import { dayMs, paperOn } from './invoicing.ts';
import { receiptsOn } from './receipts-on.ts';

const [file = '', documents] = process.argv.slice(2);
const store = await openSqliteStore({
  file,
  onFatal: (error) => {
    throw error;
  },
});
process.stdout.write('begun\n');
if (documents === 'statements') {
  const paper = paperOn(store, october + dayMs);
  for (const id of accountsOfKill) {
    await paper.invoices.issueFor(id);
    process.stdout.write(`${id}\n`);
  }
} else {
  const receipts = receiptsOn(store, async ({ id }) => {
    process.stdout.write(`${id}\n`);
    // So that the kill comes between a payment's credit and its receipt, and not after all of them.
    await setTimeout(5);
  });
  await receipts.issueDue(AbortSignal.timeout(60_000));
}
await store.close();
