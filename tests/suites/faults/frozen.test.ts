/**
 * The whole process stands still for some seconds, as on a paused machine (reliability S6; invariants I1 to I5 and I9):
 * every timer is late, every buffer is full, and still each request ends once and properly.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import {
  ask,
  assertNothingLeft,
  verifyAndDispose,
  cost,
  errorOf,
  endingsService,
  send,
} from '../../endings/endings-service.ts';
import { TestLedger } from '../../support/test-ledger.ts';
import { newRequestId } from '../../support/raw-client.ts';
import type { RawClient } from '../../support/raw-client.ts';
import { until } from '../../support/service.ts';
import { Upstream, chatChunk, event, usageChunk } from '../../support/upstream.ts';

/** Longer than every limit of the service below. */
const frozenMs = 5_000;
const limits = 'first_token_timeout_seconds: 2\n  stream_idle_timeout_seconds: 2\n  prime_timeout_seconds: 1';

test(`frozen for ${frozenMs / 1000} s and let go: every request ends once, charged for what was shown or not at all`, async (t) => {
  // It goes on while the service stands still: its answers wait in the sockets.
  const upstream = await Upstream.start(async (exchange) => {
    if (exchange.body.includes('says nothing')) return;
    exchange.events();
    const count = exchange.body.includes('many') ? 200 : 20;
    for (let i = 0; i < count && !exchange.socket.destroyed; i++) {
      exchange.chunk(chatChunk({ content: 'word ' }));
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    exchange.chunk(chatChunk({}, 'stop'));
    exchange.chunk(usageChunk({ prompt_tokens: 9, completion_tokens: count, total_tokens: 9 + count }));
    exchange.chunk(event('[DONE]'));
    exchange.endChunks();
  });
  t.after(() => upstream.close());
  const service = endingsService({
    firstCreditCents: '400',
    limits,
    scripts: `
- when: { last_text: three seconds }
  say: [ { text: [ "word " ] } ]
  repeat: 30
  pace_ms: 100
`,
    models: `
- id: remote
  context_length: 16384
  pricing: { input_cents_per_million: 5000, output_cents_per_million: 20000 }
  backends: [ { engine: openai, flavor: openai, url: "${upstream.url}" } ]
`,
  });
  t.after(() => verifyAndDispose(service));
  await service.start();
  const ledger = new TestLedger(service);

  for (const texts of [
    ['three seconds', 'three seconds', 'many words', 'many words'],
    ['few words', 'many words', 'says nothing', 'three seconds'],
  ]) {
    const running = await Promise.all(
      texts.map(async (text, index) => {
        const stream = index % 2 === 0;
        const model = text === 'three seconds' ? 'demo' : 'remote';
        return { ...(await send(service, ask(text, { model, stream }))), text, stream };
      }),
    );
    await until(async () => (await ledger.openRequests()) === texts.length);
    process.kill(service.pid, 'SIGSTOP');
    // New ones arrive at a process that does not answer; the kernel takes them.
    const late = newRequestId();
    const lateAnswer = service.chat(ask('three words'), { headers: { 'x-request-id': late } });
    await new Promise((resolve) => setTimeout(resolve, frozenMs)); // This time is the fault.
    process.kill(service.pid, 'SIGCONT');

    for (const { client, id, text, stream } of running) {
      await until(() => isEnded(client), 60_000);
      await assertProperEnding(ledger, client, id, `${text}${stream ? ', streamed' : ''}`);
    }
    // All places were taken when it came; afterwards they are free.
    const { status } = await lateAnswer;
    assert.ok(status === 200 || status === 429, String(status));
    assert.equal((await ledger.rows(late)).length, status === 200 ? 1 : 0);
    await until(async () => (await ledger.openRequests()) === 0);
    await assertNothingLeft(service);
  }
});

test('frozen while its client leaves: charged once, as a client that left', async (t) => {
  const service = endingsService();
  t.after(() => verifyAndDispose(service));
  await service.start();
  const ledger = new TestLedger(service);
  const { client, id } = await send(service, ask('paced', { stream: true }));
  await until(() => client.events.length > 2);
  process.kill(service.pid, 'SIGSTOP');
  client.reset();
  await client.closed;
  await new Promise((resolve) => setTimeout(resolve, 2_000)); // This time is the fault.
  process.kill(service.pid, 'SIGCONT');
  const row = await ledger.row(id);
  assert.equal(row.ending, 'client_left');
  assert.equal(row.costMicrocents, cost(row.promptTokens, row.completionTokens));
  await assertNothingLeft(service);
});

function isEnded(client: RawClient): boolean {
  const { text } = client;
  const head = text.indexOf('\r\n\r\n');
  const length = /\r\ncontent-length: (\d+)/i.exec(text.slice(0, Math.max(head, 0)))?.[1];
  if (length !== undefined) return Buffer.byteLength(text.slice(head + 4)) === Number(length);
  return text.endsWith('data: [DONE]\n\n\r\n0\r\n\r\n') || client.isClosed;
}

/** Usage shown and charged, or an error with its own code and nothing charged. */
async function assertProperEnding(ledger: TestLedger, client: RawClient, id: string, what: string): Promise<void> {
  const row = await ledger.row(id);
  const isStream = /\r\ncontent-type: text\/event-stream/i.test(client.text);
  const json = isStream ? client.events.at(-2) : client.text.slice(client.text.indexOf('\r\n\r\n') + 4);
  if (isStream) assert.equal(client.events.at(-1), '[DONE]', `${what}: ${client.text.slice(-200)}`);
  const { usage } = JSON.parse(json ?? '') as { usage?: { prompt_tokens: number; completion_tokens: number } };
  if (usage !== undefined) {
    assert.deepEqual(
      [row.ending, row.promptTokens, row.completionTokens, row.costMicrocents],
      ['finished', usage.prompt_tokens, usage.completion_tokens, cost(usage.prompt_tokens, usage.completion_tokens)],
      what,
    );
    return;
  }
  const { code, request_id: requestId } = errorOf(json ?? '');
  assert.ok(['backend_timeout', 'backend_http_error'].includes(code), `${what}: ${json}`);
  assert.equal(requestId, id);
  assert.deepEqual([row.ending, row.errorCode, row.costMicrocents], ['failed', code, 0n], what);
}
