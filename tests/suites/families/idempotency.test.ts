/**
 * `Idempotency-Key` (docs/decisions/008-idempotency.md): {same body, other body, twin in flight, after a crash, other account,
 * zero data retention} × {whole, streamed} × four families: one generation, one charge. An upstream that answers when it is
 * told to makes "in flight" a fact and not a matter of time.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';

import { askRunningService } from '../../../src/app/control/control-client.ts';
import { controlSocketPath } from '../../../src/app/control/socket-path.ts';
import { TestLedger } from '../../support/test-ledger.ts';
import { TestService, until } from '../../support/service.ts';
import { Upstream, chatChunk, event, usageChunk } from '../../support/upstream.ts';
import type { UpstreamExchange } from '../../support/upstream.ts';
import { ask, askRaw, bodyOf, say } from './exchange.ts';
import type { FamilyAnswer } from './exchange.ts';
import { families } from './families.ts';
import type { Family } from './families.ts';

const options = { timeout: 600_000 };
/** Ten times what it takes on a slow machine. */
const waitMs = 60_000;

/** Generations that the upstream was asked for and has not answered. */
let waiting: UpstreamExchange[] = [];
let generations = 0;
/** Whether it answers at once. */
let isPrompt = true;
const upstream = await Upstream.start((exchange) => {
  if (exchange.path === '/tokenize') exchange.json(200, { count: 10, max_model_len: 8_192, tokens: [] });
  else if (exchange.method !== 'POST') exchange.json(200, {});
  else {
    generations++;
    begin(exchange, `answer-${generations}`);
    if (isPrompt) finish(exchange);
    else waiting.push(exchange);
  }
});

const isText = ({ path }: UpstreamExchange): boolean => path === '/v1/completions';
const piece = (exchange: UpstreamExchange, text: string, reason: string | null): string =>
  isText(exchange)
    ? event({
        id: 'c',
        object: 'text_completion',
        created: 1,
        model: 'm',
        choices: [{ index: 0, text, finish_reason: reason }],
      })
    : chatChunk({ role: 'assistant', content: text }, reason);

function begin(exchange: UpstreamExchange, text: string): void {
  exchange.events();
  exchange.chunk(piece(exchange, text, null));
}

function finish(exchange: UpstreamExchange): void {
  exchange.chunk(
    piece(exchange, ' and no more', null) +
      piece(exchange, '', 'stop') +
      usageChunk({ prompt_tokens: 10, completion_tokens: 2 }) +
      event('[DONE]'),
  );
  exchange.endChunks();
}

function fail(exchange: UpstreamExchange): void {
  exchange.reset();
}

const service = new TestService({
  limits: '  prime_timeout_seconds: 60',
  config: `models:
  - id: demo
    context_length: 8192
    pricing: { input_cents_per_million: 5000, output_cents_per_million: 20000 }
    backends: [ { engine: openai, flavor: vllm, url: "${upstream.url}", zdr: true } ]
`,
});
const ledger = (): TestLedger => new TestLedger(service);
const cost = 10n * 5_000n + 2n * 20_000n;

let otherKey = '';
before(async () => {
  await service.start();
  const control = controlSocketPath(join(service.folder, 'data'));
  const account = await askRunningService(control, { kind: 'create_account', name: 'other' });
  assert.ok(account !== undefined);
  const { accountId } = account;
  const key = await askRunningService(control, { kind: 'create_key', accountId, name: 'other', expiresAt: undefined });
  assert.ok(key !== undefined);
  otherKey = key.key;
  const { code, stderr } = await service.command('credits', 'grant', '--cents', '100', '--account', accountId);
  assert.equal(code, 0, stderr);
}, options);
after(async () => {
  await service.verify();
  await service.dispose();
  await upstream.close();
}, options);

/** What one test is charged, and how often it generates. */
async function spending(work: () => Promise<void>): Promise<{ generations: number; rows: number; microcents: bigint }> {
  const [from, sums] = [generations, await ledger().sums()];
  await work();
  const now = await ledger().sums();
  return {
    generations: generations - from,
    rows: now.count - sums.count,
    microcents: now.costMicrocents - sums.costMicrocents,
  };
}
const once = { generations: 1, rows: 1, microcents: cost };

const textOf = (family: Family, stream: boolean, text: string): string =>
  (stream ? family.readStream(text) : family.readWhole(text)).text;

function assertReplay(answer: FamilyAnswer, first: FamilyAnswer): void {
  assert.equal(answer.status, 200, answer.text);
  assert.equal(answer.text, first.text);
  assert.equal(answer.headers.get('idempotent-replayed'), 'true');
  assert.equal(answer.headers.get('x-request-id'), first.headers.get('x-request-id'));
  assert.equal(answer.headers.get('content-type'), first.headers.get('content-type'));
}

/** Requests with a key by what became of them, since the process began. */
const counted = (outcome: string): Promise<number> =>
  metric(`tokenhouse_idempotent_requests_total{outcome="${outcome}"}`);

async function metric(series: string): Promise<number> {
  const lines = (await (await fetch(`${service.accountUrl}/metrics`)).text()).split('\n');
  return Number(lines.find((line) => line.startsWith(`${series} `))?.slice(series.length + 1) ?? 0);
}

/** Lines of the log about a request and its replays. */
const linesOf = (id: string) =>
  service.log.filter((line) => line['request_id'] === id || line['replay_of'] === id).map(({ event }) => event);

/** Generations stand still until `work` has let them go. */
async function standing(work: () => Promise<void>): Promise<void> {
  isPrompt = false;
  waiting = [];
  try {
    await work();
  } finally {
    isPrompt = true;
    for (const exchange of waiting) exchange.reset();
  }
}

const zdr = { 'service-zdr': 'required' };

for (const family of families) {
  for (const stream of [false, true]) {
    describe(`${family.name}, ${stream ? 'streamed' : 'whole'}`, options, () => {
      const asked = say('hello there, friend', { stream });
      const keyed = (key: string, more: Readonly<Record<string, string>> = {}) => ({
        headers: { 'idempotency-key': key, ...more },
      });

      test('same body: the first answer again, byte for byte, and one charge', async () => {
        const key = randomUUID();
        const spent = await spending(async () => {
          const first = await ask(service, family, asked, keyed(key));
          assert.equal(first.status, 200, first.text);
          assert.equal(first.headers.get('idempotent-replayed'), null);
          assert.equal(first.headers.get('x-request-id'), first.id);
          assert.match(textOf(family, stream, first.text), /^answer-\d+ and no more$/);
          for (let again = 0; again < 3; again++) assertReplay(await ask(service, family, asked, keyed(key)), first);
          await until(() => linesOf(first.id).length === 4, waitMs);
          assert.deepEqual(linesOf(first.id), ['answer', 'replay', 'replay', 'replay']);
          const [line] = service.log.filter((each) => each['replay_of'] === first.id);
          assert.match(String(line?.['request_id']), /^req_[0-9a-f]{12}$/);
          assert.notEqual(line?.['request_id'], first.id);
          assert.deepEqual([line?.['model'], line?.['streamed'], line?.['status']], ['demo', stream, 200]);
          assert.equal((await ledger().row(first.id)).costMicrocents, cost);
        });
        assert.deepEqual(spent, once);
      });

      test('other body: refused, whether the first is answered or in flight, and the first goes on', async () => {
        const key = randomUUID();
        const other = say('hello there, friend!', { stream });
        const refused = async (): Promise<void> => {
          const answer = await ask(service, family, other, keyed(key));
          assert.equal(answer.status, 422, answer.text);
          const { code, param, request_id } = family.errorOf(answer.text);
          assert.deepEqual([code, param, request_id], ['schema_validation_failed', 'Idempotency-Key', answer.id]);
        };
        const spent = await spending(() =>
          standing(async () => {
            const first = ask(service, family, asked, keyed(key));
            await until(() => waiting.length === 1, waitMs);
            await refused();
            finish(waiting[0]!);
            assert.equal((await first).status, 200);
            await refused();
          }),
        );
        assert.deepEqual(spent, once);
      });

      test('twins in flight: all get the one generation', async () => {
        const key = randomUUID();
        const spent = await spending(() =>
          standing(async () => {
            const joined = await counted('joined');
            const first = ask(service, family, asked, keyed(key));
            await until(() => waiting.length === 1, waitMs);
            const twins = Array.from({ length: 5 }, () => ask(service, family, asked, keyed(key)));
            await until(async () => (await counted('joined')) === joined + 5, waitMs);
            // The generation itself is nobody's request.
            await until(async () => (await metric('tokenhouse_requests_running')) === 6, waitMs);
            finish(waiting[0]!);
            for (const twin of twins) assertReplay(await twin, await first);
            const { id } = await first;
            await until(() => linesOf(id).length === 6, waitMs);
            assert.deepEqual(linesOf(id).toSorted(), ['answer', ...Array<string>(5).fill('replay')]);
          }),
        );
        assert.deepEqual(spent, once);
      });

      if (stream)
        test('a twin in flight sees what was said before it came, and follows', async () => {
          const key = randomUUID();
          await standing(async () => {
            const first = ask(service, family, asked, keyed(key));
            await until(() => waiting.length === 1, waitMs);
            const twin = await askRaw(service, family, asked, { headers: { 'idempotency-key': key } });
            await until(() => twin.client.text.includes('answer-'), waitMs);
            assert.ok(!twin.client.text.includes('no more'));
            finish(waiting[0]!);
            const { text } = await first;
            await until(() => twin.client.text.endsWith('0\r\n\r\n'), waitMs);
            assert.equal(textOf(family, true, bodyOf(twin.client)), textOf(family, true, text));
            twin.client.reset();
          });
        });

      test('the first client leaves: the generation goes on for its twin', async () => {
        const key = randomUUID();
        const spent = await spending(() =>
          standing(async () => {
            const joined = await counted('joined');
            const first = await askRaw(service, family, asked, { headers: { 'idempotency-key': key } });
            await until(() => waiting.length === 1, waitMs);
            const twin = ask(service, family, asked, keyed(key));
            await until(async () => (await counted('joined')) === joined + 1, waitMs);
            first.client.reset();
            await first.client.closed;
            finish(waiting[0]!);
            const answer = await twin;
            assert.equal(answer.headers.get('x-request-id'), first.id);
            assert.match(textOf(family, stream, answer.text), / and no more$/);
            assert.equal((await ledger().row(first.id)).ending, 'finished');
          }),
        );
        assert.deepEqual(spent, once);
      });

      test('the only client leaves and comes back: it is given the answer that it has begun', async () => {
        const key = randomUUID();
        const spent = await spending(() =>
          standing(async () => {
            const first = await askRaw(service, family, asked, { headers: { 'idempotency-key': key } });
            await until(() => waiting.length === 1, waitMs);
            const joined = await counted('joined');
            first.client.reset();
            await first.client.closed;
            const again = ask(service, family, asked, keyed(key));
            await until(async () => (await counted('joined')) === joined + 1, waitMs);
            finish(waiting[0]!);
            assert.equal((await again).headers.get('x-request-id'), first.id);
            assert.equal((await again).status, 200);
          }),
        );
        assert.deepEqual(spent, once);
      });

      test('a failure is not kept: all waiting requests get it, nothing is charged, and the same key runs again', async () => {
        const key = randomUUID();
        const spent = await spending(async () => {
          await standing(async () => {
            const joined = await counted('joined');
            const first = ask(service, family, asked, keyed(key));
            await until(() => waiting.length === 1, waitMs);
            const twin = ask(service, family, asked, keyed(key));
            await until(async () => (await counted('joined')) === joined + 1, waitMs);
            fail(waiting[0]!);
            for (const answer of [await first, await twin]) {
              const { code } = stream ? family.streamErrorOf(answer.text) : family.errorOf(answer.text);
              assert.equal(code, 'backend_http_error');
              assert.equal(answer.status, stream ? 200 : 502);
            }
          });
          const again = await ask(service, family, asked, keyed(key));
          assert.equal(again.status, 200, again.text);
          assert.equal(again.headers.get('idempotent-replayed'), null);
        });
        assert.deepEqual(spent, { generations: 2, rows: 2, microcents: cost });
      });

      test('after a crash in flight: it was not charged, and the same key runs again; an answer outlives the crash', async () => {
        const [cut, kept] = [randomUUID(), randomUUID()];
        const answered = await ask(service, family, asked, keyed(kept));
        const spent = await spending(async () => {
          await standing(async () => {
            const first = await askRaw(service, family, asked, { headers: { 'idempotency-key': cut } });
            await until(() => waiting.length === 1, waitMs);
            await service.stop('SIGKILL');
            await first.client.closed;
          });
          await service.start();
          const again = await ask(service, family, asked, keyed(cut));
          assert.equal(again.status, 200, again.text);
          assert.equal(again.headers.get('idempotent-replayed'), null);
          assertReplay(await ask(service, family, asked, keyed(cut)), again);
          assertReplay(await ask(service, family, asked, keyed(kept)), answered);
        });
        // What had run for a quarter of a second when it was cut has a row that costs nothing.
        assert.ok(spent.rows === 1 || spent.rows === 2, `${spent.rows} rows`);
        assert.deepEqual({ ...spent, rows: 1 }, { ...once, generations: 2 });
      });

      test('another account: its own generation, and its own charge', async () => {
        const key = randomUUID();
        const spent = await spending(async () => {
          const first = await ask(service, family, asked, keyed(key));
          const theirs = await ask(service, family, asked, { ...keyed(key), key: otherKey });
          assert.equal(theirs.status, 200, theirs.text);
          assert.equal(theirs.headers.get('idempotent-replayed'), null);
          assert.notEqual(textOf(family, stream, theirs.text), textOf(family, stream, first.text));
          assertReplay(await ask(service, family, asked, { ...keyed(key), key: otherKey }), theirs);
        });
        assert.deepEqual(spent, { generations: 2, rows: 2, microcents: 2n * cost });
      });

      test('zero data retention: twins share the generation, and later ones get that it was charged', async () => {
        const key = randomUUID();
        const spent = await spending(() =>
          standing(async () => {
            const joined = await counted('joined');
            const first = ask(service, family, asked, keyed(key, zdr));
            await until(() => waiting.length === 1, waitMs);
            const twin = ask(service, family, asked, keyed(key, zdr));
            await until(async () => (await counted('joined')) === joined + 1, waitMs);
            finish(waiting[0]!);
            assert.equal((await first).status, 200);
            assert.equal((await twin).text, (await first).text);
            const late = await ask(service, family, asked, keyed(key, zdr));
            assert.equal(late.status, 409, late.text);
            assert.equal(late.headers.get('x-should-retry'), 'false');
            const error = family.errorOf(late.text) as unknown as Readonly<Record<string, string>>;
            assert.deepEqual([error['code'], error['param']], ['http_409', 'Idempotency-Key']);
            // The id of the receipt, which is not what the client sent: nothing of that is kept.
            assert.equal((await ledger().row(error['first_request_id']!)).costMicrocents, cost);
            assert.notEqual(error['first_request_id'], (await first).id);
            // Without the header it is another request.
            assert.equal((await ask(service, family, asked, keyed(key))).status, 422);
          }),
        );
        assert.deepEqual(spent, once);
      });
    });
  }
}
