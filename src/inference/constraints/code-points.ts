/** Sets of Unicode code points, as sorted ranges that neither overlap nor touch. */
export type CodePointRange = readonly [first: number, last: number];
export type CodePoints = readonly CodePointRange[];

export const lastCodePoint = 0x10ffff;
/** Every character that text can contain: surrogates are halves of characters, not characters. */
export const anyCodePoint: CodePoints = [
  [0, 0xd7ff],
  [0xe000, lastCodePoint],
];

/** Sorts and merges ranges in any order, and removes surrogates. */
export function codePoints(ranges: readonly CodePointRange[]): CodePoints {
  return intersection(joined(ranges), anyCodePoint);
}

/** The range of a single character. */
export const onePoint = (character: string): CodePointRange => {
  const point = character.codePointAt(0) ?? 0;
  return [point, point];
};

export const union = (left: CodePoints, right: CodePoints): CodePoints => joined([...left, ...right]);

export function intersection(left: CodePoints, right: CodePoints): CodePoints {
  const common: CodePointRange[] = [];
  for (let i = 0, j = 0; ;) {
    const a = left[i];
    const b = right[j];
    if (a === undefined || b === undefined) return common;
    const first = Math.max(a[0], b[0]);
    const last = Math.min(a[1], b[1]);
    if (first <= last) common.push([first, last]);
    if (a[1] < b[1]) i++;
    else j++;
  }
}

export const difference = (left: CodePoints, right: CodePoints): CodePoints => intersection(left, complement(right));

/** Returns every character that is not in the set. */
export function complement(set: CodePoints): CodePoints {
  const others: CodePointRange[] = [];
  let next = 0;
  for (const [first, last] of set) {
    if (first > next) others.push([next, first - 1]);
    next = last + 1;
  }
  if (next <= lastCodePoint) others.push([next, lastCodePoint]);
  return intersection(others, anyCodePoint);
}

export const holds = (set: CodePoints, point: number): boolean =>
  set.some(([first, last]) => first <= point && point <= last);

function joined(ranges: readonly CodePointRange[]): CodePoints {
  const sorted = ranges.filter(([first, last]) => first <= last).sort((a, b) => a[0] - b[0]);
  const merged: CodePointRange[] = [];
  for (const [first, last] of sorted) {
    const before = merged.at(-1);
    if (before !== undefined && first <= before[1] + 1)
      merged[merged.length - 1] = [before[0], Math.max(before[1], last)];
    else merged.push([first, last]);
  }
  return merged;
}
