import assert from 'node:assert/strict';

import type { TestService } from '../support/service.ts';
import { readMessageStream } from './messages-reader.ts';
import { assertMessageShape } from './messages-shape.ts';
import type { Generation, WireMessage } from './messages-shape.ts';

type Body = Readonly<Record<string, unknown>>;

export interface AskOptions {
  readonly version?: Generation;
  readonly key?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly path?: string;
  readonly signal?: AbortSignal;
}

/** An error answer as this family wraps it (specification §7.1). */
export interface WireError {
  readonly type: string;
  readonly request_id: string;
  readonly error: Readonly<Record<string, unknown>> & {
    readonly code: string;
    readonly type: string;
    readonly message: string;
    readonly param?: string;
    readonly details: { readonly error_code: string };
  };
}

/** Asks a running service as clients of this family do; a body says only what a test is about. */
export class MessagesClient {
  readonly #service: TestService;

  constructor(service: TestService) {
    this.#service = service;
  }

  send(body: Body, { version, key, headers, path = '/v1/messages', signal }: AskOptions = {}): Promise<Response> {
    return fetch(this.#service.url + path, {
      method: 'POST',
      headers: {
        'x-api-key': key ?? this.#service.key,
        'content-type': 'application/json',
        ...(version === undefined ? {} : { 'anthropic-version': version }),
        ...headers,
      },
      body: JSON.stringify({ model: 'demo', messages: [{ role: 'user', content: 'hi' }], ...body }),
      ...(signal === undefined ? {} : { signal }),
    });
  }

  async whole(body: Body = {}, options: AskOptions = {}): Promise<WireMessage> {
    const { version = '2023-06-01' } = options;
    const answer = await this.send({ max_tokens: 100, ...body }, { ...options, version });
    const text = await answer.text();
    assert.equal(answer.status, 200, text);
    const message: unknown = JSON.parse(text);
    assertMessageShape(message, version);
    return message;
  }

  async streamed(body: Body = {}, options: AskOptions = {}) {
    const { version = '2023-06-01' } = options;
    const answer = await this.send({ max_tokens: 100, stream: true, ...body }, { ...options, version });
    const text = await answer.text();
    assert.equal(answer.status, 200, text);
    assert.match(answer.headers.get('content-type') ?? '', /^text\/event-stream/);
    return { ...readMessageStream(text, version), text };
  }

  async refused(body: Body, options: AskOptions = {}): Promise<WireError & { readonly status: number }> {
    const answer = await this.send({ max_tokens: 100, ...body }, options);
    const wrapped = (await answer.json()) as WireError;
    assert.equal(wrapped.type, 'error', JSON.stringify(wrapped));
    assert.equal(wrapped.error['request_id'], answer.headers.get('request-id'));
    assert.equal(wrapped.request_id, answer.headers.get('request-id'));
    return { ...wrapped, status: answer.status };
  }

  async count(body: Body = {}): Promise<number> {
    const answer = await this.send(body, { path: '/v1/messages/count_tokens' });
    const text = await answer.text();
    assert.equal(answer.status, 200, text);
    const counted = JSON.parse(text) as { input_tokens: number };
    assert.deepEqual(Object.keys(counted), ['input_tokens']);
    return counted.input_tokens;
  }
}

/** All tokens of the prompt, wherever they came from. */
export const inputTokensOf = ({ usage }: WireMessage): number =>
  usage.input_tokens + usage.cache_creation_input_tokens + usage.cache_read_input_tokens;

export const textOf = (message: WireMessage | undefined): string =>
  (message?.content ?? []).map((block) => (block.type === 'text' ? block.text : '')).join('');

export const user = (content: unknown) => ({ role: 'user', content });
export const assistant = (content: unknown) => ({ role: 'assistant', content });
export const weather = {
  name: 'get_weather',
  description: 'w',
  input_schema: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
};
