import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { ChatService } from './chat-service.ts';

const scripts = `- say: [ { reasoning: "Let me see." }, { text: "It is fine." } ]`;
const reasoning = (more: string) =>
  `    capabilities: { reasoning: true }\n    reasoning: { efforts: [none, low], ${more} }\n`;
const chat = new ChatService([
  { id: 'thinks', scripts, more: reasoning('default: low') },
  { id: 'hides', scripts, more: reasoning('default: low, hides: true') },
]);
before(() => chat.start());
after(() => chat.dispose());

/** Reasoning, answer, completion tokens and reasoning tokens. */
async function ask(model: string, more: Readonly<Record<string, unknown>>): Promise<readonly unknown[]> {
  const answer = await fetch(`${chat.service.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${chat.service.key}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model, messages: [{ role: 'user', content: 'How is it?' }], ...more }),
  });
  const { choices, usage } = (await answer.json()) as {
    choices: readonly { message: { content: string; reasoning_content: string | null } }[];
    usage: { completion_tokens: number; completion_tokens_details: { reasoning_tokens: number } };
  };
  const message = choices[0]?.message;
  const { completion_tokens: completion, completion_tokens_details: details } = usage;
  return [message?.reasoning_content, message?.content, completion, details.reasoning_tokens];
}

test('§4.2.5(4) a scripted model reasons as much as is asked, and hides what its card says that it hides', async () => {
  const none = { reasoning_effort: 'none' };
  assert.deepEqual(await ask('thinks', {}), ['Let me see.', 'It is fine.', 6, 3]);
  assert.deepEqual(await ask('thinks', none), [null, 'It is fine.', 3, 0]);
  assert.deepEqual(await ask('hides', {}), ['Let me see.', 'It is fine.', 6, 3]);
  assert.deepEqual(await ask('hides', none), [null, 'It is fine.', 6, 0]);
  assert.deepEqual(await ask('hides', { ...none, max_tokens: 3 }), [null, '', 3, 0]);
});
