import { isUtf8 } from 'node:buffer';

import { ApiError } from '../../errors.ts';
import { structureFault } from './scan.ts';

/**
 * The one way from a body to a value. Throws `invalid_json_request` (specification §7.2) when the body is empty, is not UTF-8,
 * breaks a limit of its structure, or is not JSON. As everywhere in JSON: the last of several equal names counts, a number
 * becomes the nearest double (`1e999` is infinite; readers of numbers refuse that), half a surrogate pair may be escaped, and
 * `__proto__` is a name like any other. A byte order mark is not JSON.
 */
export function parseJson(body: Buffer): unknown {
  if (body.length === 0) throw new ApiError('invalid_json_request', 'The body is empty; send a JSON object.');
  // Before anything is built from it: a bomb costs only one reading.
  const fault = structureFault(body);
  if (fault !== undefined) throw new ApiError('invalid_json_request', `The body ${fault}.`);
  // Lossy decoding would let two different texts through as one (reliability §3.4).
  if (!isUtf8(body)) throw new ApiError('invalid_json_request', 'The body is not valid UTF-8.');
  try {
    return JSON.parse(body.toString('utf8')) as unknown;
  } catch (error) {
    const place = error instanceof SyntaxError ? /at position \d+/.exec(error.message)?.[0] : undefined;
    throw new ApiError(
      'invalid_json_request',
      `The body is not valid JSON${place === undefined ? '' : ` (${place})`}.`,
    );
  }
}
