/**
 * The colours of code that a model has written. Grammars take time with the square of the length for some texts, so they get pieces
 * of bounded length, and a piece that is followed by enough others is never read again: a text that grows costs one piece each time.
 */
import core from 'highlight.js/lib/core';
import bash from 'highlight.js/lib/languages/bash';
import c from 'highlight.js/lib/languages/c';
import cpp from 'highlight.js/lib/languages/cpp';
import csharp from 'highlight.js/lib/languages/csharp';
import css from 'highlight.js/lib/languages/css';
import diff from 'highlight.js/lib/languages/diff';
import dockerfile from 'highlight.js/lib/languages/dockerfile';
import go from 'highlight.js/lib/languages/go';
import http from 'highlight.js/lib/languages/http';
import ini from 'highlight.js/lib/languages/ini';
import java from 'highlight.js/lib/languages/java';
import javascript from 'highlight.js/lib/languages/javascript';
import json from 'highlight.js/lib/languages/json';
import kotlin from 'highlight.js/lib/languages/kotlin';
import lua from 'highlight.js/lib/languages/lua';
import makefile from 'highlight.js/lib/languages/makefile';
import markdown from 'highlight.js/lib/languages/markdown';
import php from 'highlight.js/lib/languages/php';
import python from 'highlight.js/lib/languages/python';
import r from 'highlight.js/lib/languages/r';
import ruby from 'highlight.js/lib/languages/ruby';
import rust from 'highlight.js/lib/languages/rust';
import shell from 'highlight.js/lib/languages/shell';
import sql from 'highlight.js/lib/languages/sql';
import swift from 'highlight.js/lib/languages/swift';
import typescript from 'highlight.js/lib/languages/typescript';
import xml from 'highlight.js/lib/languages/xml';
import yaml from 'highlight.js/lib/languages/yaml';

const library = core.newInstance();
export const languages = {
  ...{ bash, c, cpp, csharp, css, diff, dockerfile, go, http, ini, java, javascript, json, kotlin, lua, makefile },
  ...{ markdown, php, python, r, ruby, rust, shell, sql, swift, typescript, xml, yaml },
};
for (const [name, language] of Object.entries(languages)) library.registerLanguage(name, language);

/** The worst known text of this length takes 30 ms. */
export const pieceCharactersMax = 1000;
/** What comes after it stays plain. */
export const colouredCharactersMax = 50_000;
/** Of the line in which something began that goes on in the next piece: a comment, a long text. */
const contextCharactersMax = 200;

/** What text is, as far as it has a colour. */
export type Look = 'comment' | 'keyword' | 'string' | 'number' | 'title' | 'name' | 'added' | 'removed';

export interface Run {
  readonly text: string;
  readonly look: Look | undefined;
}

export interface Highlighted {
  readonly language: string;
  readonly text: string;
  /** Together they are the text. The objects of an earlier reading are kept where they are the same. */
  readonly pieces: readonly Piece[];
}

interface Piece {
  readonly runs: readonly Run[];
  readonly length: number;
  /** What the next piece has to be read behind. */
  readonly context: string;
}

export const noCode: Highlighted = { language: '', text: '', pieces: [] };

/** The language that a block of Markdown names; undefined: none of those that have colours. */
export function languageOf(info: string | undefined): string | undefined {
  const name = /^[\w+#.-]+/.exec((info ?? '').trim().toLowerCase())?.[0];
  return name !== undefined && library.getLanguage(name) !== undefined ? name : undefined;
}

/** Reads code that may still grow. */
export function highlight(text: string, language: string, before: Highlighted = noCode): Highlighted {
  const isContinued = before.language === language && text.startsWith(before.text);
  // The last one may have been cut at another place if more had been there.
  const pieces = isContinued ? before.pieces.slice(0, -1) : [];
  let from = pieces.reduce((sum, { length }) => sum + length, 0);
  while (from < text.length) {
    const piece =
      from >= colouredCharactersMax
        ? plain(text.slice(from))
        : read(text.slice(from, from + pieceCharactersMax), language, pieces.at(-1)?.context ?? '', {
            isLast: from + pieceCharactersMax >= text.length,
          });
    pieces.push(piece);
    from += piece.length;
  }
  return { language, text, pieces };
}

const plain = (text: string): Piece => ({ runs: [{ text, look: undefined }], length: text.length, context: '' });

interface Span extends Run {
  readonly at: number;
  /** Where the outermost construct began that it is in; undefined: it is in none. */
  readonly outermost: number | undefined;
}

/** Up to the last line break that is in no construct, else up to the last one; the rest of the text is for the next piece. */
function read(text: string, language: string, context: string, { isLast }: { readonly isLast: boolean }): Piece {
  const whole = context + text;
  const spans = spansOf(library.highlight(whole, { language, ignoreIllegals: true }).value);
  // What it was made of must not change, whatever the library does.
  if (spans.reduce((sum, span) => sum + span.text, '') !== whole) return plain(text);
  const end = isLast ? whole.length : endOf(whole, spans, context.length);
  const open = isLast ? undefined : spanAt(spans, Math.min(end, whole.length - 1))?.outermost;
  return {
    runs: spans.flatMap(({ at, text: own, look }) => {
      const shown = own.slice(Math.max(0, context.length - at), Math.max(0, end - at));
      return shown === '' ? [] : [{ text: shown, look }];
    }),
    length: end - context.length,
    context: open === undefined || open >= end ? '' : open < context.length ? context : contextAt(whole, open),
  };
}

function endOf(whole: string, spans: readonly Span[], from: number): number {
  const half = from + pieceCharactersMax / 2;
  for (let at = whole.lastIndexOf('\n'); at >= half; at = whole.lastIndexOf('\n', at - 1))
    if (spanAt(spans, at + 1)?.outermost === undefined || startsAt(spans, at + 1)) return at + 1;
  const last = whole.lastIndexOf('\n');
  if (last >= half) return last + 1;
  return /[\uD800-\uDBFF]$/.test(whole) ? whole.length - 1 : whole.length;
}

const spanAt = (spans: readonly Span[], place: number): Span | undefined =>
  spans.findLast(({ at, text }) => at <= place && place < at + text.length);
const startsAt = (spans: readonly Span[], place: number): boolean => spanAt(spans, place)?.outermost === place;

/** The line in which a construct begins, or, where that is long, its beginning alone. */
function contextAt(whole: string, open: number): string {
  const line = whole.lastIndexOf('\n', open - 1) + 1;
  const from = open - line < contextCharactersMax / 2 ? line : open;
  const end = whole.indexOf('\n', open);
  return `${whole.slice(from, Math.min(end < 0 ? whole.length : end, from + contextCharactersMax - 1))}\n`;
}

const characters: Readonly<Record<string, string>> = {
  '&amp;': '&',
  '&lt;': '<',
  '&gt;': '>',
  '&quot;': '"',
  '&#x27;': "'",
};

/** What the library prints: elements `span` within each other, and text. */
function spansOf(html: string): readonly Span[] {
  const spans: Span[] = [];
  const open: (Look | undefined)[] = [];
  let outermost: number | undefined;
  let at = 0;
  for (const [token, names] of html.matchAll(/<span class="([^"]*)">|<\/span>|[^<]+/g))
    if (names !== undefined) {
      outermost ??= at;
      open.push(lookOf(names, open.at(-1)));
    } else if (token === '</span>') {
      open.pop();
      if (open.length === 0) outermost = undefined;
    } else {
      const text = token.replaceAll(/&(?:amp|lt|gt|quot|#x27);/g, (name) => characters[name]!);
      spans.push({ text, look: open.at(-1), at, outermost });
      at += text.length;
    }
  return spans;
}

const scopes: Readonly<Record<Look, readonly string[]>> = {
  comment: ['comment', 'quote'],
  keyword: ['keyword', 'operator', 'literal', 'built_in', 'selector-pseudo', 'doctag', 'section', 'strong'],
  string: ['string', 'regexp', 'char', 'symbol', 'code', 'bullet'],
  number: ['number', 'variable', 'template-variable', 'meta', 'link'],
  title: ['title', 'type'],
  name: ['tag', 'name', 'attr', 'attribute', 'property', 'selector-tag', 'selector-id', 'selector-class'],
  added: ['addition'],
  removed: ['deletion'],
};
const looks: ReadonlyMap<string, Look> = new Map(
  (Object.keys(scopes) as Look[]).flatMap((look) => scopes[look].map((scope) => [`hljs-${scope}`, look] as const)),
);

/** What has no look of its own has that of what it is in; code in a text is code again. */
function lookOf(names: string, around: Look | undefined): Look | undefined {
  const [first = ''] = names.split(' ');
  return first === 'hljs-subst' ? undefined : (looks.get(first) ?? around);
}
