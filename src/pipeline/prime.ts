import type { GenerationBatch, GenerationStream } from '../generation/event.ts';

/** What is known of a stream before its answer's head goes out. */
export type Primed =
  | {
      readonly state: 'batch';
      readonly first: IteratorResult<GenerationBatch>;
      readonly rest: AsyncIterator<GenerationBatch>;
    }
  /** The time is up and nothing has come: a stream's head may go out, `first` is still under way. */
  | {
      readonly state: 'waiting';
      readonly first: Promise<IteratorResult<GenerationBatch>>;
      readonly rest: AsyncIterator<GenerationBatch>;
    };

/**
 * Starts a stream and waits for its first batch, at most `limitMs`; throws what the stream throws before it. So whatever
 * fails before the first token is an ordinary HTTP error with its own status (contracts §1.0).
 *
 * From here on the caller owns `rest`: it must be read to its end or ended with `return()`, after aborting the signal of
 * the stream, because a pending `next()` holds `return()` up.
 */
export async function prime(stream: GenerationStream, limitMs: number): Promise<Primed> {
  const rest = stream[Symbol.asyncIterator]();
  const first = rest.next();
  let timer: NodeJS.Timeout | undefined;
  const timeUp = new Promise<undefined>((resolve) => {
    timer = setTimeout(resolve, limitMs, undefined);
  });
  try {
    const settled = await Promise.race([first, timeUp]);
    return settled === undefined ? { state: 'waiting', first, rest } : { state: 'batch', first: settled, rest };
  } finally {
    clearTimeout(timer);
  }
}
