import assert from 'node:assert/strict';
import { test } from 'node:test';

import { AddressRanges, plainAddress, rangeOf } from '../../../src/platform/ip/ranges.ts';

test('an address is written in one way', () => {
  const table: readonly (readonly [string, string | undefined])[] = [
    ['192.0.2.7', '192.0.2.7'],
    ['::ffff:192.0.2.7', '192.0.2.7'],
    ['::FFFF:c000:207', '192.0.2.7'],
    ['0:0:0:0:0:ffff:192.0.2.7', '192.0.2.7'],
    ['2001:DB8:0:0::01', '2001:db8::1'],
    ['2001:db8::192.0.2.7', '2001:db8::c000:207'],
    ['::1', '::1'],
    ['fe80::1%eth0', undefined],
    ['192.0.2.07', undefined],
    ['192.0.2', undefined],
    ['3221225991', undefined],
    ['0x7f.1', undefined],
    ['192.0.2.256', undefined],
    ['::1::', undefined],
    ['', undefined],
    [`${'0'.repeat(10_000)}::1`, undefined],
  ];
  for (const [text, expected] of table) assert.equal(plainAddress(text), expected, text.slice(0, 50));
});

test('ranges are of one family; of IPv4 inside IPv6 they are of IPv4', () => {
  const table: readonly (readonly [string, readonly [string, string, number] | undefined])[] = [
    ['10.0.0.0/8', ['10.0.0.0', 'ipv4', 8]],
    ['10.0.0.1', ['10.0.0.1', 'ipv4', 32]],
    ['::ffff:10.0.0.0/104', ['10.0.0.0', 'ipv4', 8]],
    ['::ffff:10.0.0.0/95', undefined],
    ['::ffff:10.0.0.1', ['10.0.0.1', 'ipv4', 32]],
    ['2001:db8::/32', ['2001:db8::', 'ipv6', 32]],
    ['10.0.0.0/33', undefined],
    ['2001:db8::/129', undefined],
    ['10.0.0.0/', undefined],
    ['10.0.0.0/8/8', undefined],
    ['localhost', undefined],
  ];
  for (const [text, expected] of table) {
    const range = rangeOf(text);
    assert.deepEqual(range === undefined ? undefined : [range.address, range.family, range.prefix], expected, text);
  }
});

test('a range has the addresses in it, however they are written', () => {
  const ranges = new AddressRanges(['::ffff:10.0.0.0/104', '192.0.2.7', 'fe80::/10', 'nonsense']);
  for (const address of ['10.255.0.1', '::ffff:10.0.0.1', '::ffff:a00:1', '192.0.2.7', 'fe80::1', 'fe80::1%eth0'])
    assert.ok(ranges.has(address), address);
  for (const address of ['11.0.0.1', '::10.0.0.1', '192.0.2.8', 'fec0::1', 'nonsense', '', '%', 'fe80::1 '])
    assert.ok(!ranges.has(address), address);
});
