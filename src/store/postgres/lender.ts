import { setTimeout as sleep } from 'node:timers/promises';
import { isOfBudget, readPurseId } from '../budget.ts';
import type { Granted, Lender } from '../leases.ts';
import type { Session } from './connection.ts';
import { isWorthAnotherTry, sqlState, storeErrorOf } from './postgres-error.ts';
import { hexOf } from './settlements.ts';
import { beginPurse, giveBack, giveBackToBudget, grant, grantOfBudget } from './statements.ts';

const answerTimeoutMs = 2_000;
const conflictTriesMax = 5;
/** Replicas call to each other for idle remainders on this channel; admin events and poor accounts only, never per request. */
export const returnChannel = 'tokenhouse_return';

/** The database lends to each of its replicas. */
export function postgresLender(session: Session, replica: () => Uint8Array): Lender {
  const begin = async (purseId: string): Promise<void> => {
    const { subject, per, startsAt, endsAt } = readPurseId(purseId);
    await session.query(beginPurse, [purseId, subject, per, startsAt, endsAt], answerTimeoutMs);
  };
  return {
    grant: async ({ purseId, missing, want, step, isFirst }) => {
      const isBudget = isOfBudget(purseId);
      for (let conflicts = 0; ; conflicts++) {
        const me = replica();
        try {
          if (isFirst && isBudget) await begin(purseId);
          const { rows } = await session.query<Granted>(
            isBudget ? grantOfBudget : grant,
            [me, purseId, missing, want, step],
            answerTimeoutMs,
          );
          // Leased by an earlier life, whose slices have gone back.
          if (me !== replica()) continue;
          return rows[0]!;
        } catch (error) {
          if (!(isWorthAnotherTry(error) || isOfOldRow(error)) || conflicts >= conflictTriesMax)
            throw storeErrorOf(error);
          await sleep(Math.random() * 10 * 2 ** conflicts);
        }
      }
    },
    giveBack: (purseId, microcents) => {
      const statement = isOfBudget(purseId) ? giveBackToBudget : giveBack;
      return session.query(statement, [replica(), purseId, microcents], answerTimeoutMs);
    },
    callOthers: async (purseId) => {
      const call = { name: 'call', text: `select pg_notify('${returnChannel}', $1)` };
      try {
        await session.query(call, [`${hexOf(replica())} ${purseId}`], answerTimeoutMs);
      } catch (error) {
        throw storeErrorOf(error);
      }
    },
  };
}

/** The purse that another replica has called for; `undefined`: the call is this replica's own. */
export function purseCalled(payload: string, replica: Uint8Array): string | undefined {
  const [caller, purseId = ''] = payload.split(' ');
  return caller === hexOf(replica) ? undefined : purseId;
}

/**
 * A lease is of what the locked row has, maybe more than the row of the snapshot had: somebody has just given back or
 * topped up. PostgreSQL checks what the update makes of the old row before it finds the new one.
 */
const isOfOldRow = (error: unknown): boolean => sqlState(error) === '23514';
