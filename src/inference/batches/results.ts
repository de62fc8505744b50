import type { LineResult } from '../../store/repositories/batch-lines.ts';
import type { BatchRow } from '../../store/repositories/batch-rows.ts';
import type { Repositories } from '../../store/repositories/repositories.ts';

/** A line may have megabytes, with the probabilities of each token. */
const linesAtOnce = 8;

/** How a client's interface prints what became of a line: a line of JSON, without its end. */
export type PrintResult = (result: LineResult, batch: BatchRow, unfinished: 'cancelled' | 'expired') => string;

/** The lines of a batch, printed in their order, in portions: those with an answer, or the others. */
export async function* printedLines(
  batch: BatchRow,
  which: 'completed' | 'others' | 'all',
  print: PrintResult,
  repositories: Pick<Repositories, 'listLineResults'>,
): AsyncGenerator<Uint8Array> {
  const unfinished = batch.cancellingAt === null ? 'expired' : 'cancelled';
  let after = 0;
  for (;;) {
    const page = await repositories.listLineResults({ id: batch.id, which, after, limit: linesAtOnce });
    const last = page.at(-1);
    if (last === undefined) return;
    after = last.line;
    for (const result of page) yield Buffer.from(`${print(result, batch, unfinished)}\n`);
  }
}
