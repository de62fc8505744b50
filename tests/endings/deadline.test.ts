/** Requests that run longer than the service allows (docs/money.md, "ran longer than allowed"). */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

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
} from './endings-service.ts';

const service = endingsService({ limits: 'request_timeout_seconds: 0.7' });
before(() => service.start());
after(() => verifyAndDispose(service));

for (const stream of [false, true]) {
  for (const [when, text] of [
    ['before the first token', 'silence'],
    ['in mid-answer', 'paced'],
    ['after the first token, in a silence', 'first token then silence'],
  ] as const) {
    test(`deadline ${when}, ${stream ? 'streamed' : 'whole'}: backend_timeout, nothing charged`, async () => {
      const ledger = new TestLedger(service);
      const balance = await ledger.balance();
      const { id, status, body, events } = await exchange(service, text, stream);
      const hasHead = stream && text !== 'silence';
      assert.equal(status, hasHead ? 200 : 504);
      const error = hasHead ? streamError(events) : errorOf(body);
      assert.deepEqual([error.code, error.type, error.request_id], ['backend_timeout', 'server_error', id]);
      const row = await ledger.row(id);
      assert.deepEqual([row.ending, row.errorCode, row.costMicrocents], ['deadline', 'backend_timeout', 0n]);
      const started = text !== 'silence';
      assert.equal(row.promptTokens, started ? promptTokensOf(text) : 0);
      assert.equal(row.unchargedMicrocents, started ? cost(row.promptTokens, row.completionTokens) : 0n);
      if (started) assert.ok(row.completionTokens >= 1);
      assert.equal(await ledger.balance(), balance);
      await assertNothingLeft(service);
    });
  }
}
