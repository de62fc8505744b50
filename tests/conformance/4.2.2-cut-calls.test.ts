import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { ChatService } from './chat-service.ts';

const chat = new ChatService([{ id: 'tiny', says: ['hello'] }]);
const parameters = {
  type: 'object',
  properties: { to: { type: 'string', enum: ['a', 'b'] } },
  required: ['to'],
};
const name = 'go';

/** What a client reads of an answer: its text, and its calls with their arguments as far as they came. */
interface Said {
  readonly text: string;
  readonly calls: readonly { readonly name: unknown; readonly args: string }[];
  readonly ending: unknown;
}
type Json = Readonly<Record<string, any>>; // oxlint-disable-line typescript/no-explicit-any

interface Family {
  readonly path: string;
  readonly body: (tokens: number) => Json;
  readonly whole: (answer: Json) => Said;
  readonly streamed: (events: readonly Json[]) => Said;
  readonly cutAs: string;
}

const families: Readonly<Record<string, Family>> = {
  chat: {
    path: '/v1/chat/completions',
    body: (tokens) => ({
      max_tokens: tokens,
      messages: [{ role: 'user', content: 'Which?' }],
      tools: [{ type: 'function', function: { name, parameters } }],
      tool_choice: 'required',
    }),
    whole: ({ choices: [{ message, finish_reason: ending }] }) => ({
      text: message.content ?? '',
      calls: (message.tool_calls ?? []).map((call: Json) => ({
        name: call.function.name,
        args: call.function.arguments,
      })),
      ending,
    }),
    streamed: (events) => {
      const deltas = events.flatMap(({ choices }) => choices ?? []);
      const parts = deltas.flatMap(({ delta }) => delta.tool_calls ?? []);
      const names = parts.filter((part: Json) => part.function.name !== undefined && part.function.name !== null);
      return {
        text: deltas.map(({ delta }) => delta.content ?? '').join(''),
        calls: names.map((part: Json) => ({
          name: part.function.name,
          args: parts
            .filter(({ index }: Json) => index === part.index)
            .map((each: Json) => each.function.arguments ?? '')
            .join(''),
        })),
        ending: deltas
          .map(({ finish_reason: reason }) => reason)
          .find((reason) => reason !== null && reason !== undefined),
      };
    },
    cutAs: 'length',
  },
  messages: {
    path: '/v1/messages',
    body: (tokens) => ({
      max_tokens: tokens,
      messages: [{ role: 'user', content: 'Which?' }],
      tools: [{ name, input_schema: parameters }],
      tool_choice: { type: 'any' },
    }),
    whole: ({ content, stop_reason: ending }) => ({
      text: content.map((block: Json) => block.text ?? '').join(''),
      calls: content
        .filter(({ type }: Json) => type === 'tool_use')
        .map((block: Json) => ({ name: block.name, args: JSON.stringify(block.input) })),
      ending,
    }),
    streamed: (events) => ({
      text: events.map(({ delta }) => delta?.text ?? '').join(''),
      calls: events
        .filter(({ content_block: block }) => block?.type === 'tool_use')
        .map(({ content_block: block, index }) => ({
          name: block.name,
          args: events.map((event) => (event.index === index ? (event.delta?.partial_json ?? '') : '')).join(''),
        })),
      ending: events.find(({ type }) => type === 'message_delta')?.delta.stop_reason,
    }),
    cutAs: 'max_tokens',
  },
  responses: {
    path: '/v1/responses',
    body: (tokens) => ({
      max_output_tokens: tokens,
      input: 'Which?',
      tools: [{ type: 'function', name, parameters }],
      tool_choice: 'required',
    }),
    whole: ({ output, status, incomplete_details: details }) => ({
      text: output
        .flatMap(({ content }: Json) => content ?? [])
        .map(({ text }: Json) => text)
        .join(''),
      calls: output
        .filter(({ type }: Json) => type === 'function_call')
        .map((call: Json) => ({ name: call.name, args: call.arguments })),
      ending: details?.reason ?? status,
    }),
    streamed: (events) => {
      const done = events.find(({ type }) => type === 'response.completed' || type === 'response.incomplete');
      assert.ok(done);
      return families['responses']!.whole(done['response']);
    },
    cutAs: 'max_output_tokens',
  },
};

async function ask({ path, body, whole, streamed }: Family, tokens: number, stream: boolean): Promise<Said> {
  const answer = await fetch(chat.service.url + path, {
    method: 'POST',
    headers: { authorization: `Bearer ${chat.service.key}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'tiny', temperature: 0, ...body(tokens), ...(stream ? { stream } : {}) }),
  });
  const text = await answer.text();
  assert.equal(answer.status, 200, text);
  if (!stream) return whole(JSON.parse(text));
  const events = [...text.matchAll(/^data: (\{.*)$/gm)].map(([, data = '']) => JSON.parse(data));
  return streamed(events);
}

/**
 * §4.2.2: a forced call that `max_tokens` cuts is the beginning of a call or nothing at all. Its markup is never text, wherever
 * the cut is, and nobody reads a call that the model has not begun to write.
 */
describe('a forced call of the embedded engine that is cut', () => {
  before(() => chat.start());
  after(() => chat.dispose());

  for (const [title, family] of Object.entries(families)) {
    for (const stream of [false, true]) {
      test(`${title}${stream ? ', streamed' : ''}: at every number of tokens`, async () => {
        for (let tokens = 1, ending: unknown = family.cutAs; ending === family.cutAs; tokens++) {
          assert.ok(tokens < 120, 'the call never ends');
          const said = await ask(family, tokens, stream);
          const where = `${tokens} tokens: ${JSON.stringify(said)}`;
          ending = said.ending;
          assert.equal(said.text, '', where);
          assert.ok(said.calls.length <= 1, where);
          for (const call of said.calls) {
            assert.equal(call.name, name, where);
            assert.match(call.args, /^\{(?!\})/, where);
          }
          if (ending === family.cutAs) continue;
          assert.match(JSON.stringify(JSON.parse(said.calls[0]?.args ?? '')), /^\{"to":"(a|b)"\}$/, where);
        }
      });
    }
  }
});
