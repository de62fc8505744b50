/** Batches as the account host shows them: those of both interfaces, with what their lines have cost, to those who may see them. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { batchRoutes } from '../../src/account-api/routes/batches.ts';
import { grant, usage } from '../store/fixture.ts';
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
