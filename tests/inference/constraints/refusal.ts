import assert from 'node:assert/strict';
import { ApiError, type ErrorCode } from '../../../src/platform/errors.ts';

/** What `compile` returns; `undefined` where it refuses with a message like `expected`. Other failures are thrown. */
export function unlessRefused<Made>(compile: () => Made, expected = /./): Made | undefined {
  try {
    return compile();
  } catch (error) {
    if (error instanceof ApiError && expected.test(error.message)) return undefined;
    throw error;
  }
}

/** The message of the refusal, which has this code and the `param` `at`. */
export function refusal(compile: () => unknown, code: ErrorCode, at: string): string {
  let message = '';
  assert.throws(compile, (error) => {
    assert.ok(error instanceof ApiError, String(error));
    assert.equal(error.code, code);
    assert.equal(error.status, 400);
    assert.equal(error.param, at);
    message = error.message;
    return true;
  });
  return message;
}
