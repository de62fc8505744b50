/**
 * Errors in mid-stream by the whole matrix of contracts §1.0: what each family sends for each code that can happen after the
 * first token, in its words, with the type by which its clients decide whether to try again.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import { errorTable } from '../../../src/platform/errors.ts';
import type { ErrorCode } from '../../../src/platform/errors.ts';
import { TestService } from '../../support/service.ts';
import { ask, say } from './exchange.ts';
import { families } from './families.ts';

const options = { timeout: 300_000 };

/** Codes that an engine fails with; the others of a stream (`deadline`, `drained`, …) are in the tests of endings. */
const codes = [
  'backend_http_error',
  'backend_timeout',
  'backend_connect_error',
  'backend_overloaded',
  'backend_at_capacity',
  'no_healthy_backends',
  'internal_error',
] as const satisfies readonly ErrorCode[];

/** Contracts decision 5. */
const messagesTypes: Partial<Record<ErrorCode, string>> = {
  backend_at_capacity: 'overloaded_error',
  backend_overloaded: 'overloaded_error',
  no_healthy_backends: 'overloaded_error',
  backend_timeout: 'timeout_error',
};

const rule = (code: string, afterTokens: number): string => `
        - when: { last_text: "${code} after ${afterTokens}" }
          say: [ { text: "one two three" } ]
          pace_ms: 2
          fault: { after_tokens: ${afterTokens}, type: error, code: ${code} }`;
const service = new TestService({
  config: `models:
  - id: demo
    context_length: 8192
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    backends:
      - engine: scripted
        scripts:${codes.map((code) => rule(code, 0) + rule(code, 2)).join('')}
        - say: [ { text: hello } ]`,
});
before(() => service.start(), options);
after(async () => {
  await service.verify();
  await service.dispose();
});

for (const code of codes) {
  describe(code, options, () => {
    for (const family of families) {
      const { type, status: statusOfCode } = errorTable[code];
      test(`in the middle of a stream of ${family.name}`, async () => {
        const { id, status, text } = await ask(service, family, say(`${code} after 2`, { stream: true }));
        assert.equal(status, 200);
        assert.ok(text.includes('one'), 'what was said before is there');
        const error = family.streamErrorOf(text);
        assert.equal(error.code, code);
        assert.equal(error.request_id, id);
        assert.equal(error.type, family.name === 'messages' ? (messagesTypes[code] ?? 'api_error') : type);
        if (family.name === 'responses') {
          const failed = /^event: response\.failed\ndata: (.*)$/m.exec(text)?.[1] ?? '';
          const { response } = JSON.parse(failed) as {
            response: { error: { code: string; message: string }; output: readonly { status?: string }[] };
          };
          const isLimit = statusOfCode === 429;
          assert.equal(response.error.code, isLimit ? 'rate_limit_exceeded' : 'server_error');
          // The words that a client reads when from.
          if (isLimit) assert.match(response.error.message, /try again in \d+s/i);
          assert.equal(response.output.length, 1, 'what was said before is in the response');
        }
      });

      for (const stream of [false, true]) {
        test(`before the first token on ${family.name}, ${stream ? 'streamed' : 'whole'}: an ordinary error with its status`, async () => {
          const { id, status, text, headers } = await ask(service, family, say(`${code} after 0`, { stream }));
          assert.equal(status, statusOfCode, text);
          assert.match(headers.get('content-type') ?? '', /^application\/json/);
          const error = family.errorOf(text);
          assert.deepEqual([error.code, error.type, error.request_id], [code, type, id]);
          if (status === 429) assert.ok(headers.get('retry-after'));
        });
      }
    }
  });
}
