import type { BatchRow } from '../../store/repositories/batch-rows.ts';
import { openAiBatches } from './openai-shape.ts';
import type { PrintResult } from './results.ts';

interface ResultFile {
  readonly kind: 'output' | 'error';
  readonly which: 'completed' | 'others' | 'all';
}

/** What differs between the interfaces through which clients see batches. */
interface Wire {
  /** The id as the client knows it. */
  idOf(batch: Pick<BatchRow, 'id'>): string;
  /** The files that its results need. */
  filesOf(batch: BatchRow): readonly ResultFile[];
  readonly print: PrintResult;
}

export const wires: Readonly<Record<BatchRow['wire'], Wire>> = {
  openai: {
    idOf: openAiBatches.idOf,
    filesOf: ({ requests, completed }) => [
      ...(completed > 0 ? [{ kind: 'output', which: 'completed' } as const] : []),
      ...(completed < requests ? [{ kind: 'error', which: 'others' } as const] : []),
    ],
    print: openAiBatches.printResult,
  },
  anthropic: {
    idOf: openAiBatches.idOf,
    filesOf: () => [{ kind: 'output', which: 'all' }],
    print: openAiBatches.printResult,
  },
};
