import assert from 'node:assert/strict';
import { test } from 'node:test';
import { choose, type BackendView } from '../../../src/inference/routing/choose.ts';

/** The one function that chooses: of a request and a view of the fleet. */
const idle: BackendView = {
  rank: 1,
  weight: 1,
  concurrencyMax: 64,
  running: 0,
  runningElsewhere: 0,
  waitingTokens: 0,
  waitingTokensElsewhere: 0,
  readingTokens: 0,
  readingSinceMs: 0,
  ownTokensPerSecond: 0,
  cachedTokens: 0,
  turn: 0,
};
const nowMs = 10_000;
const able = (): boolean => true;
const chosen = (tokens: number, fleet: readonly Partial<BackendView>[], mayTake: (index: number) => boolean = able) => {
  const views = fleet.map((view) => ({ ...idle, ...view }));
  const choice = choose(tokens, views, 1_000, nowMs, (view) => mayTake(views.indexOf(view)));
  return choice === undefined ? undefined : views.indexOf(choice.backend);
};

const rows: readonly (readonly [string, number, readonly Partial<BackendView>[], number | undefined])[] = [
  ['of equal ones, the one that was taken longest ago', 100, [{ turn: 3 }, { turn: 1 }, { turn: 2 }], 1],
  ['the one with less to read before it', 100, [{ waitingTokens: 500 }, { waitingTokens: 400 }], 1],
  ['the one that has the prompt, if nothing waits', 1_000, [{}, { cachedTokens: 900 }], 1],
  [
    'half of what waits counts, so the cache is worth the wait',
    1_000,
    [{}, { cachedTokens: 900, waitingTokens: 1_700 }],
    1,
  ],
  ['and not when more waits', 1_000, [{}, { cachedTokens: 900, waitingTokens: 1_900 }], 0],
  [
    'what is being read waits less and less',
    1_000,
    // A second ago, at 1,000 tokens a second.
    [{}, { cachedTokens: 900, waitingTokens: 1_900, readingTokens: 1_900, readingSinceMs: nowMs - 1_000 }],
    1,
  ],
  ['the one with fewer running requests', 100, [{ running: 2 }, { running: 1 }], 1],
  ['the faster one', 1_000, [{ ownTokensPerSecond: 800 }, { ownTokensPerSecond: 2_000 }], 1],
  ['a slow one, when so much waits at the fast one', 100, [{ waitingTokens: 5_000 }, { ownTokensPerSecond: 50 }], 1],
  ['the one with more weight, for what it would do alone', 100, [{}, { weight: 2, waitingTokens: 150 }], 1],
  ['a lower rank, however much waits there', 100, [{ rank: 2 }, { waitingTokens: 9_000 }], 1],
  ['the next rank when the first is full', 100, [{ rank: 2 }, { running: 64 }], 0],
  ['none when all are full', 100, [{ running: 64 }, { running: 65 }], undefined],
  ['a prompt that is cached whole still costs its last token', 100, [{ cachedTokens: 100, running: 1 }, {}], 0],
];
for (const [name, tokens, fleet, expected] of rows)
  test(`it takes ${name}`, () => assert.equal(chosen(tokens, fleet), expected));

test('one that may not take the request is passed over, whatever its figures', () => {
  assert.equal(
    chosen(100, [{ cachedTokens: 99 }, { running: 3 }, { rank: 2 }], (index) => index !== 0),
    1,
  );
  assert.equal(
    chosen(100, [{ cachedTokens: 99 }, { running: 3 }, { rank: 2 }], (index) => index === 2),
    2,
  );
});

test('it says by which figures it chose', () => {
  const fleet = [idle, { ...idle, cachedTokens: 900, waitingTokens: 400, running: 2 }];
  assert.deepEqual(choose(1_000, fleet, 1_000, nowMs, able)?.reasons, {
    expectedMs: 302,
    cachedTokens: 900,
    uncachedTokens: 100,
    waitingTokens: 400,
    running: 2,
    tokensPerSecond: 1_000,
    rank: 1,
    of: 2,
  });
});
