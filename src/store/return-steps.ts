/**
 * Refunds and disputes: what they take from an account, and what is given back when one is undone (docs/payments.md, "What is taken back").
 * Ledger steps like those of `ledger-steps.ts`, in its transactions, shared by both stores.
 *
 * For a return that stands, `amount` = `taken` (from the account) + `owed` (held by running requests; taken when they end) + `beyond` (more
 * than was paid, which nobody owes) + the operator's loss, recorded by movements with the key `…:rest`.
 */
import { systemAccounts } from './ledger.ts';
import type { Reinstated, Reinstatement, Reversal, Reversed } from './ledger.ts';
import { step, writeRecording, type Steps } from './ledger-steps.ts';
import { recordedProvider } from './recordings.ts';
import { StoreError } from './store-error.ts';

interface ReturnRow {
  readonly id: string;
  readonly kind: 'refund' | 'dispute';
  readonly payment_id: string;
  readonly topup_id: string;
  readonly account_id: string;
  readonly amount: bigint;
  readonly taken: bigint;
  readonly owed: bigint;
  readonly beyond: bigint;
  readonly undone_at: bigint | null;
}

const returnColumns = 'id, kind, payment_id, topup_id, account_id, amount, taken, owed, beyond, undone_at';

const transferKinds = { refund: 'refund', dispute: 'chargeback' } as const;

/** Key prefixes of movements: for those that take, and for those that give back. */
const undoneKeys = { refund: 'refund_failed', dispute: 'dispute_won' } as const;

/**
 * Takes what the account has and no request holds; what requests hold stays owed, and is taken by a later call; the rest is lost. If a
 * decision is given and the return does not exist yet, decides it first: never more than the payment has left. Repeating the call takes
 * only what has become free since. `leasedMicrocents`: the leased part included in the account's row.
 */
export function* reverse(request: Reversal, leasedMicrocents: bigint): Steps<Reversed> {
  const { provider, returnId, decision } = request;
  let row = yield* readReturn(provider, returnId);
  const isNew = row === undefined;
  if (row === undefined) {
    if (decision === undefined) throw new StoreError('not_found', `there is no return ${returnId}`);
    row = yield* decide(request, decision);
  }
  const { taken, lost } =
    row.undone_at === null ? yield* collect(request, row, leasedMicrocents) : { taken: 0n, lost: 0n };
  return {
    isNew,
    isUndone: row.undone_at !== null,
    takenMicrocents: taken,
    lostMicrocents: lost,
    owedMicrocents: row.undone_at === null ? row.owed - taken - lost : 0n,
    beyondMicrocents: row.beyond,
  };
}

function* decide(request: Reversal, decision: NonNullable<Reversal['decision']>): Steps<ReturnRow> {
  const { provider, returnId, accountId, at } = request;
  const { kind, paymentId, topupId, amountMicrocents: amount } = decision;
  const room = yield* roomOf(provider, paymentId);
  const owed = amount < room ? amount : room;
  const beyond = amount - owed;
  yield step(
    `insert into payment_return (provider, id, kind, payment_id, topup_id, account_id, amount, taken, owed, beyond, at)
     values (?, ?, ?, ?, ?, ?, ?, 0, ?, ?, ?)`,
    ...[provider, returnId, kind, paymentId, topupId, accountId, amount, owed, beyond, at],
  );
  yield* claim(topupId, accountId, owed);
  yield step(
    `update topup set status = case
       when status = 'disputed' or ? = 'dispute' then 'disputed' when returned >= amount then 'refunded' else status end
     where id = ?`,
    ...[kind, topupId],
  );
  yield* writeRecording(owed > 0n ? decision.recording : decision.recordingIfBeyond);
  return {
    id: returnId,
    ...{ kind, payment_id: paymentId, topup_id: topupId, account_id: accountId },
    ...{ amount, taken: 0n, owed, beyond, undone_at: null },
  };
}

/** What is left of a payment after standing returns, including those recorded by an operator. */
function* roomOf(provider: string, paymentId: string): Steps<bigint> {
  const { rows } = yield step(
    `select payment.amount - cast(coalesce((
         select sum(amount - beyond) from payment_return where topup_id = payment.topup_id and undone_at is null), 0) as bigint)
       - cast(coalesce((
         select sum(by_hand.amount) from payment_return as by_hand join receipt on receipt.id = by_hand.payment_id
         where by_hand.provider = '${recordedProvider}' and by_hand.undone_at is null
           and receipt.topup_id = payment.topup_id), 0) as bigint) as room
     from payment where provider = ? and id = ?`,
    ...[provider, paymentId],
  );
  const [found] = rows as readonly { readonly room: bigint }[];
  if (found === undefined) throw new StoreError('not_found', `there is no payment ${paymentId}`);
  return found.room > 0n ? found.room : 0n;
}

function* claim(topupId: string, accountId: string, microcents: bigint): Steps<void> {
  yield step('update topup set returned = returned + ? where id = ?', microcents, topupId);
  yield step('update account set owed = owed + ? where id = ?', microcents, accountId);
}

function* collect(
  request: Reversal,
  row: ReturnRow,
  leasedMicrocents: bigint,
): Steps<{ readonly taken: bigint; readonly lost: bigint }> {
  const { owed, account_id: accountId } = row;
  if (owed === 0n) return { taken: 0n, lost: 0n };
  const { rows } = yield step(
    `select available + credit_limit as spendable, cast(coalesce((
       select sum(remaining) from credit_lease where account_id = account.id), 0) as bigint) as elsewhere
     from account where id = ?`,
    accountId,
  );
  const [account] = rows as readonly { readonly spendable: bigint; readonly elsewhere: bigint }[];
  if (account === undefined) throw new StoreError('not_found', `there is no account ${accountId}`);
  const taken = between(0n, account.spendable - leasedMicrocents, owed);
  // Running requests may still give back what they hold. Nothing else can come: an account that owes gets no new leases.
  const mayCome = between(0n, leasedMicrocents + account.elsewhere, owed - taken);
  const lost = owed - taken - mayCome;
  const key = keyOf(row.kind, request);
  if (taken > 0n) yield* moveBack(request, row, { id: request.ids[0], key, microcents: taken, from: accountId });
  if (lost > 0n)
    yield* moveBack(request, row, {
      id: request.ids[1],
      key: `${key}:rest`,
      microcents: lost,
      from: systemAccounts.badDebt,
    });
  yield step('update account set owed = owed - ? where id = ?', taken + lost, accountId);
  yield step(
    'update payment_return set taken = taken + ?, owed = owed - ? where provider = ? and id = ?',
    ...[taken, taken + lost, request.provider, row.id],
  );
  return { taken, lost };
}

interface Part {
  readonly id: Uint8Array;
  readonly key: string;
  readonly microcents: bigint;
}

/** A return may take several times: the second movement with a key has the suffix number 2. */
function* moveBack(
  { at }: Pick<Reversal, 'at'>,
  row: ReturnRow,
  { id, key, microcents, from }: Part & { readonly from: string },
): Steps<void> {
  let free = key;
  for (let number = 2; (yield step('select 1 from transfer where idempotency_key = ?', free)).count > 0; number++)
    free = `${key}:${number}`;
  yield* move(row, at, { id, key: free, microcents, from, to: systemAccounts.cash });
}

function* move(
  { kind, topup_id: topupId }: ReturnRow,
  at: number,
  { id, key, microcents, from, to }: Part & { readonly from: string; readonly to: string },
): Steps<void> {
  yield step(
    `insert into transfer (id, debit_account, credit_account, amount, kind, idempotency_key, reference, "by", at)
     values (?, ?, ?, ?, ?, ?, ?, 'system', ?)`,
    ...[id, from, to, microcents, transferKinds[kind], key, topupId, at],
  );
  yield step('update account set available = available - ? where id = ?', microcents, from);
  yield step('update account set available = available + ? where id = ?', microcents, to);
}

/**
 * Undoes a refund that has failed or a dispute that was won: everything taken is given back to its source, and nothing is owed any more.
 * Returns beyond the paid amount move into the freed part, which `reverse` then takes. undefined: there is no such return.
 */
export function* reinstate(request: Reinstatement): Steps<Reinstated | undefined> {
  const { provider, returnId, ids, at } = request;
  const row = yield* readReturn(provider, returnId);
  if (row === undefined) return undefined;
  const { kind, topup_id: topupId, account_id: accountId, taken, owed, beyond } = row;
  if (row.undone_at !== null) return { isNew: false, dueAgain: [] };
  if (taken !== request.takenMicrocents) throw new StoreError('conflict', `more was taken for ${returnId} meanwhile`);
  yield step(
    'update payment_return set undone_at = ?, owed = 0, beyond = beyond + owed where provider = ? and id = ?',
    ...[at, provider, returnId],
  );
  yield step('update account set owed = owed - ? where id = ?', owed, accountId);
  const lost = row.amount - taken - owed - beyond;
  const key = `${undoneKeys[kind]}:${provider}:${returnId}`;
  const { cash, badDebt } = systemAccounts;
  if (taken > 0n) yield* move(row, at, { id: ids[0], key, microcents: taken, from: cash, to: accountId });
  if (lost > 0n) yield* move(row, at, { id: ids[1], key: `${key}:rest`, microcents: lost, from: cash, to: badDebt });
  yield step('update topup set returned = returned - ? where id = ?', row.amount - beyond, topupId);
  const dueAgain = yield* claimBeyond(provider, row);
  yield step(
    `update topup set status = case
       when status = 'disputed' and ? = 'refund' then 'disputed' when returned >= amount then 'refunded' else 'paid' end
     where id = ?`,
    ...[kind, topupId],
  );
  yield* writeRecording(request.recording);
  return { isNew: true, dueAgain };
}

function* claimBeyond(provider: string, undone: ReturnRow): Steps<readonly string[]> {
  const { rows } = yield step(
    `select ${returnColumns} from payment_return
     where topup_id = ? and provider = ? and undone_at is null and beyond > 0 order by at, id`,
    ...[undone.topup_id, provider],
  );
  const due: string[] = [];
  for (const { id, beyond, topup_id: topupId, account_id: accountId } of rows as readonly ReturnRow[]) {
    const room = yield* roomOf(provider, undone.payment_id);
    const more = beyond < room ? beyond : room;
    if (more === 0n) continue;
    yield step(
      'update payment_return set owed = owed + ?, beyond = beyond - ? where provider = ? and id = ?',
      ...[more, more, provider, id],
    );
    yield* claim(topupId, accountId, more);
    due.push(id);
  }
  return due;
}

function* readReturn(provider: string, returnId: string): Steps<ReturnRow | undefined> {
  const { rows } = yield step(
    `select ${returnColumns} from payment_return where provider = ? and id = ?`,
    provider,
    returnId,
  );
  return (rows as readonly ReturnRow[])[0];
}

/** The rows that returns of this account change, to be locked on PostgreSQL in this order, which is that of all transfers. */
export const accountsOfReturn = (accountId: string): readonly string[] =>
  [accountId, systemAccounts.cash, systemAccounts.badDebt].toSorted();

const keyOf = (kind: ReturnRow['kind'], { provider, returnId }: Pick<Reversal, 'provider' | 'returnId'>): string =>
  `${kind}:${provider}:${returnId}`;

const between = (least: bigint, value: bigint, most: bigint): bigint =>
  value < least ? least : value > most ? most : value;
