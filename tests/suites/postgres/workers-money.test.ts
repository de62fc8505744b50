/** Several workers spend out of one balance: never more than there is, and all of it (money M2, M4, M5). */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import type { TestContext } from 'node:test';

import { TestLedger } from '../../support/test-ledger.ts';
import { newRequestId } from '../../support/raw-client.ts';
import { TestService, until } from '../../support/service.ts';
import { at, figure, longMs, send, report, whole, workersOf } from '../../support/workers.ts';
import { PostgresServer } from './server.ts';

const paidFor = 10;
const offered = 20 * paidFor;
const promptTokens = 100;
const completionTokens = 20;
/** Microcents: 100 × 10,000 + 20 × 50,000. */
const price = 2_000_000n;
const credit = price * BigInt(paidFor);

/** The window is too small for the bound that is made from bytes, so prompts are counted, and every hold is the price. */
const config = `models:
  - id: demo
    context_length: 160
    pricing: { input_cents_per_million: 10000, output_cents_per_million: 50000 }
    backends:
      - engine: scripted
        scripts:
          - when: { last_text: endless }
            say: [ { text: [ "word " ] } ]
            repeat: ${completionTokens}
            pace_ms: 5000
            prompt_tokens: ${promptTokens}
          - when: { last_text: half }
            say: [ { text: [ "word " ] } ]
            repeat: ${completionTokens / 2}
            prompt_tokens: ${promptTokens}
          - say: [ { text: [ "word " ] } ]
            repeat: ${completionTokens}
            pace_ms: 10
            prompt_tokens: ${promptTokens}
`;

let server: PostgresServer;
before(async () => {
  server = await PostgresServer.start({ fsync: 'off' });
});
after(() => server.dispose());

async function startService(t: TestContext, workers: number): Promise<TestService> {
  const service = new TestService({
    config,
    workers,
    database: await server.createDatabase(),
    firstCreditCents: String(credit / 1_000_000n),
    limits: '  concurrency_per_account_max: 2000',
  });
  t.after(() => service.dispose());
  return await service.start();
}

const bodyOf = (text: string, stream: boolean) => ({
  model: 'demo',
  max_tokens: completionTokens,
  stream,
  messages: [{ role: 'user', content: text.padEnd(200, '.') }],
});

/**
 * Sent again while the ledger, its database or the rate limits do not answer in time, or when the body did not arrive in time, as the
 * error says: machines may be that busy.
 */
async function ask(service: TestService, index: number): Promise<{ readonly id: string; readonly status: number }> {
  const deadline = performance.now() + longMs;
  for (;;) {
    const id = newRequestId();
    const response = await service.chat(bodyOf('quick', index % 2 === 0), {
      headers: { 'x-request-id': id, connection: 'close' },
    });
    const text = await response.text();
    const { status } = response;
    if (![408, 429, 500].includes(status) || performance.now() > deadline) return { id, status };
    // One account may have so many prompts waiting to be counted, and no more.
    if (status === 429) {
      assert.match(text, /being counted/);
      await sleep(50);
    }
    if (status === 500) assert.match(text, /does not answer|cannot be read at the moment/);
  }
}

/** Asks until so many are served: what is idle at another worker is there in a moment, and a refusal says only that it was not yet. */
async function served(service: TestService, count: number): Promise<readonly { readonly id: string }[]> {
  const all: { readonly id: string }[] = [];
  await until(async () => {
    const outcome = await ask(service, all.length);
    if (outcome.status === 200) all.push(outcome);
    else assert.equal(outcome.status, 402);
    return all.length === count;
  }, longMs);
  return all;
}

for (const workers of [2, 4]) {
  test(`credit for ${paidFor}, ${offered} requests at once to ${workers} workers: exactly ${paidFor} are served`, async (t) => {
    const service = await startService(t, workers);
    const ledger = new TestLedger(service);
    const outcomes = await Promise.all(Array.from({ length: offered }, (_, index) => ask(service, index)));
    const paid = outcomes.filter(({ status }) => status === 200);
    assert.equal(outcomes.filter(({ status }) => status === 402).length, offered - paid.length);
    assert.ok(paid.length > 0 && paid.length <= paidFor, `${paid.length} of ${paidFor}`);
    for (const { id } of [...paid, ...(await served(service, paidFor - paid.length))]) {
      const row = await ledger.row(id);
      assert.deepEqual([row.ending, row.costMicrocents, row.holdMicrocents], ['finished', price, price]);
    }
    assert.deepEqual(await ledger.sums(), { count: paidFor, costMicrocents: credit });
    assert.equal(await ledger.balance(), 0n);
    await service.verify();

    await service.command('credits', 'grant', '--cents', String(price / 1_000_000n));
    const more = await Promise.all(Array.from({ length: 50 }, (_, index) => ask(service, index)));
    const first = more.filter(({ status }) => status === 200).length;
    assert.ok(first <= 1, 'credit for one more pays for one more');
    await served(service, 1 - first);
    assert.equal((await ask(service, 0)).status, 402);
    assert.equal(await ledger.balance(), 0n);
    await service.verify();
  });
}

test('what is left over at two workers is brought together for the one that needs it', async (t) => {
  const service = await startService(t, 2);
  const ledger = new TestLedger(service);
  const [one, two] = workersOf(service) as [number, number];
  // Each costs three quarters of its hold, and what it has left stays at its worker, until another one needs it.
  const cost = 1_500_000n;
  let left = credit;
  for (let index = 0; left >= price; index++) {
    const asking = () => send(service, bodyOf('half', false));
    const sent = await (left > credit / 2n ? at(service, index % 2 === 0 ? one : two, asking) : asking());
    assert.match(await whole(sent), /^HTTP\/1\.1 200/);
    left -= cost;
    assert.equal((await ledger.row(sent.id)).costMicrocents, cost);
  }
  assert.equal(await ledger.balance(), left);
  const refused = await send(service, bodyOf('half', false));
  assert.match(await whole(refused), /^HTTP\/1\.1 402/);
  await report(service, {
    kind: 'move_credit',
    movement: 'grant',
    accountId: service.accountId,
    microcents: String(price - left),
    reference: undefined,
    idempotencyKey: 'the rest',
  });
  await served(service, 1);
  assert.equal(await ledger.balance(), 0n);
  await service.verify();
});

test('money that a request holds at one worker cannot be had at the other, and can when it has ended', async (t) => {
  const service = await startService(t, 2);
  const ledger = new TestLedger(service);
  const [one, two] = workersOf(service) as [number, number];
  const holding = [];
  for (let index = 0; index < paidFor; index++)
    holding.push(await at(service, one, () => send(service, bodyOf('endless', true))));
  for (const { client } of holding) assert.equal(client.status, 200);
  assert.match(await whole(await at(service, two, () => send(service, bodyOf('quick', false)))), /^HTTP\/1\.1 402/);
  holding[0]!.client.reset();
  const { costMicrocents } = await ledger.row(holding[0]!.id, 60_000);
  assert.ok(costMicrocents < price);
  for (const { client } of holding.slice(1)) client.reset();
  for (const { id } of holding.slice(1)) await ledger.row(id, 60_000);
  // The row is there before its worker hears of it.
  await until(async () => (await figure(service, 'tokenhouse_holds_open')) === 0, longMs);
  // The other worker refuses from memory for a quarter of a second, and knows nothing of what others have got back.
  await sleep(500);
  const balance = await ledger.balance();
  const more = Number(balance / price);
  assert.ok(more > 0);
  await served(service, more);
  assert.equal((await ask(service, 0)).status, 402);
  await service.verify();
});
