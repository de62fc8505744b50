/** The table of endings (docs/money.md) for requests to /v1/messages: each is charged as on chat completions. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import { TestLedger } from '../support/test-ledger.ts';
import { newRequestId } from '../support/raw-client.ts';
import { until } from '../support/service.ts';
import { MessagesClient, user } from '../conformance/messages-ask.ts';
import {
  assertNothingLeft,
  verifyAndDispose,
  cost,
  endingsService,
  promptTokensOf,
  failingScripts,
} from './endings-service.ts';

const service = endingsService({
  firstCreditCents: '450',
  scripts: failingScripts,
});
let client: MessagesClient;
before(async () => {
  await service.start();
  client = new MessagesClient(service);
});
after(() => verifyAndDispose(service));

/** A request with an id of its own, and what became of it. */
async function exchange(text: string, stream: boolean, more: object = {}) {
  const id = newRequestId();
  const body = { messages: [user(text)], max_tokens: 100, stream, ...more };
  const answer = await client.send(body, { headers: { 'x-request-id': id } });
  return { id, status: answer.status, body: await answer.text() };
}

const errorIn = (body: string): { code: string; type: string } => {
  const [, json = body] = /event: error\ndata: (.*)/.exec(body) ?? [];
  return (JSON.parse(json) as { error: { code: string; type: string } }).error;
};

describe('refused before the hold: the error, no row, nothing charged', () => {
  for (const [name, fields, status, code] of [
    ['an unknown model', { model: 'nobody' }, 404, 'model_not_found'],
    ['a wrong type', { max_tokens: 'many' }, 422, 'schema_validation_failed'],
    ['a prompt longer than the window', { messages: [user('x'.repeat(80_000))] }, 400, 'context_length_exceeded'],
    ['more than the balance pays for', { model: 'probe', max_tokens: 2_000 }, 402, 'insufficient_credits'],
  ] as const) {
    test(name, async () => {
      const ledger = new TestLedger(service);
      const balance = await ledger.balance();
      for (const stream of [false, true]) {
        const { id, status: got, body } = await exchange('three words', stream, fields);
        assert.deepEqual([got, errorIn(body).code], [status, code]);
        assert.deepEqual(await ledger.rows(id), []);
      }
      assert.equal(await ledger.balance(), balance);
      await assertNothingLeft(service);
    });
  }
});

for (const stream of [false, true]) {
  const how = stream ? 'streamed' : 'whole';

  test(`finished, ${how}: what was shown is what is charged, when the last byte is there`, async () => {
    const ledger = new TestLedger(service);
    const balance = await ledger.balance();
    const { id, status } = await exchange('three words', stream);
    assert.equal(status, 200);
    const [row] = await ledger.rows(id);
    assert.deepEqual(
      [row?.ending, row?.finish, row?.api, row?.promptTokens, row?.completionTokens],
      ['finished', 'stop', 'messages', promptTokensOf('three words'), 3],
    );
    assert.equal(await ledger.balance(), balance - cost(promptTokensOf('three words'), 3));
    await assertNothingLeft(service);
  });

  test(`failed before the first token, ${how}: the status of its code, nothing charged`, async () => {
    const ledger = new TestLedger(service);
    const balance = await ledger.balance();
    const { id, status, body } = await exchange('fails at once', stream);
    assert.deepEqual([status, errorIn(body).type], [429, 'rate_limit_error']);
    assert.deepEqual((await ledger.row(id)).ending, 'failed');
    assert.equal(await ledger.balance(), balance);
    await assertNothingLeft(service);
  });

  for (const text of ['fails later', 'is cut later']) {
    test(`failed after the first token (${text}), ${how}: the error, nothing charged`, async () => {
      const ledger = new TestLedger(service);
      const balance = await ledger.balance();
      const { id, status, body } = await exchange(text, stream);
      assert.deepEqual([status, errorIn(body).code], [stream ? 200 : 502, 'backend_http_error']);
      assert.equal(errorIn(body).type, stream ? 'api_error' : 'server_error');
      const row = await ledger.row(id);
      assert.deepEqual([row.ending, row.costMicrocents, row.completionTokens], ['failed', 0n, 2]);
      assert.equal(row.unchargedMicrocents, cost(promptTokensOf(text), 2));
      assert.equal(await ledger.balance(), balance);
      await assertNothingLeft(service);
    });
  }

  test(`left by the client, ${how}: the input and what was generated are charged`, async () => {
    const ledger = new TestLedger(service);
    const balance = await ledger.balance();
    const id = newRequestId();
    const controller = new AbortController();
    const body = { messages: [user('paced')], max_tokens: 4_000, stream };
    const asked = client.send(body, { headers: { 'x-request-id': id }, signal: controller.signal });
    if (stream) {
      const reader = (await asked).body!.getReader();
      let text = '';
      while (!text.includes('text_delta')) text += Buffer.from((await reader.read()).value ?? []).toString();
    } else await until(async () => (await ledger.openRequests()) > 0, 60_000);
    controller.abort();
    await asked.catch(() => {});
    const row = await ledger.row(id, 60_000);
    assert.equal(row.ending, 'client_left');
    assert.equal(row.promptTokens, promptTokensOf('paced'));
    if (stream) assert.ok(row.completionTokens > 0);
    assert.equal(row.costMicrocents, cost(row.promptTokens, row.completionTokens));
    assert.equal(await ledger.balance(), balance - row.costMicrocents);
    await assertNothingLeft(service);
  });
}

test('a count is no such ending: no row, nothing charged, no slot', async () => {
  const ledger = new TestLedger(service);
  const [balance, before] = [await ledger.balance(), await ledger.sums()];
  for (let i = 0; i < 10; i++) assert.ok((await client.count({ messages: [user('three words')] })) > 0);
  assert.deepEqual([await ledger.balance(), await ledger.sums()], [balance, before]);
  await assertNothingLeft(service);
});
