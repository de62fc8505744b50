/** A thread that parses large bodies, one after the other. Any error beyond a refusal ends it, and only it. */
import '../../stack-traces.ts';

import { setPriority } from 'node:os';
import { parentPort } from 'node:worker_threads';

import { ApiError } from '../../errors.ts';
import { differentNamesMax, hasTooManyNames } from './names.ts';
import { parseJson } from './parse.ts';

export type JsonReply = { readonly value: unknown } | { readonly refusal: string };

/** A tenth of the CPU while others need it. */
const behindOthers = 10;
// Large bodies yield the CPU to everything else: two of these threads on two cores would leave the main thread none. To Linux 0
// is the calling thread; to other systems it is the process.
if (process.platform === 'linux') setPriority(0, behindOthers);

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
