import type { Discovered } from '../../config/discovered.ts';

/** Receives what a source of backends reports. A list is complete and replaces the previous one. */
export interface SourceReader {
  readonly listed: (servers: readonly Discovered[]) => void;
  /** The source could not be read; `problem` is meant for an operator. The last list stays. */
  readonly failed: (problem: string) => void;
}

/** A running source. After `close` it reports nothing. */
export interface RunningSource {
  close(): void;
}

/** A failure whose message an operator may read: it repeats nothing that the other side sent. */
export class SourceError extends Error {
  override readonly name = 'SourceError';
}

/** Describes an error for an operator, by its system code if it has one. */
export function problemOf(error: unknown, what: string): string {
  if (error instanceof SourceError) return error.message;
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
  const code = (cause as { readonly code?: unknown } | null)?.code;
  return `${what}: ${typeof code === 'string' ? code : cause instanceof Error ? cause.message.slice(0, 200) : String(cause)}`;
}

const retryMinMs = 500;
const retryMaxMs = 30_000;

/** Pauses between failed tries: each twice as long, with jitter, so that replicas do not retry at the same time. */
export class RetryPause {
  #failures = 0;

  succeeded(): void {
    this.#failures = 0;
  }

  /** Returns the pause after one more failure. */
  failed(random = Math.random()): number {
    const pauseMs = Math.min(retryMaxMs, retryMinMs * 2 ** Math.min(10, this.#failures++));
    return pauseMs * (0.8 + 0.4 * random);
  }
}

/** The result of polling a source that does not report changes itself. */
export interface Look {
  readonly servers: readonly Discovered[];
  /** When to poll again. */
  readonly againMs: number;
}

/** Polls until closed. Its timer does not keep the process running. */
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
