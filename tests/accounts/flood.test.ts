/** Keys that look right and do not exist, as fast as anybody can send them (decision 035). */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { test, type TestContext } from 'node:test';
import { Directory } from '../../src/accounts/directory.ts';
import { Follower } from '../../src/accounts/follower.ts';
import { issueKey, newKey } from '../../src/accounts/key.ts';
import { KeyLookUps, type LookedUpRepositories } from '../../src/accounts/key-look-ups.ts';
import { openSecret } from '../../src/accounts/secret.ts';
import { deferred } from '../../src/platform/deferred.ts';
import { ApiError } from '../../src/platform/errors.ts';
import { customer, openStore, temporaryFolder, uuid } from '../store/fixture.ts';

const secret = openSecret({ fromEnvironment: 's'.repeat(32), dataFolder: '/nowhere', warn: assert.fail });

/** A process with one key in memory, on a database with three; what it asks of the database is counted. */
async function process(t: TestContext, changes: Partial<LookedUpRepositories> = {}) {
  const store = await openStore(t, join(temporaryFolder(t), 'x.db'));
  await customer(store, 'acct_a', 0n);
  const create = async () => {
    const { text, row } = issueKey({ accountId: 'acct_a', name: 'mine', secret, now: 0 });
    await store.repositories.createKey({ key: row, changeId: uuid() });
    return { id: row.id, text };
  };
  const keys = [await create(), await create(), await create()];
  const directory = new Directory(secret, () => 1, 1);
  const follower = new Follower({ directory, now: () => 1, warn: assert.fail });
  await follower.loadAll(store.repositories);
  const statements = { all: 0, atOnce: 0, most: 0, keysMost: 0 };
  const { findKeys, loadKeys, listAccountPrices, listKeyHashes } = store.repositories;
  const lookUps = new KeyLookUps({
    directory,
    now: () => 1,
    repositories: {
      loadKeys,
      findKeys: async (request) => {
        statements.all++;
        statements.most = Math.max(statements.most, ++statements.atOnce);
        statements.keysMost = Math.max(statements.keysMost, request.hashes.length);
        try {
          return await findKeys(request);
        } finally {
          statements.atOnce--;
        }
      },
      listAccountPrices,
      listKeyHashes,
      ...changes,
    },
  });
  t.after(() => lookUps.close());
  return { store, create, keys, directory, follower, lookUps, statements };
}

const isRefusal = (error: unknown): true => {
  assert.ok(error instanceof ApiError && error.code === 'backend_at_capacity' && error.retryAfterSeconds === 1);
  return true;
};

test('before the filter is filled one statement runs at a time, and a known key waits for two of them at most', async (t) => {
  const never = deferred<Uint8Array>();
  const { keys, directory, lookUps, statements } = await process(t, { listKeyHashes: () => never.promise });
  let [answered, refused] = [0, 0];
  const flood = (address: string): void => {
    const unknown = newKey();
    assert.equal(directory.find(unknown), 'cold');
    lookUps.read(unknown, address).then(
      () => answered++,
      (error: unknown) => (isRefusal(error), refused++),
    );
  };
  let knownWaited = 0;
  for (let round = 0; round < 100; round++) {
    for (let sent = 0; sent < 500; sent++) flood(`192.0.2.${sent % 7}`);
    await nextTurn();
    const { text } = keys[round % 3]!;
    if (directory.find(text) !== 'cold') continue;
    knownWaited++;
    const before = statements.all;
    await lookUps.read(text, '198.51.100.1');
    assert.equal(typeof directory.find(text), 'object');
    assert.ok(statements.all - before <= 2, `${statements.all - before} statements`);
  }
  assert.ok(knownWaited > 50, 'one key is in memory, and three take turns');
  assert.deepEqual([statements.most, statements.keysMost], [1, 100]);
  assert.ok(answered > 0 && refused > 0 && lookUps.waiting <= 2_000, JSON.stringify({ answered, refused }));
  while (lookUps.waiting > 0) await nextTurn();
  never.resolve(new Uint8Array());
});

test('a flood of unknown keys asks nothing of the database once the filter is filled, and a cold key is read as before', async (t) => {
  const { create, follower, store, keys, directory, lookUps, statements } = await process(t);
  lookUps.fill();
  while (!directory.unknown.isComplete) await nextTurn();
  let cold = 0;
  for (let sent = 0; sent < 200_000; sent++) {
    const unknown = newKey();
    if (directory.find(unknown) !== 'cold') continue;
    cold++;
    await lookUps.read(unknown, '192.0.2.1');
    assert.equal(directory.find(unknown), undefined, 'and never again');
  }
  assert.ok(cold < 200 && statements.all === cold, `${cold} were asked for`);
  for (const { text } of keys) {
    if (directory.find(text) === 'cold') await lookUps.read(text, '192.0.2.1');
    assert.equal(typeof directory.find(text), 'object');
  }
  // A key that is created later is known when its change is followed.
  const late = await create();
  assert.equal(directory.find(late.text), undefined);
  await follower.follow([{ kind: 'key_created', ref: late.id }], store.repositories);
  assert.equal(directory.find(late.text), 'cold');
  await lookUps.read(late.text, '192.0.2.1');
  assert.equal(typeof directory.find(late.text), 'object');
});

test('a hash that was looked for in vain is found once its key has been created', async (t) => {
  const { store, directory, follower, lookUps } = await process(t);
  const { text, row } = issueKey({ accountId: 'acct_a', name: 'early', secret, now: 0 });
  await lookUps.read(text, '192.0.2.1');
  assert.equal(directory.find(text), undefined);
  await store.repositories.createKey({ key: row, changeId: uuid() });
  await follower.follow([{ kind: 'key_created', ref: row.id }], store.repositories);
  assert.equal(directory.find(text), 'cold');
  await lookUps.read(text, '192.0.2.1');
  assert.equal(typeof directory.find(text), 'object');
});

test('a database that does not answer refuses no key: who waits hears it after five seconds, who comes later at once', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const answer = deferred<readonly never[]>();
  const { keys, directory, lookUps } = await process(t, { findKeys: () => answer.promise });
  const isSilent = (error: unknown): true => {
    assert.ok(error instanceof ApiError && error.code === 'internal_error' && error.retryAfterSeconds === 1);
    return true;
  };
  const waiting = assert.rejects(lookUps.read(keys[0]!.text, 'a'), isSilent);
  const behind = assert.rejects(lookUps.read(keys[1]!.text, 'a'), isSilent);
  await nextTurn();
  t.mock.timers.tick(5_000);
  await Promise.all([waiting, behind]);
  await assert.rejects(lookUps.read(keys[2]!.text, 'a'), isSilent);
  assert.equal(directory.find(keys[2]!.text), 'cold');
  answer.resolve([]);
  while (lookUps.waiting > 0) await nextTurn();
  await nextTurn();
  await lookUps.read(newKey(), 'a');
});
