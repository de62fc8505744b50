/** A thread that parses large bodies, one after the other. Any error beyond a refusal ends it, and only it. */
import '../../stack-traces.ts';

import { setPriority } from 'node:os';

import { ApiError } from '../../errors.ts';
import { differentNamesMax, hasTooManyNames } from './names.ts';
import { serveParent } from '../../rpc/thread.ts';
import { parseJson } from './parse.ts';

export type JsonCalls = { readonly parse: (blocks: readonly Uint8Array[]) => unknown };

/** A tenth of the CPU while others need it. */
const behindOthers = 10;
// Large bodies yield the CPU to everything else: two of these threads on two cores would leave the main thread none. To Linux 0
// is the calling thread; to other systems it is the process.
if (process.platform === 'linux') setPriority(0, behindOthers);

serveParent<JsonCalls>({
  handlers: {
    parse: (blocks) => {
      const value = parseJson(Buffer.concat(blocks));
      if (!hasTooManyNames(value)) return value;
      throw new ApiError('invalid_json_request', `The body has more than ${differentNamesMax} different names.`);
    },
  },
  isAnswer: (error) => error instanceof ApiError && error.code === 'invalid_json_request',
});
