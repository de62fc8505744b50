import type { Discovered } from '../../config/discovered.ts';

/** What a source of backends reports. A list is whole, and takes the place of the one before. */
export interface SourceReader {
  readonly listed: (servers: readonly Discovered[]) => void;
  /** It could not be read: in words for an operator. The last list stays. */
  readonly failed: (problem: string) => void;
}

/** A running source. After `close` it reports nothing. */
export interface RunningSource {
  close(): void;
}

/** A failure whose message an operator may read: it repeats nothing that the other side wrote. */
export class SourceError extends Error {
  override readonly name = 'SourceError';
}

/** In words for an operator, by the code of the system where there is one. */
export function problemOf(error: unknown, what: string): string {
  if (error instanceof SourceError) return error.message;
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
  const code = (cause as { readonly code?: unknown } | null)?.code;
  return `${what}: ${typeof code === 'string' ? code : cause instanceof Error ? cause.message.slice(0, 200) : String(cause)}`;
}

const retryMinMs = 500;
const retryMaxMs = 30_000;

/** Pauses between tries that fail: each twice as long, with jitter, so that replicas do not ask at the same time. */
export class RetryPause {
  #failures = 0;

  succeeded(): void {
    this.#failures = 0;
  }

  /** The pause after one more failure. */
  failed(random = Math.random()): number {
    const pauseMs = Math.min(retryMaxMs, retryMinMs * 2 ** Math.min(10, this.#failures++));
    return pauseMs * (0.8 + 0.4 * random);
  }
}

/** One look at a source that does not report changes by itself. */
export interface Look {
  readonly servers: readonly Discovered[];
  /** When to look again. */
  readonly againMs: number;
}

/** Looks again and again until it is closed. Keeps no process running. */
export function pollSource(
  look: (signal: AbortSignal) => Promise<Look>,
  { listed, failed }: SourceReader,
  what: string,
): RunningSource {
  const closing = new AbortController();
  const pause = new RetryPause();
  let timer: NodeJS.Timeout | undefined;
  const again = async (): Promise<void> => {
    let againMs: number;
    try {
      const found = await look(closing.signal);
      if (closing.signal.aborted) return;
      pause.succeeded();
      againMs = found.againMs;
      listed(found.servers);
    } catch (error) {
      if (closing.signal.aborted) return;
      againMs = pause.failed();
      failed(problemOf(error, what));
    }
    timer = setTimeout(() => void again(), againMs).unref();
  };
  void again();
  return {
    close: () => {
      closing.abort(new Error('the source is closed'));
      clearTimeout(timer);
    },
  };
}
