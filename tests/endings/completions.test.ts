/** The table of endings (docs/money.md) for requests to /v1/completions: each is charged as on chat completions. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import { TestLedger } from '../support/test-ledger.ts';
import { newRequestId } from '../support/raw-client.ts';
import { until } from '../support/service.ts';
import { assertNothingLeft, verifyAndDispose, cost, endingsService, failingScripts } from './endings-service.ts';

const service = endingsService({
  firstCreditCents: '450',
  scripts: failingScripts,
});
before(() => service.start());
after(() => verifyAndDispose(service));

/** As the scripted engine counts a text. */
const promptTokensOf = (text: string): number => Math.ceil(Buffer.byteLength(text) / 4);

function send(
  prompt: string,
  fields: object,
  signal?: AbortSignal,
): { readonly id: string; readonly answer: Promise<Response> } {
  const id = newRequestId();
  const answer = fetch(`${service.url}/v1/completions`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${service.key}`,
      'content-type': 'application/json',
      'x-request-id': id,
    },
    body: JSON.stringify({ model: 'demo', prompt, max_tokens: 100, ...fields }),
    ...(signal === undefined ? {} : { signal }),
  });
  return { id, answer };
}

async function exchange(prompt: string, stream: boolean, more: object = {}) {
  const { id, answer } = send(prompt, { stream, ...more });
  const { status } = await answer;
  return { id, status, body: await (await answer).text() };
}

const errorIn = (body: string): { code: string; request_id: string } => {
  const [, json = body] = /data: (\{"error":.*)/.exec(body) ?? [];
  return (JSON.parse(json) as { error: { code: string; request_id: string } }).error;
};

describe('refused before the hold: the error, no row, nothing charged', () => {
  for (const [name, fields, status, code] of [
    ['an unknown model', { model: 'nobody' }, 404, 'model_not_found'],
    ['a wrong type', { max_tokens: 'many' }, 422, 'schema_validation_failed'],
    ['what its engine cannot do', { ignore_eos: true }, 400, 'unsupported_parameter'],
    ['an invalid token', { prompt: [99_999_999] }, 400, 'unsupported_value'],
    ['a prompt longer than the window', { prompt: 'x'.repeat(80_000) }, 400, 'context_length_exceeded'],
    ['more than the balance pays for', { model: 'probe', max_tokens: 2_000 }, 402, 'insufficient_credits'],
    // Each answer of each prompt may become as long.
    [
      'more than it pays for in a batch',
      { model: 'probe', prompt: ['a', 'b'], max_tokens: 1_000 },
      402,
      'insufficient_credits',
    ],
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
    const { id, status, body } = await exchange('three words', stream);
    assert.equal(status, 200);
    const [row] = await ledger.rows(id);
    assert.deepEqual(
      [row?.ending, row?.finish, row?.api, row?.promptTokens, row?.completionTokens],
      ['finished', 'stop', 'completions', promptTokensOf('three words'), 3],
    );
    assert.match(body, /"completion_tokens":3/);
    assert.equal(await ledger.balance(), balance - cost(promptTokensOf('three words'), 3));
    await assertNothingLeft(service);
  });

  test(`a batch, ${how}: each prompt once, and every answer`, async () => {
    const ledger = new TestLedger(service);
    const balance = await ledger.balance();
    const prompt = ['a three words', 'three words'];
    const { id, status } = await exchange('', stream, { prompt, n: 2, echo: true });
    assert.equal(status, 200);
    const [row] = await ledger.rows(id);
    const input = promptTokensOf(prompt[0]!) + promptTokensOf(prompt[1]!);
    // The last prompt chooses the script; an echo costs nothing.
    assert.deepEqual([row?.promptTokens, row?.completionTokens], [input, 12]);
    assert.equal(await ledger.balance(), balance - cost(input, 12));
    await assertNothingLeft(service);
  });

  test(`failed before the first token, ${how}: the status of its code, nothing charged`, async () => {
    const ledger = new TestLedger(service);
    const balance = await ledger.balance();
    const { id, status, body } = await exchange('fails at once', stream);
    assert.deepEqual([status, errorIn(body).code], [429, 'backend_overloaded']);
    assert.deepEqual((await ledger.row(id)).ending, 'failed');
    assert.equal(await ledger.balance(), balance);
    await assertNothingLeft(service);
  });

  for (const text of ['fails later', 'is cut later']) {
    test(`failed after the first token (${text}), ${how}: the error, nothing charged`, async () => {
      const ledger = new TestLedger(service);
      const balance = await ledger.balance();
      const { id, status, body } = await exchange(text, stream, { echo: true });
      assert.deepEqual([status, errorIn(body).code], [stream ? 200 : 502, 'backend_http_error']);
      assert.equal(errorIn(body).request_id, id);
      // Contracts §1.0: the error, then [DONE], and no usage.
      if (stream) {
        assert.match(body, /data: \{"error":.*\}\n\ndata: \[DONE\]\n\n$/);
        assert.ok(!body.includes('"usage"'));
      }
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
    const controller = new AbortController();
    const { id, answer } = send('paced', { max_tokens: 4_000, stream }, controller.signal);
    if (stream) {
      const reader = (await answer).body!.getReader();
      let text = '';
      while (!text.includes('"text":"word')) text += Buffer.from((await reader.read()).value ?? []).toString();
    } else await until(async () => (await ledger.openRequests()) > 0, 60_000);
    controller.abort();
    await answer.catch(() => {});
    const row = await ledger.row(id, 60_000);
    assert.equal(row.ending, 'client_left');
    assert.equal(row.promptTokens, promptTokensOf('paced'));
    if (stream) assert.ok(row.completionTokens > 0);
    assert.equal(row.costMicrocents, cost(row.promptTokens, row.completionTokens));
    assert.equal(await ledger.balance(), balance - row.costMicrocents);
    await assertNothingLeft(service);
  });
}
