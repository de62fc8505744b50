import { isUtf8 } from 'node:buffer';

import { ApiError } from '../../errors.ts';
import { structureOf } from './scan.ts';

/**
 * The only way from a body to a value, in two halves because its memory is counted in between. Both throw `invalid_json_request`
 * (specification §7.2): when the body is empty, is not UTF-8, breaks a limit of its structure, or is not JSON. As everywhere in
 * JSON: the last of several equal names counts, a number becomes the nearest double (`1e999` is infinite; readers of numbers refuse
 * that), half a surrogate pair may be escaped, and `__proto__` is a name like any other. A byte order mark is not JSON.
 */
export const parseJson = (body: Buffer): unknown => (checkJson(body), valueOf(body.toString('utf8')));

/** The first half: whether a body may be parsed. Returns how many structural characters it has. */
export function checkJson(body: Buffer): number {
  if (body.length === 0) throw new ApiError('invalid_json_request', 'The body is empty; send a JSON object.');
  // Before anything is built from it: a bomb costs only one pass.
  const structure = structureOf(body);
  if (typeof structure === 'string') throw new ApiError('invalid_json_request', `The body ${structure}.`);
  // Lossy decoding would let two different texts through as one (reliability §3.4).
  if (!isUtf8(body)) throw new ApiError('invalid_json_request', 'The body is not valid UTF-8.');
  return structure;
}

/** The second half, from the body's text. */
export function valueOf(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch (error) {
    const place = error instanceof SyntaxError ? /at position \d+/.exec(error.message)?.[0] : undefined;
    throw new ApiError(
      'invalid_json_request',
      `The body is not valid JSON${place === undefined ? '' : ` (${place})`}.`,
    );
  }
}
