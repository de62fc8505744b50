/** Days of usage are signed, and whatever is changed of them afterwards is named. On any dialect. */
import assert from 'node:assert/strict';
import { sql, type Kysely } from 'kysely';
import { openSecret, type Secret } from '../../src/accounts/secret.ts';
import { rotateSigningKey } from '../../src/accounts/signing-key.ts';
import { UsageHeads } from '../../src/app/usage-heads.ts';
import type { Database } from '../../src/store/database.ts';
import type { UsageRow } from '../../src/store/ledger.ts';
import { checkProof } from '../../src/store/proofs/check-proof.ts';
import { listDayHeads, proveUsage } from '../../src/store/proofs/prove-row.ts';
import { listSigningKeys, shownKey } from '../../src/store/proofs/signing-keys.ts';
import { repositoriesOn } from '../../src/store/repositories/repositories.ts';
import { verifyHeads } from '../../src/store/verify/verify-heads.ts';
import type { Difference } from '../../src/store/verify/difference.ts';
import { uuidText } from '../../src/platform/ids/uuid.ts';
import { insertUsage, randomOf, randomRow } from '../usage/ledger-of-rows.ts';
import { keys } from '../usage/sums.ts';

export const hourMs = 3_600_000;
export const dayMs = 24 * hourMs;
/** The first day that is signed. */
export const firstDay = Date.UTC(2026, 9, 26);

export const secretOf = (fromEnvironment: string): Secret =>
  openSecret({ fromEnvironment, dataFolder: '/nowhere', warn: assert.fail });

export const servicesOf = (db: Kysely<Database>, now: number, secret = secretOf('s'.repeat(32))) => ({
  repositories: repositoriesOn(db),
  secret,
  now: () => now,
});

/** Signs all days that are complete at that time. */
export async function signUntil(db: Kysely<Database>, now: number, secret?: Secret): Promise<void> {
  assert.equal(await new UsageHeads(servicesOf(db, now, secret)).run(Infinity), false);
}

/** When the day `number` after the first one is complete. */
export const completeAt = (number: number): number => firstDay + (number + 1) * dayMs + hourMs;

export async function differencesIn(db: Kysely<Database>, keptSince = 0): Promise<readonly Difference[]> {
  const found: Difference[] = [];
  await verifyHeads(db, keptSince, (difference) => found.push(difference));
  return found;
}

export const signedDays = async (db: Kysely<Database>): Promise<number> =>
  (await db.selectFrom('day_head').select('day').execute()).length;

export async function requestsInHeads(
  db: Kysely<Database>,
  accountId: string,
): Promise<readonly (readonly [bigint, bigint])[]> {
  const heads = await db
    .selectFrom('usage_head')
    .select(['requests', 'late'])
    .where('account_id', '=', accountId)
    .orderBy('day')
    .execute();
  return heads.map(({ requests, late }) => [requests, late] as const);
}

/** `count` requests of an account that ended on a day. */
export async function addRequests(
  db: Kysely<Database>,
  {
    accountId,
    day,
    count,
    seed = day % 1_000_003,
  }: { readonly accountId: string; readonly day: number; readonly count: number; readonly seed?: number },
): Promise<readonly UsageRow[]> {
  const random = randomOf(seed);
  const from = firstDay + day * dayMs;
  const rows = Array.from({ length: count }, () => randomRow(random, { accountId, from, to: from + dayMs }, keys));
  if (rows.length > 0) await insertUsage(db, rows);
  return rows;
}

/** Accounts `acct_a` (requests on every day), `acct_b` (odd numbers), `acct_c` (some days none), `acct_d` (large), signed day by day. */
export async function signedUsage(db: Kysely<Database>): Promise<readonly UsageRow[]> {
  const rows: UsageRow[] = [];
  const counts: readonly Readonly<Record<string, number>>[] = [
    { acct_a: 1, acct_b: 3 },
    { acct_a: 2, acct_b: 257, acct_d: 4_200 },
    {},
    { acct_a: 256, acct_c: 1, acct_d: 4_096 },
    { acct_a: 5, acct_b: 1, acct_c: 2 },
  ];
  for (const [day, of] of counts.entries()) {
    for (const [accountId, count] of Object.entries(of))
      rows.push(...(await addRequests(db, { accountId, day, count })));
    // Not a millisecond earlier.
    await signUntil(db, completeAt(day) - 1);
    assert.equal(await signedDays(db), day === 0 ? 1 : day + 1);
    await signUntil(db, completeAt(day));
  }
  return rows;
}

/** One changed value after another, each in a transaction that is rolled back: what is found names the request or the head. */
export async function everyChangeIsNamed(
  db: Kysely<Database>,
  rows: readonly UsageRow[],
  unlock: (db: Kysely<Database>) => Promise<void>,
): Promise<void> {
  assert.deepEqual(await differencesIn(db), []);
  const row = rows.find(
    ({ accountId, costMicrocents: cost, tags, tier }) =>
      accountId === 'acct_b' && cost > 0n && tags !== null && tier !== undefined,
  )!;
  const id = sql`request_id = ${row.requestId}`;
  const first = sql`day = ${BigInt(firstDay + dayMs)}`;
  const usage = new RegExp(`^usage ${uuidText(row.requestId)}`);
  const plain = rows.find(({ accountId, tier }) => accountId === 'acct_b' && tier === undefined)!;
  const plainUsage = new RegExp(`^usage ${uuidText(plain.requestId)}`);
  const cases: readonly (readonly [ReturnType<typeof sql>, RegExp])[] = [
    ...[
      'cost = cost - 1',
      'prompt_tokens = prompt_tokens + 1',
      `model_id = 'x'`,
      `tags = '["rex"]'`,
      'backend = null',
      'streamed = 1 - streamed',
      'ended_at = ended_at + 1',
      `ended_at = ended_at - ${dayMs}`,
      `account_id = 'acct_a'`,
      'zdr = null',
      `warnings = '[]'`,
      'price_multiple = price_multiple + 1',
      'price_multiple = null',
    ].map((change) => [sql`update usage set ${sql.raw(change)} where ${id}`, usage] as const),
    // A row from before the column was there has none.
    [sql`update usage set price_multiple = 5000 where ${sql`request_id = ${plain.requestId}`}`, plainUsage],
    [sql`delete from usage where ${id}`, usage],
    [sql`update usage_leaves set leaves = root where account_id = 'acct_a' and ${first}`, /^head of 2026-10-27: /],
    [sql`delete from usage_leaves where account_id = 'acct_b' and page = 1`, /^head of 2026-10-27: root/],
    [sql`update usage_head set cost = cost + 1 where account_id = 'acct_b' and ${first}`, /^head of 2026-10-27: hash/],
    [
      sql`update usage_head set previous = root where account_id = 'acct_b' and ${first}`,
      /^head of 2026-10-27: hash of the head before/,
    ],
    [sql`delete from usage_head where account_id = 'acct_b' and ${first}`, /^head of 2026-10-27: root/],
    [sql`update day_head set signed_at = signed_at + 1 where ${first}`, /^head of 2026-10-27: signature/],
    [sql`update day_head set root = previous where ${first}`, /^head of 2026-10-27: root/],
    [sql`delete from day_head where ${first}`, /^head of 2026-10-28: the day before/],
  ];
  for (const [change, what] of cases) {
    const stop = new Error('rolled back');
    const found: Difference[] = [];
    await db
      .transaction()
      .execute(async (transaction) => {
        await unlock(transaction);
        await change.execute(transaction);
        found.push(...(await differencesIn(transaction)));
        throw stop;
      })
      .catch((error: unknown) => assert.equal(error, stop));
    assert.ok(found.length > 0, `not found: ${what}`);
    assert.match(found[0]!.what, what);
    if (what === usage)
      assert.ok(
        found.every((one) => usage.test(one.what) || one.what.startsWith('head of')),
        JSON.stringify(found, (_, value: unknown) => String(value)),
      );
  }
  assert.deepEqual(await differencesIn(db), []);
}

/** Every request has a proof that holds by itself, and no byte of a proof can be another one. */
export async function proofsHold(db: Kysely<Database>, rows: readonly UsageRow[], flipped: number): Promise<void> {
  const random = randomOf(5);
  const flip = (text: string, at: number): string => {
    const bytes = Buffer.from(text);
    bytes[at]! ^= 1 << Math.floor(random() * 7);
    return bytes.toString();
  };
  for (const [number, { accountId, requestId, publicId }] of rows.entries()) {
    const proving = await proveUsage(db, { accountId, requestId });
    assert.ok(proving.state === 'proved', `${publicId}: ${proving.state}`);
    assert.equal(proving.proof.request.public_id, publicId);
    const text = `${JSON.stringify(proving.proof, null, 2)}\n`;
    const keys = (await listSigningKeys(db)).map(shownKey);
    assert.equal(checkProof(text, { keys, heads: await listDayHeads(db, { limit: 100 }) }).problem, undefined);
    assert.equal(checkProof(JSON.stringify(proving.proof)).problem, undefined);
    const places = number < flipped ? text.length : 20;
    for (let place = 0; place < places; place++) {
      const changed = flip(text, number < flipped ? place : Math.floor(random() * text.length));
      if (changed === text) continue;
      const { problem } = checkProof(changed);
      assert.ok(problem !== undefined, changed);
      if (/^request_path|^account_path/.test(problem)) assert.match(problem, /step|path/);
    }
  }
  const [{ accountId, requestId }] = rows as readonly [UsageRow];
  assert.deepEqual(await proveUsage(db, { accountId: 'acct_z', requestId }), { state: 'never' });
  const proving = await proveUsage(db, { accountId, requestId });
  assert.ok(proving.state === 'proved');
  const { proof } = proving;
  const others: readonly (readonly [unknown, RegExp])[] = [
    [{ ...proof, more: 1 }, /something in it that no proof has/],
    [{ ...proof, request: { ...proof.request, cost: '1' } }, /^request or request_path was changed/],
    [{ ...proof, request: { ...proof.request, account_id: 'acct_x' } }, /^request.account_id is not/],
    [{ ...proof, account_head: { ...proof.account_head, requests: '0' } }, /^account_head or account_path was changed/],
    [{ ...proof, day_head: { ...proof.day_head, signed_at: '0' } }, /^day_head or its signature was changed/],
    [{ ...proof, key: { ...proof.key, public_key: '0'.repeat(64) } }, /^key.public_key is not the key/],
    [{ ...proof, request_path: ['L:0'] }, /^request_path.0 is not a step/],
    [[], /^the proof.object is not a text/],
    [null, /^the proof is missing/],
  ];
  for (const [changed, problem] of others) assert.match(checkProof(JSON.stringify(changed)).problem ?? '', problem);
  const text = JSON.stringify(proof);
  assert.match(checkProof(text, { keys: [] }).problem ?? '', /not among the given keys/);
  assert.match(checkProof(text, { heads: [] }).problem ?? '', /have none of/);
  const head = { ...proof.day_head, root: '0'.repeat(64) };
  assert.match(checkProof(text, { heads: [head] }).problem ?? '', /two heads of one day/);
}

/** Requests that are recorded after their day was signed are in the next head; of those that are a week late, verification speaks. */
export async function lateRequestsAreSigned(db: Kysely<Database>): Promise<void> {
  const before = (await requestsInHeads(db, 'acct_a')).length;
  const late = [...(await addRequests(db, { accountId: 'acct_a', day: 3, count: 2, seed: 11 }))];
  await addRequests(db, { accountId: 'acct_a', day: 2, count: 1, seed: 12 });
  await addRequests(db, { accountId: 'acct_c', day: 2, count: 300, seed: 13 });
  late.push(...(await addRequests(db, { accountId: 'acct_d', day: 2, count: 4_100, seed: 14 })).slice(0, 3));
  const [first] = late as [UsageRow];
  assert.deepEqual(await proveUsage(db, first), { state: 'later', at: completeAt(5) });
  await addRequests(db, { accountId: 'acct_a', day: 5, count: 1, seed: 15 });
  assert.deepEqual(await differencesIn(db), []);
  await signUntil(db, completeAt(6));
  assert.deepEqual(
    (await requestsInHeads(db, 'acct_a')).slice(before),
    [[4n, 3n]],
    'all late ones once, and none again on the day after',
  );
  await proofsHold(db, late, 0);
  assert.deepEqual((await requestsInHeads(db, 'acct_c')).at(-1), [300n, 300n]);
  assert.deepEqual((await requestsInHeads(db, 'acct_d')).at(-1), [4_100n, 4_100n]);
  assert.deepEqual(await differencesIn(db), []);
  await signUntil(db, completeAt(12));
  const [row] = await addRequests(db, { accountId: 'acct_a', day: 3, count: 1, seed: 16 });
  await signUntil(db, completeAt(13));
  assert.deepEqual(
    (await differencesIn(db)).map(({ what, found }) => [what, found]),
    [[`usage ${uuidText(row!.requestId)}`, 'in none']],
  );
}

/** A rotated key, and one of another secret, sign from then on; what the others have signed stays valid. */
export async function keysRotate(db: Kysely<Database>, from: number): Promise<void> {
  const keyOfDay = async (): Promise<string> =>
    (await db.selectFrom('day_head').select('key_id').orderBy('day', 'desc').limit(1).executeTakeFirstOrThrow()).key_id;
  const first = await keyOfDay();
  const { id } = await rotateSigningKey(servicesOf(db, completeAt(from)));
  await signUntil(db, completeAt(from));
  assert.equal(await keyOfDay(), id);
  await signUntil(db, completeAt(from + 1), secretOf('t'.repeat(32)));
  const third = await keyOfDay();
  assert.equal(new Set([first, id, third]).size, 3);
  await signUntil(db, completeAt(from + 2), secretOf('t'.repeat(32)));
  assert.equal(await keyOfDay(), third);
}
