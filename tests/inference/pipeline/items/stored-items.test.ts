import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import type { TestContext } from 'node:test';

import { accountBytesMax, KeptItems } from '../../../../src/inference/pipeline/stored-items.ts';
import type { KeptItemsOptions } from '../../../../src/inference/pipeline/stored-items.ts';
import { StoreError } from '../../../../src/store/store-error.ts';
import type { SqliteStore } from '../../../../src/store/sqlite/store.ts';
import { customer, openStore, temporaryFolder } from '../../../store/fixture.ts';

/** The store of items on a real database: what is found, what expires, what makes room, and what a failure does. */
const dayMs = 86_400_000;

interface Scene {
  readonly store: SqliteStore;
  readonly items: KeptItems;
  readonly failures: string[];
  now: number;
}

async function scene(t: TestContext, keepDays = 30, repositories?: KeptItemsOptions['repositories']): Promise<Scene> {
  const store = await openStore(t, join(temporaryFolder(t), 'a.db'));
  for (const id of ['acct_a', 'acct_b']) await customer(store, id, 0n);
  const failures: string[] = [];
  const made: Scene = {
    store,
    failures,
    now: Date.now(),
    items: new KeptItems({
      repositories: repositories ?? store.repositories,
      keepDays,
      now: () => made.now,
      failed: (what, code) => failures.push(`${what} ${code}`),
    }),
  };
  return made;
}

const one = (id: string, text = 'hello') => new Map([[id, { type: 'message', id, text }]]);
const idsOf = async (items: KeptItems, accountId: string, ids: readonly string[]) => [
  ...(await items.find(accountId, ids)).keys(),
];

test('what is kept is found by its account, and by no other', async (t) => {
  const { items } = await scene(t);
  await items.keep('acct_a', new Map([...one('msg_1', 'ü\n"'), ...one('fc_1')]));
  const found = await items.find('acct_a', ['msg_1', 'fc_1', 'msg_2']);
  assert.deepEqual(found.get('msg_1'), { type: 'message', id: 'msg_1', text: 'ü\n"' });
  assert.deepEqual([...found.keys()].toSorted(), ['fc_1', 'msg_1']);
  assert.deepEqual(await idsOf(items, 'acct_b', ['msg_1', 'fc_1']), []);
});

test('an id that is there already keeps what it has', async (t) => {
  const { items } = await scene(t);
  await items.keep('acct_a', one('msg_1', 'first'));
  await items.keep('acct_a', one('msg_1', 'second'));
  assert.deepEqual((await items.find('acct_a', ['msg_1'])).get('msg_1'), {
    type: 'message',
    id: 'msg_1',
    text: 'first',
  });
});

test('more ids than one statement takes are found', async (t) => {
  const { items } = await scene(t);
  const ids = Array.from({ length: 1300 }, (_, index) => `msg_${index}`);
  await items.keep('acct_a', new Map(ids.map((id) => [id, { id }])));
  assert.equal((await items.find('acct_a', ids)).size, ids.length);
});

test('after its days an item is not found any more, and is then deleted', async (t) => {
  const made = await scene(t);
  await made.items.keep('acct_a', one('msg_old'));
  made.now += 29 * dayMs;
  await made.items.keep('acct_a', one('msg_new'));
  assert.deepEqual((await idsOf(made.items, 'acct_a', ['msg_old', 'msg_new'])).length, 2);
  made.now += dayMs;
  assert.deepEqual(await idsOf(made.items, 'acct_a', ['msg_old', 'msg_new']), ['msg_new']);
  await made.items.tidy();
  // Nobody who looks further back sees it either.
  const rows = await made.store.repositories.findKeptItems({
    accountId: 'acct_a',
    ids: ['msg_old', 'msg_new'],
    keptAfter: 0,
    bytesMax: 1e9,
  });
  assert.ok(rows !== 'too-large');
  assert.deepEqual(
    rows.map(([id]) => id),
    ['msg_new'],
  );
  assert.deepEqual(made.failures, []);
});

test('switched off, nothing is kept or found, and what was kept is deleted', async (t) => {
  const made = await scene(t);
  await made.items.keep('acct_a', one('msg_1'));
  made.items.keepDays = 0;
  assert.equal(made.items.isOn, false);
  assert.deepEqual(await idsOf(made.items, 'acct_a', ['msg_1']), []);
  made.now += 1;
  await made.items.tidy();
  made.items.keepDays = 30;
  assert.deepEqual(await idsOf(made.items, 'acct_a', ['msg_1']), []);
});

test('an item that is too large is not kept, the others of the answer are', async (t) => {
  const { items, failures } = await scene(t);
  await items.keep('acct_a', new Map([...one('msg_1', 'x'.repeat(1_048_576)), ...one('fc_1')]));
  assert.deepEqual(await idsOf(items, 'acct_a', ['msg_1', 'fc_1']), ['fc_1']);
  assert.deepEqual(failures, ['keep too_large']);
});

test('a request cannot refer to more than it could send', async (t) => {
  const { items } = await scene(t);
  const ids = Array.from({ length: 9 }, (_, index) => `msg_${index}`);
  for (const id of ids) await items.keep('acct_a', one(id, 'x'.repeat(1_000_000)));
  await assert.rejects(items.find('acct_a', ids), { code: 'request_body_too_large' });
  assert.equal((await items.find('acct_a', ids.slice(1))).size, 8);
});

test('the oldest items of an account make room for newer ones, those of others stay', async (t) => {
  const made = await scene(t);
  await made.items.keep('acct_b', one('msg_other'));
  const ids: string[] = [];
  for (let index = 0; index < 4; index++) {
    ids.push(`msg_${index}`);
    made.now += 1;
    await made.items.keep('acct_a', one(`msg_${index}`, 'x'.repeat(1000)));
  }
  assert.ok(accountBytesMax > 1_000_000);
  await made.store.repositories.tidyKeptItems({
    keptBefore: 0,
    accountIds: ['acct_a'],
    accountBytesMax: 2500,
    rowsMax: 100,
  });
  assert.deepEqual(await idsOf(made.items, 'acct_a', ids), ['msg_2', 'msg_3']);
  assert.deepEqual(await idsOf(made.items, 'acct_b', ['msg_other']), ['msg_other']);
});

test('all items of an account can be deleted', async (t) => {
  const { items, store } = await scene(t);
  const ids = Array.from({ length: 700 }, (_, index) => `msg_${index}`);
  await items.keep('acct_a', new Map(ids.map((id) => [id, { id }])));
  await items.keep('acct_b', one('msg_0'));
  assert.equal(await store.repositories.deleteKeptItems({ accountId: 'acct_a' }), 700);
  assert.deepEqual(await idsOf(items, 'acct_a', ids), []);
  assert.deepEqual(await idsOf(items, 'acct_b', ['msg_0']), ['msg_0']);
});

test('answers that end at the same time share a write', async (t) => {
  const sizes: number[] = [];
  const release: (() => void)[] = [];
  const repositories = {
    keepItems: ({ items: rows }: { items: readonly unknown[] }) => {
      sizes.push(rows.length);
      return new Promise<void>((resolve) => release.push(resolve));
    },
  } as unknown as KeptItemsOptions['repositories'];
  const { items } = await scene(t, 30, repositories);
  const kept = Array.from({ length: 20 }, (_, index) => items.keep('acct_a', one(`msg_${index}`)));
  release[0]?.();
  await kept[0];
  await new Promise((resolve) => setImmediate(resolve));
  release[1]?.();
  await Promise.all(kept);
  assert.deepEqual(sizes, [1, 19]);
});

test('a store that fails or is slow holds no answer up', async (t) => {
  const failing = {
    keepItems: () => Promise.reject(new StoreError('full', 'the disk is full')),
    tidyKeptItems: () => Promise.reject(new StoreError('busy', 'busy')),
  } as unknown as KeptItemsOptions['repositories'];
  const first = await scene(t, 30, failing);
  await first.items.keep('acct_a', one('msg_1'));
  await first.items.tidy();
  assert.deepEqual(first.failures, ['keep full', 'tidy busy']);
  const silent = { keepItems: () => new Promise(() => {}) } as unknown as KeptItemsOptions['repositories'];
  const second = await scene(t, 30, silent);
  await second.items.keep('acct_a', one('msg_1'));
  assert.deepEqual(second.failures, ['keep slow']);
  // And no more waits than there is memory for.
  await Promise.all(
    Array.from({ length: 40 }, (_, index) => second.items.keep('acct_a', one(`msg_${index}`, 'x'.repeat(1_000_000)))),
  );
  assert.ok(second.failures.includes('keep busy'));
});
