import { setTimeout as sleep } from 'node:timers/promises';
import { isOfBudget, readBalanceId } from '../budget.ts';
import type { Granted, LeaseServer } from '../leases.ts';
import type { Session } from './connection.ts';
import { isWorthAnotherTry, sqlState, storeErrorOf } from './postgres-error.ts';
import { hexOf } from './settlements.ts';
import { beginBalance, returnCredit, returnBudget, grant, grantOfBudget } from './statements.ts';

const answerTimeoutMs = 2_000;
const conflictTriesMax = 5;
/** The channel on which replicas call in idle remainders from each other; only for admin events and low balances, not per request. */
export const returnChannel = 'tokenhouse_return';

/** The database as the lease server of each of its replicas. */
export function postgresLeaseServer(session: Session, replica: () => Uint8Array): LeaseServer {
  const begin = async (balanceId: string): Promise<void> => {
    const { subject, per, startsAt, endsAt } = readBalanceId(balanceId);
    await session.query(beginBalance, [balanceId, subject, per, startsAt, endsAt], answerTimeoutMs);
  };
  return {
    grant: async ({ balanceId, missing, want, step, isFirst }) => {
      const isBudget = isOfBudget(balanceId);
      for (let conflicts = 0; ; conflicts++) {
        const me = replica();
        try {
          if (isFirst && isBudget) await begin(balanceId);
          const { rows } = await session.query<Granted>(
            isBudget ? grantOfBudget : grant,
            [me, balanceId, missing, want, step],
            answerTimeoutMs,
          );
          // Leased in an earlier epoch, whose leases have been returned.
          if (me !== replica()) continue;
          return rows[0]!;
        } catch (error) {
          if (!(isWorthAnotherTry(error) || isOfOldRow(error)) || conflicts >= conflictTriesMax)
            throw storeErrorOf(error);
          await sleep(Math.random() * 10 * 2 ** conflicts);
        }
      }
    },
    returnUnused: (balanceId, microcents) => {
      const statement = isOfBudget(balanceId) ? returnBudget : returnCredit;
      return session.query(statement, [replica(), balanceId, microcents], answerTimeoutMs);
    },
    callOthers: async (balanceId) => {
      const call = { name: 'call', text: `select pg_notify('${returnChannel}', $1)` };
      try {
        await session.query(call, [`${hexOf(replica())} ${balanceId}`], answerTimeoutMs);
      } catch (error) {
        throw storeErrorOf(error);
      }
    },
  };
}

/** The balance that another replica has called in; undefined: it is this replica's own call. */
export function balanceCalled(payload: string, replica: Uint8Array): string | undefined {
  const [caller, balanceId = ''] = payload.split(' ');
  return caller === hexOf(replica) ? undefined : balanceId;
}

/**
 * A lease is taken from the locked row, which may have more than the snapshot's row, after a return or a top-up meanwhile. PostgreSQL
 * checks the update of the old row before it finds the new one.
 */
const isOfOldRow = (error: unknown): boolean => sqlState(error) === '23514';
