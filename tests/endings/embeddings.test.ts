/** The table of endings (docs/money.md) for /v1/embeddings and /v1/rerank: only the input is charged, exactly. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import { newRequestId } from '../support/raw-client.ts';
import { until } from '../support/service.ts';
import { TestLedger } from '../support/test-ledger.ts';
import {
  assertNothingLeft,
  cost,
  endingsService,
  inputPrice,
  outputPrice,
  verifyAndDispose,
} from './endings-service.ts';

const measuring = (id: string, flags: string): string => `- id: ${id}
  context_length: 512
  pricing: { input_cents_per_million: ${inputPrice}, output_cents_per_million: ${outputPrice} }
  capabilities: ${flags}
  backends:
    - engine: scripted
      scripts:
        - when: { last_text: fails at once }
          say: []
          fault: { after_tokens: 0, type: error, code: backend_overloaded }
        - when: { last_text: fails later }
          say: []
          fault: { after_tokens: 1, type: error, code: backend_http_error }
        - when: { last_text: silence }
          say: []
          fault: { after_tokens: 0, type: hang }
        - when: { last_text: then nothing }
          say: []
          fault: { after_tokens: 1, type: hang }
        - say: []
`;
const service = endingsService({
  firstCreditCents: '450',
  models:
    measuring('embeds', '{ embeddings: { supported: true } }') + measuring('ranks', '{ rerank: { supported: true } }'),
});
before(() => service.start());
after(() => verifyAndDispose(service));

/** As the scripted engine counts: four bytes of a text are a token, and a query is read with each document. */
const tokensOf = (texts: readonly string[]): number =>
  texts.reduce((sum, text) => sum + Math.ceil(Buffer.byteLength(text) / 4), 0);

const families = [
  {
    api: 'embeddings',
    path: '/v1/embeddings',
    model: 'embeds',
    body: (texts: readonly string[]): object => ({ input: texts }),
    tokens: tokensOf,
  },
  {
    api: 'rerank',
    path: '/v1/rerank',
    model: 'ranks',
    body: (texts: readonly string[]): object => ({ query: 'why', documents: texts }),
    tokens: (texts: readonly string[]): number => tokensOf(texts.map((text) => `why${text}`)),
  },
];

for (const { api, path, model, body, tokens } of families) {
  const send = (texts: readonly string[], more: object = {}, signal?: AbortSignal, headers: object = {}) => {
    const id = newRequestId();
    const answer = fetch(service.url + path, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${service.key}`,
        'content-type': 'application/json',
        'x-request-id': id,
        ...headers,
      },
      body: JSON.stringify({ model, ...body(texts), ...more }),
      ...(signal === undefined ? {} : { signal }),
    });
    return { id, answer };
  };
  const exchange = async (...sent: Parameters<typeof send>) => {
    const { id, answer } = send(...sent);
    const { status, headers } = await answer;
    return { id, status, headers, json: (await (await answer).json()) as Record<string, any> }; // oxlint-disable-line typescript/no-explicit-any
  };

  describe(api, () => {
    test('finished: prompt tokens × input price, to the microcent, with stream ignored', async () => {
      const ledger = new TestLedger(service);
      const balance = await ledger.balance();
      const texts = ['a first text', 'and another one', 'ü'];
      const { id, status, json } = await exchange(texts, { stream: true });
      assert.equal(status, 200);
      const input = tokens(texts);
      assert.deepEqual(json['usage'], { prompt_tokens: input, total_tokens: input });
      const row = await ledger.row(id);
      assert.deepEqual(
        [row.ending, row.api, row.streamed, row.promptTokens, row.completionTokens, row.costMicrocents],
        ['finished', api, false, input, 0, cost(input, 0)],
      );
      assert.equal(await ledger.balance(), balance - cost(input, 0));
      await assertNothingLeft(service);
    });

    for (const [text, status, code] of [
      ['fails at once', 429, 'backend_overloaded'],
      ['fails later', 502, 'backend_http_error'],
    ] as const) {
      test(`failed (${text}): the status of its code, nothing charged`, async () => {
        const ledger = new TestLedger(service);
        const balance = await ledger.balance();
        const { id, status: got, json } = await exchange(['fine', text]);
        assert.deepEqual([got, json['error'].code], [status, code]);
        const row = await ledger.row(id);
        assert.deepEqual([row.ending, row.costMicrocents], ['failed', 0n]);
        assert.equal(await ledger.balance(), balance);
        await assertNothingLeft(service);
      });
    }

    for (const text of ['silence', 'then nothing']) {
      test(`left by the client (${text}): the input is charged`, async () => {
        const ledger = new TestLedger(service);
        const balance = await ledger.balance();
        const controller = new AbortController();
        const { id, answer } = send(['fine', text], {}, controller.signal);
        await until(async () => (await ledger.openRequests()) > 0, 60_000);
        controller.abort();
        await answer.catch(() => {});
        const row = await ledger.row(id, 60_000);
        assert.deepEqual(
          [row.ending, row.promptTokens, row.completionTokens],
          ['client_left', tokens(['fine', text]), 0],
        );
        assert.equal(row.costMicrocents, cost(row.promptTokens, 0));
        assert.equal(await ledger.balance(), balance - row.costMicrocents);
        await assertNothingLeft(service);
      });
    }

    test('refused: the error, no row, nothing charged', async () => {
      const ledger = new TestLedger(service);
      const balance = await ledger.balance();
      for (const [fields, status, code] of [
        [{ model: 'nobody' }, 404, 'model_not_found'],
        [{ model: 'demo' }, 400, 'unsupported_feature'],
        [{ ...body(['fine', 'x'.repeat(4_000)]) }, 400, 'context_length_exceeded'],
        [{ ...body(['']) }, 422, 'schema_validation_failed'],
      ] as const) {
        const { id, status: got, json } = await exchange(['x'], fields);
        assert.deepEqual([got, json['error'].code], [status, code]);
        assert.deepEqual(await ledger.rows(id), []);
      }
      assert.equal(await ledger.balance(), balance);
      await assertNothingLeft(service);
    });

    test('sent again with the same key: the same bytes, charged once', async () => {
      const ledger = new TestLedger(service);
      const balance = await ledger.balance();
      const key = { 'idempotency-key': `once-${api}` };
      const first = await exchange(['only once'], {}, undefined, key);
      const second = await exchange(['only once'], {}, undefined, key);
      assert.deepEqual(second.json, first.json);
      assert.equal(second.headers.get('idempotent-replayed'), 'true');
      assert.equal(await ledger.balance(), balance - cost(tokens(['only once']), 0));
      await assertNothingLeft(service);
    });
  });
}
