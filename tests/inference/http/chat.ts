import type { TestService } from '../../support/service.ts';
import { exchange } from './raw.ts';
import type { RawAnswer, RawRequest } from './raw.ts';

/** A body that is taken and answered at once by the model `demo`. */
export const plainBody = { model: 'demo', messages: [{ role: 'user', content: 'hi' }] };

type Header = readonly [string, string];

/** A chat completion with the first key; further headers stand after `authorization` and `content-type`. */
export const chatRequest = (
  service: TestService,
  body: unknown = plainBody,
  headers: readonly Header[] = [],
): RawRequest => ({
  method: 'POST',
  path: '/v1/chat/completions',
  headers: [['Authorization', `Bearer ${service.key}`], ['Content-Type', 'application/json'], ...headers],
  body: typeof body === 'string' || body instanceof Uint8Array ? body : JSON.stringify(body),
});

export const askChat = (
  service: TestService,
  body: unknown = plainBody,
  headers: readonly Header[] = [],
): Promise<RawAnswer> => exchange(service.url, chatRequest(service, body, headers));

/** The data of each event of a stream, in order; comments are left out. */
export const eventsOf = (body: string): readonly string[] =>
  body
    .split('\n\n')
    .filter((event) => event.startsWith('data: '))
    .map((event) => event.slice('data: '.length));
