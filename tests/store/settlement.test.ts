import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { StoreError } from '../../src/store/store-error.ts';
import { balanceOf, customer, differencesOf, openRequest, openStore, temporaryFolder, usage } from './fixture.ts';

const refused = (code: StoreError['code']) => (error: unknown) => error instanceof StoreError && error.code === code;

test('M3: the same request settled many times, concurrently and after a restart, debits once', async (t) => {
  const file = join(temporaryFolder(t), 'x.db');
  const first = await openStore(t, file);
  await customer(first, 'acct_a', 1000n);
  const row = usage('acct_a', 10n);
  const outcomes = await Promise.all(Array.from({ length: 50 }, () => first.ledger.settle(row)));
  assert.deepEqual(new Set(outcomes), new Set(['billed']));
  assert.equal(await first.ledger.settle({ ...row, costMicrocents: 11n, holdMicrocents: 11n }), 'billed');
  assert.equal(await balanceOf(first, 'acct_a'), 990n);
  await first.close();

  const second = await openStore(t, file);
  assert.equal(await second.ledger.settle(row), 'billed');
  assert.equal(await balanceOf(second, 'acct_a'), 990n);
  assert.deepEqual(await second.ledger.readBack(row.requestId), { costMicrocents: 10n, ending: 'finished' });
  assert.equal(await second.ledger.readBack(usage('acct_a', 1n).requestId), undefined);
  assert.deepEqual(await differencesOf(file), []);
});

test('a bad row fails alone, whatever is wrong with it', async (t) => {
  const file = join(temporaryFolder(t), 'x.db');
  const store = await openStore(t, file);
  await customer(store, 'acct_a', 1000n);
  await customer(store, 'acct_poor', 5n);
  const bad = {
    'an unknown account': usage('acct_none', 1n),
    'an unknown account, free of charge': usage('acct_none', 0n),
    'more than the balance': usage('acct_poor', 6n),
    'more than the hold': usage('acct_a', 2n, { holdMicrocents: 1n }),
    'a cost below zero': usage('acct_a', 0n, { costMicrocents: -1n }),
    'half a token': usage('acct_a', 1n, { promptTokens: 0.5 }),
    'not a number': usage('acct_a', 1n, { promptTokens: Number.NaN }),
    'more cached than prompted': usage('acct_a', 1n, { cachedTokens: 2 }),
    'more thought than said': usage('acct_a', 1n, { reasoningTokens: 1 }),
    'a cost beyond 64 bits': usage('acct_a', 1n, { costMicrocents: 2n ** 63n, holdMicrocents: 2n ** 63n }),
    'no model': usage('acct_a', 1n, { modelId: null as unknown as string }),
    'a cost as number': usage('acct_a', 1n, { costMicrocents: 1 as unknown as bigint }),
  };
  const rows = Object.values(bad).flatMap((row) => [usage('acct_a', 1n), row, usage('acct_poor', 0n)]);
  const outcomes = await Promise.allSettled(rows.map((row) => store.ledger.settle(row)));
  const names = Object.keys(bad);
  outcomes.forEach((outcome, index) => {
    const expected = index % 3 === 1 ? 'rejected' : 'fulfilled';
    assert.equal(outcome.status, expected, names[Math.floor(index / 3)]);
  });
  assert.equal(await balanceOf(store, 'acct_a'), 1000n - BigInt(names.length));
  assert.deepEqual(await differencesOf(file), []);
});

test('a request id of another length is refused before it reaches the others', async (t) => {
  const store = await openStore(t, join(temporaryFolder(t), 'x.db'));
  await customer(store, 'acct_a', 10n);
  const good = store.ledger.settle(usage('acct_a', 1n));
  await assert.rejects(
    store.ledger.settle({ ...usage('acct_a', 1n), requestId: new Uint8Array(15) }),
    refused('invalid'),
  );
  assert.equal(await good, 'billed');
});

test('D9: labels that a database cannot hold are cleaned, not refused', async (t) => {
  const store = await openStore(t, join(temporaryFolder(t), 'x.db'));
  await customer(store, 'acct_a', 10n);
  const row = usage('acct_a', 1n, {
    clientId: 'a\0b',
    modelId: 'm\ud800',
    backend: '\udfff',
    finish: 'st\0p',
    tags: '["\ud83d\ude00","\ude00"]',
  });
  await store.ledger.settle(row);
  const [found] = await store.repositories.listUsage({ accountId: 'acct_a' });
  assert.equal(found!.clientId, 'a\ufffdb');
  assert.equal(found!.modelId, 'm\ufffd');
  assert.equal(found!.backend, '\ufffd');
  assert.equal(found!.finish, 'st\ufffdp');
  assert.equal(found!.tags, '["\ud83d\ude00","\ufffd"]');
});

test('every field of a settlement comes back as it was', async (t) => {
  const store = await openStore(t, join(temporaryFolder(t), 'x.db'));
  await customer(store, 'acct_a', 10n ** 17n);
  const row = usage('acct_a', 0n, {
    clientId: 'mine',
    keyId: 'key_1',
    modelId: 'large',
    api: 'messages',
    streamed: true,
    startedAt: 1_700_000_000_000,
    endedAt: 1_700_000_000_900,
    promptTokens: 900,
    cachedTokens: 100,
    completionTokens: 50,
    reasoningTokens: 20,
    costMicrocents: 90_000_000_000_000_001n,
    unchargedMicrocents: 3n,
    holdMicrocents: 90_000_000_000_000_002n,
    ending: 'credit',
    finish: 'length',
    errorCode: 'internal_error',
    counted: true,
    inputPrice: 9_007_199_254_740_993n,
    outputPrice: 2n,
    cacheReadPrice: 3n,
    backend: 'b',
    firstTokenMs: null,
    totalMs: 900,
    tags: '["team"]',
  });
  await store.ledger.settle(row);
  const [found] = await store.repositories.listUsage({ accountId: 'acct_a' });
  assert.deepEqual({ ...found, requestId: [...found!.requestId] }, { ...row, requestId: [...row.requestId] });
});

test('M8: what was open when the process died is recorded once, uncharged, and open no more', async (t) => {
  const file = join(temporaryFolder(t), 'x.db');
  const first = await openStore(t, file);
  await customer(first, 'acct_a', 1000n);
  const left = openRequest('acct_a', 70n);
  const settled = openRequest('acct_a', 50n);
  first.ledger.open(left);
  first.ledger.open(settled);
  await first.ledger.settle(usage('acct_a', 50n, { requestId: settled.requestId }));
  first.ledger.open(settled); // late: it has settled already
  await first.close(); // with a request still running: for the next process the same as a crash
  assert.deepEqual(
    (await differencesOf(file, false)).map((difference) => difference.found),
    ['open'],
  );

  for (const round of ['first', 'second']) {
    const store = await openStore(t, file);
    const rows = await store.repositories.listUsage({ accountId: 'acct_a' });
    assert.deepEqual(
      rows.map((row) => [row.ending, row.costMicrocents, row.unchargedMicrocents]).sort(),
      [
        ['crashed', 0n, 70n],
        ['finished', 50n, 0n],
      ],
      round,
    );
    assert.equal(await balanceOf(store, 'acct_a'), 950n);
    await store.close();
    assert.deepEqual(await differencesOf(file, false), []);
  }
});

test('the backlog counts what is not durable yet, and closing writes it', async (t) => {
  const file = join(temporaryFolder(t), 'x.db');
  const store = await openStore(t, file);
  await customer(store, 'acct_a', 10_000n);
  const settlements = Array.from({ length: 3000 }, () => store.ledger.settle(usage('acct_a', 1n)));
  assert.equal(store.ledger.backlog, 3000);
  await store.close();
  assert.deepEqual(new Set(await Promise.all(settlements)), new Set(['billed']));
  assert.equal(store.ledger.backlog, 0);
  await assert.rejects(store.ledger.settle(usage('acct_a', 1n)), refused('failed'));
  await assert.rejects(store.repositories.listAccounts({}), refused('failed'));
  assert.deepEqual(await differencesOf(file, false), []);
});

test('an open request waits for nobody: it is written with the next settlement, or soon by itself', async (t) => {
  const file = join(temporaryFolder(t), 'x.db');
  const batches: number[] = [];
  const store = await openStore(t, file, { onBatch: (rows: number) => void batches.push(rows) });
  await customer(store, 'acct_a', 1000n);
  batches.length = 0;
  const openNow = async (): Promise<number> =>
    (await differencesOf(file, false)).filter((difference) => difference.found === 'open').length;
  store.ledger.open(openRequest('acct_a', 70n));
  await store.ledger.settle(usage('acct_a', 1n));
  assert.deepEqual([batches, await openNow()], [[1], 1], 'one transaction for both');
  store.ledger.open(openRequest('acct_a', 70n));
  store.ledger.open(openRequest('acct_a', 70n));
  while (batches.length < 2) await new Promise((resolve) => setTimeout(resolve, 5));
  assert.deepEqual([batches, await openNow()], [[1, 0], 3], 'and one for all that wait');
});
