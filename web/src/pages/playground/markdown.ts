/**
 * What a model has written, read as Markdown: tokens, of which `text-block.tsx` makes elements. Nothing of it becomes HTML by itself:
 * tags stay text, and links lead where `linkOf` lets them.
 */
import { Lexer, Tokenizer } from 'marked';
import type { Token } from 'marked';

/** Emphasis and links are looked for in pieces of at most so many characters: the time for them grows with the square of the length. */
const inlineCharactersMax = 4000;
/** Quotes and lists within each other, and emphasis within emphasis: each level reads what is below it once more. */
const depthMax = 10;
/** A longer list or quote goes on as another one: while it grows, it is read again with each piece. */
const blockCharactersMax = 8000;
/** More is not read. */
const charactersMax = 500_000;

/** Leaves out HTML and references to links elsewhere in the text, whose search has no bound, and goes no deeper than `depthMax`. */
class BoundedTokenizer extends Tokenizer {
  #depth = 0;

  override html = (): undefined => undefined;
  override tag = (): undefined => undefined;
  override def = (): undefined => undefined;
  override reflink = (): undefined => undefined;

  override blockquote(src: string) {
    return this.#deeper(() => super.blockquote(beginningOf(src)));
  }
  override list(src: string) {
    return this.#deeper(() => super.list(beginningOf(src)));
  }
  override emStrong(src: string, maskedSrc: string, previous?: string) {
    return this.#deeper(() => super.emStrong(src, maskedSrc, previous));
  }
  override del(src: string, maskedSrc: string, previous?: string) {
    return this.#deeper(() => super.del(src, maskedSrc, previous));
  }
  override link(src: string) {
    return this.#deeper(() => super.link(src));
  }

  #deeper<Found>(read: () => Found): Found | undefined {
    if (this.#depth >= depthMax) return undefined;
    this.#depth++;
    try {
      return read();
    } finally {
      this.#depth--;
    }
  }
}

/** As much as a block may have, up to a line that is not indented where there is one. */
function beginningOf(src: string): string {
  if (src.length <= blockCharactersMax) return src;
  const lastLine = src.lastIndexOf('\n', blockCharactersMax - 1);
  let end = lastLine;
  while (end > 0 && /\s/.test(src[end + 1] ?? '')) end = src.lastIndexOf('\n', end - 1);
  return src.slice(0, end > 0 ? end + 1 : lastLine > 0 ? lastLine + 1 : blockCharactersMax);
}

class BoundedLexer extends Lexer {
  override inline(src: string, tokens: Token[] = []): Token[] {
    if (src.length <= inlineCharactersMax) return super.inline(src, tokens);
    tokens.push(plain(src));
    return tokens;
  }
}

const plain = (text: string): Token => ({ type: 'text', raw: text, text, escaped: false });

export interface Blocks {
  readonly text: string;
  /** Together they are the text. The objects of an earlier reading are kept where they are the same. */
  readonly tokens: readonly Token[];
}

export const nothing: Blocks = { text: '', tokens: [] };

/** Reads a text that may still grow: what stood in front of its last blocks is not read again. */
export function blocksOf(written: string, before: Blocks = nothing): Blocks {
  const text = written.replaceAll(/\r\n?/g, '\n');
  if (text.length > charactersMax) return { text, tokens: [plain(text)] };
  const kept = text.startsWith(before.text) ? settledOf(before.tokens) : [];
  const from = lengthOf(kept);
  const tokens = read(text.slice(from));
  // A token that does not say what it was made of cannot be gone on from.
  if (lengthOf(tokens) === text.length - from) return { text, tokens: [...kept, ...tokens] };
  return { text, tokens: kept.length === 0 ? tokens : read(text) };
}

/**
 * What stands before an empty line that has two blocks behind it. The last one may still grow, and as long as its first line is not
 * whole it may turn out to be no block of its own (`- - -` and then `- - - a`), but a part of those before it.
 */
function settledOf(tokens: readonly Token[]): readonly Token[] {
  const isSpace = ({ type }: Token): boolean => type === 'space';
  const before = (at: number): number => tokens.slice(0, at).findLastIndex((token) => !isSpace(token));
  return tokens.slice(0, tokens.slice(0, Math.max(0, before(before(tokens.length)))).findLastIndex(isSpace) + 1);
}

const lengthOf = (tokens: readonly Token[]): number => tokens.reduce((sum, { raw }) => sum + raw.length, 0);

function read(text: string): readonly Token[] {
  try {
    return new BoundedLexer({ gfm: true, breaks: true, tokenizer: new BoundedTokenizer() }).lex(text);
  } catch {
    return [plain(text)];
  }
}

const schemes = ['http:', 'https:', 'mailto:'];

/** Where a link leads, as the browser reads it; undefined: nowhere that a person should be sent by what a model has written. */
export function linkOf(href: string): string | undefined {
  try {
    const { protocol, href: whole } = new URL(href);
    return schemes.includes(protocol) ? whole : undefined;
  } catch {
    return undefined;
  }
}

const entities: Readonly<Record<string, string>> = { amp: '&', lt: '<', gt: '>', quot: '"', apos: "'", nbsp: '\u00A0' };

/** Text with its character references, as far as people write them, as the characters that they mean. */
export const unescaped = (text: string): string =>
  text.replaceAll(/&(?:#(\d{1,7})|#x([\da-f]{1,6})|(amp|lt|gt|quot|apos|nbsp));/gi, (whole, decimal, hex, name) => {
    if (name !== undefined) return entities[String(name).toLowerCase()]!;
    const code = decimal === undefined ? Number.parseInt(String(hex), 16) : Number(decimal);
    return code > 0 && code <= 0x10_ff_ff ? String.fromCodePoint(code) : whole;
  });

/** JSON is shown as it was written. */
export const isJson = (text: string): boolean => /^\s*(?:\{|\[\s*[[{"])/.test(text) && isParsed(text);

function isParsed(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}
