/** Bodies that are made to hurt (reliability C11, C12): refused with a code, at a bounded cost, while others are served. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import type { ErrorCode } from '../../../src/platform/errors.ts';
import { askChat } from '../../inference/http/chat.ts';
import { assertEnvelope } from '../../inference/http/envelope.ts';
import { exchange } from '../../inference/http/raw.ts';
import { heapOf, heapProbe } from '../../support/heap.ts';
import { TestService, scriptedModel, until } from '../../support/service.ts';

const service = new TestService({
  config: scriptedModel('- say: [ { text: "hello" } ]'),
  environment: heapProbe,
});
before(() => service.start());
after(() => service.dispose());

/** Ten times the figure of 100 ms. */
const lagMsMax = 1_000;
const options = { timeout: 300_000 };

const valid = '"model":"demo","messages":[{"role":"user","content":"hi"}]';
const megabytes = (text: string, count = 48): Buffer => Buffer.alloc(count * 1_000_000, text);
const nested = (levels: number): string => '['.repeat(levels) + ']'.repeat(levels);

interface Bomb {
  readonly body: () => Buffer | string;
  /** Absent: it is taken. */
  readonly code?: ErrorCode;
  readonly message?: RegExp;
  readonly param?: string;
}

const refused = (body: () => Buffer | string, message: RegExp): Bomb => ({
  body,
  code: 'invalid_json_request',
  message,
});

const bombs: Readonly<Record<string, Bomb>> = {
  '48 MB of {},': refused(() => Buffer.concat([Buffer.from('['), megabytes('{},')]), /500000 structural characters/),
  '48 MB of [': refused(() => megabytes('['), /256 levels/),
  '48 MB of {"a":': refused(() => megabytes('{"a":'), /256 levels/),
  '48 MB of "",': refused(() => Buffer.concat([Buffer.from('['), megabytes('"",')]), /500000 structural characters/),
  '48 MB of \\"': refused(() => Buffer.concat([Buffer.from('["'), megabytes('\\"')]), /not valid JSON/),
  '48 MB of \\': refused(() => Buffer.concat([Buffer.from('["'), megabytes('\\')]), /not valid JSON/),
  '48 MB of digits': refused(() => Buffer.concat([megabytes('1234567890'), Buffer.from('x')]), /not valid JSON/),
  '48 MB of 0xff': refused(() => megabytes('').fill(0xff), /UTF-8/),
  '5,000 levels in an unknown field': refused(() => `{${valid},"unknown":${nested(5_000)}}`, /256 levels/),
  '500,001 structural characters': refused(() => `[${'1,'.repeat(499_999)}1]`, /500000 structural characters/),
  'a quarter of a million names': refused(
    () => `{${Array.from({ length: 249_000 }, (_, index) => `"${index}k":1`).join()}}`,
    /50000 different names/,
  ),
  'as many objects with a name each': refused(
    () => `[${Array.from({ length: 120_000 }, (_, index) => `{"${index}k":1}`).join()}]`,
    /50000 different names/,
  ),
  'a bias for every token of a large vocabulary': {
    body: () => `{${valid},"logit_bias":{${Array.from({ length: 150_000 }, (_, index) => `"${index}":1`).join()}}}`,
    code: 'unsupported_parameter',
    param: 'logit_bias',
  },
  'a byte order mark': refused(() => `\ufeff{${valid}}`, /not valid JSON/),
  'invalid UTF-8, small': refused(() => Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d]), /UTF-8/),
  'an infinite number where a number is': {
    body: () => `{${valid},"temperature":1e999}`,
    code: 'schema_validation_failed',
    param: 'temperature',
  },
  'an infinite number in a schema': {
    body: () =>
      `{${valid},"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"a":{"maximum":1e999}}}}}]}`,
    code: 'schema_validation_failed',
    param: 'tools[0].function.parameters',
  },
  'an unpaired surrogate in a schema': {
    body: () =>
      `{${valid},"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"\\ud800":{}}}}}]}`,
    code: 'schema_validation_failed',
    param: 'tools[0].function.parameters',
  },
  'an unpaired surrogate in a text': {
    body: () => '{"model":"demo","messages":[{"role":"user","content":"\\ud800"}]}',
  },
  'a number beyond 2^53 in an unknown field': { body: () => `{${valid},"unknown":9007199254740993}` },
  'U+0000 in a text': { body: () => '{"model":"demo","messages":[{"role":"user","content":"a\\u0000b"}]}' },
  'a name twice': { body: () => `{"model":"nothing",${valid}}` },
  'names that objects have from birth': {
    body: () => `{${valid},"__proto__":{"model":7},"constructor":{"prototype":1}}`,
  },
  'names that are array indexes': { body: () => `{${valid},"0":1,"4294967295":2,"logit_bias":{}}` },
};

describe('a hostile body gets its answer, and a health check beside it does too', () => {
  for (const [name, bomb] of Object.entries(bombs)) {
    test(name, options, async () => {
      const body = bomb.body();
      const { answer, lagMs } = await besideHealthChecks(() => askChat(service, body));
      if (bomb.code === undefined) assert.equal(answer.status, 200, answer.body);
      else {
        const error = assertEnvelope(answer, bomb.code, bomb.param === undefined ? {} : { param: bomb.param });
        if (bomb.message !== undefined) assert.match(String(error['message']), bomb.message);
      }
      assert.ok(lagMs < lagMsMax, `the event loop was held up for ${lagMs.toFixed(0)} ms`);
    });
  }
});

test('a legal body of 40 MB with one long string is taken', options, async () => {
  const image = `data:image/png;base64,${Buffer.alloc(30_000_000, 7).toString('base64')}`;
  const content = [
    { type: 'text', text: 'What is this?' },
    { type: 'image_url', image_url: { url: image } },
  ];
  const body = JSON.stringify({ model: 'demo', messages: [{ role: 'user', content }] });
  const { answer, lagMs } = await besideHealthChecks(() => askChat(service, body));
  // The model has no eyes, so the image is left out (specification §4.2.4(5)).
  assert.equal(answer.status, 200, answer.body);
  assert.ok(lagMs < lagMsMax, `the event loop was held up for ${lagMs.toFixed(0)} ms`);
});

test('afterwards nothing of them is kept', options, async () => {
  for (let i = 0; i < 5; i++) await askChat(service);
  const before = await heapOf(service);
  for (let round = 0; round < 6; round++) {
    await Promise.all(['{},', '"",', '['].map((text) => askChat(service, megabytes(text))));
  }
  // 860 MB in all. What the process has of the system is no measure: the C library keeps room for the next ones.
  await until(async () => {
    await askChat(service);
    const { heapBytes, externalBytes } = await heapOf(service);
    return heapBytes + externalBytes < before.heapBytes + before.externalBytes + 10_000_000;
  }, 120_000);
  await service.verify();
});

/** The longest wait of a health check that was asked for while something else was; connections of their own. */
async function besideHealthChecks<Answer>(ask: () => Promise<Answer>): Promise<{ answer: Answer; lagMs: number }> {
  let isDone = false;
  let lagMs = 0;
  const checks = (async () => {
    while (!isDone) {
      const startedAt = performance.now();
      assert.equal((await exchange(service.url, { path: '/healthz' })).status, 200);
      lagMs = Math.max(lagMs, performance.now() - startedAt);
    }
  })();
  const answer = await ask().finally(() => (isDone = true));
  await checks;
  return { answer, lagMs };
}
