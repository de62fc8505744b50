/** The pure parts of the pages of people and settings. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { changesOf, pageOf } from '../../web/src/pages/audit/changes.ts';
import { alertIn, shareOf, watchOf } from '../../web/src/pages/alerts/alert.ts';
import type { Alert } from '../../web/src/pages/alerts/alert.ts';
import { indented } from '../../web/src/pages/alerts/indented.ts';
import { countries, zones } from '../../web/src/pages/settings/choices.ts';
import { deviceOf } from '../../web/src/pages/settings/device.ts';
import { isAtMost, rolesUpTo } from '../../web/src/pages/team/roles.ts';
import { spentByPerson } from '../../web/src/pages/team/spent.ts';
import { isCountry } from '../../src/tax/countries.ts';

test('what a person has spent is the sum of all days; keys without a person are nobody’s', () => {
  const result = (userId: string | null, cost: number) => ({ user_id: userId, cost_microcents: cost });
  const report = { data: [{ results: [result('a', 1), result(null, 5)] }, { results: [result('a', 2)] }] };
  assert.deepEqual(
    [...spentByPerson(report as never)],
    [
      ['a', 3],
      [null, 5],
    ],
  );
});

test('roles are given up to one’s own', () => {
  assert.deepEqual(rolesUpTo('admin'), ['admin', 'billing', 'developer', 'viewer']);
  assert.deepEqual([isAtMost('owner', 'admin'), isAtMost('admin', 'admin')], [false, true]);
});

test('the fields that differ come first; a thing that is new or gone has all of its fields', () => {
  const before = { name: 'a', billing: { country: 'DE', tax_id: null }, tags: ['x'] };
  const after = { name: 'b', billing: { country: 'DE', tax_id: 'DE1' }, tags: ['x'] };
  assert.deepEqual(
    changesOf(before, after).map(({ field, before: was, after: is, isSame }) => [field, was, is, isSame]),
    [
      ['name', 'a', 'b', false],
      ['billing.tax_id', '–', 'DE1', false],
      ['billing.country', 'DE', 'DE', true],
      ['tags', '["x"]', '["x"]', true],
    ],
  );
  assert.deepEqual(changesOf(null, { role: 'admin' }), [
    { field: 'role', before: undefined, after: 'admin', isSame: false },
  ]);
  assert.deepEqual(changesOf(null, undefined), []);
  assert.deepEqual([pageOf('key_1'), pageOf('acct_1')], ['/keys/key_1', undefined]);
});

test('the form of an alert sends the fields that belong to what it watches', () => {
  const form = (fields: Readonly<Record<string, string>>): FormData => {
    const data = new FormData();
    for (const [name, value] of Object.entries(fields)) data.set(name, value);
    return data;
  };
  const spend = { name: ' Day ', watch: 'spend', threshold_amount: '2,50', interval: 'day' };
  assert.deepEqual(
    alertIn(form({ ...spend, subject: 'tag', subject_id: 'nightly', addresses: 'a@b.example; c@d.example' })),
    {
      kind: 'spend',
      name: 'Day',
      threshold_amount: 250,
      runway_days: null,
      interval: 'day',
      subject: { kind: 'tag', id: 'nightly' },
      recipients: { members: [], addresses: ['a@b.example', 'c@d.example'] },
      webhook: false,
    },
  );
  const low = alertIn(form({ name: 'Low', watch: 'runway', runway_days: '3', webhook: 'on', subject: 'key' }));
  assert.deepEqual(
    [low.kind, low.threshold_amount, low.runway_days, low.interval, low.subject, low.webhook],
    ['balance', null, 3, null, { kind: 'account' }, true],
  );
});

test('an alert on spending says how near it is; one on credit has no share', () => {
  const alert = { kind: 'spend', threshold_amount: 200, observed_microcents: 50_000_000, runway_days: null } as Alert;
  assert.equal(shareOf(alert), 0.25);
  assert.equal(shareOf({ ...alert, kind: 'balance' }), undefined);
  assert.equal(watchOf({ kind: 'balance', runway_days: 3 }), 'runway');
});

test('devices are known by two words', () => {
  const chrome =
    'Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/156.0 Safari/537.36';
  for (const [agent, browser, system] of [
    [chrome, 'Chrome', 'Windows'],
    [`${chrome} Edg/156.0`, 'Edge', 'Windows'],
    [
      'Mozilla/5.0 (iPhone; CPU iPhone OS 19_0 like Mac OS X) Version/19.0 Mobile/15E148 Safari/604.1',
      'Safari',
      'iPhone',
    ],
    ['Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0', 'Firefox', 'Linux'],
    ['Mozilla/5.0 (Linux; Android 16; K) AppleWebKit/537.36 Chrome/156.0 Mobile Safari/537.36', 'Chrome', 'Android'],
    ['something else', undefined, undefined],
    [null, undefined, undefined],
  ] as const)
    assert.deepEqual(deviceOf(agent), { browser, system }, String(agent));
});

test('the countries that are offered are those that the API takes, in every language', () => {
  for (const language of ['en', 'de', 'zh'] as const) {
    const codes = countries(language).map(([code]) => code);
    assert.deepEqual(
      codes.filter((code) => !isCountry(code)),
      [],
    );
    assert.ok(codes.length > 240, `${codes.length}`);
    assert.equal(new Set(codes).size, codes.length);
  }
  assert.deepEqual(zones('Mars/Olympus').slice(0, 1), ['UTC']);
  assert.ok(zones('Mars/Olympus').includes('Mars/Olympus'));
});

test('a body that is JSON is shown on several lines, any other as it came', () => {
  assert.equal(indented('{"a":1}'), '{\n  "a": 1\n}');
  assert.equal(indented('<html>'), '<html>');
});
