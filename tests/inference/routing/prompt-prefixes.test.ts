import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { EngineRequest, Message } from '../../../src/generation/request.ts';
import { prefixesOf } from '../../../src/inference/routing/prompt-prefixes.ts';

const text = (length: number, seed = 'a'): string => seed.repeat(length);
const user = (words: string): Message => ({ role: 'user', content: [{ type: 'text', text: words }] });
const request = (messages: readonly Message[], more: Partial<EngineRequest> = {}): EngineRequest =>
  ({
    prompt: { type: 'messages', messages },
    tools: [],
    cacheScope: 'acct_a',
    retain: true,
    ...more,
  }) as unknown as EngineRequest;
const common = (a: EngineRequest, b: EngineRequest): number => {
  const [first, second] = [a, b].map((each) => prefixesOf(each, 1_000, 7).hashes);
  let count = 0;
  while (count < first!.length && first![count] === second![count]) count++;
  return count;
};

test('two prompts have in common what they begin with', () => {
  const system: Message = { role: 'system', content: [{ type: 'text', text: text(1_200) }] };
  const turn = request([system, user(text(700, 'b'))]);
  assert.equal(common(turn, turn), 3);
  assert.equal(common(turn, request([system, user(text(700, 'c'))])), 2, 'the system message');
  assert.equal(common(turn, request([system, user(text(2_000, 'b'))])), 3, 'a longer text that begins alike');
  assert.equal(common(turn, request([user(text(1_200)), user(text(700, 'b'))])), 0, 'the role of a message');
  const tool = { type: 'function', name: 'f', description: undefined, parameters: {} };
  assert.equal(common(turn, request([system, user(text(700, 'b'))], { tools: [tool] })), 0, 'tools come first');
});

test('accounts have nothing in common, and requests under zero data retention have no beginnings', () => {
  const messages = [user(text(5_000))];
  assert.equal(common(request(messages), request(messages, { cacheScope: 'acct_b' })), 0);
  assert.deepEqual(prefixesOf(request(messages, { retain: false }), 1_000, 7), { hashes: [], tokens: [] });
});

test('a beginning has its share of the tokens, and the longest prompt has 68 of them', () => {
  const short = prefixesOf(request([user(text(1_100))]), 1_000, 7);
  assert.equal(short.hashes.length, 2);
  assert.ok(short.tokens[1]! > 900 && short.tokens[1]! < 1_000, String(short.tokens));
  assert.equal(prefixesOf(request([user(text(3_000_000))]), 750_000, 7).hashes.length, 68);
  const ids = { type: 'token-ids' as const, prompts: [Array.from({ length: 2_000 }, (_, id) => id)] };
  assert.ok(prefixesOf(request([], { prompt: ids }), 2_000, 7).hashes.length > 10);
});
