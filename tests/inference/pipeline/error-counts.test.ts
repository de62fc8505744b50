/** What a flood of refused requests may occupy, and that nothing of it is lost or counted twice. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { ErrorCounts } from '../../../src/inference/pipeline/error-counts.ts';
import type { ErrorCountsOptions, Refused } from '../../../src/inference/pipeline/error-counts.ts';

type Batch = Parameters<ErrorCountsOptions['repositories']['addErrors']>[0];

const minuteMs = 60_000;
const begin = 1_800_000_000_000;
const refused = (index: number): Refused => ({
  requestId: Uint8Array.of(index >> 24, index >> 16, index >> 8, index),
  publicId: `req_${index}`,
  clientId: null,
  message: 'no credit',
});

function scene() {
  let now = begin;
  let isDown = false;
  const batches: Batch[] = [];
  const failures: unknown[] = [];
  const asked = { keysOfHashes: 0, addErrors: 0 };
  const counts = new ErrorCounts({
    repositories: {
      keysOfHashes: ({ hashes }) => {
        asked.keysOfHashes++;
        assert.ok(hashes.length <= 500, `${hashes.length} hashes in a statement`);
        return Promise.resolve(
          hashes.filter(([first]) => first === 1).map((hash) => ({ hash, keyId: 'key_old', accountId: 'acct_old' })),
        );
      },
      addErrors: (batch) => {
        asked.addErrors++;
        if (isDown) return Promise.reject(new Error('the database does not answer'));
        batches.push(batch);
        return Promise.resolve();
      },
    },
    now: () => now,
    failed: (error) => failures.push(error),
  });
  const sum = (): number => batches.flatMap((batch) => batch.counts).reduce((all, { refusals }) => all + refusals, 0);
  return {
    counts,
    batches,
    failures,
    asked,
    sum,
    pass: (ms: number) => void (now += ms),
    down: (is: boolean) => void (isDown = is),
  };
}

test('a flood from one key is one row a minute and a hundred requests, and every one of it is counted', async (t) => {
  const { counts, batches, sum, pass } = scene();
  t.after(() => counts.close());
  const outcome = { accountId: 'acct_a', keyId: 'key_a', modelId: 'demo', code: 'insufficient_credits' } as const;
  for (let second = 0; second < 20; second += 2) {
    for (let index = 0; index < 40_000; index++) counts.refused(outcome, refused(second * 20_000 + index));
    await counts.write();
    pass(12_000);
  }
  assert.equal(sum(), 20 * 20_000);
  assert.deepEqual(new Set(batches.flatMap((batch) => batch.counts.map(({ minute }) => minute))).size, 2);
  for (const batch of batches) {
    assert.equal(batch.counts.length, 1);
    assert.equal(batch.refused.length, 100);
  }
  const newest = batches[0]!.refused.map(({ publicId }) => Number(publicId.slice(4))).toSorted((a, b) => a - b);
  assert.deepEqual(
    newest,
    Array.from({ length: 100 }, (_, index) => 39_900 + index),
  );
  assert.ok(counts.size <= 2, `${counts.size} counts stay in memory`);
});

test('many keys, models and accounts at once have bounded rows, and no request is counted for another account', async (t) => {
  const { counts, batches, pass } = scene();
  t.after(() => counts.close());
  for (let account = 0; account < 300; account++)
    for (let key = 0; key < 300; key++)
      counts.refused(
        { accountId: `acct_${account}`, keyId: `key_${key}`, modelId: `m${key % 7}`, code: 'rate_limit_exceeded' },
        refused(account * 300 + key),
      );
  assert.ok(counts.size <= 20_000, `${counts.size} counts`);
  await counts.write();
  const [batch] = batches;
  assert.ok(batch!.refused.length <= 5_000 + 300, `${batch!.refused.length} requests`);
  const of = new Map<string, number>();
  for (const { accountId, refusals } of batch!.counts) of.set(accountId, (of.get(accountId) ?? 0) + refusals);
  assert.deepEqual([of.size, new Set(of.values())], [300, new Set([300])]);
  const kinds = new Map<string, number>();
  for (const { accountId } of batch!.counts) kinds.set(accountId, (kinds.get(accountId) ?? 0) + 1);
  assert.ok(Math.max(...kinds.values()) <= 201);
  pass(minuteMs);
  counts.failed({ accountId: 'acct_0', keyId: 'key_0', modelId: 'm0', code: 'backend_timeout' });
  await counts.write();
  assert.ok(counts.size <= 1, 'what is written of an earlier minute is forgotten');
});

test('a batch that could not be written is counted with the next one', async (t) => {
  const { counts, failures, sum, down } = scene();
  t.after(() => counts.close());
  const outcome = { accountId: 'acct_a', keyId: 'key_a', modelId: '', code: 'http_403' } as const;
  counts.refused(outcome, refused(1));
  down(true);
  await counts.write();
  assert.deepEqual([failures.length, sum()], [1, 0]);
  down(false);
  counts.refused(outcome, refused(2));
  await counts.write();
  assert.equal(sum(), 2);
});

test('a key that does not work is counted where it is known, and junk is not', async (t) => {
  const { counts, batches } = scene();
  t.after(() => counts.close());
  for (let index = 0; index < 2_000; index++)
    counts.refusedKey(
      String.fromCharCode(index % 2 === 0 ? 1 : 2, ...(index % 2 === 0 ? [] : [index & 255, index >> 8])),
      refused(index),
    );
  await counts.write();
  const [batch] = batches;
  assert.deepEqual(
    batch!.counts.map(({ accountId, keyId, code, refusals }) => ({ accountId, keyId, code, refusals })),
    [{ accountId: 'acct_old', keyId: 'key_old', code: 'invalid_api_key', refusals: 1000 }],
  );
  assert.deepEqual(
    batch!.refused.map(({ publicId }) => publicId),
    ['req_1998'],
  );
});

test('200,000 refusals of every kind in ten seconds ask the store for nothing themselves, and what they leave is bounded', async (t) => {
  const { counts, batches, asked, sum, pass } = scene();
  t.after(() => counts.close());
  const codes = [
    'rate_limit_exceeded',
    'insufficient_credits',
    'model_not_found',
    'http_403',
    'invalid_json_request',
  ] as const;
  let [known, unknown] = [0, 0];
  for (let second = 0; second < 10; second += 2) {
    for (let index = 0; index < 40_000; index++) {
      if (index % 4 === 0) {
        // A key of no account, another one each time.
        counts.refusedKey(String.fromCharCode(2, index & 255, (index >> 8) & 255, second), refused(index));
        unknown++;
        continue;
      }
      const outcome = {
        accountId: 'acct_a',
        keyId: `key_${index % 50}`,
        modelId: `m${index % 40}`,
        code: codes[index % 5]!,
      };
      counts.refused(outcome, refused(second * 20_000 + index));
      known++;
    }
    assert.deepEqual(asked, { keysOfHashes: second / 2, addErrors: second / 2 }, 'refusals ask the store for nothing');
    assert.ok(counts.size <= 205, `${counts.size} counts`);
    assert.deepEqual(counts.kept, { accounts: 1, refused: 100, hashes: 500 });
    await counts.write();
    pass(2_000);
  }
  assert.equal(unknown, 50_000);
  assert.equal(sum(), known);
  for (const batch of batches) {
    assert.ok(batch.counts.length <= 205, `${batch.counts.length} rows`);
    assert.equal(batch.refused.length, 100);
  }
  assert.equal(new Set(batches.flatMap((batch) => batch.counts.map(({ minute }) => minute))).size, 1);
});

test('while the store takes nothing, a flood of any number of accounts has bounded memory, and is counted for those that it has', async (t) => {
  const { counts, batches, down } = scene();
  t.after(() => counts.close());
  down(true);
  for (let account = 0; account < 100_000; account++) {
    const outcome = { accountId: `acct_${account}`, keyId: 'key', modelId: 'm', code: 'insufficient_credits' } as const;
    counts.refused(outcome, refused(account));
    counts.failed({ ...outcome, code: 'backend_timeout' });
    if (account % 30_000 === 0) await counts.write();
  }
  await counts.write();
  assert.ok(counts.size <= 20_000, `${counts.size} counts`);
  const { accounts, refused: requests } = counts.kept;
  assert.ok(accounts <= 20_000 && requests <= 25_000, `${accounts} accounts, ${requests} requests`);
  down(false);
  await counts.write();
  assert.ok(batches.at(-1)!.counts.length <= 20_000);
  assert.ok(batches.at(-1)!.counts.some(({ accountId, refusals }) => accountId === 'acct_0' && refusals === 1));
});
