/** A process that settles as fast as it can and says what was acknowledged, until it is killed. Started by kill.test.ts. */
import { writeSync } from 'node:fs';
import { openSqliteStore } from '../../src/store/sqlite/store.ts';
import { grant, openRequest, usage, uuid } from './fixture.ts';

const file = process.argv[2]!;
const accounts = ['acct_a', 'acct_b', 'acct_c'];
const store = await openSqliteStore({
  file,
  onFatal: (error) => {
    writeSync(2, `${error.message}\n`);
    process.exit(1);
  },
});
if ((await store.desk.listAccounts({})).length === 0) {
  for (const id of accounts) {
    await store.ledger.createAccount({ id, name: id, creditLimitMicrocents: 0n, at: Date.now(), changeId: uuid() });
    await store.ledger.transfer(grant(id, 10n ** 15n));
  }
}

async function settleForEver(): Promise<void> {
  for (let round = 0; ; round++) {
    const accountId = accounts[Math.floor(Math.random() * accounts.length)]!;
    const row = usage(accountId, BigInt(1 + Math.floor(Math.random() * 1000)));
    const hex = Buffer.from(row.requestId).toString('hex');
    if (round % 3 === 0) store.ledger.open(openRequest(accountId, row.holdMicrocents, row.requestId));
    if (round % 5 === 0) await new Promise((resolve) => setTimeout(resolve, Math.random() * 5)); // still running
    await store.ledger.settle(row);
    writeSync(1, `settled ${hex} ${row.costMicrocents}\n`);
    if (round % 7 === 0) {
      const key = `top-up ${hex}`;
      await store.ledger.transfer(grant(accountId, 5n, key));
      writeSync(1, `credited ${key}\n`);
    }
  }
}

await Promise.all(Array.from({ length: 32 }, settleForEver));
