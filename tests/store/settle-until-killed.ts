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
if ((await store.repositories.listAccounts({})).length === 0) {
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
    if (round % 3 === 0) {
      store.ledger.open(openRequest(accountId, row.holdMicrocents, row.requestId));
      // Still running when the process is killed, some of them.
      await new Promise((resolve) => setTimeout(resolve, Math.random() * 5));
    }
    await store.ledger.settle(row);
    say(`settled ${hex} ${row.costMicrocents}\n`);
    if (round % 7 === 0) {
      const key = `top-up ${hex}`;
      await store.ledger.transfer(grant(accountId, 5n, key));
      say(`credited ${key}\n`);
    }
  }
}

/** At once, because it may be killed next. The pipe refuses while its reader is behind, on some versions of Node. */
function say(line: string): void {
  for (;;) {
    try {
      writeSync(1, line);
      return;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EAGAIN') throw error;
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1);
    }
  }
}

await Promise.all(Array.from({ length: 32 }, settleForEver));
