import type { StopSignal } from './stop-signal.ts';

/**
 * Returns the outcome of a promise, or what `late` returns or throws when the promise takes longer. The work behind it continues; a
 * late outcome is ignored, and a late rejection does not count as unhandled.
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

/** Returns the outcome of a promise, or rejects with the signal's reason when it aborts first. The work continues. */
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
