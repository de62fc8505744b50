/** What a receipt says of the prompt's part in a cache: expected, found, and who had more of it. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { generationReceipts } from '../../src/account-api/generation-object.ts';
import type { UsageAttempt } from '../../src/store/schema/tables.ts';
import { usage } from '../store/fixture.ts';

const chosen = {
  ...{ expectedMs: 40, cachedTokens: 900, uncachedTokens: 100, waitingTokens: 0, running: 0 },
  ...{ tokensPerSecond: 1_000, rank: 0, of: 2 },
};
const repositories = { refundsOf: () => Promise.resolve([]), getKey: () => Promise.resolve(undefined) };

async function receiptOf(cachedTokens: number, attempts: readonly UsageAttempt[] | undefined) {
  const row = { ...usage('acct_a', 0n, { promptTokens: 1_000 }), cachedTokens, attempts };
  return (await generationReceipts('acct_a', [row], repositories))[0]!;
}

const attempt = (more: Partial<UsageAttempt> = {}): UsageAttempt => ({
  ...{ backend: 'gpu-1', atMs: 0, failed: null, chosen },
  ...more,
});
const elsewhere = (state: 'slower' | 'full' | 'unavailable') => ({
  cachedElsewhere: { backend: 'gpu-2', cachedTokens: 1_100, expectedMs: 700, state },
});
const missed =
  /Of the prompt, 900 tokens were expected in the cache of gpu-1, and it reported 64: the others had left it since, or the server reports no cached tokens\./;

const changed = { tokens: 100, differs: { in: 'system', message: 0 } } as const;
const changedObject = { in: 'system', message: 0 };

for (const [what, cachedTokens, more, miss] of [
  ['as expected, and nothing differs', 896, { earlier: { tokens: 950 } }, null],
  ['most is cached', 896, { earlier: changed }, null],
  [
    'a message differs',
    128,
    { chosen: { ...chosen, cachedTokens: 128 }, earlier: changed },
    { reason: 'changed', differs: changedObject },
  ],
  ['less than expected', 64, { earlier: changed }, { reason: 'evicted', differs: changedObject }],
  [
    'less than expected, of a prompt that goes on',
    64,
    { earlier: { tokens: 900 } },
    { reason: 'evicted', differs: null },
  ],
  [
    'gone before it was sent',
    0,
    { chosen: { ...chosen, cachedTokens: 0 }, earlier: { tokens: 900 } },
    { reason: 'evicted', differs: null },
  ],
  [
    'another has more',
    0,
    { chosen: { ...chosen, cachedTokens: 0 }, ...elsewhere('full'), earlier: { tokens: 900 } },
    { reason: 'elsewhere', differs: null },
  ],
  ['no earlier prompt is known', 0, { chosen: { ...chosen, cachedTokens: 0 } }, null],
  ['no choice', 0, { chosen: null, earlier: changed }, null],
] as const)
  test(`why a prompt was not cached: ${what}`, async () => {
    const receipt = await receiptOf(cachedTokens, [attempt(more)]);
    assert.deepEqual(receipt.cache_miss, miss);
    const sentence = /message 0 \(system\), and nothing behind/;
    if (miss?.differs === undefined || miss.differs === null) assert.doesNotMatch(receipt.explanation, sentence);
    else assert.match(receipt.explanation, sentence);
  });

for (const [what, cachedTokens, attempts, said, unsaid] of [
  ['as expected', 896, [attempt()], undefined, /cache/],
  ['less than expected', 64, [attempt()], missed, /gpu-2/],
  ['no choice', 0, undefined, undefined, /cache/],
  ['the one that failed expected it', 0, [attempt({ failed: 'backend_timeout' })], undefined, /cache/],
  [
    'the one that answered decides',
    64,
    [attempt({ backend: 'gpu-0', failed: 'backend_timeout' }), attempt()],
    missed,
    /gpu-0/,
  ],
  [
    'another was slower',
    896,
    [attempt(elsewhere('slower'))],
    /gpu-2 was expected to have 1100 tokens of it, but its first token was expected after 700 ms, and here after 40 ms\./,
    /Of the prompt/,
  ],
  ['another was full', 896, [attempt(elsewhere('full'))], /gpu-2 .* but it had as many requests as it takes\./, /700/],
  [
    'another was left out',
    64,
    [attempt(elsewhere('unavailable'))],
    /gpu-2 .* but it was left out, or had been tried before\./,
    /700/,
  ],
] as const)
  test(`a receipt explains the cache: ${what}`, async () => {
    const receipt = await receiptOf(cachedTokens, attempts);
    if (said !== undefined) assert.match(receipt.explanation, said);
    assert.doesNotMatch(receipt.explanation, unsaid);
    const other = attempts?.at(-1)?.cachedElsewhere;
    assert.equal(receipt.attempts?.at(-1)?.cached_elsewhere?.state, other?.state);
  });
