/** The charge could not be recorded (docs/money.md, "Durability"; reliability D1, D4). */
import { DatabaseSync } from '@photostructure/sqlite';
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { TestLedger } from '../support/test-ledger.ts';
import { until } from '../support/service.ts';
import {
  assertNothingLeft,
  cost,
  errorOf,
  exchange,
  endingsService,
  promptTokensOf,
  streamError,
  verifyAndDispose,
} from './endings-service.ts';

const service = endingsService();
before(() => service.start());
after(() => verifyAndDispose(service));

test('the ledger does not answer at the first request: 500 and Retry-After, nothing admitted from memory', async () => {
  const ledger = new TestLedger(service);
  const intruder = new DatabaseSync(ledger.file);
  intruder.exec('begin immediate');
  try {
    for (const stream of [false, true]) {
      const { id, status, headers, body } = await exchange(service, 'three words', stream);
      assert.deepEqual([status, errorOf(body).code, headers.get('retry-after')], [500, 'internal_error', '1']);
      assert.deepEqual(await ledger.rows(id), []);
    }
  } finally {
    intruder.close();
  }
  assert.equal((await exchange(service, 'three words', false)).status, 200);
  await assertNothingLeft(service);
});

test('lost settlement: the charge could not be recorded, so the client gets an error and pays nothing', async () => {
  const ledger = new TestLedger(service);
  const balance = await ledger.balance();
  // Another process writes and does not end: longer than the two seconds that a statement or a settlement waits.
  const intruder = new DatabaseSync(ledger.file);
  intruder.exec('begin immediate');
  try {
    const [whole, streamed] = await Promise.all([
      exchange(service, 'three words', false),
      exchange(service, 'three words', true),
    ]);
    assert.equal(whole.status, 500);
    assert.equal(errorOf(whole.body).code, 'internal_error');
    assert.equal(streamError(streamed.events).code, 'internal_error');
    assert.deepEqual(await ledger.rows(whole.id), []);
    intruder.exec('rollback');
    for (const { id } of [whole, streamed]) {
      const row = await ledger.row(id, 30_000);
      // The rollback and the end of the wait race: a charge that made it to the disk after all is refunded.
      const refunded = async (): Promise<bigint> =>
        (await ledger.transfers())
          .filter(
            ({ kind, reference }) => kind === 'refund' && reference === Buffer.from(row.requestId).toString('hex'),
          )
          .reduce((sum, { amountMicrocents }) => sum + amountMicrocents, 0n);
      await until(async () => (await refunded()) === row.costMicrocents);
      assert.equal(row.costMicrocents + row.unchargedMicrocents, cost(promptTokensOf('three words'), 3));
      if (row.costMicrocents === 0n) assert.deepEqual([row.ending, row.errorCode], ['lost', 'internal_error']);
      else assert.equal(row.ending, 'finished');
    }
  } finally {
    intruder.close();
  }
  assert.equal(await ledger.balance(), balance);
  await assertNothingLeft(service);
  assert.equal((await exchange(service, 'three words', false)).status, 200, 'and the service goes on');
});

test('a ledger that has stopped answering: new work is refused though the balance is in memory, and taken as soon as it answers', async () => {
  const ledger = new TestLedger(service);
  await exchange(service, 'three words', false);
  const { costMicrocents } = await ledger.sums();
  const intruder = new DatabaseSync(ledger.file);
  intruder.exec('begin immediate');
  try {
    // The first ones are let in, because until then all was well; their charges fail.
    let refused: Awaited<ReturnType<typeof exchange>> | undefined;
    await until(async () => {
      const answer = await exchange(service, 'three words', true);
      if (answer.status === 500) refused = answer;
      else assert.equal(streamError(answer.events).code, 'internal_error');
      return refused !== undefined;
    }, 30_000);
    assert.deepEqual([errorOf(refused!.body).code, refused!.headers.get('retry-after')], ['internal_error', '1']);
    assert.deepEqual(await ledger.rows(refused!.id), []);
  } finally {
    intruder.close();
  }
  const answer = await exchange(service, 'three words', false);
  assert.equal(answer.status, 200, 'the first request after it is taken');
  const row = await ledger.row(answer.id);
  await until(async () => (await ledger.newest(10)).some(({ ending }) => ending === 'lost'), 30_000);
  assert.equal((await ledger.sums()).costMicrocents, costMicrocents + row.costMicrocents);
  await assertNothingLeft(service);
});
