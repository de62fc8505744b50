import { randomBytes } from 'node:crypto';

import type { Canaries } from './canary.ts';

/** A PNG's first bytes with a text in it: nobody can draw it, and every program takes it for an image. */
const imageWith = (text: string): string =>
  `data:image/png;base64,${Buffer.concat([Buffer.from('89504e470d0a1a0a0000000d49484452', 'hex'), Buffer.from(text)]).toString('base64')}`;

/** A request that is taken, with a canary in every place that a client can fill. */
export function canaryBody(canaries: Canaries, model: string, stream: boolean, last: string): Record<string, unknown> {
  const at = (place: string): string => canaries.at(`${place}, to ${model}, ${last}`);
  const call = at('tool call id');
  return {
    model,
    stream,
    max_tokens: 20,
    messages: [
      { role: 'system', content: at('system text'), name: at('name of the system') },
      { role: 'developer', content: [{ type: 'text', text: at('developer part') }] },
      {
        role: 'user',
        content: [
          { type: 'text', text: at('user part') },
          {
            type: 'image_url',
            image_url: { url: `https://example.org/${at('path of an image')}?token=${at('query of an image')}` },
          },
          { type: 'image_url', image_url: { url: imageWith(at('bytes of an image')) } },
        ],
        name: at('name of the user'),
      },
      {
        role: 'assistant',
        content: at('assistant text'),
        reasoning_content: at('reasoning'),
        tool_calls: [
          {
            id: call,
            type: 'function',
            function: { name: at('tool name'), arguments: `{"a":"${at('tool arguments')}"}` },
          },
        ],
      },
      { role: 'tool', tool_call_id: call, content: at('tool result') },
      { role: 'assistant', content: [{ type: 'refusal', refusal: at('refusal') }] },
      { role: 'user', content: `${at('last text')} <${last}>` },
    ],
    stop: [at('stop'), at('second stop')],
    user: at('user field'),
    metadata: { [at('metadata key')]: at('metadata value') },
    prompt_cache_key: at('cache key'),
    [at('unknown field')]: { deep: [at('unknown value')] },
  };
}

/** The same for messages. */
export function canaryMessagesBody(
  canaries: Canaries,
  model: string,
  stream: boolean,
  last: string,
): Record<string, unknown> {
  const at = (place: string): string => canaries.at(`${place} of messages, to ${model}, ${last}`);
  const call = at('tool use id');
  const image = imageWith(at('bytes of an image')).slice('data:image/png;base64,'.length);
  return {
    model,
    stream,
    max_tokens: 20,
    system: [{ type: 'text', text: at('system block') }],
    messages: [
      {
        role: 'user',
        content: [
          { type: 'text', text: at('user block'), cache_control: { type: at('cache control') } },
          { type: 'image', source: { type: 'base64', media_type: 'image/png', data: image } },
          { type: 'image', source: { type: 'url', url: `https://example.org/${at('path of an image')}` } },
          {
            type: 'document',
            title: at('title'),
            context: at('context'),
            source: { type: 'text', media_type: 'text/plain', data: at('document') },
          },
          {
            type: 'search_result',
            title: at('title of a search result'),
            source: at('source of a search result'),
            content: [{ type: 'text', text: at('search result') }],
          },
        ],
      },
      { role: 'system', content: at('inline system text') },
      {
        role: 'assistant',
        content: [
          { type: 'thinking', thinking: at('thinking'), signature: at('signature') },
          { type: 'redacted_thinking', data: at('redacted thinking') },
          { type: 'text', text: at('assistant block') },
          { type: 'tool_use', id: call, name: at('tool name'), input: { [at('input key')]: at('input value') } },
        ],
      },
      {
        role: 'user',
        content: [
          {
            type: 'tool_result',
            tool_use_id: call,
            is_error: true,
            content: [
              { type: 'text', text: at('tool result') },
              { type: 'tool_reference', tool_name: at('tool reference') },
            ],
          },
          { type: 'text', text: `${at('last text')} <${last}>` },
        ],
      },
    ],
    stop_sequences: [at('stop sequence')],
    metadata: { user_id: at('user id') },
    context_management: { edits: [at('edit')] },
    container: at('container'),
    [at('unknown field')]: { deep: [at('unknown value')] },
  };
}

/** The same for text completions: what is only possible there. */
export function canaryCompletionBody(
  canaries: Canaries,
  model: string,
  stream: boolean,
  last: string,
): Record<string, unknown> {
  const at = (place: string): string => canaries.at(`${place} of a completion, to ${model}, ${last}`);
  return {
    model,
    stream,
    max_tokens: 20,
    prompt: [at('first prompt'), `${at('last prompt')} <${last}>`],
    echo: true,
    stop: [at('stop')],
    user: at('user field'),
    structured_outputs: { choice: [at('first choice'), at('second choice')] },
    [at('unknown field')]: { deep: [at('unknown value')] },
  };
}

/** Headers that anybody may send, but for the client's own request id. */
export const canaryHeaders = (canaries: Canaries, of: string): readonly (readonly [string, string])[] => [
  ['User-Agent', canaries.at(`user agent, ${of}`)],
  ['Cookie', `a=${canaries.at(`cookie, ${of}`)}`],
  ['Referer', `https://example.org/${canaries.at(`referer, ${of}`)}`],
  ['Service-Request-Tag', canaries.at(`tag, ${of}`)],
  ['Traceparent', `00-${randomBytes(16).toString('hex')}-${randomBytes(8).toString('hex')}-01`],
  ['Tracestate', `vendor=${canaries.at(`tracestate, ${of}`)}`],
  ['X-Forwarded-For', canaries.at(`forwarded for, ${of}`)],
  [`X-${canaries.at(`header name, ${of}`)}`, 'x'],
];
