import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';

import type { TestService } from '../support/service.ts';
import { InnerService } from '../support/service.ts';
import { Upstream, chatChunk, usageChunk } from '../support/upstream.ts';
import { MessagesClient, assistant, inputTokensOf, user, weather } from './messages-ask.ts';
import { inRepository } from '../support/repository.ts';

/** Contracts §1.2, `count_tokens` in front of a backend that cannot count: it learns from what the answers tell. */
let upstream: Upstream;
let service: TestService;
let client: MessagesClient;
before(async () => {
  upstream = await Upstream.start((request) => {
    if (!request.path.endsWith('/chat/completions')) return request.json(404, {});
    request.events();
    request.chunk(chatChunk({ role: 'assistant', content: 'Yes.' }));
    request.chunk(chatChunk({}, 'stop'));
    request.chunk(usageChunk({ prompt_tokens: tokensOf(request.body), completion_tokens: 2 }));
    request.chunk('data: [DONE]\n\n');
    request.endChunks();
  });
  service = new InnerService({
    config: `models:
  - id: demo
    context_length: 100000
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    backends: [ { engine: openai, flavor: openai, url: "${upstream.url}", zdr: true } ]`,
  });
  await service.start();
  client = new MessagesClient(service);
});
after(async () => {
  await service.verify();
  await service.dispose();
  await upstream.close();
});

/** As vocabularies cut it: words in pieces of up to six letters; Chinese, digits and signs one by one; a frame around each message. */
function tokensOf(body: string): number {
  const { messages, tools = [] } = JSON.parse(body) as { messages: readonly unknown[]; tools?: readonly unknown[] };
  const texts = messages.map((message) => Object.values(message as object).join(' '));
  const pieces = [...texts, ...tools.map((tool) => JSON.stringify(tool))]
    .join(' ')
    .match(/\p{Script=Han}|\p{L}{1,6}|\p{N}|[^\s\p{L}\p{N}]/gu);
  return (pieces?.length ?? 0) + 4 * messages.length;
}

const textOf = (...path: readonly string[]): string => readFileSync(inRepository(...path), 'utf8');
const kinds: Readonly<Record<string, string>> = {
  English: textOf('LICENSE'),
  Markdown: textOf('docs', 'api.md'),
  TypeScript: textOf('src', 'inference', 'pipeline', 'run.ts'),
  YAML: textOf('tests', 'fixtures', 'openapi', 'openapi-3.1.yaml'),
  Chinese: '人人生而自由,在尊严和权利上一律平等。他们赋有理性和良心,并应以兄弟关系的精神相对待。'.repeat(80),
  digits: Array.from({ length: 2_000 }, (_, index) => String((index * 7_919) % 100_000)).join(' '),
};

describe('once the account has had an answer, the count of the next turn is near to its charge', () => {
  for (const [kind, text] of Object.entries(kinds)) {
    test(kind, async () => {
      const messages = [user(text.slice(0, 5_000))];
      await client.whole({ tools: [weather], messages });
      for (let turn = 1; turn <= 5; turn++) {
        messages.push(assistant('Yes.'), user(text.slice(turn * 300, turn * 300 + 300)));
        const counted = await client.count({ tools: [weather], messages });
        const charged = inputTokensOf(await client.whole({ tools: [weather], messages }));
        assert.ok(Math.abs(counted - charged) <= charged / 10, `turn ${turn}: ${counted} counted, ${charged} charged`);
        assert.equal(await client.count({ tools: [weather], messages }), charged, 'what has been told is known');
      }
    });
  }
});

test('the count is never less for more, whatever was learned', async () => {
  await client.whole({ messages: [user('7 '.repeat(500))] });
  let before = 0;
  for (let length = 0; length < 4_000; length += 250) {
    const counted = await client.count({ messages: [user('a'.repeat(length + 1))] });
    assert.ok(counted >= before, `${counted} after ${before}`);
    before = counted;
  }
});

test('nothing is learned from requests with zero data retention', async () => {
  await client.whole({ messages: [user('word '.repeat(400))] });
  const prompt = { messages: [user('1 '.repeat(1_000))] };
  const counted = await client.count(prompt);
  const charged = inputTokensOf(await client.whole(prompt, { headers: { 'service-zdr': 'required' } }));
  assert.notEqual(counted, charged);
  assert.equal(await client.count(prompt), counted);
});
