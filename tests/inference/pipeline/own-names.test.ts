import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { FieldPaths } from '../../../src/generation/request.ts';
import { withOwnNames } from '../../../src/inference/pipeline/own-names.ts';
import { chat } from '../../../src/inference/dialects/chat/chat.ts';
import { completions } from '../../../src/inference/dialects/completions/completions.ts';
import { messages } from '../../../src/inference/dialects/messages/messages.ts';
import { responses } from '../../../src/inference/dialects/responses/responses.ts';
import { ApiError } from '../../../src/platform/errors.ts';

const context = { headers: {}, items: undefined, isZeroRetention: false };
const turns = [{ role: 'user', content: 'x' }];
const schema = { type: 'json_schema', schema: { type: 'object' } };
const paths: Readonly<Record<string, FieldPaths>> = {
  chat: chat.decodeRequest({ model: 'm', messages: turns }, context).request.at,
  completions: completions.decodeRequest({ model: 'm', prompt: 'x' }, context).request.at,
  messages: messages.decodeRequest(
    { model: 'm', max_tokens: 1, messages: turns, output_config: { format: schema } },
    context,
  ).request.at,
  responses: responses.decodeRequest({ model: 'm', input: 'x', text: { format: { ...schema, name: 'a' } } }, context)
    .request.at,
};

/** By the name that an engine gives a field: the request's own. */
const names: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  messages: { chat: 'messages', completions: 'prompt', messages: 'messages', responses: 'input' },
  tool_choice: { chat: 'tool_choice', messages: 'tool_choice', responses: 'tool_choice' },
  'response_format.type': {
    chat: 'response_format.type',
    messages: 'output_config.format.type',
    responses: 'text.format.type',
  },
  response_format: { chat: 'response_format', messages: 'output_config.format', responses: 'text.format' },
  stop: { chat: 'stop', completions: 'stop', messages: 'stop_sequences' },
  logprobs: { chat: 'logprobs', completions: 'logprobs', responses: 'include' },
  // Paths inside a field are the client's already.
  'messages[1].content[0]': { chat: 'messages[1].content[0]', responses: 'messages[1].content[0]' },
};

for (const [name, owns] of Object.entries(names))
  for (const [family, own] of Object.entries(owns))
    test(`${name} is ${own} to a client of ${family}`, () => {
      const error = new ApiError('unsupported_feature', 'It does not.', { param: name, extra: { model: 'm' } });
      const named = withOwnNames(paths[family]!, error) as ApiError;
      assert.deepEqual(
        [named.param, named.code, named.message, named.extra],
        [own, error.code, error.message, error.extra],
      );
    });

test('other errors are as they were', () => {
  for (const error of [new Error('x'), new ApiError('internal_error', 'x'), 'stopped'])
    assert.equal(withOwnNames(paths['responses']!, error), error);
});
