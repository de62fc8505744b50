/** A thread that parses large bodies, one after the other. Any error other than a refusal ends this thread only. */
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
// Large bodies yield the CPU to everything else: two of these threads on two cores would leave none to the main thread. On Linux, 0
// is the calling thread; on other systems, the process.
if (process.platform === 'linux') setPriority(0, behindOthers);

serveParent<JsonCalls>({
  handlers: {
    parse: (blocks) => {
      // After the answer has been written: its garbage is as large as the body.
      setImmediate(collectGarbage);
      const parsed = parse(blocks);
      // Frees the text before the answer is made.
      collectGarbage();
      if (!hasTooManyNames(parsed.value)) return parsed;
      throw new ApiError('invalid_json_request', `The body has more than ${differentNamesMax} different names.`);
    },
  },
  isAnswer: (error) => error instanceof ApiError && error.code === 'invalid_json_request',
});

/** Releases each form of the body before the next but one is made, so that there are never more than two (see body-budget.ts). */
function parse(blocks: readonly Uint8Array[]): ParsedJson {
  // In separate memory: the pool that small buffers share cannot be released.
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

/** Empties bytes that a caller may still reference. */
const release = (bytes: ArrayBuffer): void => void structuredClone(bytes, { transfer: [bytes] });
