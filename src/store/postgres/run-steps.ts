import { transfer, type Steps } from '../ledger-steps.ts';
import type { Transfer } from '../ledger.ts';
import { numbered } from '../recordings.ts';
import type { Run } from './connection.ts';

/** Runs an operation of the ledger in the transaction of `run`. */
export async function runSteps<Value>(run: Run, steps: Steps<Value>): Promise<Value> {
  let next = steps.next();
  while (next.done !== true) next = steps.next(await run({ text: numbered(next.value.text) }, next.value.values));
  return next.value;
}

/** Locks the parties' rows in id order, so that two transfers cannot deadlock. */
export async function move(run: Run, movement: Transfer): Promise<boolean> {
  const { idempotencyKey, debitAccount, creditAccount } = movement;
  // The first of two concurrent calls with the same key holds it until it has committed.
  await run({ text: 'select pg_advisory_xact_lock(hashtextextended($1, 0))' }, [idempotencyKey]);
  await run({ text: 'select id from account where id in ($1, $2) order by id for no key update' }, [
    debitAccount,
    creditAccount,
  ]);
  return await runSteps(run, transfer(movement, 0n));
}
