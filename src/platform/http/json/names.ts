/**
 * Maximum number of different names in a large body. A new name costs far more than a known one, because it changes the shape of
 * its object: returning a value with 249,000 of them blocked the main thread for 430 ms, 80,000 messages with the same two names
 * for 35 ms. No request has thousands: schemas have a few hundred, and the tokens of a `logit_bias` are array indexes, which are
 * cheap and not counted.
 */
export const differentNamesMax = 50_000;

/** Whether a JSON value has more different names than that. Walks all of it, so use it only off the main thread. */
export function hasTooManyNames(value: unknown, max = differentNamesMax): boolean {
  const names = new Set<string>();
  const left: unknown[] = [value];
  while (left.length > 0) {
    const next = left.pop();
    if (typeof next !== 'object' || next === null) continue;
    if (Array.isArray(next)) {
      for (const element of next as unknown[]) if (typeof element === 'object') left.push(element);
      continue;
    }
    for (const [name, child] of Object.entries(next)) {
      if (!isIndex(name)) names.add(name);
      if (typeof child === 'object') left.push(child);
    }
    if (names.size > max) return true;
  }
  return false;
}

const isIndex = (name: string): boolean => name.length <= 10 && /^(0|[1-9]\d*)$/.test(name);
