/** Each tier is charged as it served, in every family and after every detour (docs/money.md, "Service tiers"). */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';

import { BatchClient, chatLine } from '../support/batch-client.ts';
import { newRequestId } from '../support/raw-client.ts';
import { until } from '../support/service.ts';
import { TestLedger } from '../support/test-ledger.ts';
import { Upstream, chatChunk, usageChunk } from '../support/upstream.ts';
import type { UpstreamExchange } from '../support/upstream.ts';
import type { UsageRow } from '../../src/store/ledger.ts';
import { assertTierCharged, families, parts, type Family, type Tier } from './tier-rows.ts';
import { ask, cost, endingsService, inputPrice, outputPrice, verifyAndDispose } from './endings-service.ts';

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

/** What one backend does, by the text of the request; other texts are answered. */
type Scripts = Readonly<Record<string, string>>;
const hang = 'say: [ { text: one } ], fault: { after_tokens: 0, type: hang }';
const failing = (afterTokens: number): string =>
  `say: [ { text: "one two three" } ], pace_ms: 2, fault: { after_tokens: ${afterTokens}, type: error, code: backend_overloaded }`;
const usual: Scripts = {
  'fails at once': failing(0),
  'fails later': failing(2),
  silence: hang,
  paced: 'say: [ { text: [ "word " ] } ], repeat: 4000, pace_ms: 10',
};
const backends = (...ranks: readonly Scripts[]): string =>
  ranks
    .map((scripts, index) => {
      const rules = Object.entries(scripts).map(([text, does]) => `{ when: { last_text: ${text} }, ${does} }`);
      return `  - { engine: scripted, name: rank-${index + 1}, rank: ${index + 1}, scripts: [ ${[...rules, '{ say: [ { text: hello } ] }'].join(', ')} ] }`;
    })
    .join('\n');
const model = (id: string, more: string, ...ranks: readonly Scripts[]): string => `
- id: ${id}
  context_length: 16384
  pricing: ${prices}
  tiers: ${tiers}
${more}  backends:
${backends(...ranks).replace(/^/gm, '  ')}`;
const measuring = (capability: string): string => `  capabilities: { ${capability}: { supported: true } }\n`;
/** The first rank fails, or stands still, where the second answers. */
const twoRanks: readonly Scripts[] = [{ ...usual, 'fails there': failing(0), 'slow there': hang }, usual];

const service = endingsService({
  limits: 'drain_timeout_seconds: 0.5\nprime_timeout_seconds: 0.3',
  models: `${model('tiered', '', ...twoRanks)}${model('hedged', '  hedge: { after: 0.05 }\n', ...twoRanks)}${model('failing', '  fallback: [ demo, tiered ]\n', { hi: failing(0) })}
${model('embeds', measuring('embeddings'), ...twoRanks)}${model('ranks', measuring('rerank'), ...twoRanks)}
- id: narrow
  context_length: 16384
  pricing: ${prices}
  tiers: ${tiers}
  backends: [ { engine: openai, flavor: vllm, url: "${upstream.url}", max_concurrency: 1, queue: 8 } ]
- id: reserving
  context_length: 16384
  pricing: ${prices}
  tiers: { priority: { price_multiple: 1.5, reserved_slots: 1 } }
  backends: [ { engine: openai, flavor: vllm, url: "${upstream.url}", max_concurrency: 2, queue: 8 } ]
`,
});
let ledger: TestLedger;
/** Keys of which each asks for its tier with every request. */
const keys = new Map<Tier, string>();
before(async () => {
  await service.start();
  ledger = new TestLedger(service);
  for (const tier of Object.keys(parts) as Tier[]) {
    const { stdout, stderr } = await service.command('keys', 'create', '--tier', tier, '--json');
    keys.set(tier, (JSON.parse(stdout || stderr) as { key: string }).key);
  }
});
after(() => verifyAndDispose(service).finally(() => upstream.close()));

interface Posting {
  readonly id: string;
  readonly answer: Promise<Response>;
}
function begin(path: string, body: object, key = service.key, signal?: AbortSignal): Posting {
  const id = newRequestId();
  const answer = fetch(new URL(path, service.url), {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json', 'x-request-id': id },
    body: JSON.stringify(body),
    ...(signal && { signal }),
  });
  // One that is aborted is looked at by nobody.
  answer.catch(() => {});
  return { id, answer };
}
async function post(path: string, body: object, key?: string) {
  const { id, answer } = begin(path, body, key);
  const { status, headers } = await answer;
  return { id, status, headers, text: await (await answer).text() };
}
/** A request that asks for a tier in the way of its API. */
function asking(family: Family, tier: Tier, text: string, more: object = {}): readonly [string, object, string] {
  const { path, body, asksBy, model: id = 'tiered' } = family;
  const asked = { model: id, ...body(text), ...more };
  return asksBy === 'body' ? [path, { ...asked, service_tier: tier }, service.key] : [path, asked, keys.get(tier)!];
}

const assertCharged = (id: string, tier: Tier, { isCharged = true } = {}): Promise<UsageRow> =>
  assertTierCharged(ledger, id, tier, isCharged);

const tierIn = (text: string): string | undefined => /"service_tier":"(\w+)"/.exec(text)?.[1];

/** The column of the table of endings (docs/money.md): which tier is charged, and whether. */
interface Ending {
  readonly name: string;
  readonly text: string;
  readonly model?: string;
  readonly ending: UsageRow['ending'];
  /** The tier that serves, where it is not the one that was asked for. */
  readonly served?: Partial<Record<Tier, Tier>>;
  readonly servedBy?: string;
  readonly attempts?: number;
  /** The client leaves when the model has it, or has written. */
  readonly leaves?: 'early' | 'late';
  readonly isCharged: boolean;
}
const endings: readonly Ending[] = [
  { name: 'finished', text: 'hi', ending: 'finished', isCharged: true },
  { name: 'failed before the first token', text: 'fails at once', ending: 'failed', attempts: 2, isCharged: false },
  { name: 'failed after it', text: 'fails later', ending: 'failed', isCharged: false },
  { name: 'finished by another backend', text: 'fails there', ending: 'finished', attempts: 2, isCharged: true },
  {
    name: 'finished by a hedge',
    text: 'slow there',
    model: 'hedged',
    ending: 'finished',
    attempts: 2,
    isCharged: true,
  },
  {
    name: 'finished by another model',
    text: 'hi',
    model: 'failing',
    ending: 'finished',
    // The first fallback has no tiers, so it serves `priority` for less; one that asked for `flex` would pay more there.
    served: { priority: 'default' },
    isCharged: true,
  },
  { name: 'left before the first token', text: 'silence', ending: 'client_left', leaves: 'early', isCharged: true },
  { name: 'left later', text: 'paced', ending: 'client_left', leaves: 'late', isCharged: true },
];

/** Plays a row of the table; those whose client leaves all run at once, as the ledger notes what runs only after half a second. */
async function play(row: Ending, family: Family, stream: boolean): Promise<void> {
  const { model: id, leaves } = row;
  const leaving = new AbortController();
  const asks = (asked: Tier) => {
    const request = asking(family, asked, row.text, { stream, ...(id && { model: id }) });
    return begin(...request, leaving.signal);
  };
  const asked = Object.keys(parts) as Tier[];
  if (leaves === undefined)
    for (const tier of asked) {
      await assertRow(row, family, tier, asks(tier));
      // One that is overtaken half of the time would be left out.
      for (let answers = id === 'hedged' ? 2 : 0; answers > 0; answers--)
        await (await service.chat(ask('hi', { model: 'hedged' }))).text();
    }
  else {
    const postings = asked.map((tier) => [tier, asks(tier)] as const);
    await until(async () => (await ledger.openRequests()) === asked.length);
    leaving.abort();
    for (const [tier, posting] of postings) await assertRow(row, family, tier, posting);
  }
  await until(async () => (await ledger.openRequests()) === 0);
}

async function assertRow(row: Ending, family: Family, asked: Tier, { id, answer }: Posting): Promise<void> {
  const { model: name, leaves, attempts, isCharged, ending } = row;
  const served = row.served?.[asked] ?? asked;
  assert.ok(parts[served] <= parts[asked], 'a downgrade is never dearer');
  const said = leaves === undefined ? await (await answer).text() : '';
  if (ending === 'finished')
    assert.deepEqual([(await answer).status, tierIn(said)], [200, family.shown?.(served)], said);
  const kept = await assertCharged(id, served, { isCharged });
  assert.equal(kept.ending, ending);
  if (attempts !== undefined) assert.equal(kept.attempts?.length, attempts);
  if (isCharged) assert.ok(kept.costMicrocents > 0n);
  if (leaves !== undefined) assert.equal(kept.completionTokens > 0, leaves === 'late');
  if (name === 'failing') assert.equal(kept.modelId, served === 'flex' ? 'tiered' : 'demo');
}

describe('service tiers', () => {
  for (const row of endings)
    it(`${row.name}: each tier is charged as it served, in every family`, async (t) => {
      for (const family of families) {
        const writes = family.model === undefined;
        // Vectors of another model are no substitute, and what measures writes nothing that it could stop in.
        if (!writes && (row.model !== undefined || row.leaves === 'late' || row.text === 'fails later')) continue;
        for (const stream of writes ? [false, true] : [false])
          await t.test(`${family.path}, ${stream ? 'streamed' : 'whole'}`, () => play(row, family, stream));
      }
    });

  it('says nothing of a tier that nobody asked for, and takes any value as none', async () => {
    for (const family of families) {
      const { path, body, model: id = 'tiered' } = family;
      // Contracts §1.2 and §1.3: any value is accepted, and one that is no tier has no effect.
      for (const value of [undefined, 'auto', 'cheapest', 7, null]) {
        const answer = await post(path, {
          model: id,
          ...body('hi'),
          ...(value !== undefined && { service_tier: value }),
        });
        assert.equal(answer.status, 200, answer.text);
        const isSaid = path === '/v1/responses' || path === '/v1/messages';
        assert.equal(tierIn(answer.text), isSaid ? family.shown?.('default') : undefined);
        await assertCharged(answer.id, 'default');
      }
    }
  });

  it('a line of a batch is charged as one at every model, also after another backend or another model', async () => {
    const client = new BatchClient(service);
    const cases = [
      ['tiered', 'hi', 'tiered'],
      ['tiered', 'fails there', 'tiered'],
      ['failing', 'hi', 'demo'],
    ] as const;
    const lines = cases.map(([id, text], at) => chatLine(`line-${at}`, text, { model: id, service_tier: 'priority' }));
    const { output_file_id: output } = await client.when((await client.of(lines)).id);
    const results = await client.results(output);
    assert.equal(results.length, cases.length);
    for (const [at, { response }] of results.entries()) {
      const row = await ledger.row(response!.request_id);
      assert.deepEqual([row.tier, row.modelId, row.ending], ['batch', cases[at]![2], 'finished']);
      assert.equal(row.costMicrocents, cost(row.promptTokens, row.completionTokens) / 2n);
    }
  });

  it('a model without tiers serves and charges every one of them as default, and says so', async () => {
    const { id, text } = await post('/v1/chat/completions', ask('three words', { service_tier: 'priority' }));
    assert.equal(tierIn(text), 'default');
    await assertCharged(id, 'default');
  });

  it('priority goes first, flex is refused at its own time limit, and all are told how long they waited for whom', async () => {
    const first = queued('stand still', 'default');
    await until(() => held.length === 1);
    const beganMs = performance.now();
    const flex = queued('hi', 'flex');
    const usualOne = queued('hi', 'default', { stream: true });
    await until(async () => (await waiting()) === 2);
    const urgent = queued('hi', 'priority');
    await until(async () => (await waiting()) === 3);
    const refused = await flex;
    assert.deepEqual([refused.status, refused.text.includes('backend_at_capacity')], [429, true]);
    assert.ok(performance.now() - beganMs >= 1_000);
    const last = queued('hi', 'default', { stream: true });
    await until(() => performance.now() - beganMs > 2_100);
    release();
    const firstRow = await ledger.row((await first).id);
    const got = await urgent;
    assert.ok(Number(got.headers.get('service-queue-ms')) >= 1_000);
    const later = await usualOne;
    assert.match(later.text, /^: waiting for \d+ s, 0 were in front/);
    // The time that is left is known from the slots that were given back in this queue before.
    assert.match((await last).text, /^: waiting for \d+ s, 2 were in front/);
    const [urgentRow, laterRow] = [await ledger.row(got.id), await ledger.row(later.id)];
    assert.deepEqual(urgentRow.queued?.ahead, { tiers: 0, own: 0, others: 0 });
    assert.ok(urgentRow.endedAt <= laterRow.endedAt);
    assert.ok((laterRow.queued?.waitMs ?? 0) > 500);
    assert.equal(firstRow.queued, undefined);
    await assertCharged(got.id, 'priority');
  });

  it('reserved slots are free for priority alone, and no other waits for ever beside them', async () => {
    const model = 'reserving';
    const first = queued('stand still', 'default', { model });
    await until(() => held.length === 1);
    const second = queued('hi', 'default', { model });
    await until(async () => (await waiting(model)) === 1);
    const urgent = await queued('hi', 'priority', { model });
    assert.equal(urgent.status, 200);
    assert.equal(await waiting(model), 1, 'the slot that it gave back stays reserved');
    release();
    assert.equal((await second).status, 200);
    const waited = (await ledger.row((await second).id)).queued;
    assert.ok(waited !== undefined);
    assert.equal((await ledger.row(urgent.id)).queued, undefined);
    assert.equal((await first).status, 200);
  });

  it('a key and its account say which tier is theirs, and which they may use', async () => {
    const run = async (...words: string[]): Promise<void> => {
      const { code, stderr } = await service.command(...words);
      assert.equal(code, 0, stderr);
    };
    await run('accounts', 'tier', '--default', 'priority', '--allow', 'priority');
    const messages = await post('/v1/messages', { model: 'tiered', ...families[3]!.body('hi') });
    assert.equal(tierIn(messages.text), 'priority');
    await assertCharged(messages.id, 'priority');
    const standard = await post('/v1/messages', {
      model: 'tiered',
      ...families[3]!.body('hi'),
      service_tier: 'standard_only',
    });
    await assertCharged(standard.id, 'default');
    for (const { path, body } of families.slice(0, 3)) {
      const refused = await post(path, { model: 'tiered', ...body('hi'), service_tier: 'flex' });
      assert.deepEqual(
        [refused.status, refused.text.includes('http_403'), (await ledger.rows(refused.id)).length],
        [403, true, 0],
      );
    }
    await run('accounts', 'tier');
    const again = await post('/v1/chat/completions', ask('hi', { model: 'tiered', service_tier: 'flex' }));
    await assertCharged(again.id, 'flex');
  });

  for (const [signal, ending] of [
    ['SIGTERM', 'drained'],
    ['SIGKILL', 'crashed'],
  ] as const)
    it(`${ending}: nothing is charged in any tier`, async () => {
      const writing = families.filter(({ model: id }) => id === undefined);
      const running = writing.map((family, index) => {
        const tier = (['priority', 'flex', 'default', 'priority'] as const)[index]!;
        const { id, answer } = begin(...asking(family, tier, 'paced', { stream: true }));
        return { id, tier, answer };
      });
      for (const { answer } of running) await answer;
      await until(async () => (await ledger.openRequests()) === running.length);
      const balance = await ledger.balance();
      await service.stop(signal);
      await service.start();
      if (ending === 'drained') for (const { id, tier } of running) await assertCharged(id, tier, { isCharged: false });
      const rows = (await ledger.everyRow()).filter((row) => row.ending === ending);
      assert.equal(rows.length, running.length);
      for (const { costMicrocents } of rows) assert.equal(costMicrocents, 0n);
      assert.equal(await ledger.balance(), balance);
    });
});

function queued(text: string, tier: Tier, more: object = {}) {
  return post('/v1/chat/completions', ask(text, { model: 'narrow', service_tier: tier, ...more }));
}

function release(): void {
  for (const exchange of held) say(exchange);
  held = [];
}

async function waiting(model = 'narrow'): Promise<number> {
  const response = await fetch(`${service.accountUrl}/metrics`);
  const text = await response.text();
  return [...text.matchAll(/^tokenhouse_model_waiting\{model="([^"]+)",tier="\w+"\} (\d+)/gm)]
    .filter(([, id]) => id === model)
    .reduce((sum, [, , count]) => sum + Number(count), 0);
}
