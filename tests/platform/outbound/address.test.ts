import fc from 'fast-check';
import assert from 'node:assert/strict';
import { BlockList } from 'node:net';
import { test } from 'node:test';

import { isGlobalUnicast } from '../../../src/platform/outbound/address.ts';

/** First and last address of each range, and the public ones just outside of it; reliability §3.2, forms 37 to 69. */
const ranges4: readonly (readonly [first: string, last: string, before: string | null, after: string | null])[] = [
  ['0.0.0.0', '0.255.255.255', null, '1.0.0.0'],
  ['10.0.0.0', '10.255.255.255', '9.255.255.255', '11.0.0.0'],
  ['100.64.0.0', '100.127.255.255', '100.63.255.255', '100.128.0.0'],
  ['127.0.0.0', '127.255.255.255', '126.255.255.255', '128.0.0.0'],
  ['168.63.129.16', '168.63.129.16', '168.63.129.15', '168.63.129.17'],
  ['169.254.0.0', '169.254.255.255', '169.253.255.255', '169.255.0.0'],
  ['172.16.0.0', '172.31.255.255', '172.15.255.255', '172.32.0.0'],
  ['192.0.0.0', '192.0.0.255', '191.255.255.255', '192.0.1.0'],
  ['192.0.2.0', '192.0.2.255', '192.0.1.255', '192.0.3.0'],
  ['192.88.99.0', '192.88.99.255', '192.88.98.255', '192.88.100.0'],
  ['192.168.0.0', '192.168.255.255', '192.167.255.255', '192.169.0.0'],
  ['198.18.0.0', '198.19.255.255', '198.17.255.255', '198.20.0.0'],
  ['198.51.100.0', '198.51.100.255', '198.51.99.255', '198.51.101.0'],
  ['203.0.113.0', '203.0.113.255', '203.0.112.255', '203.0.114.0'],
  ['224.0.0.0', '239.255.255.255', '223.255.255.255', null],
  ['240.0.0.0', '255.255.255.255', null, null],
];

test('reliability §3.2: every special range of IPv4 is refused up to its edges, and not beyond', () => {
  for (const [first, last, before, after] of ranges4) {
    assert.deepEqual([first, isGlobalUnicast(first), last, isGlobalUnicast(last)], [first, false, last, false]);
    for (const outside of [before, after]) if (outside !== null) assert.ok(isGlobalUnicast(outside), outside);
  }
});

test('reliability §3.2: of IPv6 only what has been given out for the internet is public', () => {
  const refused =
    '::1 :: ::ffff:127.0.0.1 ::ffff:7f00:1 ::ffff:8.8.8.8 ::127.0.0.1 ::8.8.8.8 ::ffff:0:127.0.0.1 64:ff9b::7f00:1 ' +
    '64:ff9b::169.254.169.254 64:ff9b::8.8.8.8 64:ff9b:1::a9fe:a9fe 2002:7f00:1:: 2002:808:808:: 2001:0:7f00:1:: ' +
    '2001:2::1 2001:10::1 2001:20::1 2001:1ff:ffff::1 2001:db8::1 2001:db8:ffff:ffff:ffff:ffff:ffff:ffff fe80::1 ' +
    'fe80::1%eth0 2606:4700::1%eth0 fc00::1 fd12::1 fd00:ec2::254 fec0::1 ff02::1 100::1 5f00::1 3fff::1 ' +
    '3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff 1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 4000::';
  for (const address of refused.split(' ')) assert.equal(isGlobalUnicast(address), false, address);
  for (const address of ['2606:4700:4700::1111', '2001:200::1', '2001:4860:4860::8888', '2a00::1', '2003::', '3ffe::1'])
    assert.ok(isGlobalUnicast(address), address);
  for (const address of ['', 'localhost', '127.1', '8.8.8.8:443', '[2606:4700::1]', '8.8.8.8 '])
    assert.equal(isGlobalUnicast(address), false, address);
});

test("agrees with Node's own list of ranges on any address of IPv4", () => {
  const list = new BlockList();
  for (const [first, last] of ranges4) list.addRange(first, last);
  fc.assert(
    fc.property(fc.ipV4(), (address) => {
      assert.equal(isGlobalUnicast(address), !list.check(address));
    }),
    { numRuns: 2_000 },
  );
});

test('an address of IPv6 is judged by its bits, however it is written', () => {
  fc.assert(
    fc.property(fc.ipV6(), (address) => {
      const folded = new URL(`https://[${address}]/`).hostname.slice(1, -1);
      assert.equal(isGlobalUnicast(address), isGlobalUnicast(folded));
      if (!/^[23]/.test(folded)) assert.equal(isGlobalUnicast(address), false);
    }),
    { numRuns: 2_000 },
  );
});
