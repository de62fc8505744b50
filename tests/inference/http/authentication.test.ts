import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import { InnerService, scriptedModel } from '../../support/service.ts';
import { plainBody } from './chat.ts';
import { assertEnvelope } from './envelope.ts';
import { exchange } from './raw.ts';
import type { RawAnswer } from './raw.ts';

/** Specification part 5: who is let in, and with which of the two codes everybody else is kept out. */
const service = new InnerService({ config: scriptedModel('- say: [ { text: "hello" } ]') });
let revoked = '';
before(async () => {
  await service.start();
  const made = JSON.parse((await service.command('keys', 'create', '--json', '--name', 'to be revoked')).stdout) as {
    id: string;
    key: string;
  };
  revoked = made.key;
  assert.equal((await ask([['Authorization', `Bearer ${revoked}`]])).status, 200);
  assert.equal((await service.command('keys', 'revoke', made.id)).code, 0);
});
after(() => service.dispose());

type Header = readonly [string, string];

const ask = (headers: readonly Header[]): Promise<RawAnswer> =>
  exchange(service.url, { method: 'POST', path: '/v1/chat/completions', headers, body: JSON.stringify(plainBody) });

/** The key with its last character changed: right in form, wrong in its checksum. */
const mistyped = (key: string): string => key.slice(0, -1) + (key.endsWith('0') ? '1' : '0');

const accepted: readonly (readonly [string, (key: string) => readonly Header[]])[] = [
  ['Authorization: Bearer', (key) => [['Authorization', `Bearer ${key}`]]],
  ['the scheme in lower case', (key) => [['authorization', `bearer ${key}`]]],
  ['x-api-key', (key) => [['X-Api-Key', key]]],
  [
    'both, the same',
    (key) => [
      ['Authorization', `Bearer ${key}`],
      ['x-api-key', key],
    ],
  ],
  [
    'an empty Authorization beside x-api-key',
    (key) => [
      ['Authorization', ''],
      ['x-api-key', key],
    ],
  ],
  ['blanks around the value, which HTTP strips', (key) => [['Authorization', `  Bearer ${key}  `]]],
];

const refused: readonly (readonly [string, (key: string) => readonly Header[]])[] = [
  ['another prefix', (key) => [['Authorization', `Bearer sk_${key.slice(4)}`]]],
  ['a wrong checksum', (key) => [['Authorization', `Bearer ${mistyped(key)}`]]],
  ['a key cut short', (key) => [['Authorization', `Bearer ${key.slice(0, -1)}`]]],
  ['another case', (key) => [['Authorization', `Bearer ${key.toUpperCase()}`]]],
  ['blanks before the key', (key) => [['Authorization', `Bearer  ${key}`]]],
  ['a blank inside the key', (key) => [['Authorization', `Bearer ${key.slice(0, 9)} ${key.slice(9)}`]]],
  ['the scheme alone', () => [['Authorization', 'Bearer']]],
  ['another scheme', (key) => [['Authorization', `Basic ${Buffer.from(`:${key}`).toString('base64')}`]]],
  ['no scheme', (key) => [['Authorization', key]]],
  [
    'a wrong Authorization beside a right x-api-key',
    (key) => [
      ['Authorization', 'Bearer nonsense'],
      ['x-api-key', key],
    ],
  ],
  ['a wrong x-api-key', () => [['x-api-key', 'nonsense']]],
  ['a megabyte of nothing', () => [['x-api-key', 'a'.repeat(10_000)]]],
];

describe('a key is accepted', () => {
  for (const [what, headers] of accepted) {
    test(what, async () => assert.equal((await ask(headers(service.key))).status, 200));
  }
});

describe('invalid_api_key', () => {
  for (const [what, headers] of refused) {
    test(what, async () => {
      const answer = await ask(headers(service.key));
      assertEnvelope(answer, 'invalid_api_key');
      assert.ok(!answer.body.includes(service.key.slice(4, 20)), 'the answer repeats the key');
    });
  }

  test('a revoked key', async () => {
    assertEnvelope(await ask([['Authorization', `Bearer ${revoked}`]]), 'invalid_api_key');
    assertEnvelope(await ask([['x-api-key', revoked]]), 'invalid_api_key');
  });
});

describe('missing_api_key', () => {
  test('no credentials', async () => {
    assertEnvelope(await ask([]), 'missing_api_key');
  });
  test('empty headers', async () => {
    assertEnvelope(
      await ask([
        ['Authorization', ''],
        ['x-api-key', ''],
      ]),
      'missing_api_key',
    );
  });
});

describe('GET /v1/models', () => {
  const list = (headers: readonly Header[] = []): Promise<RawAnswer> =>
    exchange(service.url, { path: '/v1/models', headers });

  test('without a key shows the list', async () => assert.equal((await list()).status, 200));
  test('with a key shows the list', async () => {
    assert.equal((await list([['x-api-key', service.key]])).status, 200);
  });
  test('with an invalid key is refused', async () => {
    assertEnvelope(await list([['Authorization', 'Bearer tkh_nothing']]), 'invalid_api_key');
    assertEnvelope(await list([['Authorization', `Bearer ${revoked}`]]), 'invalid_api_key');
  });
});
