import type { Transfer } from '../ledger.ts';
import { notRecorded, numbered, recordings, type Recording } from '../recordings.ts';
import { StoreError } from '../store-error.ts';
import { clean } from '../reports/usage-columns.ts';
import type { Run } from './connection.ts';

interface TransferRow {
  readonly id: Uint8Array;
  readonly debit_account: string;
  readonly credit_account: string;
  readonly amount: bigint;
  readonly kind: string;
}

/** The parties' rows are locked in the order of their ids, so that two transfers cannot deadlock. */
export async function move(run: Run, transfer: Transfer): Promise<boolean> {
  const { debitAccount, creditAccount, amountMicrocents, idempotencyKey } = transfer;
  // The first of two twins holds the key until it has committed.
  await run({ text: 'select pg_advisory_xact_lock(hashtextextended($1, 0))' }, [idempotencyKey]);
  const { rows } = await run<TransferRow>(
    { text: 'select id, debit_account, credit_account, amount, kind from transfer where idempotency_key = $1' },
    [idempotencyKey],
  );
  const earlier = rows[0];
  if (earlier !== undefined) {
    if (isSameMovement(earlier, transfer)) return false;
    throw new StoreError('conflict', `the idempotency key ${idempotencyKey} stands for another transfer`);
  }
  await run({ text: 'select id from account where id in ($1, $2) order by id for no key update' }, [
    debitAccount,
    creditAccount,
  ]);
  await run(
    {
      text: `insert into transfer (id, debit_account, credit_account, amount, kind, idempotency_key, reference, "by", at)
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
    },
    [
      transfer.id,
      debitAccount,
      creditAccount,
      amountMicrocents,
      transfer.kind,
      idempotencyKey,
      transfer.reference === null ? null : clean(transfer.reference),
      clean(transfer.by),
      transfer.at,
    ],
  );
  const debited = await run(
    {
      text: 'update account set available = available - $1 where id = $2 and (kind <> 0 or available + credit_limit >= $1)',
    },
    [amountMicrocents, debitAccount],
  );
  if (debited.count === 0)
    throw new StoreError('insufficient', `the free balance of ${debitAccount} does not cover ${amountMicrocents}`);
  await run({ text: 'update account set available = available + $1 where id = $2' }, [amountMicrocents, creditAccount]);
  await record(run, transfer.recording);
  return true;
}

/** Writes what accompanies a change, in its transaction. Rejects as `conflict` when it does not fit what is there. */
export async function record(run: Run, recording: readonly Recording[] = []): Promise<void> {
  for (const { name, values } of recording) {
    const { count } = await run({ text: numbered(recordings[name]) }, values);
    if (count !== 1) throw notRecorded(name);
  }
}

/** Compares the parties and the amount; the author and the time may differ between two tries of one movement. */
function isSameMovement(row: TransferRow, transfer: Transfer): boolean {
  return (
    row.debit_account === transfer.debitAccount &&
    row.credit_account === transfer.creditAccount &&
    row.amount === transfer.amountMicrocents &&
    row.kind === transfer.kind
  );
}
