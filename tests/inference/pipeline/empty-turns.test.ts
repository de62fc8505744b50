/** Turns of the assistant that say nothing: an interrupted one had only reasoning. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Message } from '../../../src/generation/request.ts';
import { withPreservedThinking } from '../../../src/inference/pipeline/preserved-thinking.ts';

type Turn = Extract<Message, { readonly role: 'assistant' }>;

const user: Message = { role: 'user', content: [{ type: 'text', text: 'x' }] };
const turn = (more: Partial<Turn> = {}): Turn => ({
  role: 'assistant',
  content: [],
  reasoning: [],
  toolCalls: [],
  ...more,
});
const thought = { text: 'hm', signature: undefined };
const call = { id: 'c', name: 'f', arguments: '{}' };

for (const [what, message, isKept, stays] of [
  ['only reasoning', turn({ reasoning: [thought] }), false, false],
  ['only reasoning, which is shown', turn({ reasoning: [thought] }), true, true],
  ['reasoning without a text, which would be shown', turn({ reasoning: [{ ...thought, text: '' }] }), true, false],
  ['nothing at all', turn(), false, false],
  ['empty texts', turn({ content: [{ type: 'text', text: '' }] }), false, false],
  ['a call', turn({ toolCalls: [call] }), false, true],
  ['a text', turn({ content: [{ type: 'text', text: 'y' }] }), false, true],
  ['a beginning', turn({ isBeginning: true }), false, true],
] as const) {
  test(`a turn of ${what} ${stays ? 'stays' : 'is left out'}`, () => {
    const reasoningKeys = { open: () => undefined } as unknown as Parameters<typeof withPreservedThinking>[2];
    const prompt = { type: 'messages' as const, messages: [user, message, user] };
    const left = withPreservedThinking(prompt, isKept, reasoningKeys, 'acct');
    assert.ok(left.type === 'messages');
    assert.deepEqual(
      left.messages.map(({ role }) => role),
      stays ? ['user', 'assistant', 'user'] : ['user', 'user'],
    );
  });
}
