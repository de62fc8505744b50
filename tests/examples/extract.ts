/** A fenced block of a document that is checked: `<!-- example: kind -->` stands on the line before its fence. */
export interface Example {
  /** File and line, for the name of its test. */
  readonly where: string;
  readonly kind: string;
  readonly language: string;
  readonly text: string;
}

/** The marked blocks of a Markdown text. Throws when a marker has no block after it. */
export function examplesOf(markdown: string, file: string): readonly Example[] {
  const lines = markdown.split('\n');
  const examples: Example[] = [];
  lines.forEach((line, index) => {
    const [, kind] = /^<!-- example: (.+?) -->$/.exec(line.trim()) ?? [];
    if (kind === undefined) return;
    const where = `${file}:${index + 1}`;
    const [, fence, language = ''] = /^(`{3,})(\w*)$/.exec(lines[index + 1] ?? '') ?? [];
    if (fence === undefined) throw new Error(`${where}: no fenced block follows the marker`);
    const end = lines.indexOf(fence, index + 2);
    if (end < 0) throw new Error(`${where}: the block has no end`);
    examples.push({ where, kind, language, text: `${lines.slice(index + 2, end).join('\n')}\n` });
  });
  return examples;
}
