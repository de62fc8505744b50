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

/** A fenced block, and what the comment on the line before it says of how it is run; undefined: nothing. */
export interface Block {
  /** File and line. */
  readonly where: string;
  readonly said: string | undefined;
}

/** Every fenced block of a Markdown text. What is printed from the program (`npm run check -- --fix`) is held to it as a whole, and left out. */
export function blocksOf(markdown: string, file: string): readonly Block[] {
  const blocks: Block[] = [];
  let fence: string | undefined;
  let isPrinted = false;
  const lines = markdown.split('\n');
  lines.forEach((line, index) => {
    if (fence === undefined && /^<!-- (printed|end): /.test(line)) isPrinted = line.startsWith('<!-- printed');
    const [, opened] = /^\s*(`{3,})/.exec(line) ?? [];
    if (opened === undefined) return;
    if (fence !== undefined) {
      if (line.trim() === fence) fence = undefined;
      return;
    }
    fence = opened;
    if (isPrinted) return;
    const [, said] = /^\s*<!-- (.+?) -->$/.exec(lines[index - 1] ?? '') ?? [];
    blocks.push({ where: `${file}:${index + 1}`, said });
  });
  return blocks;
}

/** The sentences of a Markdown text, without blocks, tables and headings; what is code is one word. Clauses after ; and : count alone. */
export function sentencesOf(markdown: string): readonly string[] {
  const prose = markdown
    .replaceAll(/^ *```[^]*?^ *```$/gm, '')
    .replaceAll(/^(\||#).*$/gm, '')
    .replaceAll(/<!--[^]*?-->|<[^>]+>/g, '')
    .replaceAll(/`[^`]*`/g, 'code')
    .replaceAll(/\[([^\]]*)\]\([^)]*\)/g, '$1');
  return prose
    .split(/\n\s*\n|\n\s*(?:-|\d+\.) /)
    .flatMap((paragraph) =>
      paragraph
        .trim()
        .replace(/^- /, '')
        .replaceAll(/\s+/g, ' ')
        .split(/(?<=[.!?:;]) /),
    )
    .filter((sentence) => sentence.includes(' '));
}
