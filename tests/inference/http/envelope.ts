import assert from 'node:assert/strict';

import { errorTable } from '../../../src/platform/errors.ts';
import type { ErrorCode } from '../../../src/platform/errors.ts';
import type { RawAnswer } from './raw.ts';

export interface EnvelopeExpectation {
  /** `undefined`: there must be none (contracts decision 16). */
  readonly param?: string;
  /** Names of the fields of this code beside the common ones. */
  readonly extra?: readonly string[];
  /** What stands before `/docs/errors/`. */
  readonly accountUrl?: string;
}

const commonFields = ['type', 'code', 'message', 'request_id', 'docs_url'];

/** The answer is the envelope of this code, whole and without anything else (specification §7.1); returns its `error`. */
export function assertEnvelope(
  answer: RawAnswer,
  code: ErrorCode,
  { param, extra = [], accountUrl }: EnvelopeExpectation = {},
): Readonly<Record<string, unknown>> {
  const body = answer.json();
  const error = body['error'] as Record<string, unknown> | undefined;
  assert.ok(error, `no envelope: ${answer.body}`);
  assert.equal(error['code'], code, answer.body);
  assert.deepEqual(Object.keys(body), ['error']);
  assert.equal(answer.status, errorTable[code].status, answer.body);
  assert.equal(error['type'], errorTable[code].type);
  assert.ok(typeof error['message'] === 'string' && error['message'] !== '', answer.body);
  assert.equal(error['param'], param, answer.body);
  const fields = [...commonFields, ...(param === undefined ? [] : ['param']), ...extra];
  assert.deepEqual(Object.keys(error).toSorted(), fields.toSorted());
  assert.match(answer.headers['content-type'] ?? '', /^application\/json/);
  assertRequestId(answer);
  assert.equal(error['request_id'], answer.headers['x-request-id']);
  const docsUrl = String(error['docs_url']);
  assert.ok(docsUrl.endsWith(`/docs/errors/${code}`), docsUrl);
  if (accountUrl !== undefined) assert.equal(docsUrl, `${accountUrl}/docs/errors/${code}`);
  return error;
}

/** Both names of the request id, one value (contracts §0.16, decision 11); returns it. */
export function assertRequestId(answer: Pick<RawAnswer, 'headers'>, expected?: string): string {
  const id = answer.headers['x-request-id'] ?? '';
  assert.equal(answer.headers['request-id'], id);
  if (expected === undefined) assert.match(id, /^(req_[0-9a-f]{12}|client_[\x21-\x7e]{1,128})$/);
  else assert.equal(id, expected);
  return id;
}
