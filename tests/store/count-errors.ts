/** What both stores promise of the counts of errors. */
import assert from 'node:assert/strict';
import type { Store } from '../../src/app/stores.ts';
import type { ErrorCount, RefusedRequest } from '../../src/store/repositories/refusals.ts';
import type { Repositories } from '../../src/store/repositories/repositories.ts';
import { uuid } from './fixture.ts';

const minuteMs = 60_000;
const hourMs = 60 * minuteMs;
const dayMs = 24 * hourMs;
const begin = Math.floor(1_800_000_000_000 / hourMs) * hourMs;

const count = (accountId: string, minute: number, changes: Partial<ErrorCount> = {}): ErrorCount => ({
  accountId,
  minute,
  keyId: 'key_a',
  modelId: 'demo',
  code: 'insufficient_credits',
  refusals: 1,
  failures: 0,
  ...changes,
});

const refused = (accountId: string, at: number): RefusedRequest => ({
  accountId,
  requestId: uuid(),
  publicId: `req_${at}`,
  clientId: `mine-${at}`,
  at,
  keyId: 'key_a',
  model: 'demo',
  code: 'insufficient_credits',
  message: 'no credit',
});

const sumsOf = async (repositories: Repositories, accountId: string, hours: number) =>
  (
    await repositories.sumErrors({ accountId, bounds: [begin, begin + hours * hourMs], by: ['key', 'model', 'code'] })
  ).map(({ key, model, code, refusals, failures }) => [key, model, code, refusals, failures]);

export async function countsErrors({ ledger, repositories }: Pick<Store, 'ledger' | 'repositories'>): Promise<void> {
  for (const id of ['acct_a', 'acct_b'])
    await ledger.createAccount({ id, name: id, creditLimitMicrocents: 0n, at: begin, changeId: uuid() });

  // Two processes that write the same rows.
  const batch = [0, 1, 2].map((index) => count('acct_a', begin + index * minuteMs, { refusals: 5, failures: 2 }));
  await Promise.all([
    repositories.addErrors({ counts: batch, refused: [] }),
    repositories.addErrors({ counts: batch.toReversed(), refused: [] }),
  ]);
  await repositories.addErrors({
    counts: [
      count('acct_a', begin + minuteMs, { keyId: '', modelId: '' }),
      count('acct_b', begin),
      count('nobody', begin),
    ],
    refused: [refused('nobody', 1)],
  });
  const all = [
    [null, null, 'insufficient_credits', 1, 0],
    ['key_a', 'demo', 'insufficient_credits', 30, 12],
  ];
  const sorted = async (hours: number) =>
    (await sumsOf(repositories, 'acct_a', hours)).toSorted((one, other) => Number(one[3]) - Number(other[3]));
  assert.deepEqual(await sorted(1), all);
  const byMinute = await repositories.sumErrors({
    accountId: 'acct_a',
    bounds: [begin, begin + minuteMs, begin + 2 * minuteMs, begin + 3 * minuteMs],
    by: [],
  });
  assert.deepEqual(
    byMinute.map(({ bucket, refusals, key }) => [bucket, refusals, key]),
    [
      [0, 10, null],
      [1, 11, null],
      [2, 10, null],
    ],
  );
  for (const filter of [
    { keyId: 'key_b' },
    { modelId: 'other' },
    { code: 'http_403' },
    { ownerId: null },
    { userId: 'u' },
  ])
    assert.deepEqual(
      await repositories.sumErrors({ accountId: 'acct_a', bounds: [begin, begin + hourMs], by: [], ...filter }),
      [],
    );
  assert.deepEqual(await sumsOf(repositories, 'nobody', 1), []);

  // A day later they are still by the minute; after that one row an hour has the same sums, and after a quarter there are none.
  const rows = async (): Promise<number> =>
    (await repositories.exportPage({ accountId: 'acct_a', section: 'errors' })).rows.length;
  await repositories.tidyErrors({ now: begin + dayMs });
  assert.equal(await rows(), 4);
  await repositories.tidyErrors({ now: begin + 3 * dayMs });
  assert.equal(await rows(), 2);
  assert.deepEqual(await sorted(1), all);
  await repositories.addErrors({ counts: [count('acct_a', begin + minuteMs)], refused: [] });
  assert.deepEqual(await repositories.tidyErrors({ now: begin + 3 * dayMs }), { isMore: false });
  assert.deepEqual((await sorted(1)).at(-1), ['key_a', 'demo', 'insufficient_credits', 31, 12]);

  // An hour of a flood does not stay for two days: it is summed once it is over, by the most frequent kinds and the codes of the others.
  const flooded = begin + 10 * hourMs;
  const perMinute = 12;
  const flood = Array.from({ length: 60 * perMinute }, (_, index) =>
    count('acct_b', flooded + Math.floor(index / perMinute) * minuteMs, {
      keyId: `key_${index % 300}`,
      code: index % 2 === 0 ? 'http_403' : 'insufficient_credits',
      refusals: index % 300 === 7 ? 1000 : 1,
    }),
  );
  await repositories.addErrors({ counts: [...flood, count('acct_a', flooded + minuteMs)], refused: [] });
  const hoursOf = async (accountId: string): Promise<number> =>
    (await repositories.exportPage({ accountId, section: 'errors' })).rows.length;
  const before = await hoursOf('acct_b');
  await repositories.tidyErrors({ now: flooded + hourMs + minuteMs });
  assert.equal(await hoursOf('acct_b'), before, 'late counts may come');
  await repositories.tidyErrors({ now: flooded + hourMs + 11 * minuteMs });
  assert.equal(await hoursOf('acct_b'), 1 + 202);
  assert.equal(await rows(), 3, 'an account with few rows keeps its minutes');
  const bounds = [flooded, flooded + hourMs];
  const kindsOf = (by: readonly ('key' | 'code')[]) => repositories.sumErrors({ accountId: 'acct_b', bounds, by });
  assert.deepEqual((await kindsOf(['code'])).map(({ code, refusals }) => [code, refusals]).toSorted(), [
    ['http_403', 360],
    ['insufficient_credits', 360 + 3 * 999],
  ]);
  assert.ok((await kindsOf(['key'])).some(({ key, refusals }) => key === 'key_7' && refusals === 3 * 1000));

  // The last hundred of an account, whatever others have.
  const list = (more: Partial<Parameters<Repositories['listRefused']>[0]> = {}) =>
    repositories.listRefused({ accountId: 'acct_a', limit: 200, ...more });
  await repositories.addErrors({ counts: [], refused: [refused('acct_b', 7)] });
  for (let round = 0; round < 3; round++)
    await repositories.addErrors({
      counts: [],
      refused: Array.from({ length: 60 }, (_, index) => refused('acct_a', round * 60 + index)),
    });
  const kept = await list();
  assert.deepEqual(
    kept.map(({ at }) => at),
    Array.from({ length: 100 }, (_, index) => 179 - index),
  );
  assert.equal((await list({ accountId: 'acct_b' })).length, 1);
  for (const id of ['req_150', 'mine-150', 'client_mine-150'])
    assert.deepEqual(
      (await list({ id })).map(({ at }) => at),
      [150],
    );
  assert.deepEqual(
    (await list({ before: kept[98]!.requestId })).map(({ at }) => at),
    [80],
  );
  for (const filter of [{ keyId: 'key_b' }, { model: 'other' }, { code: 'http_403' }, { ownerId: null }])
    assert.deepEqual(await list(filter), []);

  // Nothing is left of an account that is deleted, nor written for it.
  await ledger.setAccountStatus('acct_a', 'suspended', begin, uuid());
  assert.equal(await repositories.eraseAccount({ accountId: 'acct_a', at: begin, changeId: uuid() }), true);
  await repositories.addErrors({ counts: [count('acct_a', begin)], refused: [refused('acct_a', 1)] });
  assert.deepEqual([await list(), await rows()], [[], 0]);
  await repositories.tidyErrors({ now: begin + 93 * dayMs });
  assert.deepEqual(await sumsOf(repositories, 'acct_b', 1), []);
}
