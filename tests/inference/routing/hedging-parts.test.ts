/** What hedging rests on: when a second backend is asked, how often, and what is believed of the cache of the one that is stopped. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { FirstTokens } from '../../../src/inference/routing/first-tokens.ts';
import { idleLoad } from '../../../src/inference/routing/backend-load.ts';
import { Fleet } from '../../../src/inference/routing/fleet.ts';
import { RetryBudget } from '../../../src/inference/routing/retry-budget.ts';
import { mulberry32 } from '../../support/random.ts';

test('the 95th percentile is that of the latest requests, and unknown while they are few', () => {
  const times = new FirstTokens();
  for (let count = 0; count < 39; count++) times.observe(10);
  assert.equal(times.p95, Infinity);
  const random = mulberry32(1);
  for (let count = 0; count < 2_000; count++) times.observe(1_000 * random());
  assert.ok(times.p95 > 900 && times.p95 < 990, String(times.p95));
  for (let count = 0; count < 256; count++) times.observe(20);
  assert.equal(times.p95, 20);
});

test('at most a tenth of the requests is asked for twice, and half of what is saved stays for failures', () => {
  const budget = new RetryBudget();
  const requests = 5_000;
  let hedges = 0;
  for (let count = 0; count < requests; count++) {
    budget.requested();
    if (budget.take(0, 50)) hedges++;
  }
  assert.ok(hedges >= requests / 10 && hedges <= requests / 10 + 50, String(hedges));
  for (let count = 0; count < 49; count++) assert.ok(budget.take(0), 'a failure is tried elsewhere');
});

test('of a prompt that was stopped nothing new is believed to be cached; what was there before is', () => {
  const fleet = new Fleet([idleLoad(), idleLoad()]);
  const [one] = fleet.members as [ReturnType<typeof idleLoad>];
  const prompt = (hashes: readonly number[]) => ({
    promptTokens: 600 * hashes.length,
    prefixes: () => ({ hashes, tokens: hashes.map((_, index) => 512 * (index + 1)) }),
  });
  const place = (hashes: readonly number[]) => fleet.place(prompt(hashes), (member) => member === one, 0)!;
  place([1, 2]).end(0);
  const stopped = place([1, 2, 3, 4]);
  assert.equal(stopped.reasons?.cachedTokens, 1_024);
  stopped.abandoned(1, false);
  stopped.end(1);
  assert.equal(place([1, 2, 3, 4]).reasons?.cachedTokens, 1_024);
  assert.equal(one.failures, 0);
});

test('what another request has used since stays believed', () => {
  const fleet = new Fleet([idleLoad(), idleLoad()]);
  const [one] = fleet.members as [ReturnType<typeof idleLoad>];
  const place = () =>
    fleet.place(
      { promptTokens: 600, prefixes: () => ({ hashes: [9], tokens: [512] }) },
      (member) => member === one,
      0,
    )!;
  const stopped = place();
  place();
  stopped.abandoned(1, true);
  assert.equal(place().reasons?.cachedTokens, 512);
  assert.equal(one.failures, 1, 'one that was overtaken has failed it');
});
