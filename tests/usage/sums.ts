/** Reports against a naive addition of the rows, on any dialect. */
import assert from 'node:assert/strict';
import type { Kysely } from 'kysely';
import type { Database } from '../../src/store/database.ts';
import type { UsageRow } from '../../src/store/ledger.ts';
import { lastUseOfKeys } from '../../src/store/repositories/key-last-use.ts';
import { rowsOn } from '../../src/store/schema/codec.ts';
import { editAccount } from '../../src/store/repositories/accounts.ts';
import { reportUsage, spendOfKeys, spendSince, type ReportDimension } from '../../src/store/reports/reports.ts';
import { reportLatency, type LatencyRequest, type LatencyRow } from '../../src/store/reports/latency.ts';
import { recomputeUsageDays, recomputeUsageHours } from '../../src/store/reports/roll-ups.ts';
import { bucketBounds, bucketWidths } from '../../src/platform/calendar/time-zone.ts';
import { uuid } from '../store/fixture.ts';
import { insertUsage, randomOf, randomRow } from './ledger-of-rows.ts';

const hourMs = 3_600_000;
const dayMs = 24 * hourMs;
const zones = ['UTC', 'Europe/Berlin', 'Asia/Kolkata', 'Asia/Kathmandu', 'Australia/Lord_Howe', 'America/Santiago'];
const dimensions: readonly ReportDimension[] = ['model', 'key', 'user', 'tag', 'tier', 'ending'];

export const users: Readonly<Record<string, string | null>> = {
  key_1: 'ann',
  key_2: 'ann',
  key_3: 'bob',
  key_4: null,
};
export const keys = Object.keys(users);

/** Random spans, zones, filters and groups, before roll-ups, with some of them, and with all. */
export async function compareWithRows(db: Kysely<Database>, seed: number, questions: number): Promise<void> {
  const random = randomOf(seed);
  const pick = <Value>(list: readonly Value[]): Value => list[Math.floor(random() * list.length)]!;
  // The clocks of most zones change in it.
  const span = { from: Date.UTC(2026, 2, 20), to: Date.UTC(2026, 3, 12) };
  // Each key rests from another time on.
  const restsFrom: Readonly<Record<string, number>> = { key_2: 20 * dayMs, key_3: 9 * dayMs, key_4: 2 * dayMs };
  const rows = Array.from({ length: 3_000 }, () =>
    randomRow(random, { accountId: pick(['acct_a', 'acct_a', 'acct_b']), ...span }, keys),
  )
    .filter(({ keyId, endedAt }) => endedAt < span.from + (restsFrom[keyId] ?? Infinity))
    .sort((a, b) => a.endedAt - b.endedAt);
  await insertUsage(db, rows);

  const ask = async (stage: string): Promise<void> => {
    const from = span.from + Math.floor(random() * 24 * dayMs);
    for (const accountId of ['acct_a', 'acct_b'])
      await compareKeys(
        db,
        rows.filter((row) => row.accountId === accountId),
        { accountId, since: [0, from], to: from + dayMs },
      );
    for (let question = 0; question < questions; question++) {
      const timeZone = pick(zones);
      const width = pick(bucketWidths);
      // Short ones begin and end beside the days that lack an hour or have one more.
      const length = width === '1m' ? hourMs : width === '1h' || random() < 0.5 ? 4 * dayMs : 30 * dayMs;
      const from = span.from - dayMs + Math.floor(random() * 24 * dayMs);
      const to = from + Math.floor(random() * length);
      const bounds = random() < 0.2 ? [from, to] : bucketBounds(timeZone, width, { from, to }, 200);
      const by = dimensions.filter(() => random() < 0.4);
      const filter = {
        accountId: pick(['acct_a', 'acct_b']),
        ...(random() < 0.2 ? { modelId: 'glm' } : {}),
        ...(random() < 0.2 ? { keyId: 'key_1' } : {}),
        ...(random() < 0.2 ? { userId: 'ann' } : {}),
        ...(random() < 0.2 ? { ownerId: 'bob' } : {}),
        ...(random() < 0.3 ? { tag: 'red' } : {}),
        ...(random() < 0.1 ? { tier: 'flex' } : {}),
        ...(random() < 0.1 ? { ending: 'client_left' } : {}),
      };
      const found = await reportUsage(db, { ...filter, timeZone, bounds, by });
      const reported = found.map(
        ({ bucket, model, key, user, tag, tier, ending, requests, prompt_tokens: prompt, cost }) =>
          [bucket, model, key, user, tag, tier, ending, requests, prompt, cost].join(' '),
      );
      const question_ = JSON.stringify({ stage, seed, timeZone, width, bounds, by, filter });
      assert.deepEqual(reported.sort(), naive(rows, filter, bounds, by).sort(), question_);
      const { tag: _, ...untagged } = filter;
      await compareLatencies(db, rows, { ...untagged, from, to, by: by.filter((one) => one !== 'tag') }, question_);
      if (bounds.length === 2) {
        const spent = rows.filter(
          (row) => row.accountId === filter.accountId && from <= row.endedAt && row.endedAt < to,
        );
        for (const [who, id, isTheirs] of [
          ['account', '', () => true],
          ['key', 'key_2', ({ keyId }) => keyId === 'key_2'],
          ['user', 'ann', ({ accountId, keyId }) => ownerOf({ accountId, keyId }) === 'ann'],
          ['tag', 'blue', ({ tags }) => labels(tags).includes('blue')],
        ] as const satisfies readonly (readonly [string, string, (row: UsageRow) => boolean])[])
          assert.equal(
            await spendSince(db, { accountId: filter.accountId, from, to, by: who, id }),
            spent.filter(isTheirs).reduce((sum, row) => sum + row.costMicrocents, 0n),
            question_,
          );
      }
    }
  };
  const addDays = async (): Promise<void> => {
    while ((await recomputeUsageDays(db)).isMore);
  };
  await ask('rows alone');
  await recomputeUsageHours(db, { now: span.from + 15 * dayMs + 5 * hourMs });
  await ask('some hours');
  await addDays();
  await ask('some days');
  for (const timeZone of zones) {
    for (const accountId of ['acct_a', 'acct_b'])
      await editAccount(rowsOn(db), { accountId, timeZone, at: Date.now(), changeId: uuid() });
    await recomputeUsageDays(db);
    await recomputeUsageHours(db, { now: span.to + hourMs });
    await ask(`${timeZone} on its way`);
    await addDays();
    await ask(`days of ${timeZone}`);
  }
}

/** What the list of an account's keys shows. `rows`: its own, the oldest first. */
async function compareKeys(
  db: Kysely<Database>,
  rows: readonly UsageRow[],
  request: { readonly accountId: string; readonly since: readonly number[]; readonly to: number },
): Promise<void> {
  const { accountId, since, to } = request;
  const used = await lastUseOfKeys(db, { accountId, keyIds: [...keys, 'key_never_used'] });
  assert.deepEqual(used.map(({ keyId }) => keyId).sort(), keys);
  for (const { keyId, at } of used) {
    const { endedAt } = rows.findLast((row) => row.keyId === keyId)!;
    assert.equal(Math.floor(at / hourMs), Math.floor(endedAt / hourMs), keyId);
    assert.ok(at >= endedAt);
  }
  const spends = await spendOfKeys(db, { accountId, since, to });
  for (const [index, from] of since.entries())
    for (const keyId of keys) {
      const spent = rows.filter((row) => row.keyId === keyId && from <= row.endedAt && row.endedAt < to);
      const cost = spent.reduce((sum, row) => sum + row.costMicrocents, 0n);
      assert.equal(spends[index]!.get(keyId) ?? 0n, cost, `${keyId} since ${from}`);
    }
  const only = await spendOfKeys(db, { accountId, keyId: 'key_2', since, to });
  assert.deepEqual(
    only.map((one) => one.get('key_2')),
    spends.map((one) => one.get('key_2')),
  );
}

/** Keys are the account's that has them. */
const ownerOf = ({ accountId, keyId }: Pick<UsageRow, 'accountId' | 'keyId'>): string | null =>
  accountId === 'acct_a' ? (users[keyId] ?? null) : null;

const labels = (tags: string | null): readonly string[] => (tags === null ? [] : (JSON.parse(tags) as string[]));

function naive(
  rows: readonly UsageRow[],
  filter: Readonly<
    Partial<Record<'accountId' | 'modelId' | 'keyId' | 'userId' | 'ownerId' | 'tag' | 'tier' | 'ending', string>>
  >,
  bounds: readonly number[],
  by: readonly ReportDimension[],
): string[] {
  const sums = new Map<string, { requests: number; prompt: number; cost: bigint }>();
  for (const row of rows) {
    const user = ownerOf(row);
    const tags = labels(row.tags);
    if (row.accountId !== filter.accountId || row.endedAt < bounds[0]! || row.endedAt >= bounds.at(-1)!) continue;
    if (filter.modelId !== undefined && row.modelId !== filter.modelId) continue;
    if (filter.keyId !== undefined && row.keyId !== filter.keyId) continue;
    if (filter.userId !== undefined && user !== filter.userId) continue;
    if (filter.ownerId !== undefined && user !== filter.ownerId) continue;
    if (filter.tag !== undefined && !tags.includes(filter.tag)) continue;
    if (filter.tier !== undefined && filter.tier !== row.tier) continue;
    if (filter.ending !== undefined && filter.ending !== row.ending) continue;
    const bucket = bounds.findLastIndex((bound) => bound <= row.endedAt);
    const shown = filter.tag === undefined ? tags : [filter.tag];
    for (const tag of by.includes('tag') ? shown : [null]) {
      const name = [
        bucket,
        by.includes('model') ? row.modelId : null,
        by.includes('key') ? row.keyId : null,
        by.includes('user') ? user : null,
        tag,
        by.includes('tier') ? row.tier : null,
        by.includes('ending') ? row.ending : null,
      ].join(' ');
      const sum = sums.get(name) ?? { requests: 0, prompt: 0, cost: 0n };
      sums.set(name, sum);
      sum.requests += 1;
      sum.prompt += row.promptTokens;
      sum.cost += row.costMicrocents;
    }
  }
  return [...sums].map(([name, { requests, prompt, cost }]) => `${name} ${requests} ${prompt} ${cost}`);
}

/** Percentiles are those of the rows, to the width of a range; the numbers of requests are exact. */
async function compareLatencies(
  db: Kysely<Database>,
  rows: readonly UsageRow[],
  request: LatencyRequest,
  question: string,
): Promise<void> {
  const { from, to, by } = request;
  const groups = new Map<string, { first: number[]; total: number[] }>();
  const meant = rows.filter(
    (row) =>
      row.accountId === request.accountId &&
      from <= row.endedAt &&
      row.endedAt < to &&
      (request.modelId ?? row.modelId) === row.modelId &&
      (request.keyId ?? row.keyId) === row.keyId &&
      (request.userId ?? ownerOf(row)) === ownerOf(row) &&
      (request.ownerId ?? ownerOf(row)) === ownerOf(row) &&
      (request.tier ?? row.tier) === row.tier &&
      (request.ending ?? row.ending) === row.ending,
  );
  for (const row of meant) {
    const name = [
      by.includes('model') ? row.modelId : null,
      by.includes('key') ? row.keyId : null,
      by.includes('user') ? ownerOf(row) : null,
      by.includes('tier') ? (row.tier ?? null) : null,
      by.includes('ending') ? row.ending : null,
    ].join(' ');
    const group = groups.get(name) ?? { first: [], total: [] };
    groups.set(name, group);
    if (row.firstTokenMs !== null) group.first.push(row.firstTokenMs);
    group.total.push(row.totalMs);
  }
  const found = await reportLatency(db, request);
  const nameOf = ({ model, key, user, tier, ending }: LatencyRow) => [model, key, user, tier, ending].join(' ');
  assert.deepEqual(found.map(nameOf).sort(), [...groups.keys()].sort(), question);
  for (const row of found) {
    const { first, total } = groups.get(nameOf(row))!;
    for (const [{ requests, p50, p95 }, times] of [
      [row.firstToken, first],
      [row.total, total],
    ] as const) {
      times.sort((one, other) => one - other);
      assert.equal(requests, times.length, question);
      for (const [share, reported] of [
        [0.5, p50],
        [0.95, p95],
      ] as const) {
        const right = times[Math.ceil(share * times.length) - 1];
        if (right === undefined) assert.equal(reported, null, question);
        else assert.ok(Math.abs(reported! - right) <= right * 0.2 + 1, `${reported} for ${right}, ${question}`);
      }
    }
  }
}
