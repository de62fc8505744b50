/** Rows of the table of endings (docs/money.md): refused, failed before and after the first token, finished. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import { TestLedger } from '../support/test-ledger.ts';
import {
  assertNothingLeft,
  cost,
  errorOf,
  exchange,
  endingsService,
  promptTokensOf,
  streamError,
  verifyAndDispose,
  failingScripts,
} from './endings-service.ts';

const service = endingsService({
  firstCreditCents: '450',
  scripts: failingScripts,
});
before(() => service.start());
after(() => verifyAndDispose(service));

describe('refused before the hold: the error, no row, nothing charged', () => {
  const refusals = [
    ['an unknown model', { model: 'nobody' }, 404, 'model_not_found'],
    ['a wrong type', { max_tokens: 'many' }, 422, 'schema_validation_failed'],
    ['what the model cannot do', { logprobs: true }, 400, 'unsupported_parameter'],
    [
      'a prompt longer than the window',
      { messages: [{ role: 'user', content: 'x'.repeat(80_000) }] },
      400,
      'context_length_exceeded',
    ],
    ['more than the balance pays for', { model: 'probe', max_tokens: 2_000 }, 402, 'insufficient_credits'],
  ] as const;
  for (const [name, fields, status, code] of refusals) {
    for (const stream of [false, true]) {
      test(`${name}, ${stream ? 'streamed' : 'whole'}`, async () => {
        const ledger = new TestLedger(service);
        const balance = await ledger.balance();
        const { id, status: got, body } = await exchange(service, 'three words', stream, fields);
        assert.equal(got, status);
        assert.equal(errorOf(body).code, code);
        assert.deepEqual(await ledger.rows(id), []);
        assert.equal(await ledger.balance(), balance);
        await assertNothingLeft(service);
      });
    }
  }
});

for (const stream of [false, true]) {
  const how = stream ? 'streamed' : 'whole';

  test(`failed before the first token, ${how}: the status of its code, nothing charged`, async () => {
    const ledger = new TestLedger(service);
    const balance = await ledger.balance();
    const { id, status, body } = await exchange(service, 'fails at once', stream);
    const error = errorOf(body);
    assert.equal(error.code, 'backend_overloaded');
    assert.equal(status, 429);
    const row = await ledger.row(id);
    assert.equal(row.ending, 'failed');
    assert.equal(row.errorCode, 'backend_overloaded');
    assert.equal(row.costMicrocents, 0n);
    assert.equal(await ledger.balance(), balance);
    await assertNothingLeft(service);
  });

  for (const text of ['fails later', 'is cut later']) {
    test(`failed after the first token (${text}), ${how}: the error, nothing charged, list cost recorded`, async () => {
      const ledger = new TestLedger(service);
      const balance = await ledger.balance();
      const { id, status, body, events } = await exchange(service, text, stream);
      const error = stream ? streamError(events) : errorOf(body);
      assert.equal(error.code, 'backend_http_error');
      assert.equal(error.request_id, id);
      assert.equal(status, stream ? 200 : 502);
      const row = await ledger.row(id);
      assert.deepEqual(
        [row.ending, row.errorCode, row.promptTokens, row.completionTokens, row.costMicrocents, row.finish],
        ['failed', 'backend_http_error', promptTokensOf(text), 2, 0n, null],
      );
      assert.equal(row.unchargedMicrocents, cost(promptTokensOf(text), 2));
      assert.equal(await ledger.balance(), balance);
      await assertNothingLeft(service);
    });
  }

  test(`finished, ${how}: what was shown is what is recorded and charged`, async () => {
    const ledger = new TestLedger(service);
    const balance = await ledger.balance();
    const { id, status, body, events } = await exchange(service, 'three words', stream);
    assert.equal(status, 200);
    if (stream) assert.equal(events.at(-1), '[DONE]');
    const { usage } = JSON.parse(stream ? (events.at(-2) ?? '') : body) as {
      usage: { prompt_tokens: number; completion_tokens: number };
    };
    assert.deepEqual([usage.prompt_tokens, usage.completion_tokens], [promptTokensOf('three words'), 3]);
    // I4: the row is there when the client has the last byte, not later.
    const [row] = await ledger.rows(id);
    assert.deepEqual(
      [
        row?.ending,
        row?.finish,
        row?.promptTokens,
        row?.completionTokens,
        row?.costMicrocents,
        row?.unchargedMicrocents,
        row?.counted,
      ],
      ['finished', 'stop', usage.prompt_tokens, usage.completion_tokens, cost(usage.prompt_tokens, 3), 0n, false],
    );
    assert.equal(await ledger.balance(), balance - cost(usage.prompt_tokens, 3));
    await assertNothingLeft(service);
  });
}
