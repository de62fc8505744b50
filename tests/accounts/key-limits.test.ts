import assert from 'node:assert/strict';
import { test } from 'node:test';

import { faultOfLimits, keyAccess, listMax, printLimits, readLimits } from '../../src/accounts/key-limits.ts';

test('addresses: single ones, ranges, and IPv4 inside IPv6', () => {
  const access = keyAccess({ addresses: ['192.0.2.7', '10.0.0.0/8', '2001:db8::/32', '::1', '203.0.113.0/31'] });
  const table: readonly (readonly [string | undefined, boolean])[] = [
    ['192.0.2.7', true],
    ['192.0.2.8', false],
    ['10.255.0.1', true],
    ['11.0.0.1', false],
    ['::ffff:10.1.2.3', true],
    ['::FFFF:192.0.2.7', true],
    ['::ffff:192.0.2.9', false],
    ['2001:db8:ffff::1', true],
    ['2001:db9::1', false],
    ['::1', true],
    ['203.0.113.1', true],
    ['203.0.113.2', false],
    ['', false],
    ['nonsense', false],
    [undefined, false],
  ];
  for (const [address, expected] of table) assert.equal(access.mayComeFrom(address), expected, String(address));
  assert.equal(keyAccess({}).mayComeFrom(undefined), true);
  assert.equal(keyAccess({ addresses: [] }).mayComeFrom('127.0.0.1'), false, 'an empty list admits nobody');
});

test('endpoints: a path and what lies below it, never what begins alike', () => {
  const access = keyAccess({ endpoints: ['/v1/messages'] });
  const table: readonly (readonly [string, boolean])[] = [
    ['/v1/messages', true],
    ['/v1/messages/count_tokens', true],
    ['/v1/messagesx', false],
    ['/v1/chat/completions', false],
    ['/v1/models', true],
    ['/v1/files', false],
  ];
  for (const [path, expected] of table) assert.equal(access.mayUse(path), expected, path);
  assert.equal(keyAccess({}).mayUse('/v1/anything'), true);
});

test('what is wrong is reported', () => {
  const wrong = [
    { addresses: ['10.0.0.0/33'] },
    { addresses: ['2001:db8::/129'] },
    { addresses: ['example.com'] },
    { addresses: [''] },
    { addresses: ['10.0.0.0/-1'] },
    { endpoints: ['messages'] },
    { endpoints: ['/v2/messages'] },
    { endpoints: ['/v1/../x'] },
    { addresses: Array.from({ length: listMax + 1 }, () => '::1') },
  ];
  for (const limits of wrong) assert.notEqual(faultOfLimits(limits), undefined, JSON.stringify(limits));
  assert.equal(faultOfLimits({ addresses: ['::1', '10.0.0.0/0'], endpoints: ['/v1/chat/completions'] }), undefined);
});

test('they survive the database, and none are nothing', () => {
  const limits = { endpoints: ['/v1/messages'], zdrOnly: true };
  assert.deepEqual(readLimits(printLimits(limits)), limits);
  assert.equal(printLimits({ endpoints: undefined, addresses: undefined, zdrOnly: undefined }), null);
  assert.deepEqual(readLimits(null), {});
});
