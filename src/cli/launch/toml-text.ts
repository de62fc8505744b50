import { TextProblem } from './json-text.ts';

/** A change to the text of a TOML file: the rest stays byte for byte. */
export interface TomlChange {
  /** The names of the table; empty for the values before the first table. */
  readonly table: readonly string[];
  readonly values: Readonly<Record<string, string>>;
}

/** Applies the changes; throws `TextProblem` for a text that cannot be changed. */
export function withTomlValues(text: string, changes: readonly TomlChange[]): string {
  // Tables first, so that a problem is reported where the reader sees it.
  return changes.toSorted((a, b) => b.table.length - a.table.length).reduce(withTable, text);
}

interface Statement {
  readonly kind: 'table' | 'tables' | 'value';
  /** The path of a value, starting with the names of its table. */
  readonly path: readonly string[];
  readonly start: number;
  readonly valueStart: number;
  readonly end: number;
}

function withTable(text: string, { table, values }: TomlChange): string {
  const statements = readStatements(text);
  const lineEnd = text.includes('\r\n') ? '\r\n' : '\n';
  const isIn = ({ path }: Statement): boolean => samePath(path.slice(0, -1), table);
  const header = statements.findIndex(({ kind, path }) => kind === 'table' && samePath(path, table));
  const other = statements.find(({ kind, path }) =>
    kind === 'tables'
      ? startsWith(path, table) || startsWith(table, path)
      : kind === 'value' && startsWith(table, path),
  );
  if (table.length > 0 && other !== undefined)
    throw new TextProblem(text, other.start, `${table.join('.')} is written in a form that cannot be changed here`);
  const next = statements.findIndex(({ kind }, index) => index > header && kind !== 'value');
  const own = statements.slice(header + 1, next === -1 ? undefined : next).filter(isIn);
  if (table.length > 0 && header === -1) {
    const dotted = statements.find(({ kind, path }) => kind === 'value' && startsWith(path, table));
    if (dotted !== undefined)
      throw new TextProblem(text, dotted.start, `${table.join('.')} is written in a form that cannot be changed here`);
    const before = text === '' ? '' : text.endsWith('\n') ? text + lineEnd : text + lineEnd + lineEnd;
    return `${before}[${table.map(bareKey).join('.')}]${lineEnd}${linesOf(values, lineEnd)}`;
  }
  let result = text;
  const missing: Record<string, string> = {};
  // From the end, so that earlier positions stay valid.
  const added = Object.entries(values).filter(([name]) => !own.some(({ path }) => path.at(-1) === name));
  for (const [name, value] of added) missing[name] = value;
  if (added.length > 0) result = insert(result, own.at(-1) ?? statements[header], missing, lineEnd, statements[0]);
  for (const { path, valueStart, end } of own.toReversed()) {
    const value = values[path.at(-1)!];
    if (value !== undefined) result = result.slice(0, valueStart) + JSON.stringify(value) + result.slice(end);
  }
  return result;
}

/** Inserts after a statement, or at the beginning of the file: before its first statement, but after a separate comment. */
function insert(
  text: string,
  behind: Statement | undefined,
  values: Readonly<Record<string, string>>,
  lineEnd: string,
  first: Statement | undefined,
): string {
  const lines = linesOf(values, lineEnd);
  if (behind === undefined) {
    const place =
      first === undefined ? text.length : Math.max(commentStart(text, first.start), text.startsWith('\uFEFF') ? 1 : 0);
    const head = text.slice(0, place);
    const gap = head === '' || head.endsWith('\n') ? '' : lineEnd;
    const below = text.slice(place);
    return `${head}${gap}${lines}${below === '' ? '' : lineEnd}${below}`;
  }
  const stop = text.indexOf('\n', behind.end);
  if (stop === -1) return `${text}${lineEnd}${lines}`;
  return text.slice(0, stop + 1) + lines + text.slice(stop + 1);
}

/** Comments directly above a statement belong to it. */
function commentStart(text: string, statement: number): number {
  let at = text.lastIndexOf('\n', statement - 1) + 1;
  while (at > 0) {
    const above = text.lastIndexOf('\n', at - 2) + 1;
    if (!/^[ \t]*#/.test(text.slice(above, at))) return at;
    at = above;
  }
  return at;
}

const linesOf = (values: Readonly<Record<string, string>>, lineEnd: string): string =>
  Object.entries(values)
    .map(([name, value]) => `${bareKey(name)} = ${JSON.stringify(value)}${lineEnd}`)
    .join('');

const bareKey = (name: string): string => (/^[\w-]+$/.test(name) ? name : JSON.stringify(name));
const samePath = (a: readonly string[], b: readonly string[]): boolean => a.length === b.length && startsWith(a, b);
const startsWith = (path: readonly string[], of: readonly string[]): boolean =>
  path.length >= of.length && of.every((name, index) => path[index] === name);

function readStatements(text: string): Statement[] {
  const statements: Statement[] = [];
  let table: readonly string[] = [];
  for (let at = skipBlank(text, text.startsWith('\uFEFF') ? 1 : 0); at < text.length; at = skipBlank(text, at)) {
    const start = at;
    if (text[at] === '[') {
      const kind = text[at + 1] === '[' ? 'tables' : 'table';
      const width = kind === 'table' ? 1 : 2;
      const key = readKey(text, at + width);
      if (!text.startsWith(']'.repeat(width), key.end)) throw new TextProblem(text, key.end, 'expected ]');
      at = key.end + width;
      table = key.path;
      statements.push({ kind, path: table, start, valueStart: at, end: at });
    } else {
      const key = readKey(text, at);
      if (text[key.end] !== '=') throw new TextProblem(text, key.end, 'expected =');
      const valueStart = skipSpaces(text, key.end + 1);
      at = skipValue(text, valueStart);
      statements.push({ kind: 'value', path: [...table, ...key.path], start, valueStart, end: at });
    }
    at = skipSpaces(text, at);
    if (at < text.length && !/[\r\n#]/.test(text[at]!)) throw new TextProblem(text, at, 'expected the end of the line');
  }
  return statements;
}

/** Reads up to what follows the key and its trailing spaces. */
function readKey(text: string, from: number): { readonly path: readonly string[]; readonly end: number } {
  const path: string[] = [];
  for (let at = skipSpaces(text, from); ;) {
    const quote = text[at];
    if (quote === '"' || quote === "'") {
      const end = skipString(text, at);
      path.push(quote === '"' ? unescaped(text, at, end) : text.slice(at + 1, end - 1));
      at = end;
    } else {
      const bare = /^[\w-]+/.exec(text.slice(at, at + 1000))?.[0];
      if (bare === undefined) throw new TextProblem(text, at, 'expected a key');
      path.push(bare);
      at += bare.length;
    }
    at = skipSpaces(text, at);
    if (text[at] !== '.') return { path, end: at };
    at = skipSpaces(text, at + 1);
  }
}

function unescaped(text: string, from: number, to: number): string {
  try {
    return JSON.parse(text.slice(from, to)) as string;
  } catch {
    throw new TextProblem(text, from, 'is a key that cannot be read here');
  }
}

/** Excludes trailing spaces and a trailing comment. */
function skipValue(text: string, from: number): number {
  let depth = 0;
  let end = from;
  for (let at = from; at < text.length;) {
    const character = text[at]!;
    if (character === '"' || character === "'") at = skipString(text, at);
    else if (depth > 0 && character === '#') at = lineEndFrom(text, at);
    else if (depth === 0 && /[\r\n#]/.test(character)) break;
    else {
      if (character === '[' || character === '{') depth++;
      if (character === ']' || character === '}') depth--;
      at++;
    }
    if (!/[ \t]/.test(character)) end = at;
  }
  if (depth !== 0 || end === from) throw new TextProblem(text, from, 'expected a value');
  return end;
}

function skipString(text: string, start: number): number {
  const quote = text[start]!;
  const isLong = text.startsWith(quote.repeat(3), start);
  const close = isLong ? quote.repeat(3) : quote;
  for (let at = start + close.length; at < text.length; at++) {
    if (quote === '"' && text[at] === '\\') at++;
    else if (text.startsWith(close, at)) {
      let end = at + close.length;
      // Up to two quotes may stand before the closing ones.
      while (isLong && text[end] === quote && end < at + close.length + 2) end++;
      return end;
    } else if (!isLong && text[at] === '\n') break;
  }
  throw new TextProblem(text, start, 'a string has no end');
}

function skipBlank(text: string, from: number): number {
  for (let at = from; ;) {
    if (/[ \t\r\n]/.test(text[at] ?? '')) at++;
    else if (text[at] === '#') at = lineEndFrom(text, at);
    else return at;
  }
}

function skipSpaces(text: string, from: number): number {
  let at = from;
  while (text[at] === ' ' || text[at] === '\t') at++;
  return at;
}

function lineEndFrom(text: string, at: number): number {
  const end = text.indexOf('\n', at);
  return end === -1 ? text.length : end;
}
