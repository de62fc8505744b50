/** The table of endings (docs/money.md) for requests to /v1/responses: each is charged as on chat completions. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import { TestLedger } from '../support/test-ledger.ts';
import { newRequestId } from '../support/raw-client.ts';
import { until } from '../support/service.ts';
import { sendResponses } from '../conformance/responses-relay.ts';
import { readResponseStream } from '../conformance/responses-reader.ts';
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
before(() => service.start());
after(() => verifyAndDispose(service));

/** A request with an id of its own, and what became of it. */
async function exchange(input: string, stream: boolean, more: object = {}) {
  const id = newRequestId();
  const body = { model: 'demo', input, max_output_tokens: 100, stream, ...more };
  const answer = await sendResponses(service, body, { headers: [['x-request-id', id]] });
  return { id, status: answer.status, body: answer.body };
}

const codeOf = (body: string): string => (JSON.parse(body) as { error: { code: string } }).error.code;

describe('refused before the hold: the error, no row, nothing charged', () => {
  for (const [name, fields, status, code] of [
    ['an unknown model', { model: 'nobody' }, 404, 'model_not_found'],
    ['a wrong type', { max_output_tokens: 'many' }, 422, 'schema_validation_failed'],
    ['a prompt longer than the window', { input: 'x'.repeat(80_000) }, 400, 'context_length_exceeded'],
    ['an item that is not kept', { input: [{ type: 'item_reference', id: 'msg_1' }] }, 400, 'unsupported_parameter'],
    ['more than the balance pays for', { model: 'probe', max_output_tokens: 2_000 }, 402, 'insufficient_credits'],
  ] as const) {
    test(name, async () => {
      const ledger = new TestLedger(service);
      const balance = await ledger.balance();
      for (const stream of [false, true]) {
        const { id, status: got, body } = await exchange('three words', stream, fields);
        assert.deepEqual([got, codeOf(body)], [status, code]);
        assert.deepEqual(await ledger.rows(id), []);
      }
      assert.equal(await ledger.balance(), balance);
      await assertNothingLeft(service);
    });
  }
});

/** What the one row of a request says. */
async function rowOf(id: string) {
  const ledger = new TestLedger(service);
  await until(async () => (await ledger.rows(id)).length === 1);
  const [row] = await ledger.rows(id);
  assert.ok(row);
  return row;
}

for (const stream of [false, true]) {
  const how = stream ? 'streamed' : 'whole';

  test(`failed before the first token, ${how}: the status of its code, nothing charged`, async () => {
    const { id, status, body } = await exchange('fails at once', stream);
    assert.deepEqual([status, codeOf(body)], [429, 'backend_overloaded']);
    const row = await rowOf(id);
    assert.deepEqual([row.ending, row.costMicrocents], ['failed', 0n]);
    await assertNothingLeft(service);
  });

  for (const text of ['fails later', 'is cut later']) {
    test(`${text}, ${how}: an error, nothing charged`, async () => {
      const { id, status, body } = await exchange(text, stream);
      if (stream) {
        const { error, response } = readResponseStream(body);
        assert.match(String(error?.['code']), /^backend_/);
        assert.deepEqual([response.status, response.usage], ['failed', null]);
      } else assert.equal(status, 502);
      const row = await rowOf(id);
      assert.deepEqual([row.ending, row.costMicrocents], ['failed', 0n]);
      await assertNothingLeft(service);
    });
  }

  test(`finished, ${how}: what the usage says is what is charged, and the charge is there before the end`, async () => {
    const { id, body } = await exchange('three words', stream);
    const row = await rowOf(id);
    const { usage } = stream
      ? readResponseStream(body).response
      : (JSON.parse(body) as { usage: { input_tokens: number; output_tokens: number } });
    assert.deepEqual([usage?.input_tokens, usage?.output_tokens], [promptTokensOf('three words'), 3]);
    assert.deepEqual([row.ending, row.costMicrocents], ['finished', cost(promptTokensOf('three words'), 3)]);
    await assertNothingLeft(service);
  });
}

test('left in the middle: what was generated until then is charged', async () => {
  const id = newRequestId();
  const controller = new AbortController();
  const answer = await fetch(`${service.url}/v1/responses`, {
    method: 'POST',
    headers: { authorization: `Bearer ${service.key}`, 'content-type': 'application/json', 'x-request-id': id },
    body: JSON.stringify({ model: 'demo', input: 'paced', stream: true, max_output_tokens: 4000 }),
    signal: controller.signal,
  });
  const reader = answer.body!.getReader();
  let text = '';
  while (!text.includes('output_text.delta')) text += Buffer.from((await reader.read()).value ?? []).toString();
  controller.abort();
  await reader.closed.catch(() => {});
  const row = await rowOf(id);
  assert.equal(row.ending, 'client_left');
  assert.ok(row.costMicrocents > cost(promptTokensOf('paced'), 0));
  assert.ok(row.costMicrocents < cost(promptTokensOf('paced'), 4000));
  await assertNothingLeft(service);
});
