import assert from 'node:assert/strict';

import { exchange } from '../inference/http/raw.ts';
import type { RawAnswer } from '../inference/http/raw.ts';
import type { TestService } from '../support/service.ts';
import type { Relay } from './relay.ts';
import { readResponseStream } from './responses-reader.ts';
import type { ReadStream, WireResponse } from './responses-reader.ts';

type Body = Readonly<Record<string, unknown>>;

/** A request to /v1/responses, or to what `path` says. */
export const sendResponses = (
  service: TestService,
  body: Body,
  { headers = [], path = '/v1/responses', key = service.key }: ResponsesOptions = {},
): Promise<RawAnswer> =>
  exchange(service.url, {
    method: 'POST',
    path,
    headers: [['Authorization', `Bearer ${key}`], ['Content-Type', 'application/json'], ...headers],
    body: JSON.stringify({ input: 'Say hello.', ...body }),
  });

export interface ResponsesOptions {
  readonly headers?: readonly (readonly [string, string])[];
  readonly path?: string;
  readonly key?: string;
}

/** What the one model that was asked was sent, for a request that is taken. */
export async function sentForResponses(relay: Relay, body: Body, options?: ResponsesOptions): Promise<Body> {
  relay.asked();
  const answer = await sendResponses(relay.service, body, options);
  assert.equal(answer.status, 200, answer.body);
  const [first, ...others] = relay.asked();
  assert.ok(first !== undefined && others.length === 0, 'one request upstream');
  return first;
}

export async function wholeResponse(
  service: TestService,
  body: Body,
  options?: ResponsesOptions,
): Promise<WireResponse> {
  const answer = await sendResponses(service, body, options);
  assert.equal(answer.status, 200, answer.body);
  return JSON.parse(answer.body) as WireResponse;
}

export async function streamedResponse(
  service: TestService,
  body: Body,
  options?: ResponsesOptions,
): Promise<ReadStream> {
  const answer = await sendResponses(service, { ...body, stream: true }, options);
  assert.equal(answer.status, 200, answer.body);
  assert.match(answer.headers['content-type'] ?? '', /^text\/event-stream/);
  return readResponseStream(answer.body);
}
