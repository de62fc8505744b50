/** Credit that runs out in mid-answer (docs/money.md): an ordinary answer, paid for to the token. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, afterEach, before, beforeEach, describe, test } from 'node:test';

import { askRunningService } from '../../src/app/control/control-client.ts';
import { controlSocketPath } from '../../src/app/control/socket-path.ts';
import { TestLedger } from '../support/test-ledger.ts';
import { until } from '../support/service.ts';
import type { TestService } from '../support/service.ts';
import {
  ask,
  assertNothingLeft,
  cost,
  exchange,
  endingsService,
  outputPrice,
  promptTokensOf,
  send,
  verifyAndDispose,
} from './endings-service.ts';

/** Pays for the prompt and some 2,490 tokens: the first hold (2,048) and a part of its first extension. */
const creditCents = '50';
const creditMicrocents = 50_000_000n;
const scripts = `
- when: { last_text: long }
  say: [ { text: [ "word " ] } ]
  repeat: 8000
- when: { last_text: drip }
  say: [ { text: [ "word " ] } ]
  repeat: 8000
  pace_ms: 1
`;

describe('one answer takes all the credit', () => {
  let service: TestService;
  beforeEach(() => {
    service = endingsService({ firstCreditCents: creditCents, scripts });
    return service.start();
  });
  afterEach(() => verifyAndDispose(service));

  for (const [text, stream, tokensLeftMax] of [
    ['long', true, 256n],
    ['long', false, 256n],
    ['drip', true, 16n],
  ] as const) {
    test(`credit runs out in mid-answer (${text}), ${stream ? 'streamed' : 'whole'}: finish_reason length, what was delivered is charged`, async () => {
      const ledger = new TestLedger(service);
      const { id, status, body, events } = await exchange(service, text, stream);
      assert.equal(status, 200);
      const delivered = [...body.matchAll(/word /g)].length;
      assert.ok(delivered > 2_048, `${delivered} tokens: the hold was extended`);
      const shown = stream
        ? events.slice(-3).map((event) => (event === '[DONE]' ? event : (JSON.parse(event) as Shown)))
        : [JSON.parse(body) as Shown];
      if (stream) assert.equal(shown[2], '[DONE]');
      const [first, last] = [shown[0] as Shown, shown.findLast((one) => one !== '[DONE]') as Shown];
      assert.equal(first.choices[0]?.finish_reason, 'length');
      assert.deepEqual([last.usage?.prompt_tokens, last.usage?.completion_tokens], [promptTokensOf(text), delivered]);
      const row = await ledger.row(id);
      assert.deepEqual(
        [row.ending, row.finish, row.errorCode, row.promptTokens, row.completionTokens, row.costMicrocents],
        ['credit', 'length', null, promptTokensOf(text), delivered, cost(promptTokensOf(text), delivered)],
      );
      const balance = await ledger.balance();
      assert.equal(balance, creditMicrocents - row.costMicrocents);
      assert.ok(balance >= 0n && balance <= tokensLeftMax * outputPrice, `${balance} microcents are left`);
      assert.equal((await service.chat(ask('long'))).status, 402, 'what is left pays for no further hold');

      const granted = await service.command('credits', 'grant', '--cents', '400');
      assert.equal(granted.code, 0, granted.stderr);
      assert.equal(await ledger.balance(), balance + 400_000_000n);
      assert.equal((await service.chat(ask('three words'))).status, 200, 'new credit can be spent at once');
      await assertNothingLeft(service);
    });
  }
});

test('credit that is granted in mid-answer carries the answer on', async (t) => {
  const service = endingsService({ firstCreditCents: creditCents, scripts });
  t.after(() => service.dispose());
  await service.start();
  const ledger = new TestLedger(service);
  const { client, id } = await send(service, ask('drip', { stream: true, max_tokens: 2_800 }));
  await until(() => client.events.length > 1);
  // Straight through the control socket: the command line needs a while to start.
  await askRunningService(controlSocketPath(join(service.folder, 'data')), {
    kind: 'move_credit',
    movement: 'grant',
    accountId: undefined,
    microcents: '300000000',
    reference: undefined,
    idempotencyKey: 'in mid-answer',
  });
  await until(() => client.events.at(-1) === '[DONE]', 30_000);
  const row = await ledger.row(id);
  assert.deepEqual([row.ending, row.finish, row.completionTokens], ['finished', 'length', 2_800]);
  assert.ok(row.costMicrocents > creditMicrocents, 'more than there was when it began');
  client.reset();
  await assertNothingLeft(service);
  await service.verify();
});

describe('several answers share the last credit', () => {
  const service = endingsService({ firstCreditCents: '150', scripts });
  before(() => service.start());
  after(() => verifyAndDispose(service));

  test('credit runs out in three answers at once: none is charged more than was delivered, and the balance stays above zero', async () => {
    const ledger = new TestLedger(service);
    const sent = await Promise.all([1, 2, 3].map(() => send(service, ask('drip', { stream: true }))));
    let charged = 0n;
    for (const { client, id } of sent) {
      await until(() => client.events.at(-1) === '[DONE]', 30_000);
      const delivered = client.events.filter((event) => event.includes('word ')).length;
      const row = await ledger.row(id);
      assert.deepEqual([row.ending, row.completionTokens], ['credit', delivered]);
      assert.equal(row.costMicrocents, cost(promptTokensOf('drip'), delivered));
      charged += row.costMicrocents;
      client.reset();
    }
    const balance = await ledger.balance();
    assert.equal(balance, 150_000_000n - charged);
    assert.ok(balance >= 0n);
    await service.command('credits', 'grant', '--cents', '200');
    await assertNothingLeft(service);
  });
});

describe('a budget that is less than the credit', () => {
  const service = endingsService({ firstCreditCents: '5000', scripts });
  const path = join(service.folder, 'data');
  let key = '';
  let keyId = '';
  before(async () => {
    await service.start();
    const made = await askRunningService(controlSocketPath(path), {
      kind: 'create_key',
      accountId: undefined,
      name: 'kept',
      expiresAt: undefined,
      budget: { microcents: String(creditMicrocents), per: 'total' },
    });
    assert.ok(made !== undefined);
    ({ key, keyId } = made);
  });
  after(() => verifyAndDispose(service));
  const budget = (microcents: bigint) => ({ microcents: String(microcents), per: 'total' }) as const;

  test('runs out in mid-answer: finish_reason length, what was delivered is charged, to the token', async () => {
    const ledger = new TestLedger(service);
    const answer = await service.chat(ask('long'), { key });
    const { choices, usage } = (await answer.json()) as Shown;
    assert.deepEqual([answer.status, choices[0]?.finish_reason], [200, 'length']);
    const [row] = await ledger.newest(1);
    const price = cost(promptTokensOf('long'), usage!.completion_tokens);
    assert.deepEqual([row?.ending, row?.keyBudget, row?.costMicrocents], ['credit', 'total', price]);
    assert.ok(price <= creditMicrocents && creditMicrocents - price <= 256n * outputPrice, String(price));
    const refused = await service.chat(ask('long'), { key });
    assert.equal(refused.status, 402);
    const { error } = (await refused.json()) as { readonly error: Readonly<Record<string, unknown>> };
    assert.deepEqual([error['budget_of'], error['budget_period'], error['budget_limit_cents']], ['key', 'total', 50]);
    assert.equal((await service.chat(ask('three words'))).status, 200, 'the key without one goes on');
  });

  test('is raised in mid-answer, which carries the answer on', async () => {
    const ledger = new TestLedger(service);
    await askRunningService(controlSocketPath(path), {
      kind: 'budget_key',
      keyId,
      budget: budget(creditMicrocents * 2n),
    });
    const { client, id } = await send(service, ask('drip', { stream: true, max_tokens: 2_800 }), { key });
    await until(() => client.events.length > 1);
    await askRunningService(controlSocketPath(path), {
      kind: 'budget_key',
      keyId,
      budget: budget(creditMicrocents * 4n),
    });
    await until(() => client.events.at(-1) === '[DONE]', 30_000);
    const row = await ledger.row(id);
    assert.deepEqual([row.ending, row.finish, row.completionTokens], ['finished', 'length', 2_800]);
    client.reset();
    await service.verify();
  });
});

interface Shown {
  readonly choices: readonly { readonly finish_reason: string | null }[];
  readonly usage?: { readonly prompt_tokens: number; readonly completion_tokens: number };
}
