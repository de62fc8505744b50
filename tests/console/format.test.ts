/** What the console shows of money, numbers and times, and what it takes from a link. */
import assert from 'node:assert/strict';
import { beforeEach, describe, test } from 'node:test';

import fc from 'fast-check';

import { oneOf, searchOf, text, whole } from '../../web/src/app/filters.ts';
import { pathWithin } from '../../web/src/app/next.ts';
import { formatDate, formatRelative, setTimeZone } from '../../web/src/format/date.ts';
import {
  centsOf,
  dollarsTyped,
  formatCents,
  formatExact,
  formatMoney,
  microcentsOf,
  microcentsTyped,
} from '../../web/src/format/money.ts';
import { formatBytes, formatMilliseconds } from '../../web/src/format/number.ts';
import { setLanguage } from '../../web/src/i18n/language.ts';

beforeEach(() => setLanguage('en'));

test('formats follow the language', () => {
  const shown = () => [formatMoney(123_456_789_012n), formatMilliseconds(1500), formatDate(0, 'date')];
  const [english, german] = [shown(), (setLanguage('de'), shown())];
  assert.deepEqual(english, ['$1,234.57', '1.5 sec', 'Jan 1, 1970']);
  assert.deepEqual(german, ['1.234,57\u00a0$', '1,5 Sek.', '01.01.1970']);
  setLanguage('en');
  assert.deepEqual(shown(), english);
});

describe('money', () => {
  test('has two decimals, and below a cent as many as it needs', () => {
    const table: readonly (readonly [number | bigint, string])[] = [
      [0, '$0.00'],
      [500_000_000, '$5.00'],
      [123_456_789_012n, '$1,234.57'],
      [1_000_000, '$0.01'],
      [410_000, '$0.0041'],
      [4_100, '$0.000041'],
      [1, '$0.00000001'],
      [-4_100, '-$0.000041'],
      [999_999, '$0.01'],
    ];
    for (const [microcents, shown] of table) assert.equal(formatMoney(microcents), shown, String(microcents));
    assert.equal(formatMoney(123_456_789n, { precision: 'exact' }), '$1.23456789');
    assert.equal(formatMoney(2_500_000, { precision: 'exact' }), '$0.025');
    assert.equal(formatMoney(1_252_500, { precision: 'fixed' }), '$0.01252500');
    assert.equal(formatMoney(500_000_000, { sign: true }), '+$5.00');
    assert.equal(formatCents(1250), '$12.50');
  });

  test('is exact for every amount that the ledger can hold', () => {
    fc.assert(
      fc.property(fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n }), (microcents) => {
        const digits = formatMoney(microcents, { precision: 'exact' }).replaceAll(/[^\d.]/g, '');
        const [whole = '', fraction = ''] = digits.split('.');
        const back = BigInt(whole + fraction.padEnd(8, '0'));
        assert.equal(back, microcents < 0n ? -microcents : microcents);
      }),
    );
  });

  test('has parts of a microcent, all of them', () => {
    const table = [
      ['534.89925', '$0.0000053489925'],
      ['0', '$0.00'],
      ['123456789012.000001', '$1,234.56789012000001'],
      ['100000000', '$1.00'],
    ] as const;
    for (const [microcents, shown] of table) assert.equal(formatExact(microcents), shown);
  });

  test('of rates is typed with up to eight decimals, and read back as it was', () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 10 ** 15 - 1 }), (rate) => {
        assert.equal(microcentsOf(microcentsTyped(rate)), rate);
      }),
    );
    const table: readonly (readonly [string, number | undefined])[] = [
      ['0,075', 7_500_000],
      ['$ 3', 300_000_000],
      ['0.000000001', undefined],
      ['-1', undefined],
      ['1e3', undefined],
      ['', undefined],
    ];
    for (const [typed, rate] of table) assert.equal(microcentsOf(typed), rate, typed);
    assert.equal(microcentsTyped(7_500_000), '0.075');
  });

  test('is written as the language has it', () => {
    setLanguage('de');
    assert.equal(formatMoney(123_450_000_000n).replaceAll(/\s/g, ' '), '1.234,50 $');
    setLanguage('zh');
    assert.match(formatMoney(500_000_000), /5\.00/);
  });

  test('is read as people type it', () => {
    const table: readonly (readonly [string, number | undefined])[] = [
      ['12', 1200],
      ['12.5', 1250],
      ['12,50', 1250],
      ['$ 12.50', 1250],
      [' 0.01 ', 1],
      ['', undefined],
      ['-1', undefined],
      ['1.234', undefined],
      ['1e3', undefined],
      ['twelve', undefined],
    ];
    for (const [typed, cents] of table) assert.equal(centsOf(typed), cents, typed);
    fc.assert(fc.property(fc.integer({ min: 0, max: 999_999_999 }), (cents) => centsOf(dollarsTyped(cents)) === cents));
  });
});

test('times are of the zone that the account has', () => {
  setTimeZone('America/New_York');
  assert.match(formatDate(1_700_000_000, 'full'), /Nov 14, 2023.*5:13:20.*EST/s);
  setTimeZone('Asia/Tokyo');
  assert.match(formatDate(1_700_000_000, 'date'), /Nov 15, 2023/);
  assert.equal(formatRelative(1000, 1180), '3 minutes ago');
  assert.equal(formatRelative(87_400, 1000), 'tomorrow');
  assert.equal(formatRelative(7 * 86_400 - 5, 0), 'in 7 days');
});

test('sizes and times have units', () => {
  assert.equal(formatBytes(98_362_432), '98.4 MB');
  assert.deepEqual([0, 1, 999].map(formatBytes), ['0 bytes', '1 byte', '999 bytes']);
  assert.equal(formatMilliseconds(84), '84 ms');
  assert.equal(formatMilliseconds(1340), '1.34 sec');
});

test('a link leads to a page of this host, or to the first one', () => {
  const own = 'https://tokens.example.org';
  const table: readonly (readonly [unknown, string])[] = [
    ['/keys?create=true', '/keys?create=true'],
    ['/requests/req_1#line', '/requests/req_1#line'],
    ['//evil.example', '/'],
    ['/\\evil.example', '/'],
    ['/.//evil.example', '/'],
    ['/a/..//evil.example', '/'],
    ['/\t/evil.example', '/'],
    ['/\n\\evil.example', '/'],
    ['\\\\evil.example', '/'],
    ['https:/evil.example', '/'],
    // Encoded, they are part of a path of this host, and stay encoded.
    ['/%2f%2fevil.example', '/%2f%2fevil.example'],
    ['/%5cevil.example', '/%5cevil.example'],
    ['/%09/evil.example', '/%09/evil.example'],
    ['https://evil.example', '/'],
    ['javascript:alert(1)', '/'],
    ['evil', '/'],
    ['', '/'],
    [undefined, '/'],
    [['/keys'], '/'],
  ];
  for (const [next, path] of table) assert.equal(pathWithin(next, own), path, String(next));
  fc.assert(
    fc.property(fc.string({ unit: fc.constantFrom(...'/\\.:@\t\n%2fe') }), (next) => {
      assert.equal(new URL(pathWithin(`/${next}`, own), own).origin, own);
    }),
  );
});

test('of a search only what is described is read, and only where it makes sense', () => {
  const read = searchOf({ model: text, since: oneOf(['24h', '7d']), page: whole });
  assert.deepEqual(read({ model: 'demo', since: '7d', page: '3', next: 'https://evil.example' }), {
    model: 'demo',
    since: '7d',
    page: 3,
  });
  assert.deepEqual(read({ model: '', since: 'ever', page: 'x' }), {
    model: undefined,
    since: undefined,
    page: undefined,
  });
  assert.equal(read({ model: 'a'.repeat(10_000) }).model?.length, 200);
  assert.deepEqual(read({ model: { toString: 'x' }, page: [1] }).model, undefined);
});
