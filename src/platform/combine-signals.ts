const sourcesOf = new WeakMap<AbortSignal, readonly AbortSignal[]>();

/**
 * Like `AbortSignal.any`, which in Node 20 holds its sources weakly: an `AbortSignal.timeout` that only it references is
 * garbage-collected and never fires (20.20; not 22.23, 24 and 26). Here sources live as long as the signal made from them.
 */
export function combineSignals(sources: readonly AbortSignal[]): AbortSignal {
  const signal = AbortSignal.any([...sources]);
  sourcesOf.set(signal, sources);
  return signal;
}
