/** Limits of accounts and keys, and budgets, hold for all workers together, and exactly (docs/decisions/010). */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import type { TestContext } from 'node:test';

import { ask as bodyOf, errorOf, endingsService, slots } from '../../endings/endings-service.ts';
import { TestLedger } from '../../support/test-ledger.ts';
import { until } from '../../support/service.ts';
import type { TestService } from '../../support/service.ts';
import { longMs, replaced, send, report, whole, workersOf } from '../../support/workers.ts';
import type { Sent } from '../../support/workers.ts';
import { PostgresServer } from './server.ts';

const workers = 3;
let server: PostgresServer;
before(async () => {
  server = await PostgresServer.start({ fsync: 'off' });
});
after(() => server.dispose());

async function begin(t: TestContext): Promise<TestService> {
  const service = endingsService({ workers, database: await server.createDatabase(), firstCreditCents: '100000' });
  t.after(() => service.dispose());
  return await service.start();
}

const codeOf = (text: string): string => errorOf(text.slice(text.indexOf('\r\n\r\n') + 4)).code;

/** So many streams that stand still, at whichever workers take them; what is refused is asked for again. */
async function standing(service: TestService, count: number): Promise<Sent[]> {
  const streams: Sent[] = [];
  await until(async () => {
    const sent = await send(service, bodyOf('first token then silence', { stream: true, max_tokens: 2 }));
    await until(() => sent.client.status !== 0, longMs);
    if (sent.client.status === 200) streams.push(sent);
    else assert.equal(codeOf(await whole(sent)), 'concurrency_limit_exceeded');
    return streams.length === count;
  }, longMs);
  return streams;
}

test('requests that run: as many as the account may at all workers together, also after one of them was killed', async (t) => {
  const service = await begin(t);
  const first = await standing(service, slots);
  for (let index = 0; index < 4 * workers; index++) {
    const refused = await send(service, bodyOf('three words'));
    assert.equal(codeOf(await whole(refused)), 'concurrency_limit_exceeded');
  }
  first.pop()!.client.reset();
  const again = await standing(service, 1);
  for (const { client } of [...first, ...again]) client.reset();

  await standing(service, slots);
  for (const pid of workersOf(service)) await replaced(service, pid, workers);
  const last = await standing(service, slots);
  const refused = await send(service, bodyOf('three words'));
  assert.equal(codeOf(await whole(refused)), 'concurrency_limit_exceeded');
  for (const { client } of last) client.reset();
  assert.equal(await service.stop(), 0);
  await service.verify();
});

test('requests a minute of a key: exactly as many as it may, at whichever workers they arrive', async (t) => {
  const service = await begin(t);
  const made = await report(service, {
    kind: 'create_key',
    accountId: service.accountId,
    name: 'x',
    expiresAt: undefined,
  });
  const allowed = 7;
  await report(service, { kind: 'limit_key', keyId: made.keyId, limits: { requestsPerMinute: allowed } });
  const begun = performance.now();
  let served = 0;
  const ask = async (): Promise<void> => {
    const sent = await send(service, bodyOf('three words'), { key: made.key });
    await whole(sent);
    if (sent.client.status === 200) served++;
    else assert.equal(sent.client.status, 429);
  };
  // What is idle at another worker is there in a moment.
  await until(async () => (await ask(), served >= allowed), longMs);
  for (let index = 0; index < 5 * allowed; index++) await ask();
  const windows = Math.ceil((performance.now() - begun) / 60_000) + 1;
  assert.ok(served <= allowed * windows, `${served} in ${windows} windows`);
  assert.equal(await service.stop(), 0);
});

test('limits of one model, of a key and of its account, and of spending: exactly, at whichever workers they arrive', async (t) => {
  const service = await begin(t);
  const { accountId } = service;
  const body = bodyOf('three words', { max_tokens: 3 });
  const ledger = new TestLedger(service);
  const probe = await send(service, body);
  await whole(probe);
  const { costMicrocents, modelId } = await ledger.row(probe.id);
  const key = async () => await report(service, { kind: 'create_key', accountId, name: 'x', expiresAt: undefined });
  const [first, second, spender] = [await key(), await key(), await key()];
  const ofKey = 4;
  const ofAccount = 7;
  const ofModel = (requestsPerDay: number) => ({ byModel: { [modelId.toLowerCase()]: { requestsPerDay } } });
  await report(service, { kind: 'limit_key', keyId: first.keyId, limits: ofModel(ofKey) });
  const served = async (from: typeof first, limitOf: string, most: number): Promise<void> => {
    let count = 0;
    const ask = async (): Promise<void> => {
      const sent = await send(service, body, { key: from.key });
      const text = await whole(sent);
      if (sent.client.status === 200) count++;
      else assert.match(text, new RegExp(`"limit_of":"${limitOf}"`));
    };
    await until(async () => (await ask(), count >= most), longMs);
    for (let index = 0; index < 20; index++) await ask();
    assert.equal(count, most, limitOf);
  };
  await served(first, 'key', ofKey);
  // The account's limit counts from when it is set, both keys together.
  await report(service, { kind: 'limit_account', accountId, limits: ofModel(ofAccount) });
  await served(second, 'account', ofAccount);
  await report(service, { kind: 'limit_account', accountId, limits: { byModel: { [modelId.toLowerCase()]: null } } });

  // A cent, as requests that cost less than that each: the last one takes what is left.
  await report(service, { kind: 'limit_key', keyId: spender.keyId, limits: { centsPerDay: 1 } });
  const most = Number((1_000_000n + costMicrocents - 1n) / costMicrocents);
  t.diagnostic(`a request costs ${costMicrocents} microcents: ${most} of them`);
  assert.ok(most > 1 && most < 3_000, `${most} requests in a cent`);
  await served(spender, 'key', most);
  assert.equal(await service.stop(), 0);
  await service.verify();
});

test('a budget of a key is never passed by workers that spend at the same time, and all of it can be spent', async (t) => {
  const service = await begin(t);
  const { accountId } = service;
  const made = await report(service, { kind: 'create_key', accountId, name: 'x', expiresAt: undefined });
  // One answer of three words holds and costs the same: its prompt, and as many tokens as it may have.
  const body = bodyOf('three words', { max_tokens: 3 });
  const ledger = new TestLedger(service);
  const probe = await send(service, body);
  await whole(probe);
  const { costMicrocents, holdMicrocents } = await ledger.row(probe.id);
  const paidFor = 5n;
  const amount = holdMicrocents + (paidFor - 1n) * costMicrocents;
  await report(service, {
    kind: 'budget_key',
    keyId: made.keyId,
    budget: { microcents: String(amount), per: 'total' },
  });
  let served = 0n;
  const ask = async (): Promise<void> => {
    const sent = await send(service, body, { key: made.key });
    const text = await whole(sent);
    if (sent.client.status === 200) served++;
    else assert.equal(codeOf(text), 'insufficient_credits');
  };
  await until(async () => (await ask(), served >= paidFor), longMs);
  for (let index = 0; index < 30; index++) await ask();
  assert.ok(served * costMicrocents <= amount, `${served} of ${paidFor}`);
  assert.equal(await service.stop(), 0);
  await service.verify();
});
