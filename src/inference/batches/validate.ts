import { createHash } from 'node:crypto';
import { setImmediate as nextTurn } from 'node:timers/promises';

import type { Caller } from '../../accounts/directory.ts';
import { toApiError } from '../../platform/errors.ts';
import type { NewLine } from '../../store/repositories/batch-lines.ts';
import type { BatchRow } from '../../store/repositories/batch-rows.ts';
import type { BatchFault } from '../../store/schema/tables.ts';
import type { Lines } from './line.ts';
import { wires } from './wires.ts';

export interface ValidationBounds {
  /** Lines that a batch may have. */
  readonly linesMax: number;
  /** Bytes that a line may have. */
  readonly lineBytesMax: number;
}

export interface Validation {
  readonly batch: BatchRow;
  readonly batchId: string;
  readonly caller: Caller;
  readonly bounds: ValidationBounds;
  readonly lines: Pick<Lines, 'check'>;
  readonly signal: AbortSignal;
  /** Stores a portion; false: the batch is not validated here any more. */
  add(lines: readonly NewLine[]): Promise<boolean>;
}

export type Validated = Pick<BatchRow, 'models'> | { readonly faults: readonly BatchFault[] };

/** Further faults are not reported: the file has to be corrected and sent again anyway. */
const faultsMax = 100;
const linesAtOnce = 500;
const modelsMax = 100;
/** Work in one turn of the event loop: requests are answered beside it. */
const turnMs = 3;

/**
 * Reads a whole file and checks every line before any of them runs. Stores the lines in portions, so memory does not grow with the file
 * beyond the ids of its lines. undefined: it was stopped.
 */
export async function validate(
  source: AsyncIterable<Uint8Array>,
  { batch, batchId, caller, bounds, lines, signal, add }: Validation,
): Promise<Validated | undefined> {
  const faults: BatchFault[] = [];
  const models = new Set<string>();
  const customIds = new Map<string, number>();
  let portion: NewLine[] = [];
  let count = 0;
  let turnBegan = performance.now();
  const { split, isFile } = wires[batch.wire];
  for await (const { line, offsetBytes, length, bytes } of split(source, bounds.lineBytesMax)) {
    signal.throwIfAborted();
    if (performance.now() - turnBegan > turnMs) {
      await nextTurn();
      turnBegan = performance.now();
    }
    if (++count > bounds.linesMax) {
      const message = `The file has more than ${bounds.linesMax} lines, which is the limit of a batch.`;
      return { faults: [fault('too_many_lines', message)] };
    }
    try {
      if (bytes === undefined)
        throw new LineFault('line_too_long', `The line has more than ${bounds.lineBytesMax} bytes.`, null);
      const { wire, endpoint } = batch;
      const checked = await lines.check({ batchId, wire, endpoint, caller, bytes });
      const { customId, refused } = checked;
      if (refused !== undefined && (isFile || isPassing(refused.error))) throw refused.error;
      // Ids are up to 512 characters, and a file has 50,000 of them.
      const name = createHash('sha256').update(customId).digest('base64').slice(0, 22);
      const earlier = customIds.get(name);
      if (earlier !== undefined)
        throw new LineFault('duplicate_custom_id', `Line ${earlier} has the same custom_id.`, 'custom_id');
      customIds.set(name, line);
      if (checked.refused === undefined) models.add(checked.modelId);
      if (models.size > modelsMax)
        throw new LineFault('too_many_models', `A batch names at most ${modelsMax} models.`, 'body.model');
      const place = { line, customId, offsetBytes, bytes: length };
      portion.push(
        checked.refused === undefined
          ? { ...place, modelId: checked.modelId, result: null }
          : { ...place, modelId: '', result: checked.refused.result },
      );
    } catch (error) {
      if (signal.aborted || isPassing(error)) throw error;
      faults.push(faultOf(error, line));
      if (faults.length >= faultsMax) return { faults };
    }
    if (portion.length < linesAtOnce) continue;
    if (faults.length === 0 && !(await add(portion))) return undefined;
    portion = [];
  }
  if (count === 0) return { faults: [fault('empty_file', 'The file has no lines.')] };
  if (faults.length > 0) return { faults };
  if (portion.length > 0 && !(await add(portion))) return undefined;
  return { models: [...models] };
}

/** A failure that says nothing of the line: the batch is validated again. */
function isPassing(error: unknown): boolean {
  if (error instanceof LineFault) return false;
  const { status, code } = toApiError(error);
  return status === 429 || status >= 500 || code === 'http_409';
}

class LineFault extends Error {
  readonly code: string;
  readonly param: string | null;

  constructor(code: string, message: string, param: string | null) {
    super(message);
    this.code = code;
    this.param = param;
  }
}

function faultOf(error: unknown, line: number): BatchFault {
  if (error instanceof LineFault) return { code: error.code, message: error.message, line, param: error.param };
  const { code, message, param } = toApiError(error);
  return { code, message, line, param: param ?? null };
}

export const fault = (code: string, message: string): BatchFault => ({ code, message, line: null, param: null });
