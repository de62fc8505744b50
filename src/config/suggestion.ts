/** The candidate that a mistyped word most likely meant, or `undefined` if none is close. */
export function suggestion(word: string, candidates: readonly string[]): string | undefined {
  const bound = Math.max(1, Math.floor(word.length / 3));
  let best: string | undefined;
  let bestDistance = bound + 1;
  for (const candidate of candidates) {
    const distance = editDistance(normalized(word), normalized(candidate), bound);
    if (distance < bestDistance) [best, bestDistance] = [candidate, distance];
  }
  // A setting without its unit, such as `drain_timeout`, is further away in edits than in meaning.
  return best ?? candidates.find((candidate) => word.length >= 4 && candidate.startsWith(normalized(word)));
}

/** `maxOutputTokens`, `max-output-tokens` and `max_output_tokens` are the same word. */
function normalized(word: string): string {
  return word
    .slice(0, 100)
    .replace(/([a-z])([A-Z])/g, '$1_$2')
    .replaceAll('-', '_')
    .toLowerCase();
}

/** Edits (insert, delete, replace, swap of neighbours) that turn one word into the other; `bound + 1` if there are more than `bound`. */
function editDistance(from: string, to: string, bound: number): number {
  if (Math.abs(from.length - to.length) > bound) return bound + 1;
  let beforePrevious: number[] = [];
  let previous = Array.from({ length: to.length + 1 }, (_, column) => column);
  for (let row = 1; row <= from.length; row++) {
    const current = [row];
    for (let column = 1; column <= to.length; column++) {
      const same = from[row - 1] === to[column - 1];
      let cost = Math.min(previous[column]! + 1, current[column - 1]! + 1, previous[column - 1]! + (same ? 0 : 1));
      const swapped = row > 1 && column > 1 && from[row - 1] === to[column - 2] && from[row - 2] === to[column - 1];
      if (swapped) cost = Math.min(cost, beforePrevious[column - 2]! + 1);
      current.push(cost);
    }
    [beforePrevious, previous] = [previous, current];
  }
  return previous[to.length]!;
}
