import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import type { AccountObject } from '../../src/account-api/account-object.ts';
import type { KeyObject } from '../../src/account-api/key-object.ts';
import { InnerService, scriptedModel } from '../support/service.ts';
import { CommandFolder, jsonOf } from './command.ts';

/** Lists of a service on another machine: from a folder that has no database, with a management key. */
const service = new InnerService({ config: scriptedModel('- say: [ { text: "hello" } ]') });
const elsewhere = new CommandFolder();
let operator = '';
let viewer = '';
const keyOf = async (...words: string[]): Promise<string> =>
  (await service.command('keys', 'create', ...words)).stdout.trim();

before(async () => {
  await service.start();
  operator = await keyOf('--role', 'admin', '--operator');
  viewer = await keyOf('--role', 'viewer');
});
after(async () => {
  elsewhere.dispose();
  await service.dispose();
});
const list = (key: string, ...words: string[]) => elsewhere.run(...words, '--at', service.accountUrl, '--key', key);

test('the objects and the columns are those of the machine of the service', async () => {
  for (const words of [
    ['accounts', 'list'],
    ['credits', 'show'],
    ['prices', 'list'],
    ['audit', 'list', '--limit', '2'],
    ['mail', 'list'],
    ['invoices', 'list'],
    ['receipts', 'list'],
  ]) {
    assert.deepEqual(
      jsonOf(await list(operator, ...words, '--json')),
      jsonOf(await service.command(...words, '--json')),
    );
    const [there, here] = [await list(operator, ...words), await service.command(...words)];
    assert.equal(there.stdout.split('\n')[0], here.stdout.split('\n')[0], words.join(' '));
  }
  assert.match((await service.command('prices', 'list')).stdout, /^demo +all +\$\d+\.\d+ +\$\d/m);
  assert.match((await list(operator, 'accounts', 'list')).stdout, /^acct_\w+ +.* active +\$\d+\.\d+ /m);
  const [account] = jsonOf(await list(operator, 'accounts', 'list', '--json')) as readonly AccountObject[];
  assert.equal(account?.id, service.accountId);
  const keys = jsonOf(await list(viewer, 'keys', 'list', '--json')) as readonly KeyObject[];
  const own = jsonOf(await service.command('keys', 'list', '--json')) as readonly KeyObject[];
  assert.deepEqual(keys.map(({ id }) => id).toSorted(), own.map(({ id }) => id).toSorted());
  assert.match((await list(viewer, 'keys', 'list')).stdout, /^key_\w+ +- +\S/m);
});

test('more than a page of the API has is read page by page, and no more than is wanted', async () => {
  for (let made = 0; made < 105; made++)
    assert.equal((await service.command('accounts', 'create', `customer ${made}`)).code, 0);
  const listed = async (...words: string[]) =>
    (jsonOf(await list(operator, ...words, '--json')) as readonly { readonly id: string }[]).map(({ id }) => id);
  assert.equal(new Set(await listed('accounts', 'list')).size, 106);
  assert.equal((await listed('audit', 'list', '--limit', '101')).length, 101);
});

test('what cannot be read says why', async () => {
  for (const [result, code, said] of [
    [await list(viewer, 'accounts', 'list'), 1, /for the operator of the server/],
    [await list(viewer, 'keys', 'list', '--account', 'acct_other'), 1, /./],
    [await list('tkh_nothing', 'keys', 'list'), 1, /does not exist or has been revoked/],
    [await elsewhere.run('keys', 'list', '--at', service.accountUrl), 64, /needs a key/],
    [await elsewhere.run('keys', 'list', '--at', 'http://localhost:1', '--key', viewer), 69, /does not answer/],
    [await elsewhere.run('keys', 'list', '--at', service.url, '--key', viewer), 1, /./],
    [await elsewhere.run('keys', 'list', '--at', 'there'), 64, /use a URL/],
  ] as const) {
    assert.equal(result.code, code, result.stderr);
    assert.match(result.stderr, said);
  }
});
