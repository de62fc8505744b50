/** A key with a budget for ten requests beside one without: ten are served, whatever happens, and never one more (money.md, "Budgets"). */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { TestContext } from 'node:test';

import { TestLedger } from '../../support/test-ledger.ts';
import type { KeyObject } from '../../../src/account-api/key-object.ts';
import { TestService, until } from '../../support/service.ts';

const paidFor = 10;
const offered = 10 * paidFor;
const promptTokens = 100;
const completionTokens = 20;
/** Microcents: 100 × 10,000 + 20 × 50,000. */
const price = 2_000_000n;
/** Dollars for ten. */
const budget = '0.20';

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

interface Scene {
  readonly service: TestService;
  readonly ledger: TestLedger;
  readonly kept: MadeKey;
  readonly free: MadeKey;
}

interface MadeKey {
  readonly id: string;
  readonly key: string;
}

async function setScene(t: TestContext): Promise<Scene> {
  const service = new TestService({
    config,
    firstCreditCents: '5000',
    limits: '  concurrency_per_account_max: 2000',
  });
  t.after(() => service.dispose());
  await service.start();
  const kept = await command<MadeKey>(service, 'keys', 'create', '--budget', budget, '--budget-per', 'total');
  const free = await command<MadeKey>(service, 'keys', 'create');
  return { service, ledger: new TestLedger(service), kept, free };
}

async function command<Result>(service: TestService, ...args: readonly string[]): Promise<Result> {
  const { code, stdout, stderr } = await service.command(...args, '--json');
  assert.equal(code, 0, stderr);
  return JSON.parse(stdout) as Result;
}

interface Outcome {
  /** 0 when the connection was lost. */
  readonly status: number;
  readonly body: string;
}

/** Half of them streamed. */
async function send({ service }: Scene, key: MadeKey, index: number, text = 'quick'): Promise<Outcome> {
  try {
    const body = {
      model: 'demo',
      max_tokens: completionTokens,
      stream: index % 2 === 0,
      messages: [{ role: 'user', content: text.padEnd(200, '.') }],
    };
    const response = await service.chat(body, { key: key.key });
    return { status: response.status, body: await response.text() };
  } catch {
    return { status: 0, body: '' };
  }
}

const isWhole = ({ status, body }: Outcome): boolean =>
  status === 200 && (body.endsWith('[DONE]\n\n') || body.endsWith('}'));

function assertRefusal({ status, body }: Outcome): void {
  assert.equal(status, 402, body);
  const { error } = JSON.parse(body) as { error: Record<string, unknown> };
  assert.deepEqual(
    [error['code'], error['budget_of'], error['budget_period'], error['budget_limit_cents']],
    ['insufficient_credits', 'key', 'total', 20],
  );
  assert.match(String(error['message']), /The budget of this key, \$0\.20 in total, does not cover this request/);
}

/** What the key was charged, by the rows. */
async function chargedTo({ ledger }: Scene, key: MadeKey): Promise<bigint> {
  const rows = (await ledger.everyRow()).filter(({ keyId }) => keyId === key.id);
  return rows.reduce((sum, { costMicrocents }) => sum + costMicrocents, 0n);
}

interface ListedBudget {
  readonly amount_microcents: number;
  readonly spent_microcents: number;
  readonly left_microcents: number;
}

async function budgetOf({ service }: Scene, { id }: MadeKey): Promise<ListedBudget | null> {
  const key = (await command<readonly KeyObject[]>(service, 'keys', 'list')).find((one) => one.id === id)!;
  const { limit_microcents: amount, limit_remaining_microcents: left } = key;
  if (amount === null || left === null) return null;
  return { amount_microcents: amount, spent_microcents: amount - left, left_microcents: left };
}

test('of a hundred at once on a key with a budget for ten, exactly ten are served, and all of a key without one', async (t) => {
  const scene = await setScene(t);
  const { service, kept, free } = scene;
  const [ofKept, ofFree] = await Promise.all([
    Promise.all(Array.from({ length: offered }, (_, index) => send(scene, kept, index))),
    Promise.all(Array.from({ length: offered }, (_, index) => send(scene, free, index))),
  ]);
  assert.equal(ofKept.filter(isWhole).length, paidFor);
  for (const outcome of ofKept) if (!isWhole(outcome)) assertRefusal(outcome);
  assert.equal(ofFree.filter(isWhole).length, offered);
  assert.deepEqual(
    [await chargedTo(scene, kept), await chargedTo(scene, free)],
    [price * BigInt(paidFor), price * BigInt(offered)],
  );
  const shown = await budgetOf(scene, kept);
  assert.deepEqual([shown?.spent_microcents, shown?.left_microcents], [20_000_000, 0]);
  assert.equal(await budgetOf(scene, free), null);
  await service.verify();

  // Raised for two more, lowered below what is spent, taken away.
  await command(service, 'keys', 'budget', kept.id, '0.24', '--per', 'total');
  const more = await Promise.all(Array.from({ length: 20 }, (_, index) => send(scene, kept, index)));
  assert.equal(more.filter(isWhole).length, 2);
  await command(service, 'keys', 'budget', kept.id, '0.01', '--per', 'total');
  assert.equal((await send(scene, kept, 0)).status, 402);
  await command(service, 'keys', 'budget', kept.id, '--none');
  assert.ok(isWhole(await send(scene, kept, 0)));
  await service.verify();
});

test('the same with the process killed in the middle: ten in all, and what is left is exact', async (t) => {
  const scene = await setScene(t);
  const { service, ledger, kept, free } = scene;
  // Quick and slow ones compete for the ten; the process dies when the first of them is done.
  let completed = 0;
  const first = Array.from({ length: offered }, async (_, index) => {
    const outcome = await send(scene, kept, index, index % 4 < 2 ? 'quick' : 'slow');
    if (isWhole(outcome)) completed++;
  });
  const beside = Array.from({ length: paidFor }, (_, index) => send(scene, free, index, 'slow'));
  await until(() => completed > 0, 60_000);
  await service.stop('SIGKILL');
  await Promise.all([...first, ...beside]);

  await service.start();
  await ledger.verify({ owned: true });
  const charged = await chargedTo(scene, kept);
  const finished = Number(charged / price);
  assert.equal(charged, BigInt(finished) * price);
  assert.ok(finished >= completed && finished <= paidFor, `${completed} were seen, ${finished} are paid`);
  const second = await Promise.all(Array.from({ length: offered }, (_, index) => send(scene, kept, index)));
  assert.equal(second.filter(isWhole).length, paidFor - finished);
  for (const outcome of second) if (!isWhole(outcome)) assertRefusal(outcome);
  assert.equal(await chargedTo(scene, kept), price * BigInt(paidFor));
  assert.equal((await budgetOf(scene, kept))?.left_microcents, 0);
  await service.verify();
});
