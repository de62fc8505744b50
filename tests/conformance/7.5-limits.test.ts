import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';

import type { AccountObject } from '../../src/account-api/account-object.ts';
import { loadLimitWindows } from '../../src/store/repositories/limit-windows.ts';
import { rowsOn } from '../../src/store/schema/codec.ts';
import { openReadOnly } from '../../src/store/sqlite/dialect.ts';
import { assertEnvelope } from '../inference/http/envelope.ts';
import { exchange } from '../inference/http/raw.ts';
import type { RawAnswer } from '../inference/http/raw.ts';
import { RawClient, chatBytes, newRequestId } from '../support/raw-client.ts';
import { TestService, scriptedModel, until } from '../support/service.ts';

/**
 * Specification §7.5 and part 8 through the whole service: limits of plans, accounts and keys, on every family, whole and
 * streamed. That `Retry-After` is true is proved in `tests/billing/rate-limits/rate-limits.test.ts`, under a clock of its own.
 */
const plans = `plans:
  - { name: standard, included_requests: 4, window_hours: 8784 }
  - { name: fast, requests_per_minute: 1000000, tokens_per_minute: 1000000000, max_concurrency: 3 }
`;
const models = scriptedModel('- say: [ { text: hello } ]');
const slowModels = scriptedModel('- say: [ { text: [ "word " ] } ]\n  repeat: 10000\n  pace_ms: 20');
const faulty = `
  - id: broken
    context_length: 512
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    backends: [ { engine: scripted, scripts: [ { say: [], fault: { after_tokens: 0, type: error, code: backend_http_error } } ] } ]`;

const says = [{ role: 'user', content: 'hi' }];
/** Path and body of each family. */
const families: readonly (readonly [path: string, body: Readonly<Record<string, unknown>>])[] = [
  ['/v1/chat/completions', { messages: says }],
  ['/v1/completions', { prompt: 'hi' }],
  ['/v1/messages', { messages: says, max_tokens: 8 }],
  ['/v1/responses', { input: 'hi' }],
];
const limitHeaders = ['ratelimit-limit', 'ratelimit-remaining', 'ratelimit-reset'];

const service = new TestService({ config: plans + models + faulty });
const slow = new TestService({ config: plans + slowModels });
before(() => Promise.all([service.start(), slow.start()]));
after(() => Promise.all([service.dispose(), slow.dispose()]));

const ask = (
  key: string,
  path = '/v1/chat/completions',
  body: Readonly<Record<string, unknown>> = { messages: says },
): Promise<RawAnswer> =>
  exchange(service.url, {
    method: 'POST',
    path,
    headers: [['Authorization', `Bearer ${key}`]],
    body: JSON.stringify({ model: 'demo', ...body }),
  });

interface Key {
  readonly id: string;
  readonly key: string;
}

async function run(at: TestService, ...args: readonly string[]): Promise<Readonly<Record<string, unknown>>> {
  const { code, stdout, stderr } = await at.command(...args, '--json');
  assert.equal(code, 0, stderr);
  return JSON.parse(stdout) as Record<string, unknown>;
}

const newKey = async (at: TestService, ...limits: readonly string[]): Promise<Key> =>
  (await run(at, 'keys', 'create', ...limits)) as unknown as Key;

/** The numbers of the three headers; each stands there once, and `Retry-After` beside them on a refusal. */
function limitsOf({ headers, status, body }: RawAnswer): { limit: number; remaining: number; reset: number } {
  const [limit = NaN, remaining = NaN, reset = NaN] = limitHeaders.map((name) => Number(headers[name]));
  assert.ok([limit, remaining, reset].every(Number.isInteger), `${JSON.stringify(headers)} ${body}`);
  assert.ok(remaining >= 0 && remaining <= limit && reset >= 1);
  assert.equal(headers['retry-after'], status === 429 ? String(reset) : undefined);
  return { limit, remaining, reset };
}

/**
 * Looks at what a new key is answered, when all of it came before the minute was over that the first answer names; else again
 * with another key, whose minutes begin at another moment.
 */
async function inOneMinute(
  limits: readonly string[],
  send: (key: string) => Promise<readonly RawAnswer[]>,
  look: (answers: readonly RawAnswer[]) => void,
): Promise<void> {
  for (let tries = 0; tries < 20; tries++) {
    const { key } = await newKey(service, ...limits);
    const begunMs = performance.now();
    const answers = await send(key);
    const { reset } = limitsOf(answers[0]!);
    if (performance.now() - begunMs >= (reset - 1) * 1000) continue;
    look(answers);
    return;
  }
  assert.fail('the machine is too slow for a minute');
}

const assertNoLimits = ({ headers }: RawAnswer): void => {
  for (const name of limitHeaders) assert.equal(headers[name], undefined, name);
};

/** What is on the disk of the requests that plans include. */
async function writtenCounts(): Promise<readonly number[]> {
  const db = openReadOnly(join(service.folder, 'data', 'tokenhouse.db'));
  try {
    const windows = await loadLimitWindows(rowsOn(db), { at: Date.now() });
    return windows.filter(({ kind }) => kind === 'quota').map(({ used }) => used);
  } finally {
    await db.destroy();
  }
}

describe('§7.5 on every family, whole and streamed', () => {
  for (const [path, body] of families) {
    for (const stream of [false, true]) {
      test(`${path}, ${stream ? 'streamed' : 'whole'}: answers count down, then comes the refusal`, async () => {
        await inOneMinute(
          ['--requests-per-minute', '2'],
          async (key) => {
            const answers: RawAnswer[] = [];
            for (let count = 0; count < 3; count++) answers.push(await ask(key, path, { ...body, stream }));
            return answers;
          },
          (answers) => {
            assert.deepEqual(
              answers.map(({ status }) => status),
              [200, 200, 429],
            );
            assert.deepEqual(
              answers.map(limitsOf).map(({ limit, remaining }) => [limit, remaining]),
              [
                [2, 1],
                [2, 0],
                [2, 0],
              ],
            );
            const error = answers[2]!.json()['error'] as Record<string, unknown>;
            assert.deepEqual([error['type'], error['code']], ['rate_limit_error', 'rate_limit_exceeded']);
          },
        );
      });
    }
  }

  test('counting tokens and files are requests too', async () => {
    await inOneMinute(
      ['--requests-per-minute', '5', '--user', 'somebody'],
      async (key) => [
        await ask(key),
        await ask(key, '/v1/messages/count_tokens', { messages: says }),
        await ask(key, '/v1/responses/input_tokens', { input: 'hi' }),
        await exchange(service.url, { path: '/v1/files', headers: [['Authorization', `Bearer ${key}`]] }),
      ],
      (answers) => {
        for (const { status, body } of answers) assert.equal(status, 200, body);
        assert.deepEqual(
          answers.map((answer) => limitsOf(answer).remaining),
          [4, 3, 2, 1],
        );
      },
    );
  });

  test('without limits an answer says nothing of them', async () => {
    assertNoLimits(await ask(service.key));
    assertNoLimits(await ask(service.key, '/v1/chat/completions', { messages: says, stream: true }));
    const { key } = await newKey(service, '--requests-per-minute', '1000000');
    // Errors that are not about limits say nothing either.
    assertNoLimits(await ask(key, '/v1/chat/completions', { model: 'broken', messages: says }));
  });
});

describe('§7.5 request_quota_exceeded; money.md, "Plans"', () => {
  let plan: Key;
  before(async () => {
    await run(service, 'accounts', 'plan', 'standard');
    plan = await newKey(service, '--plan');
  });

  test('what failed by our fault is not one of the included requests; what is included is charged nothing', async () => {
    const balanceBefore = (await service.usage()).balanceMicrocents;
    assert.equal((await ask(plan.key, '/v1/chat/completions', { model: 'broken', messages: says })).status, 502);
    const remaining: number[] = [];
    for (const [path, body] of families) {
      const answer = await ask(plan.key, path, body);
      assert.equal(answer.status, 200, answer.body);
      remaining.push(limitsOf(answer).remaining);
    }
    assert.deepEqual(remaining, [3, 2, 1, 0]);
    const { requests, balanceMicrocents } = await service.usage(families.length);
    assert.equal(balanceMicrocents, balanceBefore);
    for (const { ending, plan: name, cost_microcents: cost, uncharged_microcents: list } of requests)
      assert.deepEqual([ending, name, cost, list > 0], ['finished', 'standard', 0, true]);
    await service.verify();
  });

  test('then every family refuses with its own envelope, until window_end; a key that pays itself goes on', async () => {
    for (const [path, body] of families) {
      const refused = await ask(plan.key, path, { ...body, stream: true });
      assert.equal(refused.status, 429, refused.body);
      const error = refused.json()['error'] as Record<string, unknown>;
      assert.equal(error['code'], 'request_quota_exceeded');
      assert.equal(error['type'], 'rate_limit_error');
      assert.deepEqual([error['request_limit'], error['plan_tier']], [4, 'standard']);
      const { limit, remaining, reset } = limitsOf(refused);
      assert.deepEqual([limit, remaining], [4, 0]);
      const end = Date.parse(String(error['window_end']));
      assert.ok(Math.abs(end - Date.now() - reset * 1000) < 60_000, `${String(error['window_end'])} in ${reset} s`);
    }
    assert.equal((await ask(service.key)).status, 200);
  });

  test('counts survive a process that is killed, and a restart', async () => {
    await until(async () => (await writtenCounts()).includes(4), 60_000);
    for (const signal of ['SIGKILL', 'SIGTERM'] as const) {
      await service.stop(signal);
      await service.start();
      assertEnvelope(await ask(plan.key), 'request_quota_exceeded', {
        extra: ['request_limit', 'window_end', 'plan_tier'],
      });
    }
  });

  test('another plan, or none, holds from the next request on', async () => {
    await run(service, 'accounts', 'plan', 'fast');
    const answer = await ask(plan.key);
    assert.equal(answer.status, 200, answer.body);
    limitsOf(answer);
    await run(service, 'accounts', 'plan', '--none');
    assertEnvelope(await ask(plan.key), 'http_403');
    const other = await service.command('accounts', 'plan', 'standart');
    assert.equal(other.code, 1);
    assert.match(other.stderr, /did you mean standard\?/);
  });
});

test('§7.5 concurrency_limit_exceeded: per key, per account, by the plan; what is set is shown', async () => {
  const busy: RawClient[] = [];
  const hold = async (key: string): Promise<void> => {
    const client = await RawClient.connect(slow.url);
    client.send(chatBytes(key, newRequestId(), { model: 'demo', messages: says, stream: true }));
    await until(() => client.text.includes('word'), 60_000);
    busy.push(client);
  };
  const refusal = async (key: string): Promise<number> => {
    const answer = await exchange(slow.url, {
      method: 'POST',
      path: '/v1/chat/completions',
      headers: [['Authorization', `Bearer ${key}`]],
      body: JSON.stringify({ model: 'demo', messages: says }),
    });
    assertEnvelope(answer, 'concurrency_limit_exceeded');
    const { limit, remaining, reset } = limitsOf(answer);
    assert.deepEqual([remaining, reset], [0, 1]);
    return limit;
  };
  const narrow = await newKey(slow, '--concurrency', '1');
  await hold(narrow.key);
  assert.match(busy[0]!.text, /ratelimit-limit: 1\r\nratelimit-remaining: 0\r\n/);
  assert.equal(await refusal(narrow.key), 1);
  await run(slow, 'keys', 'limit', narrow.id, '--concurrency', 'none');
  await hold(narrow.key);
  await run(slow, 'accounts', 'limit', '--concurrency', '2');
  assert.equal(await refusal(slow.key), 2);
  await run(slow, 'accounts', 'limit', '--concurrency', 'none');
  await run(slow, 'accounts', 'plan', 'fast');
  await hold(slow.key);
  assert.equal(await refusal(slow.key), 3);
  const [account] = (await run(slow, 'accounts', 'list')) as unknown as readonly AccountObject[];
  assert.deepEqual([account?.plan_tier, account?.max_concurrency, account?.zdr_required], ['fast', null, false]);
  await run(slow, 'accounts', 'plan', '--none');
  await hold(slow.key);
  for (const client of busy) client.reset();
});
