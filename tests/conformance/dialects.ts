import { chat } from '../../src/inference/dialects/chat/chat.ts';
import { completions } from '../../src/inference/dialects/completions/completions.ts';
import { messages } from '../../src/inference/dialects/messages/messages.ts';
import { responses } from '../../src/inference/dialects/responses/responses.ts';
import type { Dialect, Headers } from '../../src/inference/dialects/dialect.ts';

/** A wire, and a request on it: the form of an answer may depend on what was asked. */
export interface Wire {
  readonly dialect: Dialect;
  readonly body: unknown;
  readonly headers: Headers;
}

const messagesBody = { model: 'm', max_tokens: 100, messages: [{ role: 'user', content: 'hi' }] };
const responsesBody = {
  model: 'm',
  input: 'hi',
  include: ['reasoning.encrypted_content', 'message.output_text.logprobs'],
  top_logprobs: 2,
};

/** Every wire that the scripts in `tests/fixtures/streams` are printed on, by the name of its fixture files. */
export const wires: ReadonlyMap<string, Wire> = new Map<string, Wire>([
  ['chat', { dialect: chat, body: { model: 'm', messages: [{ role: 'user', content: 'hi' }] }, headers: {} }],
  ['completions', { dialect: completions, body: { model: 'm', prompt: 'hi' }, headers: {} }],
  [
    'completions-tokens',
    {
      dialect: completions,
      body: { model: 'm', prompt: 'hi', echo: true, logprobs: 2, return_token_ids: true },
      headers: {},
    },
  ],
  ['messages', { dialect: messages, body: messagesBody, headers: { 'anthropic-version': '2023-06-01' } }],
  ['messages-2026-10-21', { dialect: messages, body: messagesBody, headers: { 'anthropic-version': '2026-10-21' } }],
  ['responses', { dialect: responses, body: responsesBody, headers: {} }],
]);
