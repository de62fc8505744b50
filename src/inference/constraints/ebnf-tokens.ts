import { ApiError } from '../../platform/errors.ts';
import type { Work } from './work.ts';

/** A position in the text, from 1. */
export interface Position {
  readonly line: number;
  readonly column: number;
}

export type EbnfToken = Position &
  (
    | { readonly kind: 'name'; readonly text: string }
    | { readonly kind: 'literal'; readonly text: string }
    /** The text between the brackets of a class. */
    | { readonly kind: 'class'; readonly text: string }
    | { readonly kind: 'character'; readonly point: number }
    | { readonly kind: 'count'; readonly min: number; readonly max: number | undefined }
    | { readonly kind: 'number'; readonly value: number }
    | { readonly kind: 'sign'; readonly text: string }
    | { readonly kind: 'end' }
  );

/** `gbnf`: rules are defined by `::=`, as in llama.cpp, xgrammar and W3C; `iso`: by `=`, as in ISO 14977. */
export type EbnfNotation = 'gbnf' | 'iso';

export function refuseAt(problem: string, { line, column }: Position, at: string): never {
  throw new ApiError('unsupported_value', `'${at}': ${problem} (line ${line}, column ${column}).`, { param: at });
}

/** One pass over the text; each match begins where the previous one ended. */
const gbnfToken =
  /(?<skip>\s+|\/\*[^]*?\*\/|\(\*[^]*?\*\)|#(?!x[0-9A-Fa-f])[^\n]*)|(?<sign>::=|[|()*+?.])|(?<literal>"(?:[^"\\\n]|\\[^\n])*"|'(?:[^'\\\n]|\\[^\n])*')|(?<class>\[(?:\\[^\n]|[^\]\\\n])*\])|#x(?<hex>[0-9A-Fa-f]{1,6})|(?<name>[A-Za-z_][\w-]*|<[A-Za-z_][\w -]*>(?!\[))|\{(?<count>[0-9]{1,9}(?:,[0-9]{0,9})?)\}/y;
const isoToken =
  /(?<skip>\s+|\(\*[^]*?\*\)|\/\*[^]*?\*\/)|(?<sign>:?=|[|()*+{}[\],;.])|(?<literal>"[^"\n]*"|'[^'\n]*')|(?<name>[A-Za-z_][\w-]*|<[A-Za-z_][\w -]*>)|(?<number>[0-9]{1,9})/y;

export const notationOf = (text: string): EbnfNotation => (text.includes('::=') ? 'gbnf' : 'iso');

export function ebnfTokens(text: string, notation: EbnfNotation, at: string, work: Work): readonly EbnfToken[] {
  const tokens: EbnfToken[] = [];
  const token = new RegExp(notation === 'gbnf' ? gbnfToken : isoToken);
  let line = 1;
  let lineStart = 0;
  while (token.lastIndex < text.length) {
    const start = token.lastIndex;
    const position = { line, column: start - lineStart + 1 };
    const found = token.exec(text);
    if (found === null) return refuseAt(unreadable(text.slice(start, start + 2)), position, at);
    work.spend(1 + found[0].length / 16);
    const groups = found.groups ?? {};
    const [whole] = found;
    if (groups['skip'] !== undefined) {
      for (let end = whole.indexOf('\n'); end >= 0; end = whole.indexOf('\n', end + 1)) {
        line++;
        lineStart = start + end + 1;
      }
    } else if (groups['sign'] !== undefined) tokens.push({ ...position, kind: 'sign', text: whole });
    else if (groups['literal'] !== undefined) tokens.push({ ...position, kind: 'literal', text: whole });
    else if (groups['class'] !== undefined) tokens.push({ ...position, kind: 'class', text: whole.slice(1, -1) });
    else if (groups['hex'] !== undefined) {
      tokens.push({ ...position, kind: 'character', point: Number.parseInt(groups['hex'], 16) });
    } else if (groups['name'] !== undefined) {
      tokens.push({ ...position, kind: 'name', text: whole.replace(/^<|>$/g, '') });
    } else if (groups['count'] !== undefined) {
      const [first = '', second] = groups['count'].split(',');
      const max = second === undefined ? Number(first) : second === '' ? undefined : Number(second);
      tokens.push({ ...position, kind: 'count', min: Number(first), max });
    } else tokens.push({ ...position, kind: 'number', value: Number(whole) });
  }
  tokens.push({ line, column: text.length - lineStart + 1, kind: 'end' });
  return tokens;
}

/** Returns the error without client text, except for signs that are listed here. */
function unreadable(next: string): string {
  if (next.startsWith('"') || next.startsWith("'")) return 'a literal is not closed';
  if (next.startsWith('[')) return 'a class is not closed';
  if (next === '/*' || next === '(*') return 'a comment is not closed';
  if (next.startsWith('-')) return "'-', an exception, is not supported";
  if (next.startsWith('?')) return "'?', a special sequence, is not supported";
  if (next.startsWith('{')) return "'{' without a count like {2,5}";
  if (next.startsWith('<') || next.startsWith('!')) return 'tokens by name or id are not supported';
  return 'this character is not expected here';
}
