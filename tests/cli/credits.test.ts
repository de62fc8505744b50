import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import { dollars } from '../../src/platform/dollars.ts';
import { InnerService, scriptedModel } from '../support/service.ts';
import type { CommandResult } from '../support/command.ts';
import { jsonOf, runCommand } from './command.ts';

/** What moves credit besides requests (money.md, "Tables"), through a running service and without one. */
const service = new InnerService({ config: scriptedModel('- say: [ { text: "one two three four" } ]') });
let requests: readonly Awaited<ReturnType<typeof charged>>[];
before(async () => {
  await service.start();
  requests = [await charged(), await charged()];
});
after(async () => {
  await service.verify();
  await service.dispose();
});

const run = (...args: string[]): Promise<CommandResult> => runCommand(service.folder, args);

interface Moved {
  readonly account: string;
  readonly moved_microcents: number;
  readonly balance_microcents: number;
  readonly again: boolean;
}

interface Movement {
  readonly kind: string;
  readonly microcents: number;
  readonly other: string;
  readonly reference: string | null;
  readonly by: string;
}

const balance = async (): Promise<number> => (await service.usage()).balanceMicrocents;
const moved = async (...args: string[]): Promise<Moved> => jsonOf(await run('credits', ...args, '--json')) as Moved;
const newest = async (): Promise<Movement | undefined> =>
  (jsonOf(await run('credits', 'history', '--limit', '1', '--json')) as Movement[])[0];

/** One request that is charged; how it is listed. */
async function charged() {
  const response = await service.chat({ model: 'demo', messages: [{ role: 'user', content: 'hi' }] });
  assert.equal(response.status, 200);
  await response.text();
  const [row] = (await service.usage()).requests;
  assert.ok(row !== undefined && row.cost_microcents > 1);
  return row;
}

describe('while the service runs', () => {
  for (const [command, microcents, kind, systemAccount] of [
    ['grant', 2_000_000, 'grant', 'house_promo'],
    ['topup', 2_000_000, 'topup', 'house_cash'],
    ['payback', -2_000_000, 'refund', 'house_cash'],
    ['chargeback', -2_000_000, 'chargeback', 'house_cash'],
    ['expire', -2_000_000, 'expiry', 'house_promo'],
  ] as const) {
    test(`credits ${command} moves ${microcents} microcents, once for a key`, async () => {
      const earlier = await balance();
      const args = [command, '--cents', '2', '--reason', 'for a test', '--idempotency-key', `${command}-1`];
      const first = {
        account: service.accountId,
        moved_microcents: microcents,
        balance_microcents: earlier + microcents,
        again: false,
      };
      assert.deepEqual(await moved(...args), first);
      const listed = await newest();
      assert.deepEqual(listed, {
        ...listed,
        kind,
        microcents,
        other: systemAccount,
        reference: 'for a test',
        by: 'cli',
      });
      assert.deepEqual(await moved(...args), { ...first, moved_microcents: 0, again: true });
      assert.equal(await balance(), earlier + microcents);
    });
  }

  test('what an account does not have cannot be taken away', async () => {
    const earlier = await balance();
    const { code, stdout, stderr } = await run('credits', 'payback', '--cents', '1000000');
    assert.equal(code, 1, stdout);
    assert.match(stderr, /does not cover \$10,000\.00/);
    assert.equal(await balance(), earlier);
  });

  test('credits limit lets an account owe, and withdraws only what it does not owe', async () => {
    const words = await run('credits', 'limit', '--cents', '300');
    assert.equal(words.code, 0, words.stderr);
    assert.match(words.stdout, /may owe \$3\.00 from now on/);
    const earlier = await balance();
    const all = (earlier / 1_000_000 + 100).toFixed(6);
    assert.equal((await moved('chargeback', '--cents', all)).balance_microcents, -100_000_000);
    const refused = await run('credits', 'limit', '--cents', '0');
    assert.equal(refused.code, 1);
    assert.match(refused.stderr, /would be taken away/);
    assert.equal((await moved('topup', '--cents', all)).balance_microcents, earlier);
    assert.match((await run('credits', 'limit', '--cents', '0')).stdout, /is prepaid/);
  });

  test('an amount is written in dollars or in cents, in one of the two', async () => {
    const earlier = await balance();
    assert.equal((await moved('grant', '--dollars', '$1000.00')).moved_microcents, 100_000_000_000);
    assert.equal((await moved('expire', '--dollars', '1000')).balance_microcents, earlier);
    const words = await run('credits', 'grant', '--dollars', '1234.5');
    assert.match(words.stdout, /^\$1,234\.50 added\./);
    assert.equal((await moved('adjust', '--dollars', '-1234.5', '--reason', 'again')).balance_microcents, earlier);
    for (const [args, said] of [
      [['--dollars', '1', '--cents', '100'], /cannot be used with/],
      [['--dollars', '0.000000001'], /at most eight decimals/],
      [[], /The amount is missing/],
    ] as const) {
      const { code, stderr } = await run('credits', 'grant', ...args);
      assert.equal(code, 64, stderr);
      assert.match(stderr, said);
    }
  });

  test('credits history as a table', async () => {
    const { code, stdout } = await run('credits', 'history');
    assert.equal(code, 0);
    assert.match(stdout, /^at +kind +amount +by +reason\n/);
    assert.match(stdout, /\n\S+ \S+ +expiry +-\$0\.02 +cli +for a test\n/);
  });

  commands(true);
});
describe('while it does not', () => {
  before(async () => void (await service.stop()));
  commands(false);
  after(() => service.start());
});

function commands(running: boolean): void {
  test('credits adjust goes both ways, and never without a reason', async () => {
    const earlier = await balance();
    assert.equal((await moved('adjust', '--cents', '-0.5', '--reason', 'counted twice')).moved_microcents, -500_000);
    assert.equal((await moved('adjust', '--cents', '0.25', '--reason', 'the other way')).moved_microcents, 250_000);
    assert.equal(await balance(), earlier - 250_000);
    const { code, stderr } = await run('credits', 'adjust', '--cents', '1');
    assert.equal(code, 64);
    assert.match(stderr, /--reason/);
  });

  test('credits refund gives back what a request cost, once, and no more', async () => {
    const request = requests[running ? 0 : 1]!;
    const earlier = await balance();
    const tooMuch = await run('credits', 'refund', request.request_id, '--cents', '100');
    assert.equal(tooMuch.code, 1);
    const cost = dollars(BigInt(request.cost_microcents));
    assert.ok(tooMuch.stderr.includes(`This request cost ${cost}; the refund cannot be larger`), tooMuch.stderr);
    const first = await moved('refund', request.request_id, '--reason', 'was of no use');
    assert.equal(first.moved_microcents, request.cost_microcents);
    assert.equal((await moved('refund', request.id)).again, true);
    const part = await run('credits', 'refund', request.request_id, '--cents', '0.000001');
    assert.equal(part.code, 1);
    assert.match(part.stderr, /has been refunded already/);
    assert.equal(await balance(), earlier + request.cost_microcents);
    const unknown = await run('credits', 'refund', 'req_000000000000');
    assert.equal(unknown.code, 1);
    assert.match(unknown.stderr, /has no request req_000000000000\. List them with: tokenhouse usage/);
  });

  test('ledger verify', async () => assert.equal((await run('ledger', 'verify')).code, 0));
}

test('amounts that are none are wrong usage', async () => {
  for (const cents of ['0', '-1', '1e3', '0.0000001', '', 'ten'])
    assert.equal((await run('credits', 'topup', '--cents', cents)).code, 64, cents);
  for (const cents of ['--1', '-0', '+1', '-'])
    assert.equal((await run('credits', 'adjust', '--reason', 'a', '--cents', cents)).code, 64, cents);
});

describe('a key, after it was made', () => {
  let id: string;
  let key: string;
  before(async () => {
    ({ id, key } = jsonOf(await run('keys', 'create', '--name', 'first', '--json')) as { id: string; key: string });
  });
  const ask = async (): Promise<number> =>
    (await service.chat({ model: 'demo', messages: [{ role: 'user', content: 'hi' }] }, { key })).status;
  const listed = async (): Promise<Readonly<Record<string, unknown>> | undefined> =>
    (jsonOf(await run('keys', 'list', '--json')) as Readonly<Record<string, unknown>>[]).find(
      (each) => each['id'] === id,
    );

  test('is kept to endpoints, addresses and zero data retention, and let go again', async () => {
    for (const [set, taken] of [
      [
        ['--endpoint', '/v1/messages'],
        ['--endpoint', 'none'],
      ],
      [
        ['--ip', '203.0.113.0/24'],
        ['--ip', 'none'],
      ],
      [['--zdr-only'], ['--no-zdr-only']],
      [['--plan'], ['--no-plan']],
    ] as const) {
      assert.equal((await run('keys', 'limit', id, ...set)).code, 0);
      assert.equal(await ask(), 403, set.join(' '));
      assert.equal((await run('keys', 'limit', id, ...taken)).code, 0);
      assert.equal(await ask(), 200, taken.join(' '));
    }
    const { allowed_endpoints: paths, ip_ranges: ranges, zdr_only: zdrOnly, type } = (await listed()) ?? {};
    assert.deepEqual([paths, ranges, zdrOnly, type], [null, null, false, 'serverless']);
    const wrong = await run('keys', 'limit', id, '--ip', '300.1.2.3');
    assert.equal(wrong.code, 1);
    assert.match(wrong.stderr, /"300\.1\.2\.3" is neither an IP address nor a range/);
    assert.equal((await run('keys', 'limit', id)).code, 1);
  });

  test('a key and an account are limited in what they use in a time, of one model too, and let go again', async () => {
    const ofModel = ['--model', 'demo', '--requests-per-day', '7'];
    const set = await run('keys', 'limit', id, ...ofModel, '--concurrency', '3');
    assert.match(set.stdout, /has the limits 3 at once on demo: 7 requests\/day from now on/);
    const spending = ['--spend-per-five-minutes', '0.50', '--session-budget', '2'];
    assert.match((await run('keys', 'limit', id, ...spending)).stdout, /\$2.00 a conversation/);
    const shown = await listed();
    assert.equal(shown?.['session_budget_cents'], 200);
    assert.deepEqual([shown?.['max_concurrency'], shown?.['cents_per_five_minutes']], [3, 50]);
    const [first] = shown?.['limits_by_model'] as readonly Readonly<Record<string, unknown>>[];
    assert.deepEqual([first?.['model'], first?.['requests_per_day'], first?.['tokens_per_day']], ['demo', 7, null]);
    assert.match((await run('keys', 'list')).stdout, /3 at once \$0.50 in five minutes on demo: 7 requests\/day/);
    const none = ['--spend-per-five-minutes', 'none', '--concurrency', 'none', '--session-budget', 'none'];
    assert.equal((await run('keys', 'limit', id, ...none)).code, 0);
    const last = await run('keys', 'limit', id, '--model', 'demo', '--requests-per-day', 'none', '--json');
    assert.deepEqual(jsonOf(last), { id, limits: {} });

    const ofAccount = await run('accounts', 'limit', '--tokens-per-day', '5', ...ofModel, '--json');
    assert.deepEqual(jsonOf(ofAccount), {
      account: service.accountId,
      limits: { byModel: { demo: { requestsPerDay: 7, tokensPerDay: 5 } } },
    });
    const gone = ['--model', 'demo', '--tokens-per-day', 'none', '--requests-per-day', 'none'];
    assert.match((await run('accounts', 'limit', ...gone)).stdout, /of its plan and the configuration/);
    for (const wrong of [['--model', 'nothing', '--requests-per-day', '7'], ['--model', 'demo'], []])
      assert.equal((await run('keys', 'limit', id, ...wrong)).code, 1, wrong.join(' '));
  });

  test('is named anew, and ends at another time or never', async () => {
    assert.equal((await run('keys', 'edit', id, '--name', 'second', '--expires', '12h')).code, 0);
    const { name, expires_at: ends } = (await listed()) ?? {};
    assert.equal(name, 'second');
    assert.ok(Math.abs(Number(ends) * 1000 - Date.now() - 12 * 3_600_000) < 60_000);
    assert.equal(await ask(), 200);
    assert.match((await run('keys', 'edit', id, '--expires', 'never')).stdout, /\(second\) does not expire/);
    assert.equal((await listed())?.['expires_at'], null);
    for (const args of [[], ['--name', ''], ['--name', 'a\nb']])
      assert.equal((await run('keys', 'edit', id, ...args)).code, 1, args.join(' '));
    assert.equal((await run('keys', 'edit', 'key_nothing', '--name', 'a')).code, 1);
  });
});

test('a refund needs no account where there are several: the request says whose it is', async () => {
  await run('accounts', 'create', '--name', 'other');
  const again = jsonOf(await run('credits', 'refund', requests[0]!.request_id, '--json')) as Moved;
  assert.equal(again.again, true);
  assert.match((await run('credits', 'refund', 'req_000000000000')).stderr, /several accounts: choose one/);
});
