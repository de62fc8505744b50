/** Failed sign-in attempts, counted for all processes that share the database. */
import type { Kysely } from 'kysely';
import type { Row, Rows } from '../schema/codec.ts';

type Db = Kysely<Rows>;

/** The number of free failures, and the longest pause after more of them. */
export interface AttemptRules {
  /** For one user from one network. */
  readonly pair: { readonly free: number; readonly pauseMaxMs: number };
  /** For one network, regardless of the user. */
  readonly network: { readonly free: number; readonly pauseMaxMs: number };
  /** Failures for one user, from everywhere, beyond which each network has one free attempt. */
  readonly person: { readonly free: number };
}

/** The subjects that an attempt counts for, as hashes, which reveal nothing. */
export interface Attempted {
  readonly pairs: readonly Subject[];
  readonly networks: readonly Subject[];
  readonly person: string;
}

interface Subject {
  readonly who: string;
  /** Multiplier for the number of free failures. */
  readonly times: number;
}

const firstPauseMs = 1_000;
/** A count without failures for this long is deleted. */
const forgetAfterMs = 86_400_000;
const forgottenAtOnce = 1_000;

/** Counts a failure in advance. Resolves with the required wait in milliseconds; 0: proceed. */
export async function beginAttempt(
  db: Db,
  { attempted, rules, at }: { readonly attempted: Attempted; readonly rules: AttemptRules; readonly at: number },
): Promise<number> {
  const { pairs, networks, person } = attempted;
  // A caller that has to wait writes nothing, because most of a flood consists of such attempts.
  const waits = await db
    .selectFrom('sign_in_attempt')
    .where(
      'who',
      'in',
      [...pairs, ...networks].map(({ who }) => who),
    )
    .where('openAt', '>', at)
    .select('openAt')
    .execute();
  if (waits.length > 0) return longestOf(waits.map((row) => row.openAt)) - at;
  return await db.transaction().execute(async (transaction) => {
    // The same order everywhere, so that no two transactions deadlock.
    const counts = new Map<string, Counted>();
    for (const { who } of [...pairs, ...networks]) counts.set(who, await taken(transaction, who, at));
    const ofPerson = await taken(transaction, person, at);
    const waitMs = longestOf([...counts.values()].map(({ openAt }) => openAt)) - at;
    if (waitMs > 0) return waitMs;
    const isUnderAttack = ofPerson.failures >= rules.person.free;
    const free = isUnderAttack ? 1 : rules.pair.free;
    for (const { who, times } of pairs)
      await fail(transaction, who, counts.get(who)!, { ...rules.pair, free: free * times, at });
    for (const { who, times } of networks)
      await fail(transaction, who, counts.get(who)!, { ...rules.network, free: rules.network.free * times, at });
    await fail(transaction, person, ofPerson, { free: Number.POSITIVE_INFINITY, pauseMaxMs: 0, at });
    return 0;
  });
}

/** The attempt succeeded: removes its failure, and resets the user's count. */
export async function attemptWasRight(
  db: Db,
  { attempted, rules }: { readonly attempted: Attempted; readonly rules: AttemptRules },
): Promise<void> {
  const { pairs, networks, person } = attempted;
  await db.transaction().execute(async (transaction) => {
    for (const { who } of pairs) await transaction.deleteFrom('sign_in_attempt').where('who', '=', who).execute();
    for (const who of [...networks.map((network) => network.who), person])
      await transaction
        .updateTable('sign_in_attempt')
        .set((is) => ({ failures: is('failures', '-', 1) }))
        .where('who', '=', who)
        .where('failures', '>', 0)
        .execute();
    for (const { who, times } of networks)
      await transaction
        .updateTable('sign_in_attempt')
        .set({ openAt: 0 })
        .where('who', '=', who)
        .where('failures', '<=', rules.network.free * times)
        .execute();
  });
}

/** Deletes a bounded number of counts: those idle for a day, and the longest idle beyond a maximum. Returns how many. */
export async function forgetAttempts(
  db: Db,
  { at, keepMax }: { readonly at: number; readonly keepMax: number },
): Promise<number> {
  const surplus = await db
    .selectFrom('sign_in_attempt')
    .select('lastAt')
    .orderBy('lastAt', 'desc')
    .offset(keepMax)
    .limit(1)
    .executeTakeFirst();
  const until = Math.max(at - forgetAfterMs, surplus?.lastAt ?? 0);
  const doomed = db
    .selectFrom('sign_in_attempt')
    .select('who')
    .where('lastAt', '<=', until)
    .orderBy('lastAt')
    .limit(forgottenAtOnce);
  const { numDeletedRows } = await db.deleteFrom('sign_in_attempt').where('who', 'in', doomed).executeTakeFirst();
  return Number(numDeletedRows);
}

type Counted = Pick<Row<'sign_in_attempt'>, 'failures' | 'openAt'>;

/** Returns a count, with its row locked on PostgreSQL until the transaction ends; on SQLite the repositories are the only writers. */
async function taken(transaction: Db, who: string, at: number): Promise<Counted> {
  const row = await transaction
    .insertInto('sign_in_attempt')
    .values({ who, failures: 0, openAt: 0, lastAt: at })
    // Takes the lock without a change.
    .onConflict((on) => on.column('who').doUpdateSet((is) => ({ who: is.ref('excluded.who') })))
    .returning(['failures', 'openAt', 'lastAt'])
    .executeTakeFirstOrThrow();
  return row.lastAt < at - forgetAfterMs ? { failures: 0, openAt: 0 } : row;
}

async function fail(
  transaction: Db,
  who: string,
  { failures, openAt }: Counted,
  { free, pauseMaxMs, at }: { readonly free: number; readonly pauseMaxMs: number; readonly at: number },
): Promise<void> {
  const now = failures + 1;
  const beyond = now - free;
  const isPaused = beyond >= 0 && pauseMaxMs > 0;
  await transaction
    .updateTable('sign_in_attempt')
    .set({
      failures: now,
      openAt: isPaused ? at + Math.min(firstPauseMs * 2 ** Math.min(beyond, 20), pauseMaxMs) : openAt,
      lastAt: at,
    })
    .where('who', '=', who)
    .execute();
}

const longestOf = (times: readonly number[]): number => Math.max(0, ...times);
