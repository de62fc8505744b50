import assert from 'node:assert/strict';
import fc from 'fast-check';
import { test } from 'node:test';
import { choose, FleetFigures, type BackendView, type Choice } from '../../../src/inference/routing/choose.ts';

/** The one function that chooses: of a request and a view of the fleet. */
interface View extends BackendView {
  readonly cachedTokens: number;
}
const idle: View = {
  rank: 1,
  weight: 1,
  concurrencyMax: 64,
  running: 0,
  runningElsewhere: 0,
  waitingTokens: 0,
  waitingTokensElsewhere: 0,
  runningForeign: 0,
  waitingTokensForeign: 0,
  readingTokens: 0,
  readingSinceMs: 0,
  ownTokensPerSecond: 0,
  cacheNumber: 0,
  cachedTokens: 0,
  turn: 0,
};
const nowMs = 10_000;
const able = (): boolean => true;
/** As a fleet calls it: each backend has a number in the index of caches, and its figures are written down. */
function choiceOf(
  promptTokens: number,
  fleet: readonly Partial<View>[],
  mayTake: (index: number) => boolean = able,
): { readonly choice: Choice<View> | undefined; readonly index: number | undefined } {
  const members = fleet.map((view, index) => ({ ...idle, ...view, cacheNumber: index + 1 }));
  const figures = new FleetFigures(members.length);
  for (const [index, member] of members.entries()) figures.note(index, member);
  const cachedTokens = Float64Array.from([0, ...members.map((member) => member.cachedTokens)]);
  const request = { promptTokens, cachedTokens };
  const choice = choose<View>(request, { members, figures }, 1_000, nowMs, (view) => mayTake(view.cacheNumber - 1));
  return { choice, index: choice === undefined ? undefined : choice.backend.cacheNumber - 1 };
}
const chosen = (...args: Parameters<typeof choiceOf>): number | undefined => choiceOf(...args).index;

const rows: readonly (readonly [string, number, readonly Partial<View>[], number | undefined])[] = [
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
  ['the one where less of others waits', 100, [{ waitingTokensForeign: 900 }, { waitingTokensForeign: 400 }], 1],
  [
    'the one that has the prompt, when little of others waits there',
    1_000,
    [{}, { cachedTokens: 900, waitingTokensForeign: 1_700 }],
    1,
  ],
  ['the one where fewer of others run', 100, [{ runningForeign: 2 }, { running: 1 }], 1],
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
  assert.deepEqual(choiceOf(1_000, fleet).choice?.reasons, {
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

test('it says what of that is of others', () => {
  const { reasons } = choiceOf(100, [
    { waitingTokens: 40, running: 1, runningForeign: 2, waitingTokensForeign: 60 },
  ]).choice!;
  assert.deepEqual(
    [reasons.running, reasons.waitingTokens, reasons.foreign],
    [3, 100, { running: 2, waitingTokens: 60 }],
  );
  assert.equal(reasons.expectedMs, 153);
});

/** The formula of docs/decisions/030, for each backend by itself. */
function plainlyChosen(
  promptTokens: number,
  fleet: readonly View[],
  mayTake: (index: number) => boolean,
): number | undefined {
  const seconds = (view: View): number => {
    const speed = view.ownTokensPerSecond || 1_000;
    const read = Math.min(view.readingTokens, ((nowMs - view.readingSinceMs) * speed) / 1_000);
    const waiting =
      (view.waitingTokens === 0 ? 0 : view.waitingTokens - read) +
      view.waitingTokensElsewhere +
      view.waitingTokensForeign;
    const own = Math.max(1, promptTokens - view.cachedTokens);
    return (waiting / 2 + (view.running + view.runningElsewhere + view.runningForeign) + own) / (speed * view.weight);
  };
  const able = fleet
    .map((view, index) => ({ view, index, seconds: seconds(view) }))
    .filter(({ view, index }) => view.running < view.concurrencyMax && mayTake(index));
  const [best] = able.toSorted(
    (a, b) => a.view.rank - b.view.rank || a.seconds - b.seconds || a.view.turn - b.view.turn || a.index - b.index,
  );
  return best?.index;
}

test('it is what the formula says of each backend by itself', () => {
  const views = fc.array(
    fc.record({
      rank: fc.integer({ min: 1, max: 2 }),
      weight: fc.constantFrom(1, 1, 0.5, 2),
      concurrencyMax: fc.constantFrom(Infinity, 4),
      running: fc.nat(5),
      runningElsewhere: fc.nat(2),
      waitingTokens: fc.constantFrom(0, 0, 100, 2_000),
      waitingTokensElsewhere: fc.constantFrom(0, 0, 300),
      runningForeign: fc.nat(3),
      waitingTokensForeign: fc.constantFrom(0, 0, 700),
      readingTokens: fc.constantFrom(0, 50, 1_000),
      readingSinceMs: fc.integer({ min: 0, max: nowMs }),
      ownTokensPerSecond: fc.constantFrom(0, 0, 250, 4_000),
      cacheNumber: fc.constant(0),
      cachedTokens: fc.constantFrom(0, 0, 512, 1_024),
      turn: fc.nat(6),
    }),
    { minLength: 1, maxLength: 12 },
  );
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 2_000 }), views, fc.array(fc.nat(11)), (promptTokens, fleet, refusing) => {
      const mayTake = (index: number): boolean => !refusing.includes(index);
      assert.equal(chosen(promptTokens, fleet, mayTake), plainlyChosen(promptTokens, fleet, mayTake));
    }),
    { numRuns: 500 },
  );
});
