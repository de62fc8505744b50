import { systemAccounts } from '../store/ledger.ts';
import type { Ledger, UsageRow } from '../store/ledger.ts';

/** Called once per settlement that had to be repaired; operators should see it. */
export type RepairLog = (event: {
  readonly event: 'settlement_repaired' | 'settlement_unrepaired';
  readonly requestId: string;
  readonly tries: number;
  readonly refundMicrocents: string;
}) => void;

const triesMax = 30;
const pauseMaxMs = 30_000;

/**
 * Corrects the ledger after a settlement whose outcome is unknown (docs/money.md, protocol 5): writes the row unless it exists, reads back
 * which row won, and refunds a charge that the client was told it does not pay. Resolves with the microcents that the account has finally
 * paid. Every step may be repeated.
 */
export async function repair(
  given: UsageRow,
  ledger: Pick<Ledger, 'settle' | 'readBack' | 'transfer'>,
  { newId, now }: { readonly newId: () => Uint8Array; readonly now: () => number },
  log: RepairLog,
): Promise<bigint> {
  const requestId = Buffer.from(given.requestId).toString('hex');
  let row = given;
  for (let tries = 1; tries <= triesMax; tries++) {
    try {
      if ((await ledger.settle(row)) === 'lost' && row.costMicrocents > 0n) {
        // The money it was held from no longer belongs to this process, so nothing can be charged.
        row = lostRow(row);
        await ledger.settle(row);
      }
      const there = await ledger.readBack(row.requestId);
      const paid = there?.costMicrocents ?? 0n;
      const refund = paid - row.costMicrocents;
      if (refund > 0n) {
        await ledger.transfer({
          id: newId(),
          debitAccount: systemAccounts.revenue,
          creditAccount: row.accountId,
          amountMicrocents: refund,
          kind: 'refund',
          idempotencyKey: `refund:${requestId}`,
          reference: requestId,
          by: 'system',
          at: now(),
        });
      }
      log({ event: 'settlement_repaired', requestId, tries, refundMicrocents: String(refund > 0n ? refund : 0n) });
      return paid;
    } catch {
      await pause(tries);
    }
  }
  log({ event: 'settlement_unrepaired', requestId, tries: triesMax, refundMicrocents: '0' });
  // The money stays reserved until a restart; at boot the ledger alone determines the account's balance.
  return given.holdMicrocents;
}

/**
 * Decides whether a settlement whose outcome is unknown has charged: writes a row in its place that charges nothing, unless it exists. One
 * of the two has won from then on, because both have the key of the request. Resolves with whether the given one has, as soon as the ledger
 * answers.
 */
export async function decide(
  given: UsageRow,
  ledger: Pick<Ledger, 'settle' | 'readBack'>,
  log: RepairLog,
): Promise<boolean> {
  for (let tries = 1; ; tries++) {
    try {
      await ledger.settle(lostRow(given));
      const there = await ledger.readBack(given.requestId);
      if (there?.ending !== given.ending) return false; // the hold ends with a repair, which says so
      const requestId = Buffer.from(given.requestId).toString('hex');
      log({ event: 'settlement_repaired', requestId, tries, refundMicrocents: '0' });
      return true;
    } catch {
      await pause(tries);
    }
  }
}

const lostRow = (row: UsageRow): UsageRow => ({
  ...row,
  ending: 'lost',
  errorCode: 'internal_error',
  costMicrocents: 0n,
  unchargedMicrocents: row.unchargedMicrocents + row.costMicrocents,
});

const pause = (tries: number): Promise<void> =>
  new Promise((resolve) =>
    setTimeout(resolve, Math.min(100 * 2 ** tries, pauseMaxMs) * (0.5 + Math.random() / 2)).unref(),
  );
