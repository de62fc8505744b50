import { verifyLedger } from '../store/verify/verify.ts';
import { isStoreInUse } from '../app/stores.ts';
import type { Context } from './context.ts';
import { reading } from './database.ts';
import { counted } from './amount.ts';

/** Exit 0: every balance matches its rows. Exit 1: the differences are on standard output. */
export async function verify(context: Context): Promise<number> {
  const found = await reading(context, async ({ db }) => {
    const owned = await isStoreInUse(context.config.storage, db);
    return await verifyLedger(db, { owned });
  });
  const { differences } = found;
  context.print.result(
    {
      ok: differences.length === 0,
      accounts: found.accounts,
      transfers: found.transfers,
      usage_rows: found.usageRows,
      pruned_requests: found.prunedRequests,
      hours: found.hours,
      differences,
    },
    [
      ...differences.map(
        ({ accountId, what, expected, found: actual }) =>
          `${accountId ?? 'ledger'}: ${what}: expected ${expected}, found ${actual}`,
      ),
      differences.length === 0
        ? `The ledger is consistent: ${counted(found.accounts, 'account')}, ${counted(found.transfers, 'transfer')}, ${counted(found.usageRows, 'request')}.`
        : `${counted(differences.length, 'difference')} in ${counted(found.accounts, 'account')}, ${counted(found.transfers, 'transfer')}, ${counted(found.usageRows, 'request')}.`,
    ],
  );
  return differences.length === 0 ? 0 : 1;
}
