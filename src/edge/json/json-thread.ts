/** A thread that parses large bodies, one after the other. Whatever it throws beyond a refusal ends it, and only it. */
import '../../platform/stack-traces.ts';

import { parentPort } from 'node:worker_threads';

import { ApiError } from '../../errors.ts';
import { differentNamesMax, hasTooManyNames } from './names.ts';
import { parseJson } from './parse.ts';

export type JsonReply = { readonly value: unknown } | { readonly refusal: string };

const port = parentPort!;
port.on('message', (blocks: readonly Uint8Array[]) => {
  port.postMessage(reply(blocks));
});

function reply(blocks: readonly Uint8Array[]): JsonReply {
  try {
    const value = parseJson(Buffer.concat(blocks));
    return hasTooManyNames(value)
      ? { refusal: `The body has more than ${differentNamesMax} different names.` }
      : { value };
  } catch (error) {
    if (error instanceof ApiError && error.code === 'invalid_json_request') return { refusal: error.message };
    throw error;
  }
}
