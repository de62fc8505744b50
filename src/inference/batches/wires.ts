import type { BatchRow } from '../../store/repositories/batch-rows.ts';
import { anthropicBatches } from './anthropic-shape.ts';
import { openAiBatches } from './openai-shape.ts';
import type { PrintResult } from './results.ts';
import { splitLines, type FileLine } from './split-lines.ts';
import { splitRequests } from './split-requests.ts';

interface ResultFile {
  readonly kind: 'output' | 'error';
  readonly which: 'completed' | 'others' | 'all';
}

/** What differs between the interfaces through which clients see batches. */
interface Wire {
  /** The lines of its input, each of at most `bytesMax` bytes. */
  split(source: AsyncIterable<Uint8Array>, bytesMax: number): AsyncIterable<FileLine>;
  /** Its `custom_id`, if the line has the right form. Throws `ApiError`, whose `param` is a place in the line. */
  customIdOf(line: Readonly<Record<string, unknown>>, endpoint: string): string;
  /** The field of a line that has the body of the request. */
  readonly bodyField: 'body' | 'params';
  /** The input is a file of the client's, who is told what is wrong with it before a line runs; otherwise such lines end alone. */
  readonly isFile: boolean;
  /** The files that its results need. */
  filesOf(batch: BatchRow): readonly ResultFile[];
  readonly print: PrintResult;
}

export const wires: Readonly<Record<BatchRow['wire'], Wire>> = {
  openai: {
    split: splitLines,
    customIdOf: openAiBatches.customIdOf,
    bodyField: 'body',
    isFile: true,
    filesOf: ({ requests, completed }) => [
      ...(completed > 0 ? [{ kind: 'output', which: 'completed' } as const] : []),
      ...(completed < requests ? [{ kind: 'error', which: 'others' } as const] : []),
    ],
    print: openAiBatches.printResult,
  },
  anthropic: {
    split: splitRequests,
    customIdOf: anthropicBatches.customIdOf,
    bodyField: 'params',
    isFile: false,
    filesOf: () => [{ kind: 'output', which: 'all' }],
    print: anthropicBatches.printResult,
  },
};
