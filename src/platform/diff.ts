/** The lines that differ between two texts, with context, as `diff -u` prints them. */
export function diffLines(before: string, after: string): readonly string[] {
  const [left, right] = [linesOf(before), linesOf(after)];
  const edits = editsBetween(left, right);
  const shown = new Set<number>();
  edits.forEach(({ kind }, index) => {
    if (kind === ' ') return;
    for (let near = index - around; near <= index + around; near++) shown.add(near);
  });
  const lines: string[] = [];
  edits.forEach(({ kind, line }, index) => {
    if (!shown.has(index)) return;
    if (index === 0 || !shown.has(index - 1))
      lines.push(`@@ line ${edits.slice(0, index).filter((one) => one.kind !== '-').length + 1} @@`);
    lines.push(`${kind}${line}`);
  });
  return lines;
}

const around = 3;

interface Edit {
  readonly kind: ' ' | '-' | '+';
  readonly line: string;
}

const linesOf = (text: string): readonly string[] => (text === '' ? [] : text.replace(/\r?\n$/, '').split(/\r?\n/));

/** Above this many lines on a side, the difference is shown as one removal and one addition. */
const comparedMax = 2000;

function editsBetween(left: readonly string[], right: readonly string[]): readonly Edit[] {
  let start = 0;
  while (start < left.length && start < right.length && left[start] === right[start]) start++;
  let end = 0;
  while (end < Math.min(left.length, right.length) - start && left.at(-1 - end) === right.at(-1 - end)) end++;
  const same = (lines: readonly string[]): readonly Edit[] => lines.map((line) => ({ kind: ' ', line }));
  return [
    ...same(left.slice(0, start)),
    ...compared(left.slice(start, left.length - end), right.slice(start, right.length - end)),
    ...same(left.slice(left.length - end)),
  ];
}

/** Compares by the longest common subsequence. */
function compared(left: readonly string[], right: readonly string[]): readonly Edit[] {
  if (left.length > comparedMax || right.length > comparedMax)
    return [...left.map((line): Edit => ({ kind: '-', line })), ...right.map((line): Edit => ({ kind: '+', line }))];
  const width = right.length + 1;
  const lengths = new Uint16Array((left.length + 1) * width);
  for (let l = left.length - 1; l >= 0; l--)
    for (let r = right.length - 1; r >= 0; r--)
      lengths[l * width + r] =
        left[l] === right[r]
          ? lengths[(l + 1) * width + r + 1]! + 1
          : Math.max(lengths[(l + 1) * width + r]!, lengths[l * width + r + 1]!);
  const edits: Edit[] = [];
  for (let l = 0, r = 0; l < left.length || r < right.length;) {
    if (l < left.length && r < right.length && left[l] === right[r]) {
      edits.push({ kind: ' ', line: left[l]! });
      l++;
      r++;
    } else if (l < left.length && (r === right.length || lengths[(l + 1) * width + r]! >= lengths[l * width + r + 1]!))
      edits.push({ kind: '-', line: left[l++]! });
    else edits.push({ kind: '+', line: right[r++]! });
  }
  return edits;
}
