import type { StopSignal } from './stop-signal.ts';

/**
 * The outcome of a promise, or what `late` returns or throws when the promise takes longer. The work that it stands for goes on;
 * an outcome that comes too late is ignored, and a late rejection is no unhandled one.
 */
export function withDeadline<Value, Late>(
  promise: Promise<Value>,
  deadlineMs: number,
  late: () => Late,
): Promise<Value | Late> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => {
      try {
        resolve(late());
      } catch (error) {
        reject(error as Error);
      }
    }, deadlineMs);
    promise.then(
      (value) => {
        clearTimeout(timer);
        resolve(value);
      },
      (error: unknown) => {
        clearTimeout(timer);
        reject(error as Error);
      },
    );
  });
}

/** The outcome of a promise, or a rejection with the signal's reason when it aborts first. The work goes on. */
export function orAborted<Value>(promise: Promise<Value>, signal: StopSignal): Promise<Value> {
  return new Promise((resolve, reject) => {
    const onAbort = (): void => reject(signal.reason as Error);
    if (signal.aborted) onAbort();
    else signal.addEventListener('abort', onAbort, { once: true });
    const settled = (): void => signal.removeEventListener('abort', onAbort);
    promise.then(
      (value) => {
        settled();
        resolve(value);
      },
      (error: unknown) => {
        settled();
        reject(error as Error);
      },
    );
  });
}
