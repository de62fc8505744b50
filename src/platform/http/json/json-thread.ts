/** A thread that parses large bodies, one after the other. Any error beyond a refusal ends it, and only it. */
import '../../stack-traces.ts';

import { setPriority } from 'node:os';

import { ApiError } from '../../errors.ts';
import { collectGarbage } from './collect.ts';
import { differentNamesMax, hasTooManyNames } from './names.ts';
import { serveParent } from '../../rpc/thread.ts';
import { checkJson, valueOf } from './parse.ts';

export type JsonCalls = { readonly parse: (blocks: readonly Uint8Array[]) => ParsedJson };

export interface ParsedJson {
  readonly value: unknown;
  /** Braces, brackets, commas and colons of the text. */
  readonly structuralCharacters: number;
}

/** A tenth of the CPU while others need it. */
const behindOthers = 10;
// Large bodies yield the CPU to everything else: two of these threads on two cores would leave the main thread none. To Linux 0
// is the calling thread; to other systems it is the process.
if (process.platform === 'linux') setPriority(0, behindOthers);

serveParent<JsonCalls>({
  handlers: {
    parse: (blocks) => {
      // After the answer has been written: what is left of it is as large as the body.
      setImmediate(collectGarbage);
      const parsed = parse(blocks);
      // The text is gone before the answer is made.
      collectGarbage();
      if (!hasTooManyNames(parsed.value)) return parsed;
      throw new ApiError('invalid_json_request', `The body has more than ${differentNamesMax} different names.`);
    },
  },
  isAnswer: (error) => error instanceof ApiError && error.code === 'invalid_json_request',
});

/** Lets go of each form of the body before the next but one is made: there are never more than two (see body-budget.ts). */
function parse(blocks: readonly Uint8Array[]): ParsedJson {
  // In memory of its own: of the pool that small ones share nothing can be released.
  const body = Buffer.allocUnsafeSlow(blocks.reduce((sum, { length }) => sum + length, 0));
  let end = 0;
  for (const block of blocks) {
    body.set(block, end);
    end += block.length;
    release(block.buffer as ArrayBuffer);
  }
  const structuralCharacters = checkJson(body);
  const text = body.toString('utf8');
  release(body.buffer as ArrayBuffer);
  collectGarbage();
  return { value: valueOf(text), structuralCharacters };
}

/** Empties bytes to which somebody up the stack may still refer. */
const release = (bytes: ArrayBuffer): void => void structuredClone(bytes, { transfer: [bytes] });
