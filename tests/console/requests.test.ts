/** Which requests a link means, in the days of the account's zone. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import fc from 'fast-check';

import { offsetAt, startOfDate } from '../../src/platform/calendar/time-zone.ts';
import { searchOf } from '../../web/src/app/filters.ts';
import { startOfDay, wallSeconds, wallText } from '../../web/src/format/date.ts';
import { isNarrow, requestFilters, requestQuery, spanOf } from '../../web/src/pages/usage/filter.ts';

/** Clocks that change at midnight (Beirut), by half an hour (Lord Howe), before midnight (Nuuk), and never. */
const zones = ['UTC', 'Europe/Berlin', 'Asia/Beirut', 'America/Nuuk', 'Australia/Lord_Howe', 'Asia/Kathmandu'];
const [from, to] = [Date.UTC(2024, 0, 1) / 1000, Date.UTC(2028, 0, 1) / 1000];

test('days begin where those of the API do', () => {
  // Around the days of 2026 at which clocks of these zones change.
  for (const near of ['2026-03-29', '2026-04-05', '2026-10-04', '2026-10-25'])
    for (const zone of zones)
      for (const day of [-1, 0, 1]) {
        const begins = startOfDate(zone, Date.parse(near) + day * 86_400_000) / 1000;
        assert.equal(startOfDay(begins + 7200, zone), begins, `${zone}, ${near}`);
        assert.equal(startOfDay(begins + 7200 + 86_400 * 20, zone, 20), begins, `${zone}, ${near}`);
      }
});

test('what a clock shows is read back as the time, except in the hour that it shows twice', () => {
  fc.assert(
    fc.property(fc.constantFrom(...zones), fc.integer({ min: from, max: to }), (zone, seconds) => {
      const minute = seconds - (seconds % 60);
      const back = wallSeconds(wallText(minute, zone), zone);
      const isTwice = offsetAt(zone, (minute - 7200) * 1000) > offsetAt(zone, minute * 1000);
      assert.equal(wallText(back, zone), wallText(minute, zone));
      assert.ok(isTwice ? back <= minute : back === minute, `${zone} ${minute}`);
    }),
  );
  assert.ok(Number.isNaN(wallSeconds('', 'UTC')));
});

test('a period is whole days until now; own times count before it', () => {
  const now = Date.UTC(2026, 2, 30, 1) / 1000;
  const inBerlin = (text: string): number => Date.parse(text) / 1000;
  const spans: readonly (readonly [Readonly<Record<string, unknown>>, number | undefined, number | undefined])[] = [
    [{}, inBerlin('2026-03-01T00:00+01:00'), undefined],
    [{ since: 'today' }, inBerlin('2026-03-30T00:00+02:00'), undefined],
    [{ since: '7d' }, inBerlin('2026-03-24T00:00+01:00'), undefined],
    [{ since: 'month' }, inBerlin('2026-03-01T00:00+01:00'), undefined],
    [{ since: '7d', from: 100, to: '200' }, 100, 200],
    [{ to: 200 }, undefined, 200],
    [{ from: -1, to: 1e15, since: 'ever' }, inBerlin('2026-03-01T00:00+01:00'), undefined],
  ];
  for (const [search, start, end] of spans)
    assert.deepEqual(spanOf(searchOf(requestFilters)(search), now, 'Europe/Berlin'), { start, end });
});

test('filters are asked by the names that the API has for them', () => {
  const search = {
    model: 'm',
    key: 'key_1',
    user: 'u',
    tag: 'true',
    ending: 'failed',
    error: 'internal_error',
    other: 1,
  };
  const filter = searchOf(requestFilters)(search);
  assert.deepEqual(requestQuery(filter, { start: 1, end: 2 }), {
    start_time: 1,
    end_time: 2,
    model: 'm',
    api_key_id: 'key_1',
    user_id: 'u',
    tag: 'true',
    ending: 'failed',
    error_code: 'internal_error',
  });
  assert.ok(isNarrow(filter));
  assert.ok(!isNarrow(searchOf(requestFilters)({ since: '7d', ending: 'gone' })));
});
