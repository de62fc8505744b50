/** Each tier is charged as it served, in every family and after every detour (docs/money.md, "Service tiers"). */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';

import { newRequestId } from '../support/raw-client.ts';
import { until } from '../support/service.ts';
import { TestLedger } from '../support/test-ledger.ts';
import { Upstream, chatChunk, usageChunk } from '../support/upstream.ts';
import type { UpstreamExchange } from '../support/upstream.ts';
import {
  ask,
  endingsService,
  failingScripts,
  inputPrice,
  outputPrice,
  send,
  verifyAndDispose,
} from './endings-service.ts';

let held: UpstreamExchange[] = [];
const upstream = await Upstream.start((exchange) => {
  if (exchange.path.endsWith('/tokenize')) exchange.json(200, { count: 5, max_model_len: 16_384, tokens: [] });
  else if (exchange.body.includes('stand still')) held.push(exchange);
  else say(exchange);
});
function say(exchange: UpstreamExchange): void {
  exchange.events();
  exchange.chunk(chatChunk({ content: 'hello' }) + chatChunk({}, 'stop'));
  exchange.chunk(`${usageChunk({ prompt_tokens: 5, completion_tokens: 1 })}data: [DONE]\n\n`);
  exchange.endChunks();
}
const prices = `{ input_cents_per_million: ${inputPrice}, output_cents_per_million: ${outputPrice} }`;
const tiers = `{ priority: { price_multiple: 1.5 }, flex: { price_multiple: 0.5, wait_seconds: 1 } }`;
const service = endingsService({
  models: `
- id: tiered
  context_length: 16384
  pricing: ${prices}
  tiers: ${tiers}
  backends:
    - engine: scripted
      scripts:
${failingScripts.trim().replace(/^/gm, '        ')}
        - when: { last_text: paced }
          say: [ { text: [ "word " ] } ]
          repeat: 4000
          pace_ms: 10
        - say: [ { text: "hello" } ]
- id: failing
  context_length: 16384
  pricing: ${prices}
  tiers: ${tiers}
  fallback: [ demo, tiered ]
  backends: [ { engine: scripted, scripts: [ { say: [ { text: no } ], fault: { after_tokens: 0, type: error, code: backend_overloaded } } ] } ]
- id: narrow
  context_length: 16384
  pricing: ${prices}
  tiers: ${tiers}
  backends: [ { engine: openai, flavor: vllm, url: "${upstream.url}", max_concurrency: 1, queue: 8 } ]
`,
});
let ledger: TestLedger;
before(async () => {
  await service.start();
  ledger = new TestLedger(service);
});
after(() => verifyAndDispose(service).finally(() => upstream.close()));

const parts = { priority: 15_000n, default: 10_000n, flex: 5_000n } as const;
type Tier = keyof typeof parts;

const families = [
  { path: '/v1/chat/completions', body: { messages: [{ role: 'user', content: 'hi' }] } },
  { path: '/v1/completions', body: { prompt: 'hi' } },
  { path: '/v1/responses', body: { input: 'hi' } },
  { path: '/v1/messages', body: { max_tokens: 20, messages: [{ role: 'user', content: 'hi' }] } },
] as const;

async function post(path: string, body: Readonly<Record<string, unknown>>) {
  const id = newRequestId();
  const response = await fetch(new URL(path, service.url), {
    method: 'POST',
    headers: { authorization: `Bearer ${service.key}`, 'content-type': 'application/json', 'x-request-id': id },
    body: JSON.stringify(body),
  });
  return { id, status: response.status, headers: response.headers, text: await response.text() };
}

/** The row has the tier, its prices, and the charge that these make, to the microcent. */
async function assertCharged(id: string, tier: Tier, { isCharged = true } = {}): Promise<void> {
  const row = await ledger.row(id);
  assert.equal(row.tier, tier);
  assert.deepEqual(
    [row.inputPrice, row.outputPrice],
    [inputPrice, outputPrice].map((price) => (price * 1_000_000n * parts[tier]) / 10_000n),
  );
  const list =
    (BigInt(row.promptTokens) * row.inputPrice + BigInt(row.completionTokens) * row.outputPrice + 999_999n) /
    1_000_000n;
  assert.equal(row.costMicrocents, isCharged ? list : 0n);
  assert.ok(row.costMicrocents <= row.holdMicrocents);
}

const tierIn = (text: string): string | undefined => /"service_tier":"(\w+)"/.exec(text)?.[1];

describe('service tiers', () => {
  for (const { path, body } of families)
    for (const stream of [false, true])
      it(`${path}, ${stream ? 'streamed' : 'whole'}: the answer, the row and the charge have the tier that served`, async () => {
        const isMessages = path === '/v1/messages';
        const cases: readonly (readonly [unknown, Tier, string | undefined])[] = isMessages
          ? [
              ['auto', 'default', 'standard'],
              ['standard_only', 'default', 'standard'],
              [undefined, 'default', 'standard'],
            ]
          : [
              ['priority', 'priority', 'priority'],
              ['flex', 'flex', 'flex'],
              ['default', 'default', 'default'],
              [undefined, 'default', path === '/v1/responses' ? 'default' : undefined],
              ['auto', 'default', path === '/v1/responses' ? 'default' : undefined],
            ];
        for (const [asked, served, shown] of cases) {
          const answer = await post(path, {
            model: 'tiered',
            stream,
            ...body,
            ...(asked === undefined ? {} : { service_tier: asked }),
          });
          assert.equal(answer.status, 200, answer.text);
          assert.equal(tierIn(answer.text), shown, String(asked));
          await assertCharged(answer.id, served);
        }
        // Contracts §1.2 and §1.3: any value is accepted, and one that is no tier has no effect.
        for (const unknown of ['cheapest', 7, null]) {
          const answer = await post(path, { model: 'tiered', ...body, service_tier: unknown });
          assert.equal(answer.status, 200, answer.text);
          await assertCharged(answer.id, 'default');
        }
      });

  it('a model without tiers serves and charges every one of them as default, and says so', async () => {
    const { id, text } = await post('/v1/chat/completions', ask('three words', { service_tier: 'priority' }));
    assert.equal(tierIn(text), 'default');
    await assertCharged(id, 'default');
  });

  it('what is not charged is not charged in any tier; what is, at its prices', async () => {
    for (const [text, isCharged] of [
      ['fails at once', false],
      ['fails later', false],
    ] as const) {
      const { id } = await post('/v1/chat/completions', ask(text, { model: 'tiered', service_tier: 'priority' }));
      await assertCharged(id, 'priority', { isCharged });
    }
    const { client, id } = await send(service, ask('paced', { model: 'tiered', stream: true, service_tier: 'flex' }));
    await until(() => client.text.includes('word word') || client.text.split('word').length > 4);
    client.reset();
    await until(async () => (await ledger.rows(id)).length > 0);
    const row = await ledger.row(id);
    assert.equal(row.ending, 'client_left');
    assert.ok(row.costMicrocents > 0n);
    await assertCharged(id, 'flex');
  });

  it('another model serves in its own tier, and never dearer than was asked: flex goes where there is flex', async () => {
    const priority = await post('/v1/chat/completions', ask('hi', { model: 'failing', service_tier: 'priority' }));
    assert.equal(priority.status, 200, priority.text);
    assert.equal(tierIn(priority.text), 'default', 'the first fallback has no tiers');
    assert.equal((await ledger.row(priority.id)).modelId, 'demo');
    await assertCharged(priority.id, 'default');
    const flex = await post('/v1/chat/completions', ask('hi', { model: 'failing', service_tier: 'flex' }));
    assert.equal(tierIn(flex.text), 'flex');
    assert.equal((await ledger.row(flex.id)).modelId, 'tiered');
    await assertCharged(flex.id, 'flex');
  });

  it('priority goes first, flex is refused at its own time limit, and the rows say how long they waited for whom', async () => {
    const ids = { held: '', default: '', priority: '', flex: '' };
    const asking = (text: string, tier: string) =>
      post('/v1/chat/completions', ask(text, { model: 'narrow', service_tier: tier }));
    const first = asking('stand still', 'default');
    await until(() => held.length === 1);
    const flex = asking('hi', 'flex');
    const usual = asking('hi', 'default');
    await until(async () => (await waiting()) === 2);
    const urgent = asking('hi', 'priority');
    await until(async () => (await waiting()) === 3);
    const refused = await flex;
    assert.deepEqual([refused.status, refused.text.includes('backend_at_capacity')], [429, true]);
    say(held[0]!);
    held = [];
    ids.held = (await first).id;
    const got = await urgent;
    assert.ok(Number(got.headers.get('service-queue-ms')) >= 0);
    const later = await usual;
    const [urgentRow, usualRow] = [await ledger.row(got.id), await ledger.row(later.id)];
    assert.deepEqual(urgentRow.queued?.ahead, { tiers: 0, own: 0, others: 0 });
    assert.ok(urgentRow.endedAt <= usualRow.endedAt);
    assert.ok((usualRow.queued?.waitMs ?? 0) > 500);
    assert.equal((await ledger.row(ids.held)).queued, undefined);
    await assertCharged(got.id, 'priority');
  });

  it('a key and its account say which tier is theirs, and which they may use', async () => {
    const run = async (...words: string[]): Promise<void> => {
      const { code, stderr } = await service.command(...words);
      assert.equal(code, 0, stderr);
    };
    await run('accounts', 'tier', '--default', 'priority', '--allow', 'priority');
    const messages = await post('/v1/messages', { model: 'tiered', ...families[3].body });
    assert.equal(tierIn(messages.text), 'priority');
    await assertCharged(messages.id, 'priority');
    const standard = await post('/v1/messages', {
      model: 'tiered',
      ...families[3].body,
      service_tier: 'standard_only',
    });
    await assertCharged(standard.id, 'default');
    for (const { path, body } of families.slice(0, 3)) {
      const refused = await post(path, { model: 'tiered', ...body, service_tier: 'flex' });
      assert.deepEqual(
        [refused.status, refused.text.includes('http_403'), (await ledger.rows(refused.id)).length],
        [403, true, 0],
      );
    }
    await run('accounts', 'tier');
    const again = await post('/v1/chat/completions', ask('hi', { model: 'tiered', service_tier: 'flex' }));
    await assertCharged(again.id, 'flex');
  });
});

async function waiting(): Promise<number> {
  const response = await fetch(`${service.accountUrl}/metrics`);
  const text = await response.text();
  return [...text.matchAll(/^tokenhouse_model_waiting\{model="narrow",tier="\w+"\} (\d+)/gm)].reduce(
    (sum, [, count]) => sum + Number(count),
    0,
  );
}
