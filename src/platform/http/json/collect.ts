import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

/**
 * Collects the garbage of this thread now. Meant for a thread with an almost empty heap that has just released something large: a
 * full collection takes 1 to 3 ms there, and without one V8 keeps the garbage of several bodies, since it sees no reason to hurry.
 */
export const collectGarbage: () => void = collectorOf();

function collectorOf(): () => void {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  setFlagsFromString('--no-expose-gc');
  return collect;
}
