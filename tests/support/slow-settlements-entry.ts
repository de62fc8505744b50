/**
 * The real program, whose ledger takes longer for two of three settlements of lines than a request waits: it reports them late, or writes
 * them late. Started by tests in place of the program.
 */
import { setTimeout as sleep } from 'node:timers/promises';

import { runCommandLine } from '../../src/cli/command-line.ts';
import type { UsageRow } from '../../src/store/ledger.ts';
import { Settlements } from '../../src/store/postgres/settlements.ts';
import { SqliteLedger } from '../../src/store/sqlite/ledger.ts';

/** Half a second more than a settlement may take. */
const lateMs = 2_500;

type Settle = (row: UsageRow) => Promise<'billed' | 'lost'>;

function slowed(prototype: { settle: Settle }): void {
  const usual = prototype.settle;
  prototype.settle = async function settle(given) {
    if (given.batchId === null) return await usual.call(this, given);
    // The row is changed once the request is told that it is lost.
    const row = { ...given };
    const kind = Math.floor(3 * Math.random());
    if (kind === 1) await sleep(lateMs);
    const outcome = await usual.call(this, row);
    if (kind === 2) await sleep(lateMs);
    return outcome;
  };
}

slowed(SqliteLedger.prototype as { settle: Settle });
slowed(Settlements.prototype);

process.exitCode = await runCommandLine(process.argv.slice(2));
