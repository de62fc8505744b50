/** A thousand requests at once against credit for ten (reliability C13): never more than ten, never below zero. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { TestContext } from 'node:test';

import { TestLedger } from '../../support/test-ledger.ts';
import { TestService, until } from '../../support/service.ts';
import { newRequestId } from '../../support/raw-client.ts';

const requests = 1_000;
const paidFor = 10;
const promptTokens = 100;
const completionTokens = 20;
/** Microcents: 100 × 10,000 + 20 × 50,000. */
const price = 2_000_000n;
const priceCents = Number(price / 1_000_000n);
const credit = price * BigInt(paidFor);

/** The window is too small for the bound that is made from bytes, so prompts are counted, and every hold is the price. */
const config = `models:
  - id: demo
    context_length: 160
    pricing: { input_cents_per_million: 10000, output_cents_per_million: 50000 }
    backends:
      - engine: scripted
        scripts:
          - when: { last_text: slow }
            say: [ { text: [ "word " ] } ]
            repeat: ${completionTokens}
            pace_ms: 1000
            prompt_tokens: ${promptTokens}
          - say: [ { text: [ "word " ] } ]
            repeat: ${completionTokens}
            pace_ms: 10
            prompt_tokens: ${promptTokens}
`;

async function startService(t: TestContext): Promise<TestService> {
  const service = new TestService({
    config,
    firstCreditCents: String(credit / 1_000_000n),
    limits: '  concurrency_per_account_max: 2000',
  });
  t.after(() => service.dispose());
  return await service.start();
}

interface Outcome {
  readonly id: string;
  /** 0 when the connection was lost. */
  readonly status: number;
  readonly body: string;
}

/**
 * Half of them streamed; the text of each says which script is played. A machine that has much else to do may let the ledger be
 * silent for long enough that nothing is admitted (reliability D1): that says when to ask again, and is asked again, as clients do.
 */
async function send(service: TestService, index: number, textOf: (index: number) => string): Promise<Outcome> {
  let outcome: Outcome;
  await until(async () => !isSilence((outcome = await sendOnce(service, index, textOf))), 60_000);
  return outcome!;
}

/** With status 200 in a stream that was begun: its charge could not be recorded, and nothing is paid (reliability D1). */
const isSilence = ({ status, body }: Outcome): boolean =>
  (status === 500 || status === 200) && /"message":"The (ledger|database) does not answer\./.test(body);

async function sendOnce(service: TestService, index: number, textOf: (index: number) => string): Promise<Outcome> {
  const id = newRequestId();
  try {
    const content = textOf(index).padEnd(200, '.');
    const body = {
      model: 'demo',
      max_tokens: completionTokens,
      stream: index % 2 === 0,
      messages: [{ role: 'user', content }],
    };
    const response = await service.chat(body, { headers: { 'x-request-id': id } });
    return { id, status: response.status, body: await response.text() };
  } catch {
    return { id, status: 0, body: '' };
  }
}

const all = (service: TestService, textOf: (index: number) => string, count = requests): Promise<Outcome>[] =>
  Array.from({ length: count }, (_, index) => send(service, index, textOf));

function assertRefusal({ status, body }: Outcome, service: TestService): void {
  assert.equal(status, 402, body);
  const { error } = JSON.parse(body) as { error: Record<string, unknown> };
  assert.deepEqual(
    [error['code'], error['type'], error['credits_available_cents'], error['topup_url']],
    ['insufficient_credits', 'insufficient_credits', 0, `${service.accountUrl}/topup`],
  );
  // The price where the prompt was counted; before it, what its bytes allow at most.
  const estimate = Number(error['credits_required_cents_estimate']);
  assert.ok(estimate >= priceCents && estimate <= priceCents + 1, body);
}

test('of a thousand concurrent requests against credit for ten, exactly ten succeed and 990 get 402', async (t) => {
  const service = await startService(t);
  const ledger = new TestLedger(service);
  const outcomes = await Promise.all(all(service, () => 'quick'));
  const succeeded = outcomes.filter(({ status }) => status === 200);
  assert.equal(succeeded.length, paidFor, succeeded.map(({ body }) => body.slice(-300)).join('\n'));
  for (const { body } of succeeded) assert.equal([...body.matchAll(/word /g)].length, completionTokens);
  for (const outcome of outcomes) if (outcome.status !== 200) assertRefusal(outcome, service);
  for (const { id } of succeeded) {
    const row = await ledger.row(id);
    assert.deepEqual([row.ending, row.costMicrocents, row.holdMicrocents], ['finished', price, price]);
  }
  assert.deepEqual(await ledger.sums(), { count: paidFor, costMicrocents: credit });
  assert.equal(await ledger.balance(), 0n);
  assertRefusal(await send(service, 0, () => 'quick'), service);
  await service.verify();

  await service.command('credits', 'grant', '--cents', '2');
  const more = await Promise.all(all(service, () => 'quick', 100));
  assert.equal(more.filter(({ status }) => status === 200).length, 1, 'credit for one more pays for one more');
  assert.equal(await ledger.balance(), 0n);
  await service.verify();
});

test('the same with the process killed in the middle: ten in all, and the balance is exact', async (t) => {
  const service = await startService(t);
  const ledger = new TestLedger(service);
  // Quick and slow ones compete for the ten; the process dies when the first of them is done.
  let completed = 0;
  const first = all(service, (index) => (index % 4 < 2 ? 'quick' : 'slow')).map(async (outcome) => {
    const { status, body, id } = await outcome;
    const isWhole = status === 200 && (body.endsWith('[DONE]\n\n') || body.endsWith('}'));
    if (isWhole) completed++;
    return { id, isWhole };
  });
  await until(() => completed > 0, 60_000);
  await service.stop('SIGKILL');
  const seen = (await Promise.all(first)).filter(({ isWhole }) => isWhole);

  await service.start();
  await ledger.verify({ owned: true });
  const { costMicrocents } = await ledger.sums();
  const finished = Number(costMicrocents / price);
  assert.equal(costMicrocents, BigInt(finished) * price);
  assert.ok(finished >= seen.length && finished <= paidFor, `${seen.length} were seen, ${finished} are paid`);
  for (const { id } of seen) assert.deepEqual((await ledger.row(id)).ending, 'finished');
  assert.equal(await ledger.balance(), credit - costMicrocents);

  const second = await Promise.all(all(service, () => 'quick'));
  assert.equal(second.filter(({ status }) => status === 200).length, paidFor - finished);
  for (const outcome of second) if (outcome.status !== 200) assertRefusal(outcome, service);
  assert.equal(await ledger.balance(), 0n);
  await service.verify();
});
