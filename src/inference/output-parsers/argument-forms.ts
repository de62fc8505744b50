import type { Calls } from './calls.ts';
import type { ArgumentForm } from './format.ts';
import { blankRun, Malformed, Marks, type Reading, type Source } from './source.ts';

type Tagged = Extract<ArgumentForm, { readonly type: 'tagged' }>;
type Code = Extract<ArgumentForm, { readonly type: 'code' }>;
type Pass = (text: string) => void;

/**
 * Reads arguments between marks, up to `end`, and passes them on as JSON. Where the marks do not say which value is text, the schema does: a
 * string is quoted, anything else should already be JSON.
 */
export function* readTaggedArguments(form: Tagged, source: Source, calls: Calls, name: string, end: string): Reading {
  const saysText = form.beforeText !== form.beforeOther;
  let separator = '{';
  for (;;) {
    yield* source.blanks();
    if (yield* source.accept(end)) break;
    // Cut off, or malformed: the object stays open, as broken as it is.
    yield* expectWords(source, form.beforeKey);
    const key = yield* readKey(source, form.beforeText.charAt(0));
    const isText = saysText ? yield* source.accept(form.beforeText) : calls.isText(name, key);
    if (!(saysText && isText)) yield* expectWords(source, form.beforeOther);
    if (!saysText && form.beforeOther.endsWith('\n')) yield* source.accept('\n');
    calls.arguments(`${separator}${JSON.stringify(key)}: `);
    separator = ', ';
    if (isText) yield* readText(source, calls.arguments, form.afterValue);
    else yield* readJson(source, calls.arguments, form.afterValue);
  }
  calls.arguments(separator === '{' ? '{}' : '}');
  calls.finish();
}

/** Reads a name up to a blank, a bracket, a quote or the character that ends it in this format. */
export function* readRun(source: Source, end: string): Reading<string> {
  let name = '';
  const run = new RegExp(`[^\\s<>[\\](){}"'|,;${/^[=:]$/.test(end) ? end : ''}]+`, 'y');
  yield* source.while(run, (text) => {
    name += text;
    if (name.length > keyCharactersMax) throw new Malformed();
  });
  return name;
}

function* readKey(source: Source, end: string): Reading<string> {
  let key = '';
  yield* source.while(end === '"' ? /[^"<>\n]+/y : /[^<>\n]+/y, (text) => {
    key += text;
    if (key.length > keyCharactersMax) throw new Malformed();
  });
  return key;
}

const keyCharactersMax = 1024;

function* expectWords(source: Source, text: string): Reading {
  for (const [index, word] of text.trim().split(/\s+/).entries()) {
    if (index > 0) yield* source.blanks();
    yield* source.expect(word);
  }
}

/** Passes on text as the inside of a JSON string. Half a surrogate pair cannot be quoted alone, and the last line break may be layout. */
class Quoter {
  readonly #pass: Pass;
  readonly #waits: RegExp;
  #held = '';

  constructor(pass: Pass, holdsLineBreak = false) {
    this.#pass = pass;
    this.#waits = holdsLineBreak ? /[\n\ud800-\udbff]$/ : /[\ud800-\udbff]$/;
  }

  readonly push = (text: string): void => {
    const whole = this.#held + text;
    this.#held = this.#waits.exec(whole)?.[0] ?? '';
    this.#pass(quoted(whole.slice(0, whole.length - this.#held.length)));
  };

  end(): void {
    if (this.#held !== '\n') this.#pass(quoted(this.#held));
    this.#held = '';
  }
}

/** The line breaks after the opening mark and before the closing one are layout, where the format writes them. */
function* readText(source: Source, pass: Pass, after: string): Reading {
  const quoter = new Quoter(pass, after.startsWith('\n'));
  pass('"');
  const mark = yield* source.until(new Marks([after.trim()]), quoter.push, true);
  quoter.end();
  if (mark === undefined) throw new Malformed();
  pass('"');
}

function* readJson(source: Source, pass: Pass, after: string): Reading {
  let text = '';
  let isLong = false;
  const mark = yield* source.until(
    new Marks([after.trim()]),
    (piece) => {
      text += piece;
      isLong ||= text.length > jsonCharactersMax;
      if (!isLong) return;
      pass(text);
      text = '';
    },
    true,
  );
  if (isLong) pass(text);
  else pass(mark === undefined ? text.trim() : jsonOf(text.trim()));
  if (mark === undefined) throw new Malformed();
}

/** Reads `key=value, …` up to `end`, which is left, and passes it on as JSON. */
export function* readCodeArguments(form: Code, source: Source, calls: Calls, end: string): Reading {
  const before = form.beforeValue.trim();
  let separator = '{';
  for (;;) {
    yield* source.blanks();
    if ((yield* source.peek()) === end) break;
    if (separator !== '{') yield* source.expect(',');
    yield* source.blanks();
    const key = yield* readRun(source, before);
    if (key === '') throw new Malformed();
    yield* source.blanks();
    yield* source.expect(before);
    calls.arguments(`${separator}${JSON.stringify(key)}: `);
    separator = ', ';
    yield* readLiteral(source, calls.arguments, form.quote, depthMax);
  }
  calls.arguments(separator === '{' ? '{}' : '}');
  calls.finish();
}

const depthMax = 64;

/** Reads a value as Python or JSON writes it, with strings between `quote` too. */
function* readLiteral(source: Source, pass: Pass, quote: string, depth: number): Reading {
  if (depth === 0) throw new Malformed();
  yield* source.blanks();
  const next = yield* source.peek();
  if (next === '{') yield* readItems(source, pass, quote, depth, '{', '}');
  else if (next === '[') yield* readItems(source, pass, quote, depth, '[', ']');
  else if (next === '"' || next === "'") yield* readQuoted(source, pass, next);
  else if (next === quote.charAt(0)) yield* readBetween(source, pass, quote);
  else {
    let word = '';
    yield* source.while(wordRun, (text) => {
      word += text;
      if (word.length > keyCharactersMax) throw new Malformed();
    });
    if (word === '' || (yield* source.peek()) === undefined) throw new Malformed();
    pass(jsonOf(word));
  }
}

function* readItems(source: Source, pass: Pass, quote: string, depth: number, open: string, close: string): Reading {
  yield* source.expect(open);
  pass(open);
  for (let isFirst = true; ; isFirst = false) {
    yield* source.blanks();
    if (yield* source.accept(close)) break;
    if (!isFirst) {
      yield* source.expect(',');
      pass(', ');
      yield* source.blanks();
      if (yield* source.accept(close)) throw new Malformed();
    }
    if (open === '{') {
      const next = yield* source.peek();
      if (next === '"' || next === "'") yield* readQuoted(source, pass, next);
      else if (next === quote.charAt(0)) yield* readBetween(source, pass, quote);
      else pass(JSON.stringify(yield* readRun(source, ':')));
      yield* source.blanks();
      yield* source.expect(':');
      pass(': ');
    }
    yield* readLiteral(source, pass, quote, depth - 1);
  }
  pass(close);
}

function* readBetween(source: Source, pass: Pass, quote: string): Reading {
  yield* source.expect(quote);
  const quoter = new Quoter(pass);
  pass('"');
  const mark = yield* source.until(new Marks([quote]), quoter.push, true);
  quoter.end();
  if (mark === undefined) throw new Malformed();
  pass('"');
}

/** Templates print strings without escapes, so a quote ends one only where a value can end. */
function* readQuoted(source: Source, pass: Pass, quote: string): Reading {
  yield* source.expect(quote);
  const quoter = new Quoter(pass);
  const run = quote === '"' ? /[^"\\]+/y : /[^'\\]+/y;
  pass('"');
  for (;;) {
    yield* source.while(run, quoter.push);
    const next = yield* source.peek();
    if (next === undefined) {
      quoter.end();
      throw new Malformed();
    }
    yield* source.expect(next);
    if (next === '\\') {
      quoter.push(yield* readEscape(source));
      continue;
    }
    let blanks = '';
    yield* source.while(blankRun, (text) => {
      blanks += text;
      if (blanks.length > keyCharactersMax) throw new Malformed();
    });
    const after = yield* source.peek();
    if (after === undefined || ',)]}:'.includes(after)) break;
    quoter.push(quote + blanks);
  }
  quoter.end();
  pass('"');
}

function* readEscape(source: Source): Reading<string> {
  const letter = yield* source.peek();
  if (letter === undefined) throw new Malformed();
  yield* source.expect(letter);
  const digits = letter === 'u' ? 4 : letter === 'x' ? 2 : 0;
  if (digits === 0) return escapes[letter] ?? `\\${letter}`;
  let code = '';
  while (code.length < digits) {
    const digit = yield* source.peek();
    if (digit === undefined || !/[\da-fA-F]/.test(digit)) throw new Malformed();
    yield* source.expect(digit);
    code += digit;
  }
  return String.fromCharCode(parseInt(code, 16));
}

const escapes: Readonly<Record<string, string>> = { n: '\n', r: '\r', t: '\t', '\\': '\\', "'": "'", '"': '"' };

function jsonOf(text: string): string {
  if (text === 'True' || text === 'False') return text.toLowerCase();
  if (text === 'None' || text === '') return 'null';
  try {
    JSON.parse(text);
    return text;
  } catch {
    return JSON.stringify(text);
  }
}

function quoted(text: string): string {
  return JSON.stringify(text).slice(1, -1);
}

const wordRun = /[\w.+-]+/y;
/** A value that is not text is read as a whole; a longer one is passed on unchanged. */
const jsonCharactersMax = 64 * 1024;
