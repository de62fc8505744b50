/** Who has no credit learns it before a large body is read, in every family (docs/decisions/051-memory-of-bodies.md). */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import { InnerService } from '../../support/service.ts';
import { RawConnection, bodyChunk, exchange } from './raw.ts';
import type { RawAnswer } from './raw.ts';

const model = (id: string, cents: number, more = ''): string => `
  - id: ${id}
    context_length: 2048
    pricing: { input_cents_per_million: ${cents}, output_cents_per_million: 1 }
    ${more}backends: [ { engine: scripted, scripts: [ { say: [ { text: hello } ] } ] } ]`;
const paying = new InnerService({ config: `models:${model('demo', 5)}`, firstCreditCents: '0' });
const free = new InnerService({ config: `models:${model('demo', 5)}${model('gift', 0)}`, firstCreditCents: '0' });
before(() => Promise.all([paying.start(), free.start()]));
after(() => Promise.all([paying.dispose(), free.dispose()]));

const largeBytes = 1_100_000;
const paths = [
  '/v1/chat/completions',
  '/v1/completions',
  '/v1/messages',
  '/v1/responses',
  '/v1/embeddings',
  '/v1/rerank',
];

function headOf(service: InnerService, path: string, framing: string, more = ''): string {
  return `POST ${path} HTTP/1.1\r\nhost: ${new URL(service.url).host}\r\nauthorization: Bearer ${service.key}\r\ncontent-type: application/json\r\n${framing}\r\n${more}\r\n`;
}

/** In the wrapper of any family. */
function assertError(answer: RawAnswer, code: string): Readonly<Record<string, unknown>> {
  const error = answer.json()['error'] as Readonly<Record<string, unknown>>;
  assert.equal(error['code'] ?? (error['details'] as Record<string, unknown> | undefined)?.['error_code'], code);
  return error;
}

async function begun(service: InnerService, head: string): Promise<RawConnection> {
  const connection = await RawConnection.open(service.url);
  connection.write(head);
  return connection;
}

for (const path of paths) {
  describe(path, () => {
    test('a declared length is enough: nothing of the body is sent', async () => {
      const connection = await begun(paying, headOf(paying, path, `content-length: ${largeBytes}`));
      const answer = await connection.answer();
      assert.equal(answer.status, 402);
      assert.equal(assertError(answer, 'insufficient_credits')['credits_available_cents'], 0);
      connection.close();
    });

    test('instead of 100 Continue', async () => {
      const head = headOf(paying, path, `content-length: ${largeBytes}`, 'expect: 100-continue\r\n');
      const connection = await begun(paying, head);
      assertError(await connection.answer(), 'insufficient_credits');
      connection.close();
    });

    test('without a declared length as soon as it is large', async () => {
      const connection = await begun(paying, headOf(paying, path, 'transfer-encoding: chunked'));
      for (let sent = 0; sent < largeBytes; sent += 100_000) connection.write(bodyChunk(Buffer.alloc(100_000, ' ')));
      assertError(await connection.answer(), 'insufficient_credits');
      connection.close();
    });

    test('a small body is read first: what is wrong with it comes before the credit', async () => {
      const headers = [['Authorization', `Bearer ${paying.key}`]] as const;
      const answer = await exchange(paying.url, { method: 'POST', path, headers, body: '{' });
      assertError(answer, 'invalid_json_request');
    });
  });
}

describe('a large body is read', () => {
  const readOf = (service: InnerService, path: string, more: readonly (readonly [string, string])[] = []) =>
    exchange(service.url, {
      method: 'POST',
      path,
      headers: [['Authorization', `Bearer ${service.key}`], ...more],
      body: '{'.padEnd(largeBytes),
    });

  test('where the account may use a model whose input is free', async () => {
    assertError(await readOf(free, '/v1/chat/completions'), 'invalid_json_request');
  });

  test('where it may be a repetition, whose answer is paid', async () => {
    const answer = await readOf(paying, '/v1/chat/completions', [['Idempotency-Key', 'again']]);
    assertError(answer, 'invalid_json_request');
  });

  test('where tokens are only counted', async () => {
    assertError(await readOf(paying, '/v1/messages/count_tokens'), 'invalid_json_request');
  });

  test('where there is credit', async () => {
    const { stdout } = await paying.command('accounts', 'create', 'rich', '--credit', '$1', '--key', '--json');
    const { key } = (JSON.parse(stdout) as { key: { key: string } }).key;
    const answer = await exchange(paying.url, {
      method: 'POST',
      path: '/v1/chat/completions',
      headers: [['Authorization', `Bearer ${key}`]],
      body: '{'.padEnd(largeBytes),
    });
    assertError(answer, 'invalid_json_request');
  });
});
