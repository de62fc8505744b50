import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  bucketBounds,
  dateAt,
  localText,
  nextDay,
  offsetAt,
  startOfDay,
  startOfZoneMonth,
  timeZoneNamed,
} from '../../src/platform/calendar/time-zone.ts';

const hourMs = 3_600_000;

test('zones are known by their names alone', () => {
  assert.equal(timeZoneNamed('europe/berlin'), 'Europe/Berlin');
  assert.equal(timeZoneNamed('UTC'), 'UTC');
  assert.equal(timeZoneNamed('Etc/GMT+5'), 'Etc/GMT+5');
  for (const name of ['', 'Europe/Atlantis', '+05:30', '05:30', 'UTC; drop', 'Ünited', `Europe/${'x'.repeat(80)}`])
    assert.equal(timeZoneNamed(name), undefined, name);
});

test('days are as long as the clocks of their zone make them', () => {
  const cases: readonly [zone: string, at: string, start: string, hours: number][] = [
    ['UTC', '2026-03-29T12:00Z', '2026-03-29T00:00:00.000+00:00', 24],
    ['Europe/Berlin', '2026-03-29T12:00Z', '2026-03-29T00:00:00.000+01:00', 23],
    ['Europe/Berlin', '2026-10-25T12:00Z', '2026-10-25T00:00:00.000+02:00', 25],
    ['America/New_York', '2026-11-01T12:00Z', '2026-11-01T00:00:00.000-04:00', 25],
    ['Asia/Kolkata', '2026-05-05T20:00Z', '2026-05-06T00:00:00.000+05:30', 24],
    ['Asia/Kathmandu', '2026-05-05T18:14Z', '2026-05-05T00:00:00.000+05:45', 24],
    ['Asia/Kathmandu', '2026-05-05T18:15Z', '2026-05-06T00:00:00.000+05:45', 24],
    // Half an hour more or less.
    ['Australia/Lord_Howe', '2026-04-05T00:00Z', '2026-04-05T00:00:00.000+11:00', 24.5],
    ['Australia/Lord_Howe', '2026-10-04T00:00Z', '2026-10-04T00:00:00.000+10:30', 23.5],
    // At midnight: the day begins at one, or the one before has its last hour twice.
    ['America/Santiago', '2026-09-06T12:00Z', '2026-09-06T01:00:00.000-03:00', 23],
    ['America/Santiago', '2026-04-04T12:00Z', '2026-04-04T00:00:00.000-03:00', 25],
    // One that was left out: the 30th of December 2011.
    ['Pacific/Apia', '2011-12-30T05:00Z', '2011-12-29T00:00:00.000-10:00', 24],
    ['Pacific/Apia', '2011-12-30T10:00Z', '2011-12-31T00:00:00.000+14:00', 24],
  ];
  for (const [zone, at, start, hours] of cases) {
    const ms = Date.parse(at);
    const begins = startOfDay(zone, ms);
    assert.equal(localText(zone, begins), start, `${zone} ${at}`);
    assert.equal((nextDay(zone, ms) - begins) / hourMs, hours, `${zone} ${at}`);
  }
  assert.equal(new Date(startOfZoneMonth('Asia/Kathmandu', 2026, 13)).toISOString(), '2026-12-31T18:15:00.000Z');
});

test('the days of a zone follow each other without a gap, and each moment is in the day that its calendar shows', () => {
  const offsets = (zone: string) => [0, 6].map((month) => offsetAt(zone, Date.UTC(2026, month, 1)));
  const isOdd = ([winter, summer]: readonly (number | undefined)[]) => winter !== summer || winter! % hourMs !== 0;
  for (const zone of Intl.supportedValuesOf('timeZone').filter((each) => isOdd(offsets(each)))) {
    let at = startOfDay(zone, Date.UTC(2026, 0, 1));
    const end = Date.UTC(2027, 0, 2);
    for (let next; at < end; at = next) {
      next = nextDay(zone, at);
      assert.ok(next > at && next - at <= 26 * hourMs, `${zone} ${new Date(at).toISOString()}`);
      assert.equal(startOfDay(zone, at), at, zone);
      assert.equal(startOfDay(zone, next - 1), at, zone);
      assert.notEqual(dateAt(zone, next), dateAt(zone, at), zone);
      assert.equal(at % 900_000, 0, `${zone}: days begin at quarters of hours`);
    }
  }
});

test('buckets begin and end with the span, and are cut where the hours of the zone are', () => {
  const span = (from: string, to: string) => ({ from: Date.parse(from), to: Date.parse(to) });
  const times = (bounds: readonly number[]) => bounds.map((ms) => new Date(ms).toISOString().slice(5, 16));
  assert.deepEqual(times(bucketBounds('Asia/Kolkata', '1h', span('2026-05-05T18:10Z', '2026-05-05T20:40Z'), 10)), [
    '05-05T18:10',
    '05-05T18:30',
    '05-05T19:30',
    '05-05T20:30',
    '05-05T20:40',
  ]);
  assert.deepEqual(times(bucketBounds('Europe/Berlin', '1d', span('2026-10-24T00:00Z', '2026-12-01T00:00Z'), 3)), [
    '10-24T00:00',
    '10-24T22:00',
    '10-25T23:00',
    '10-26T23:00',
  ]);
  // The half hour that Lord Howe has twice.
  assert.deepEqual(
    times(bucketBounds('Australia/Lord_Howe', '1h', span('2026-04-04T13:00Z', '2026-04-04T17:30Z'), 10)),
    ['04-04T13:00', '04-04T14:00', '04-04T15:30', '04-04T16:30', '04-04T17:30'],
  );
  assert.deepEqual(bucketBounds('UTC', '1m', { from: 5, to: 5 }, 10), [5]);
});
