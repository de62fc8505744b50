import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, before, test } from 'node:test';

import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';

import { InnerService, scriptedModel, until } from '../support/service.ts';

/**
 * What the official clients do when the line breaks: they send the request again, with the same headers. With a key of their
 * caller's that is one charge (docs/decisions/008-idempotency.md). By themselves they send none.
 */
const service = new InnerService({
  config: scriptedModel('- { say: [ { text: "one two three" } ], pace_ms: 20 }'),
});
before(() => service.start());
after(async () => {
  await service.verify();
  await service.dispose();
});

interface WaitQueue {
  /** Keys of all tries. */
  readonly keys: (string | null)[];
  readonly fetch: typeof fetch;
}

/** The first answer is lost: `after` all of it was there, or at its `head`. */
function breakingLine(lost: 'after' | 'head'): WaitQueue {
  const keys: (string | null)[] = [];
  return {
    keys,
    fetch: async (address, init) => {
      keys.push(new Headers(init?.headers).get('idempotency-key'));
      const answer = await fetch(address, init);
      if (keys.length > 1) return answer;
      if (lost === 'after') await answer.text();
      else await answer.body?.cancel();
      throw new TypeError('the line broke');
    },
  };
}

async function charged(work: () => Promise<void>): Promise<number> {
  const before = (await service.usage()).requests.length;
  await work();
  // A row is there before its answer ends, and a second generation would have begun before that.
  await until(async () => (await service.usage()).requests.length > before, 60_000);
  const { requests } = await service.usage();
  assert.equal(requests[0]?.ending, 'finished');
  return requests.length - before;
}

const options = { timeout: 300_000 };

for (const lost of ['after', 'head'] as const) {
  test(`openai: the line breaks (${lost}), and the second try is given the first answer`, options, async () => {
    const line = breakingLine(lost);
    const client = new OpenAI({ apiKey: service.key, baseURL: `${service.url}/v1`, maxRetries: 2, fetch: line.fetch });
    const headers = { 'Idempotency-Key': randomUUID() };
    const rows = await charged(async () => {
      const stream = await client.chat.completions.create(
        { model: 'demo', stream: true, messages: [{ role: 'user', content: 'count' }] },
        { headers },
      );
      let text = '';
      for await (const chunk of stream) text += chunk.choices[0]?.delta.content ?? '';
      assert.equal(text, 'one two three');
    });
    assert.deepEqual([rows, line.keys], [1, [headers['Idempotency-Key'], headers['Idempotency-Key']]]);
  });

  test(`anthropic: the line breaks (${lost}), and the second try is given the first answer`, options, async () => {
    const line = breakingLine(lost);
    const client = new Anthropic({ apiKey: service.key, baseURL: service.url, maxRetries: 2, fetch: line.fetch });
    const headers = { 'Idempotency-Key': randomUUID() };
    const rows = await charged(async () => {
      const message = await client.messages
        .stream({ model: 'demo', max_tokens: 100, messages: [{ role: 'user', content: 'count' }] }, { headers })
        .finalMessage();
      assert.deepEqual(
        message.content.map((block) => (block.type === 'text' ? block.text : block.type)),
        ['one two three'],
      );
    });
    assert.deepEqual([rows, line.keys], [1, [headers['Idempotency-Key'], headers['Idempotency-Key']]]);
  });
}
