import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import type { AccountObject } from '../../src/account-api/account-object.ts';
import { dollars } from '../../src/platform/dollars.ts';
import { InnerService, scriptedModel } from '../support/service.ts';
import type { CommandResult } from '../support/command.ts';
import { jsonOf, runCommand } from './command.ts';

/** Keys, credits and usage, while the service runs (through its control socket) and while it does not. */
const service = new InnerService({ config: scriptedModel('- say: [ { text: "hello" } ]') });
before(() => service.start());
after(async () => {
  await service.verify();
  await service.dispose();
});

const run = (...args: string[]): Promise<CommandResult> => runCommand(service.folder, args);
const ask = async (key: string): Promise<number> =>
  (await service.chat({ model: 'demo', messages: [{ role: 'user', content: 'hi' }] }, { key })).status;

interface ListedKey {
  readonly id: string;
  readonly name: string;
  readonly label: string;
  readonly disabled: boolean;
  /** Unix seconds. */
  readonly expires_at: number | null;
  readonly revoked_at: number | null;
}
interface MadeKey {
  readonly id: string;
  readonly account: string;
  readonly name: string;
  readonly key: string;
}
interface Grant {
  readonly account: string;
  readonly moved_microcents: number;
  readonly balance_microcents: number;
  readonly again: boolean;
}
const keysOf = async (): Promise<readonly ListedKey[]> => jsonOf(await run('keys', 'list', '--json')) as ListedKey[];

describe('while the service runs', () => commands(true));
describe('while it does not', () => {
  before(async () => void (await service.stop()));
  commands(false);
  after(() => service.start());
});

describe('in words', () => {
  test('names and accounts that cannot be are refused', async () => {
    for (const [args, said] of [
      [['keys', 'create', '--name', ''], /A name must have 1 to 100 characters/],
      [['keys', 'create', '--name', 'a\u001b[31mb'], /without control characters/],
      [['keys', 'create', '--name', 'a'.repeat(101)], /A name must have 1 to 100 characters/],
      [['keys', 'create', '--account', 'acct_nothing'], /There is no account acct_nothing/],
      [['credits', 'grant', '--cents', '1', '--account', 'acct_nothing'], /There is no account acct_nothing/],
      [
        ['credits', 'grant', '--cents', '1', '--idempotency-key', 'a'.repeat(256)],
        /An idempotency key must have 1 to 255/,
      ],
      [['credits', 'grant', '--cents', '1', '--reason', 'a\nb'], /A reason must have 1 to 1000/],
    ] as const) {
      const { code, stderr } = await run(...args);
      assert.equal(code, 1, stderr);
      assert.match(stderr, said);
    }
  });

  test('accounts billing shows and changes to whom documents are made out, and how they are taxed', async () => {
    const billing = async (...args: string[]) => jsonOf(await run('accounts', 'billing', '--json', ...args));
    const empty = {
      account: service.accountId,
      legal_name: null,
      address_lines: null,
      country: null,
      tax_id: null,
      tax_status: 'standard',
      invoice_email: null,
    };
    assert.deepEqual(await billing(), empty);
    const full = ['--name', 'Robots SA', '--address-line', 'Rue 1', '--address-line', '75001 Paris', '--country', 'FR'];
    await billing(...full, '--tax-id', 'FR12345678901', '--tax-status', 'reverse_charge', '--email', 'a@example.org');
    assert.deepEqual(await billing('--email', 'none'), {
      ...empty,
      legal_name: 'Robots SA',
      address_lines: ['Rue 1', '75001 Paris'],
      country: 'FR',
      tax_id: 'FR12345678901',
      tax_status: 'reverse_charge',
    });
    for (const [args, said] of [
      [['--tax-id', 'none'], /Reverse charge needs a country and a tax id/],
      [['--country', 'UK'], /the United Kingdom is GB/],
      [['--tax-status', 'free'], /standard, exempt, reverse_charge/],
    ] as const) {
      const { code, stderr } = await run('accounts', 'billing', ...args);
      assert.notEqual(code, 0);
      assert.match(stderr, said);
    }
    const none = ['--name', 'none', '--address-line', 'none', '--country', 'none', '--tax-id', 'none'];
    assert.deepEqual(await billing(...none, '--tax-status', 'standard'), empty);
  });

  test('accounts zdr requires zero data retention of an account, and leaves its other limits alone', async () => {
    const limits = async () => {
      const [first] = jsonOf(await run('accounts', 'list', '--json')) as readonly AccountObject[];
      return [first?.max_concurrency, first?.zdr_required];
    };
    assert.equal((await run('accounts', 'limit', '--concurrency', '3')).code, 0);
    const said = await run('accounts', 'zdr', 'required');
    assert.match(said.stdout, /requires zero data retention from now on: only backends that retain nothing/);
    assert.deepEqual(await limits(), [3, true]);
    assert.deepEqual(jsonOf(await run('accounts', 'zdr', 'optional', '--json')), {
      account: service.accountId,
      zdr_required: false,
    });
    assert.deepEqual(await limits(), [3, false]);
    assert.equal((await run('accounts', 'limit', '--concurrency', 'none')).code, 0);
    assert.match((await run('accounts', 'zdr', 'always')).stderr, /required, optional/);
  });

  test('credits show, as a table and as JSON', async () => {
    const { balanceMicrocents } = await service.usage();
    const [shown, ...others] = jsonOf(await run('credits', 'show', '--json')) as readonly AccountObject[];
    assert.deepEqual(others, []);
    assert.deepEqual(
      [shown?.id, shown?.name, shown?.status, shown?.balance_microcents, shown?.credit_limit_cents],
      [service.accountId, 'first account', 'active', balanceMicrocents, 0],
    );
    const table = await run('credits', 'show');
    assert.match(table.stdout, /^account +name +status +balance\n/);
    const balance = dollars(BigInt(balanceMicrocents)).replace(/[$.]/g, '\\$&');
    assert.match(table.stdout, new RegExp(`^${service.accountId} +first account +active +${balance}\n`, 'm'));
  });

  test('usage, as a table and as JSON', async () => {
    assert.equal(await ask(service.key), 200);
    const { requests, balanceMicrocents } = await service.usage();
    const [newest] = requests;
    assert.ok(newest);
    assert.equal(newest.cost_microcents, newest.prompt_tokens * 5 + newest.completion_tokens * 20);
    const table = await run('usage', '--limit', '1');
    assert.equal(table.code, 0, table.stderr);
    const [header, row, blank, balance] = table.stdout.split('\n');
    assert.match(header ?? '', /^ended +request +model +prompt +cached +output +cost +ending$/);
    assert.deepEqual((row ?? '').split(/ {2,}/).slice(1), [
      newest.request_id,
      'demo',
      String(newest.prompt_tokens),
      '0',
      '1',
      dollars(BigInt(newest.cost_microcents)),
      'finished',
    ]);
    assert.equal(blank, '');
    assert.equal(balance, `balance of ${service.accountId}: ${dollars(BigInt(balanceMicrocents))}`);
    assert.match((await run('usage', '--account', 'acct_nothing')).stdout, /^ended/);
  });
});

test('what was done without the service holds when it starts', async () => {
  const listed = await keysOf();
  assert.ok(listed.length >= 4);
  assert.equal(await ask(service.key), 200);
});

function commands(running: boolean): void {
  let made: MadeKey;

  test('keys create prints the key alone, and it works at once', async () => {
    const { code, stdout, stderr } = await run('keys', 'create', '--name', 'by hand');
    assert.equal(code, 0, stderr);
    assert.match(stdout, /^tkh_[0-9A-Za-z]{38}\n$/);
    assert.match(stderr, /key_\w+ for acct_\w+\. The key is shown only once/);
    assert.ok(!stderr.includes(stdout.trim()));
    if (running) assert.equal(await ask(stdout.trim()), 200);
  });

  test('keys create --json', async () => {
    made = jsonOf(await run('keys', 'create', '--json', '--name', 'for a program', '--expires', '30d')) as MadeKey;
    assert.match(made.id, /^key_/);
    assert.equal(made.account, service.accountId);
    assert.equal(made.name, 'for a program');
    assert.match(made.key, /^tkh_/);
    if (running) assert.equal(await ask(made.key), 200);
  });

  test('keys list shows it, and never the key', async () => {
    const listed = (await keysOf()).find(({ id }) => id === made.id);
    assert.deepEqual([listed?.disabled, listed?.revoked_at], [false, null]);
    assert.equal(listed?.label, `tkh_…${made.key.slice(-4)}`);
    const days = ((listed.expires_at ?? 0) * 1000 - Date.now()) / 86_400_000;
    assert.ok(days > 29.9 && days <= 30, String(days));
    const table = await run('keys', 'list');
    assert.equal(table.code, 0);
    assert.match(table.stdout, /^id +account +name +key +user +status +models +kept to +budget +created +expires\n/);
    assert.match(
      table.stdout,
      new RegExp(`^${made.id} +${service.accountId} +for a program +tkh_….... +- +active `, 'm'),
    );
    assert.ok(!table.stdout.includes(made.key.slice(4, 20)));
  });

  const answers = async (key: string, status: number): Promise<void> => {
    if (running) assert.equal(await ask(key), status);
  };

  test('keys rotate, pause and resume take effect at once, and are in the audit log', async () => {
    const key = jsonOf(
      await run('keys', 'create', '--json', '--name', 'rotated', '--tag', 'one', '--tag', 'two'),
    ) as MadeKey;
    const rotated = jsonOf(await run('keys', 'rotate', key.id, '--overlap', '1h', '--json')) as MadeKey & {
      readonly previous_ends_at: string;
    };
    assert.equal(rotated.id, key.id);
    assert.ok(Date.parse(rotated.previous_ends_at) > Date.now());
    for (const each of [key, rotated]) await answers(each.key, 200);
    const again = await run('keys', 'rotate', key.id);
    assert.match(again.stdout, /^tkh_[0-9A-Za-z]{38}\n$/);
    await answers(rotated.key, 401);
    assert.match((await run('keys', 'pause', key.id)).stdout, /is paused/);
    const secret = again.stdout.trim();
    await answers(secret, 401);
    assert.match((await run('keys', 'resume', key.id)).stdout, /works again/);
    await answers(secret, 200);
    const entries = jsonOf(await run('audit', 'list', '--limit', '5', '--json')) as readonly {
      readonly action: string;
      readonly target: string;
      readonly outcome: string;
      readonly actor: { readonly kind: string };
    }[];
    assert.deepEqual(
      entries.map(({ action, target, outcome, actor }) => [action, target, outcome, actor.kind]),
      ['key.edit', 'key.edit', 'key.rotate', 'key.rotate', 'key.create'].map((action) => [
        action,
        key.id,
        'done',
        'cli',
      ]),
    );
    const table = await run('audit', 'list', '--limit', '1');
    assert.match(table.stdout, /key\.edit/);
  });

  test('a management key has a role, and is refused where models are', async () => {
    const key = jsonOf(await run('keys', 'create', '--json', '--role', 'admin', '--operator')) as MadeKey;
    await answers(key.key, 403);
    const headers = { authorization: `Bearer ${key.key}` };
    if (running) assert.equal((await fetch(`${service.accountUrl}/v1/admin/accounts`, { headers })).status, 200);
    assert.equal((await run('keys', 'create', '--operator')).code, 1);
    assert.equal((await run('keys', 'create', '--role', 'admin', '--tag', 'x')).code, 1);
    assert.equal((await run('keys', 'create', '--role', 'king')).code, 64);
  });

  test('keys revoke takes effect at once', async () => {
    const { code, stdout, stderr } = await run('keys', 'revoke', made.id);
    assert.equal(code, 0, stderr);
    assert.match(stdout, new RegExp(`^${made.id} \\(for a program\\) is revoked`));
    if (running) assert.equal(await ask(made.key), 401);
    const listed = (await keysOf()).find(({ id }) => id === made.id);
    assert.ok(Date.now() - (listed?.revoked_at ?? 0) * 1000 < 60_000);
    assert.match((await run('keys', 'list')).stdout, new RegExp(`^${made.id} .* revoked `, 'm'));
  });

  test('keys revoke of what does not exist is refused', async () => {
    const { code, stdout, stderr } = await run('keys', 'revoke', 'key_nothing');
    assert.equal(code, 1);
    assert.equal(stdout, '');
    assert.match(stderr, /There is no key key_nothing\. List them with: tokenhouse keys list/);
    const inJson = await run('keys', 'revoke', 'key_nothing', '--json');
    assert.equal(inJson.code, 1);
    assert.match((JSON.parse(inJson.stdout) as { error: string }).error, /There is no key/);
  });

  test('credits grant adds exactly once for a key, in any number of tries', async () => {
    const key = `order-7-${running}`;
    const grant = async (...more: string[]): Promise<Grant> =>
      jsonOf(await run('credits', 'grant', '--json', '--cents', '1.25', '--idempotency-key', key, ...more)) as Grant;
    const { balanceMicrocents } = await service.usage();
    const first = await grant('--reason', 'a present');
    assert.deepEqual(first, {
      account: service.accountId,
      moved_microcents: 1_250_000,
      balance_microcents: balanceMicrocents + 1_250_000,
      again: false,
    });
    for (let again = 0; again < 2; again++) {
      assert.deepEqual(await grant(), { ...first, moved_microcents: 0, again: true });
    }
    const other = await run('credits', 'grant', '--cents', '2', '--idempotency-key', key);
    assert.equal(other.code, 1, other.stdout);
    assert.match(other.stderr, /stands for another transfer/);
    assert.equal((await service.usage()).balanceMicrocents, first.balance_microcents);
    const words = await run('credits', 'grant', '--cents', '1.25', '--idempotency-key', key);
    assert.match(words.stdout, /was done before with the same key, so nothing moved/);
  });

  test('two grants at once with one key add once', async () => {
    const { balanceMicrocents } = await service.usage();
    const grants = ['--cents', '3', '--idempotency-key', `twins-${running}`];
    const results = await Promise.all([run('credits', 'grant', ...grants), run('credits', 'grant', ...grants)]);
    // Without a service one of the two may find the database taken, and says so.
    assert.ok(results.some(({ code }) => code === 0));
    for (const { code, stderr } of results) if (code !== 0) assert.match(stderr, /Another process owns/);
    if (running) assert.ok(results.every(({ code }) => code === 0));
    assert.equal((await service.usage()).balanceMicrocents, balanceMicrocents + 3_000_000);
  });

  test('ledger verify', async () => {
    const found = jsonOf(await run('ledger', 'verify', '--json')) as { ok: boolean; differences: unknown[] };
    assert.equal(found.ok, true);
    assert.deepEqual(found.differences, []);
    const words = await run('ledger', 'verify');
    assert.equal(words.code, 0);
    assert.match(words.stdout, /^The ledger is consistent: 5 accounts, \d+ transfers?, \d+ requests?\.\n$/);
  });
}
