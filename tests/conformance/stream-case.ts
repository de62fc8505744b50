import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';

import type { ResponseHead } from '../../src/inference/dialects/dialect.ts';
import { ApiError, errorBody } from '../../src/platform/errors.ts';
import type { ErrorCode } from '../../src/platform/errors.ts';
import type { GenerationBatch } from '../../src/generation/event.ts';
import { Fold } from '../../src/generation/fold.ts';
import { Meter } from '../../src/inference/pipeline/meter.ts';
import { covered } from '../generation/covered.ts';
import { plainSigner } from '../support/plain-signer.ts';
import type { Wire } from './dialects.ts';
import { inRepository } from '../support/repository.ts';

/** `events.json` of a case: what an engine says, and the facts of the answer's head. */
export interface StreamCase {
  /** What the case is about, for its reader. */
  readonly about: string;
  readonly head: Omit<ResponseHead, 'signer' | 'now'>;
  readonly choices: number;
  readonly batches: readonly GenerationBatch[];
  /** How the stream breaks after the last batch. */
  readonly error?: { readonly code: ErrorCode; readonly message: string };
}

/** What one dialect prints for a case. */
export interface Printed {
  readonly sse: string;
  /** The body of the whole answer, or of the error. */
  readonly json: string;
}

const folder = inRepository('tests', 'fixtures', 'streams');

export const streamCaseNames = (): readonly string[] =>
  readdirSync(folder, { withFileTypes: true })
    .filter((entry) => entry.isDirectory())
    .map((entry) => entry.name)
    .sort();
export const filesOfStreamCase = (name: string): readonly string[] => readdirSync(join(folder, name)).sort();
export const pathInStreamCase = (name: string, file: string): string => join(folder, name, file);

export const readStreamCase = (name: string): StreamCase =>
  JSON.parse(readFileSync(pathInStreamCase(name, 'events.json'), 'utf8')) as StreamCase;

/** Takes the events the way of every request: meter, then encoder or fold. */
export function print(script: StreamCase, { dialect, body, headers }: Wire): Printed {
  const { format } = dialect.decodeRequest(body, { headers, items: undefined });
  const head = { ...script.head, signer: plainSigner, now: () => script.head.created + 2 };
  const meter = new Meter({
    choices: script.choices,
    promptTokensLikely: 0,
    promptTokensPossible: Infinity,
    begunMs: 0,
  });
  const encoder = format.openStream(head);
  const fold = new Fold();
  let sse = '';
  const pass = (batch: GenerationBatch): void => {
    sse += encoder.batch(batch);
    fold.read(batch);
  };
  for (const batch of covered(script.batches)) {
    meter.read(batch);
    if (meter.pass.length > 0) pass(meter.pass);
  }
  if (script.error !== undefined) {
    const { code, message } = script.error;
    const reported = errorBody(new ApiError(code, message), script.head.requestId, 'http://localhost:8081');
    return { sse: sse + encoder.error(reported), json: dialect.encodeError(reported) };
  }
  pass(meter.closing());
  return { sse: sse + encoder.end(), json: format.encodeResponse(fold.generation(), head) };
}
