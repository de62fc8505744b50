import assert from 'node:assert/strict';
import { test } from 'node:test';

import { clientAddress } from '../../../src/platform/http/client-address.ts';
import { AddressRanges } from '../../../src/platform/ip/ranges.ts';

const trusted = new AddressRanges(['127.0.0.1', '10.0.0.0/8', '2001:db8:ffff::/48']);
const stranger = '203.0.113.9';

const from = (remoteAddress: string | undefined, forwardedFor?: string, more: Record<string, string> = {}) =>
  ({
    socket: remoteAddress === undefined ? {} : { remoteAddress },
    headers: { ...(forwardedFor === undefined ? {} : { 'x-forwarded-for': forwardedFor }), ...more },
  }) as const;

/** What a trusted proxy at 127.0.0.1 sends, and who the client is. */
const table: readonly (readonly [what: string, header: string | undefined, client: string])[] = [
  ['no header', undefined, '127.0.0.1'],
  ['an address', stranger, stranger],
  ['an IPv6 address', '2001:db8::7', '2001:db8::7'],
  ['an IPv6 address, written long', '2001:DB8:0:0:0:0:0:7', '2001:db8::7'],
  ['IPv4 inside IPv6', `::ffff:${stranger}`, stranger],
  ['IPv4 inside IPv6, in hexadecimal', '::ffff:cb00:7109', stranger],
  ['blanks and tabs around it', ` \t ${stranger}\t `, stranger],
  // Several.
  ['a spoofed one to the left', `198.51.100.1, ${stranger}`, stranger],
  ['a trusted one spoofed to the left', `10.0.0.1, ${stranger}`, stranger],
  ['garbage to the left, to be taken for the proxy', `<script>, ${stranger}`, stranger],
  ['nothing to the left', `,,${stranger}`, stranger],
  ['a chain of proxies', `198.51.100.1, ${stranger}, 10.0.0.2,10.0.0.3`, stranger],
  ['a chain, IPv4 inside IPv6', `${stranger}, ::ffff:10.0.0.2`, stranger],
  ['a chain over IPv6', `${stranger},2001:db8:ffff::1,10.0.0.2`, stranger],
  ['only the proxies', '10.0.0.1, 10.0.0.2', '127.0.0.1'],
  ['one proxy alone', '10.0.0.1', '127.0.0.1'],
  ['the proxy itself', '127.0.0.1', '127.0.0.1'],
  // Ports and brackets.
  ['a port', `${stranger}:443`, stranger],
  ['brackets', '[2001:db8::7]', '2001:db8::7'],
  ['brackets and a port', '[2001:db8::7]:65535', '2001:db8::7'],
  ['a proxy with a port', `${stranger}, 10.0.0.1:8080`, stranger],
  // Malformed.
  ['empty', '', '127.0.0.1'],
  ['a comma', ',', '127.0.0.1'],
  ['nothing to the right', `${stranger},`, '127.0.0.1'],
  ['a blank to the right', `${stranger}, `, '127.0.0.1'],
  ['nothing between proxies', `${stranger},,10.0.0.1`, '127.0.0.1'],
  ['unknown', 'unknown', '127.0.0.1'],
  ['unknown behind a proxy', `${stranger}, unknown, 10.0.0.1`, '127.0.0.1'],
  ['an obfuscated identifier', '_hidden', '127.0.0.1'],
  ['an obfuscated identifier to the right', `${stranger}, _SEVKISEK`, '127.0.0.1'],
  ['the form of Forwarded', `for=${stranger}`, '127.0.0.1'],
  ['quotes', `"${stranger}"`, '127.0.0.1'],
  ['a name', 'localhost', '127.0.0.1'],
  ['a range', '203.0.113.0/24', '127.0.0.1'],
  ['two without a comma', `198.51.100.1 ${stranger}`, '127.0.0.1'],
  ['a semicolon', `198.51.100.1; ${stranger}`, '127.0.0.1'],
  ['no port behind the colon', `${stranger}:`, '127.0.0.1'],
  ['a port too large', `${stranger}:65536`, '127.0.0.1'],
  ['a port with letters', `${stranger}:http`, '127.0.0.1'],
  ['two ports', `${stranger}:1:2`, '127.0.0.1'],
  ['brackets around IPv4', `[${stranger}]`, '127.0.0.1'],
  ['brackets that stay open', '[2001:db8::7', '127.0.0.1'],
  ['brackets that were never opened', '2001:db8::7]', '127.0.0.1'],
  ['brackets, no port', '[2001:db8::7]:', '127.0.0.1'],
  ['empty brackets', '[]', '127.0.0.1'],
  ['a zone', 'fe80::1%eth0', '127.0.0.1'],
  ['a zone in brackets', '[fe80::1%25eth0]:80', '127.0.0.1'],
  ['octal', '0313.0.113.9', '127.0.0.1'],
  ['a leading zero', '203.0.113.09', '127.0.0.1'],
  ['hexadecimal', '0xcb.0.113.9', '127.0.0.1'],
  ['a number', '3405803785', '127.0.0.1'],
  ['three parts', '203.0.113', '127.0.0.1'],
  ['too large a part', '203.0.113.256', '127.0.0.1'],
  ['a sign', '-203.0.113.9', '127.0.0.1'],
  ['digits of another script', '２03.0.113.9', '127.0.0.1'],
  // Many, and huge.
  ['thousands to the left', `${'198.51.100.1,'.repeat(1200)}${stranger}`, stranger],
  ['as many proxies as there may be', `${stranger}${',10.0.0.1'.repeat(31)}`, stranger],
  ['one proxy more', `${stranger}${',10.0.0.1'.repeat(32)}`, '127.0.0.1'],
  ['thousands of proxies', `${stranger}${',10.0.0.1'.repeat(1700)}`, '127.0.0.1'],
  ['thousands of commas', ','.repeat(16_000), '127.0.0.1'],
  ['a long word', '1'.repeat(16_000), '127.0.0.1'],
  ['long blanks', `${' '.repeat(16_000)}${stranger}`, stranger],
  ['thousands of dots', '1.'.repeat(8000), '127.0.0.1'],
  ['thousands of colons', ':'.repeat(16_000), '127.0.0.1'],
];

for (const [what, header, client] of table)
  test(`from a trusted proxy: ${what}`, () => {
    assert.equal(clientAddress(from('127.0.0.1', header), trusted), client);
    assert.equal(
      clientAddress(from('::ffff:127.0.0.1', header), trusted),
      client,
      'the peer as a socket of both has it',
    );
  });

test('from anybody else the header says nothing', () => {
  for (const [what, header] of table) {
    for (const peer of ['198.51.100.200', '2001:db8::200', '127.0.0.2', '11.0.0.1'])
      assert.equal(clientAddress(from(peer, header), trusted), peer, what);
  }
  assert.equal(clientAddress(from('fe80::1%eth0', stranger), trusted), 'fe80::1%eth0');
  assert.equal(clientAddress(from(undefined, stranger), trusted), undefined, 'it is gone');
});

test('other headers say nothing', () => {
  const others = {
    forwarded: `for=${stranger}`,
    'x-real-ip': stranger,
    'x-client-ip': stranger,
    'cf-connecting-ip': stranger,
    'true-client-ip': stranger,
    x_forwarded_for: stranger,
  };
  assert.equal(clientAddress(from('127.0.0.1', undefined, others), trusted), '127.0.0.1');
});

test('where no proxy is trusted, the headers are not even read', () => {
  for (const remoteAddress of ['127.0.0.1', '::ffff:127.0.0.1', undefined]) {
    const request = {
      socket: { remoteAddress } as { remoteAddress?: string | undefined },
      get headers(): never {
        throw new Error('somebody read them');
      },
    };
    assert.equal(clientAddress(request, undefined), remoteAddress);
  }
});
