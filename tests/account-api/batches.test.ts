/** Batches as the account host shows them: those of both interfaces, with what their lines have cost, to those who may see them. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { test } from 'node:test';

import type { Role } from '../../src/account-api/route.ts';
import { batchRoutes } from '../../src/account-api/routes/batches.ts';
import { issueKey } from '../../src/accounts/key.ts';
import { Files } from '../../src/inference/files/files.ts';
import { FolderBytes } from '../../src/inference/files/folder-bytes.ts';
import { grant, temporaryFolder, usage, uuid } from '../store/fixture.ts';
import { openHost } from './host.ts';

test('listed newest first in pages, with their cost; seen and cancelled by those who may', async (t) => {
  const host = await openHost(t, batchRoutes);
  const { ledger, repositories, now } = host.services.operations;
  for (const id of ['acct_a', 'acct_b']) await host.account(id);
  await ledger.transfer(grant('acct_a', 10n ** 12n));
  await host.key('acct_a', null);
  const keyId = (await repositories.listAccountKeys({ accountId: 'acct_a', limit: 10 }))[0]!.id;
  const owner = await host.key('acct_a', 'owner');
  const viewer = await host.key('acct_a', 'viewer');
  const other = await host.key('acct_b', 'owner');
  const at = now();
  const file = { id: 'f'.repeat(32), accountId: 'acct_a', bytes: 1, createdAt: at, expiresAt: null };
  await repositories.beginFile({ ...file, bytesMax: 1, at, bounds: { filesMax: 9, bytesMax: 9 } });
  await repositories.finishFile({ ...file, name: 'a.jsonl', mediaType: 'text/plain', purpose: 'batch' });
  const idOf = (letter: string): string => letter.repeat(32);
  for (const [index, [letter, wire]] of (
    [
      ['a', 'openai'],
      ['b', 'anthropic'],
      ['c', 'openai'],
    ] as const
  ).entries())
    await repositories.createBatch({
      batch: {
        ...{ id: idOf(letter), accountId: 'acct_a', keyId, wire, endpoint: '/v1/messages', inputFileId: idOf('f') },
        ...{ createdAt: at - 1_000 + index, expiresAt: at + 86_400_000, requests: 7 },
        ...{ outputExpiresAfterMs: null, metadata: null },
      },
      openMax: 10,
    });
  for (const cost of [5n, 6n])
    await ledger.settle(
      usage('acct_a', cost, { startedAt: at - 900, endedAt: at - 800, batchId: `msgbatch_${idOf('b')}` }),
    );
  const ask = async (
    method: string,
    path: string,
    key: string,
  ): Promise<readonly [number, Record<string, unknown>]> => {
    const { status, body } = await host.ask(method, path, { key });
    return [status, JSON.parse(body) as Record<string, unknown>];
  };
  const [, first] = await ask('GET', '/v1/batch_runs?limit=2', owner);
  const rows = first['data'] as readonly Record<string, unknown>[];
  assert.deepEqual(
    rows.map(({ id, requests, status }) => [id, requests, status]),
    [
      [`batch_${idOf('c')}`, 7, 'validating'],
      [`msgbatch_${idOf('b')}`, 7, 'validating'],
    ],
  );
  assert.deepEqual([first['has_more'], first['next_after']], [true, `msgbatch_${idOf('b')}`]);
  const [, second] = await ask('GET', `/v1/batch_runs?limit=2&after=${String(first['next_after'])}`, owner);
  assert.deepEqual([(second['data'] as readonly unknown[]).length, second['has_more']], [1, false]);
  // The charges so far, of its own lines alone.
  assert.deepEqual(
    rows.map(({ cost_microcents: cost }) => cost),
    [0, 11],
  );

  const cancel = `/v1/batch_runs/msgbatch_${idOf('b')}/cancel`;
  assert.equal((await ask('POST', cancel, viewer))[0], 403);
  assert.equal((await ask('POST', cancel, other))[0], 404);
  assert.equal((await ask('POST', `/v1/batch_runs/batch_${idOf('b')}/cancel`, owner))[0], 404, 'the other interface');
  assert.equal((await ask('POST', `/v1/batch_runs/batch_${idOf('a')}/cancel`, owner))[1]['status'], 'cancelling');
  // Its lines are read first, because its results name each.
  assert.deepEqual([(await ask('POST', cancel, owner))[1]['status']], ['cancelling']);
  assert.deepEqual((await repositories.getBatch({ accountId: 'acct_a', id: idOf('b') }))?.status, 'validating');
});

test('results: for those who may make a key, as long as there is a file', async (t) => {
  const bounds = { filesMax: 9, bytesMax: 1_000 };
  const bytes = new FolderBytes(join(temporaryFolder(t), 'files'));
  const host = await openHost(t, batchRoutes, Date.now, {
    more: ({ operations: { repositories } }) => ({
      files: new Files({ repositories, bytes, bounds, log: (event) => assert.fail(event) }),
    }),
  });
  const { repositories } = host.services.operations;
  const files = host.services.files as Files;
  for (const id of ['acct_a', 'acct_b']) await host.account(id);
  await host.key('acct_a', null);
  const keyId = (await repositories.listAccountKeys({ accountId: 'acct_a', limit: 10 }))[0]!.id;
  const owner = new Uint8Array(16);
  const store = async (name: string): Promise<string> =>
    (
      await files.upload(
        'acct_a',
        100,
        Readable.from([Buffer.from(`{"of":"${name}"}\n`)]),
        () => Promise.resolve({ name, purpose: 'batch_output', expiresAfterMs: undefined }),
        AbortSignal.timeout(10_000),
      )
    ).id;
  const inputFileId = await store('input.jsonl');
  const made = async (letter: string, wire: 'openai' | 'anthropic', outputs?: readonly string[], payer = keyId) => {
    const id = letter.repeat(32);
    const at = Date.now();
    const batch = { id, accountId: 'acct_a', keyId: payer, wire, endpoint: '/v1/messages', inputFileId, createdAt: at };
    const more = { expiresAt: at + 86_400_000, requests: 1, outputExpiresAfterMs: null, metadata: null };
    await repositories.createBatch({ batch: { ...batch, ...more }, openMax: 10 });
    if (outputs === undefined) return;
    const [outputFileId = null, errorFileId = null] = outputs;
    assert.ok(await repositories.ownBatch({ id, status: 'validating', owner }));
    await repositories.endValidation({ id, owner, at, outcome: { models: ['demo'] } });
    await repositories.cancelBatch({ accountId: 'acct_a', id, at });
    const { status } = (await repositories.getBatch({ accountId: 'acct_a', id }))!;
    assert.ok(await repositories.ownBatch({ id, status, owner }));
    assert.ok(await repositories.planOutput({ id, owner, outputFileId, errorFileId }));
    await repositories.endBatch({ id, owner, status: 'cancelled', at });
  };
  await made('a', 'openai', [await store('änswers.jsonl'), await store('errors.jsonl')]);
  await made('b', 'anthropic', [await store('results.jsonl')]);
  await made('c', 'openai');
  const removed = await store('removed.jsonl');
  await made('d', 'openai', [removed]);
  await files.remove('acct_a', removed);
  const { secret } = host.services.operations;
  const others = issueKey({
    accountId: 'acct_a',
    name: 'others',
    userId: 'user_1',
    role: null,
    secret,
    now: Date.now(),
  }).row;
  await repositories.createKey({ key: others, changeId: uuid() });
  await made('f', 'openai', [await store('others.jsonl')], others.id);

  const of = (letter: string, prefix = 'batch', query = ''): string =>
    `/v1/batch_runs/${prefix}_${letter.repeat(32)}/results${query}`;
  const cases: readonly (readonly [Role, string, path: string, number, string?])[] = [
    ['owner', 'acct_a', of('a'), 200, 'änswers.jsonl'],
    ['admin', 'acct_a', of('a'), 200, 'änswers.jsonl'],
    ['developer', 'acct_a', of('a'), 200, 'änswers.jsonl'],
    ['owner', 'acct_a', of('a', 'batch', '?file=output'), 200, 'änswers.jsonl'],
    ['owner', 'acct_a', of('a', 'batch', '?file=error'), 200, 'errors.jsonl'],
    ['owner', 'acct_a', of('a', 'batch', '?file=input'), 422],
    ['owner', 'acct_a', of('b', 'msgbatch'), 200, 'results.jsonl'],
    ['owner', 'acct_a', of('b', 'msgbatch', '?file=error'), 404],
    ['owner', 'acct_a', of('b'), 404],
    ['billing', 'acct_a', of('a'), 403],
    ['viewer', 'acct_a', of('a'), 403],
    ['owner', 'acct_b', of('a'), 404],
    ['owner', 'acct_a', of('c'), 404],
    ['owner', 'acct_a', of('d'), 404],
    ['owner', 'acct_a', of('e'), 404],
    ['owner', 'acct_a', of('f'), 200, 'others.jsonl'],
    ['developer', 'acct_a', of('f'), 404],
  ];
  for (const [role, accountId, path, status, name] of cases) {
    const key = await host.key(accountId, role);
    const answer = await host.ask('GET', path, { key });
    assert.equal(answer.status, status, `${role} of ${accountId} ${path}: ${answer.body}`);
    const head = await host.ask('HEAD', path, { key });
    assert.deepEqual([head.status, head.body], [status, '']);
    if (name === undefined) continue;
    assert.deepEqual(JSON.parse(answer.body), { of: name });
    for (const { headers } of [answer, head]) {
      assert.equal(headers['content-length'], String(Buffer.byteLength(answer.body)));
      assert.ok(headers['content-disposition']!.endsWith(`filename*=UTF-8''${encodeURIComponent(name)}`));
      assert.deepEqual(
        [headers['cache-control'], headers['x-content-type-options'], headers['content-type']],
        ['no-store', 'nosniff', 'application/x-jsonl'],
      );
    }
  }
});
