import { isDeepStrictEqual } from 'node:util';

/** Changes to the text of a JSON file with comments, as used by editors and similar programs: the rest stays byte for byte. */

/** Returns the text with this value at the path of names. Throws `TextProblem` for a text that cannot be changed. */
export function withJsonValue(text: string, path: readonly string[], value: unknown): string {
  const at = skipTrivia(text, text.startsWith('\uFEFF') ? 1 : 0);
  if (at === text.length)
    return `${text}${text === '' || text.endsWith('\n') ? '' : '\n'}${print(nested(path, value), '', '  ', '\n')}\n`;
  if (text[at] !== '{') throw new TextProblem(text, at, 'expected an object');
  const root = readObject(text, at, 0);
  const end = skipTrivia(text, root.end);
  if (end !== text.length) throw new TextProblem(text, end, 'expected the end of the file');
  const style = { unit: indentOf(text, root) ?? '  ', lineEnd: text.includes('\r\n') ? '\r\n' : '\n' };
  return setIn(text, root, path, value, style);
}

/** The file's parsed content; `undefined` for an empty one. Throws `TextProblem`. */
export function readJsonText(text: string): unknown {
  let plain = '';
  let at = text.startsWith('\uFEFF') ? 1 : 0;
  if (skipTrivia(text, at) === text.length) return undefined;
  for (let from = at; at < text.length; from = at) {
    at = skipTrivia(text, at);
    if (at > from) plain += ' ';
    else if (text[at] === '"') plain += text.slice(from, (at = skipString(text, at)));
    else if (text[at] === ',' && /[}\]]/.test(text[skipTrivia(text, at + 1)] ?? '')) at++;
    else plain += text[at++];
  }
  try {
    return JSON.parse(plain);
  } catch (error) {
    throw new TextProblem(text, 0, (error as Error).message);
  }
}

/** Why we cannot change a file, and where. */
export class TextProblem extends Error {
  constructor(text: string, at: number, what: string) {
    const before = text.slice(0, at).split('\n');
    super(`line ${before.length}, column ${before.at(-1)!.length + 1}: ${what}`);
  }
}

interface Property {
  readonly name: string;
  readonly start: number;
  readonly valueStart: number;
  readonly valueEnd: number;
}

interface ObjectText {
  readonly start: number;
  /** The position after the closing brace. */
  readonly end: number;
  readonly properties: readonly Property[];
  /** The position of a comma after the last property. */
  readonly trailingComma: number | undefined;
}

interface Style {
  readonly unit: string;
  readonly lineEnd: string;
}

function setIn(text: string, object: ObjectText, path: readonly string[], value: unknown, style: Style): string {
  const [name, ...rest] = path as [string, ...string[]];
  const found = object.properties.findLast((property) => property.name === name);
  const isInLine = object.properties.length > 0 && !text.slice(object.start, object.end).includes('\n');
  const indent = indentOf(text, object) ?? lineIndent(text, object.start) + (isInLine ? '' : style.unit);
  if (found === undefined) return insertInto(text, object, name, nested(rest, value), indent, style);
  if (rest.length > 0 && text[found.valueStart] === '{')
    return setIn(text, readObject(text, found.valueStart, 0), rest, value, style);
  const was = text.slice(found.valueStart, found.valueEnd);
  if (isDeepStrictEqual(readJsonText(was), JSON.parse(JSON.stringify(nested(rest, value))))) return text;
  const printed = print(nested(rest, value), indent, style.unit, style.lineEnd);
  return text.slice(0, found.valueStart) + printed + text.slice(found.valueEnd);
}

function insertInto(
  text: string,
  object: ObjectText,
  name: string,
  value: unknown,
  indent: string,
  style: Style,
): string {
  const { lineEnd, unit } = style;
  const property = `${JSON.stringify(name)}: ${print(value, indent, unit, lineEnd)}`;
  const last = object.properties.at(-1);
  if (last === undefined) {
    // Comments in an empty object stay before new content.
    const inside = text.slice(object.start + 1, object.end - 1).trimEnd();
    const closing = lineIndent(text, object.start);
    return `${text.slice(0, object.start + 1)}${inside}${lineEnd}${indent}${property}${lineEnd}${closing}${text.slice(object.end - 1)}`;
  }
  const comma = object.trailingComma;
  const after = comma === undefined ? last.valueEnd : comma + 1;
  const isOneLine = !text.slice(object.start, object.end).includes('\n');
  if (isOneLine) return `${text.slice(0, after)}${comma === undefined ? ',' : ''} ${property}${text.slice(after)}`;
  // A comment on the line of the last property stays with it.
  const lineStop = sameLineEnd(text, after);
  const head = text.slice(0, last.valueEnd) + (comma === undefined ? ',' : '') + text.slice(last.valueEnd, lineStop);
  return `${head}${lineEnd}${indent}${property}${comma === undefined ? '' : ','}${text.slice(lineStop)}`;
}

const nested = (path: readonly string[], value: unknown): unknown =>
  path.reduceRight((inner, name) => ({ [name]: inner }), value);

const print = (value: unknown, indent: string, unit: string, lineEnd: string): string =>
  JSON.stringify(value, null, unit).replaceAll('\n', lineEnd + indent);

/** The text before the first property, if that is on a separate line. */
function indentOf(text: string, { start, properties }: ObjectText): string | undefined {
  const [first] = properties;
  if (first === undefined) return undefined;
  const line = text.slice(text.lastIndexOf('\n', first.start) + 1, first.start);
  return /^[ \t]*$/.test(line) && text.slice(start, first.start).includes('\n') ? line : undefined;
}

const lineIndent = (text: string, at: number): string =>
  /^[ \t]*/.exec(text.slice(text.lastIndexOf('\n', at - 1) + 1))![0];

/** The position after comments and spaces on the same line, before the end of the line. */
function sameLineEnd(text: string, from: number): number {
  let at = from;
  for (;;) {
    const spaces = /^[ \t]*/.exec(text.slice(at))![0].length;
    if (text.startsWith('//', at + spaces)) return lineCommentEnd(text, at + spaces);
    const close = text.startsWith('/*', at + spaces) ? text.indexOf('*/', at + spaces) : -1;
    if (close === -1 || text.slice(at, close).includes('\n')) return at;
    at = close + 2;
  }
}

const depthMax = 200;

function readObject(text: string, start: number, depth: number): ObjectText {
  const properties: Property[] = [];
  let trailingComma: number | undefined;
  for (let at = skipTrivia(text, start + 1); ;) {
    if (text[at] === '}') return { start, end: at + 1, properties, trailingComma };
    if (properties.length > 0 && trailingComma === undefined) throw new TextProblem(text, at, 'expected , or }');
    if (text[at] !== '"') throw new TextProblem(text, at, 'expected a name in quotes');
    const nameEnd = skipString(text, at);
    const colon = skipTrivia(text, nameEnd);
    if (text[colon] !== ':') throw new TextProblem(text, colon, 'expected :');
    const valueStart = skipTrivia(text, colon + 1);
    const valueEnd = skipValue(text, valueStart, depth + 1);
    properties.push({ name: parsedString(text, at, nameEnd), start: at, valueStart, valueEnd });
    at = skipTrivia(text, valueEnd);
    trailingComma = text[at] === ',' ? at : undefined;
    if (trailingComma !== undefined) at = skipTrivia(text, at + 1);
  }
}

function parsedString(text: string, from: number, to: number): string {
  try {
    return JSON.parse(text.slice(from, to)) as string;
  } catch {
    throw new TextProblem(text, from, 'is not a JSON string');
  }
}

function skipValue(text: string, at: number, depth: number): number {
  if (depth > depthMax) throw new TextProblem(text, at, 'is nested too deeply');
  if (text[at] === '"') return skipString(text, at);
  if (text[at] === '{') return readObject(text, at, depth).end;
  if (text[at] === '[') return skipArray(text, at, depth);
  const word = /^(true|false|null|-?\d+(\.\d+)?([eE][+-]?\d+)?)/.exec(text.slice(at, at + 100))?.[0];
  if (word === undefined) throw new TextProblem(text, at, 'expected a value');
  return at + word.length;
}

function skipArray(text: string, start: number, depth: number): number {
  for (let at = skipTrivia(text, start + 1); ;) {
    if (text[at] === ']') return at + 1;
    at = skipTrivia(text, skipValue(text, at, depth + 1));
    if (text[at] === ',') at = skipTrivia(text, at + 1);
    else if (text[at] !== ']') throw new TextProblem(text, at, 'expected , or ]');
  }
}

function skipString(text: string, start: number): number {
  for (let at = start + 1; at < text.length; at++) {
    if (text[at] === '\\') at++;
    else if (text[at] === '"') return at + 1;
    else if (text[at] === '\n') break;
  }
  throw new TextProblem(text, start, 'a string has no end');
}

function skipTrivia(text: string, from: number): number {
  for (let at = from; ;) {
    if (/[ \t\r\n]/.test(text[at] ?? '')) at++;
    else if (text.startsWith('//', at)) at = lineCommentEnd(text, at);
    else if (text.startsWith('/*', at)) {
      const close = text.indexOf('*/', at + 2);
      if (close === -1) throw new TextProblem(text, at, 'a comment has no end');
      at = close + 2;
    } else return at;
  }
}

/** The position before the end of the line. */
function lineCommentEnd(text: string, at: number): number {
  const end = text.indexOf('\n', at);
  if (end === -1) return text.length;
  return text[end - 1] === '\r' ? end - 1 : end;
}
