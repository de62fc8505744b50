const sourcesOf = new WeakMap<AbortSignal, readonly AbortSignal[]>();

/**
 * As `AbortSignal.any`, which in Node 20 holds its sources weakly: an `AbortSignal.timeout` that only stands in its list is
 * taken by the next collection, and never fires (mended in Node 22). Here sources live as long as what is made of them.
 */
export function anySignal(sources: readonly AbortSignal[]): AbortSignal {
  const signal = AbortSignal.any([...sources]);
  sourcesOf.set(signal, sources);
  return signal;
}
