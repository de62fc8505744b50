/** Which message of a prompt is the first that differs from the nearest earlier one. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import type { EngineRequest, Message, Tool } from '../../../src/generation/request.ts';
import { EarlierPrompts } from '../../../src/inference/routing/earlier-prompts.ts';
import { prefixesOf } from '../../../src/inference/routing/prompt-prefixes.ts';

const long = (about: string): string => `${about} `.repeat(100);
const say = (role: 'system' | 'user', text: string): Message => ({ role, content: [{ type: 'text', text }] });
const answer = (text: string): Message => ({
  ...{ role: 'assistant', reasoning: [], toolCalls: [] },
  content: [{ type: 'text', text }],
});
const image = (base64: string): Message => ({
  role: 'user',
  content: [{ type: 'image', mediaType: 'image/png', base64, size: { width: 8, height: 8 }, at: '' }],
});
const tool = (name: string): Tool => ({ type: 'function', name, description: long(name), parameters: {} });

interface Asked {
  readonly messages: readonly Message[];
  readonly tools?: readonly Tool[];
  readonly retain?: boolean;
  readonly cacheScope?: string;
}

const prefixes = ({ messages, tools = [], retain = true, cacheScope = 'acct_a' }: Asked) =>
  prefixesOf(
    { prompt: { type: 'messages', messages }, tools, retain, cacheScope } as unknown as EngineRequest,
    1_000,
    7,
  );

const system = say('system', long('You help.'));
const question = say('user', long('What is it?'));
const base: Asked = { messages: [system, question], tools: [tool('look')] };
const rows: readonly (readonly [string, readonly Asked[], Asked, number | 'goes on' | 'none'])[] = [
  ['the first prompt', [], base, 'none'],
  ['the same again', [base], base, 'goes on'],
  ['the next turn', [base], { ...base, messages: [system, question, answer('Yes.'), say('user', 'And?')] }, 'goes on'],
  ['another system text', [base], { ...base, messages: [say('system', long('You do not.')), question] }, 0],
  [
    'a time at the end of the system text',
    [base],
    { ...base, messages: [say('system', `${long('You help.')} 12:31`), question] },
    0,
  ],
  ['another question', [base], { ...base, messages: [system, say('user', 'Another?')] }, 1],
  [
    'an answer that was edited',
    [{ ...base, messages: [system, question, answer('Yes.'), question] }],
    { ...base, messages: [system, question, answer('No.'), question] },
    2,
  ],
  ['another list of tools', [base], { ...base, tools: [tool('look'), tool('write')] }, -1],
  ['no tools any more', [base], { messages: base.messages }, -1],
  ['tools for the first time', [{ messages: base.messages }], base, -1],
  [
    'another image',
    [{ messages: [system, image('a'.repeat(900)), question] }],
    { messages: [system, image('b'.repeat(900)), question] },
    1,
  ],
  [
    'the nearest of several',
    [base, { ...base, messages: [say('system', 'No.'), question] }],
    { ...base, messages: [system, say('user', 'x')] },
    1,
  ],
  ['the beginning of an earlier one', [{ ...base, messages: [system, question, answer('Yes.')] }], base, 'goes on'],
  ['another account', [base], { ...base, cacheScope: 'acct_b' }, 'none'],
  ['an earlier one under zero data retention', [{ ...base, retain: false }], base, 'none'],
  ['zero data retention', [base], { ...base, retain: false }, 'none'],
];

for (const [what, earlier, asked, expected] of rows)
  for (const heard of [false, true])
    test(`what differs: ${what}${heard ? ', by what another process was sent' : ''}`, () => {
      const prompts = new EarlierPrompts();
      const other = heard ? new EarlierPrompts() : prompts;
      other.takeNews();
      for (const each of earlier) other.compare(prefixes(each));
      if (heard) for (const ends of other.takeNews()) prompts.add(ends);
      const compared = prompts.compare(prefixes(asked));
      assert.equal(compared === undefined ? 'none' : (compared.differsAt ?? 'goes on'), expected);
    });

test('shared tokens are those of the messages before the difference', () => {
  const prompts = new EarlierPrompts();
  prompts.compare(prefixes(base));
  const asked = { ...base, messages: [system, say('user', long('Why then?'))] };
  const { sharedTokens } = prompts.compare(prefixes(asked))!;
  assert.ok(sharedTokens > 500 && sharedTokens < 700, String(sharedTokens));
});

test('it remembers a bounded number of prompts, those that are used longest', () => {
  const prompts = new EarlierPrompts();
  const used = prefixes(base);
  const forgotten = prefixes({ ...base, messages: [say('system', long('once'))] });
  prompts.compare(used);
  prompts.compare(forgotten);
  for (let round = 0; round < 60_000; round++) {
    prompts.add([round, -round - 1]);
    if (round % 20_000 === 0) prompts.compare(used);
  }
  assert.equal(prompts.compare(used)?.differsAt, undefined);
  assert.equal(prompts.compare(forgotten)?.differsAt, 0);
});
