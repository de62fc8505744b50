import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import type { AccountObject } from '../../src/account-api/account-object.ts';
import type { KeyObject } from '../../src/account-api/key-object.ts';
import { balanceAt } from '../../src/store/budget.ts';
import { scriptedModel, InnerService } from '../support/service.ts';
import { jsonOf, runCommand } from './command.ts';

/** Budgets, while the service runs (through its control socket) and while it does not. */
const service = new InnerService({ config: scriptedModel('- say: [ { text: "hello" } ]') });
before(() => service.start());
after(async () => {
  await service.verify();
  await service.dispose();
});

const run = (...args: string[]) => runCommand(service.folder, args);
const ask = async (key: string): Promise<number> => {
  const answer = await service.chat({ model: 'demo', messages: [{ role: 'user', content: 'hi' }] }, { key });
  await answer.arrayBuffer();
  return answer.status;
};

interface MadeKey {
  readonly id: string;
  readonly key: string;
}
interface Changed {
  readonly id: string;
  readonly budget: Readonly<Record<string, unknown>> | null;
}

async function limitOf(id: string) {
  const key = (jsonOf(await run('keys', 'list', '--json')) as readonly KeyObject[]).find((one) => one.id === id)!;
  const { limit_microcents: amount, limit_remaining_microcents: left, limit_reset: per, limit_resets_at: ends } = key;
  return amount === null ? null : { amount, left, per, ends };
}

const renewsAt = (per: 'day' | 'week' | 'month'): number => balanceAt('x', per, Date.now()).endsAt!;

describe('while the service runs', () => commands(true));
describe('while it does not', () => {
  before(async () => void (await service.stop()));
  commands(false);
  after(() => service.start());
});

function commands(running: boolean): void {
  test('keys create --budget', async () => {
    const made = jsonOf(await run('keys', 'create', '--budget', '10.00', '--budget-per', 'week', '--json')) as MadeKey;
    const renews = renewsAt('week');
    assert.deepEqual(await limitOf(made.id), {
      amount: 1_000_000_000,
      left: 1_000_000_000,
      per: 'weekly',
      ends: renews / 1000,
    });
    const { stdout } = await run('keys', 'list');
    assert.match(
      stdout,
      new RegExp(
        `${made.id} .* \\$10\\.00 a week: \\$0\\.00 spent, \\$10\\.00 left, renews ${new Date(renews).toISOString().slice(0, 10)} `,
      ),
    );
    if (running) assert.equal(await ask(made.key), 200);
    assert.deepEqual((await limitOf(made.id))?.left === 1_000_000_000, !running);
  });

  test('keys budget: set, changed, taken away, in force at once', async () => {
    const made = jsonOf(await run('keys', 'create', '--json')) as MadeKey;
    assert.equal(await limitOf(made.id), null);
    if (running) assert.equal(await ask(made.key), 200);
    const set = await run('keys', 'budget', made.id, '0.00000001', '--per', 'total');
    assert.match(
      set.stdout,
      new RegExp(
        `^${made.id} may spend \\$0\\.00000001 in total from now on; running requests continue\\. \\$0\\.\\d+ is spent\\.\n$`,
      ),
    );
    if (running) assert.equal(await ask(made.key), 402);
    const changed = jsonOf(await run('keys', 'budget', made.id, '$1', '--json')) as Changed;
    assert.deepEqual(
      [changed.id, changed.budget?.['per'], changed.budget?.['amount_microcents']],
      [made.id, 'month', 100_000_000],
    );
    assert.equal(changed.budget?.['renews_at'], new Date(renewsAt('month')).toISOString());
    if (running) assert.equal(await ask(made.key), 200);
    const taken = await run('keys', 'budget', made.id, '--none');
    assert.equal(taken.stdout, `${made.id} has no budget from now on.\n`);
    assert.equal(await limitOf(made.id), null);
    if (running) assert.equal(await ask(made.key), 200);
  });

  for (const of of ['keys', 'accounts'] as const)
    test(`${of} budget --model: of this model alone, beside the one for all`, async () => {
      const { id: keyId, key } = jsonOf(await run('keys', 'create', '--json')) as MadeKey;
      const id = of === 'keys' ? keyId : service.accountId;
      const set = await run(of, 'budget', id, '0.00000001', '--per', 'total', '--model', 'DEMO');
      assert.match(
        set.stdout,
        new RegExp(`^${id} may spend \\$0\\.00000001 in total on demo from now on;`),
        set.stderr,
      );
      if (running) assert.equal(await ask(key), 402);
      assert.match((await run(of, 'list')).stdout, /on demo: \$0\.00000001 in total: \$[\d.]+ spent, \$[\d.]+ left/);
      const changed = jsonOf(await run(of, 'budget', id, '$10', '--model', 'demo', '--json')) as Changed;
      assert.deepEqual([changed.id, changed.budget?.['per']], [id, 'month']);
      if (running) assert.equal(await ask(key), 200);
      const unknown = await run(of, 'budget', id, '1', '--model', 'demi');
      assert.match(unknown.stderr, /has no model demi; did you mean demo\?/);
      const taken = await run(of, 'budget', id, '--none', '--model', 'demo');
      assert.equal(taken.stdout, `${id} has no budget of its own on demo from now on.\n`);
      assert.doesNotMatch((await run(of, 'list')).stdout, /on demo/);
    });

  test('accounts budget: of all keys together', async () => {
    const { accountId, key } = service;
    await run('accounts', 'budget', accountId, '0', '--per', 'day');
    const [account] = jsonOf(await run('accounts', 'list', '--json')) as readonly AccountObject[];
    assert.deepEqual([account?.spend_limit?.threshold_microcents, account?.spend_limit?.interval], [0, 'day']);
    assert.match((await run('accounts', 'list')).stdout, /\$0\.00 a day: \$\d\.\d+ spent, \$0\.00 left, renews \d{4}-/);
    if (running) assert.equal(await ask(key), 402);
    assert.equal((await run('accounts', 'budget', accountId, '--none')).code, 0);
    if (running) assert.equal(await ask(key), 200);
  });

  test('accounts budget --member: of all keys in their name, by their address', async () => {
    const { accountId } = service;
    const owner = ['--member', 'Olga@example.org'];
    const made = jsonOf(await run('owner', 'create', '--email', 'olga@example.org', '--json')) as object;
    assert.ok(made);
    const set = await run('accounts', 'budget', accountId, '3', '--per', 'day', ...owner);
    assert.match(set.stdout, /^olga@example\.org may spend \$3\.00 a day from now on;/, set.stderr);
    const taken = jsonOf(await run('accounts', 'budget', accountId, '--none', ...owner, '--json')) as Changed;
    assert.match(taken.id, /^[0-9a-f]{32}$/);
    const byId = await run('accounts', 'budget', accountId, '3', '--member', taken.id);
    assert.equal(byId.code, 0, byId.stderr);
    const none = await run('accounts', 'budget', accountId, '3', '--member', 'eve@example.org');
    assert.deepEqual([none.code, /has no member eve@example\.org\./.test(none.stderr)], [1, true], none.stderr);
  });

  test('what cannot be is refused in words', async () => {
    for (const [code, said, ...args] of [
      [1, /There is no live key key_none\. List them with: tokenhouse keys list/, 'keys', 'budget', 'key_none', '1'],
      [1, /There is no account acct_none/, 'accounts', 'budget', 'acct_none', '1'],
      [1, /There is no account house_cash/, 'accounts', 'budget', 'house_cash', '1'],
      [1, /Give an amount in dollars, or --none/, 'keys', 'budget', 'key_none'],
      [1, /Give an amount in dollars, or --none/, 'keys', 'budget', 'key_none', '1', '--none'],
      [64, /use dollars, at most 90000000, with at most eight decimals/, 'keys', 'budget', 'key_none', '-1.5e3'],
      [64, /use dollars/, 'keys', 'budget', 'key_none', '1.123456789'],
      [64, /use dollars/, 'keys', 'budget', 'key_none', '90000001'],
      [64, /Allowed choices are day, week, month, total/, 'keys', 'budget', 'key_none', '1', '--per', 'year'],
    ] as const) {
      const result = await run(...args);
      assert.equal(result.code, code, result.stderr);
      assert.match(result.stderr, said);
    }
  });
}
