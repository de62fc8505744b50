/** A process that closes the books of many accounts and says so, until it is killed: `node … <file>`. */
import { openSqliteStore } from '../../../src/store/sqlite/store.ts';
import { accountsOfKill, october } from './kill-accounts.ts';
import { dayMs, paperOn } from './house.ts';

const store = await openSqliteStore({
  file: process.argv[2]!,
  onFatal: (error) => {
    throw error;
  },
});
const paper = paperOn(store, october + dayMs);
process.stdout.write('begun\n');
for (const id of accountsOfKill) {
  await paper.invoices.issueFor(id);
  process.stdout.write(`${id}\n`);
}
await store.close();
