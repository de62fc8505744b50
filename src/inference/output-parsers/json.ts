import { Malformed, type Reading, type Source } from './source.ts';

/** Reads a JSON string and passes on its decoded text as it arrives. */
export function* readString(source: Source, pass: (text: string) => void): Reading {
  yield* source.expect('"');
  for (;;) {
    yield* source.while(stringRun, pass);
    if (yield* source.accept('"')) return;
    pass(yield* readEscape(source));
  }
}

/** Reads a short string as a whole: the name of a field or of a function. */
export function* readWholeString(source: Source): Reading<string> {
  let whole = '';
  yield* readString(source, (text) => {
    whole += text;
  });
  return whole;
}

/**
 * Passes a JSON value on as it is written, and stops at its end. Tracks only strings and brackets, so nothing is buffered, however deep it
 * nests. `false`: a `<` appears where JSON allows none, so a mark comes before the value is complete.
 */
export function* readValue(source: Source, pass: (text: string) => void): Reading<boolean> {
  const first = yield* source.peek();
  if (first === '"') yield* readRawString(source, pass);
  else if (first === '{' || first === '[') return yield* readStructure(source, pass);
  else yield* source.while(scalarRun, pass);
  return true;
}

function* readStructure(source: Source, pass: (text: string) => void): Reading<boolean> {
  let depth = 0;
  for (;;) {
    const next = yield* source.peek();
    switch (next) {
      case undefined:
        throw new Malformed();
      case '<':
        return false;
      case '"':
        yield* readRawString(source, pass);
        break;
      case '{':
      case '[':
        depth++;
        yield* readCharacter(source, next, pass);
        break;
      case '}':
      case ']':
        depth--;
        yield* readCharacter(source, next, pass);
        if (depth === 0) return true;
        break;
      default:
        yield* source.while(structureRun, pass);
    }
  }
}

function* readRawString(source: Source, pass: (text: string) => void): Reading {
  yield* readCharacter(source, '"', pass);
  for (;;) {
    yield* source.while(stringRun, pass);
    const next = yield* source.peek();
    if (next === undefined) throw new Malformed();
    yield* readCharacter(source, next, pass);
    if (next === '"') return;
    const escaped = yield* source.peek();
    if (escaped !== undefined) yield* readCharacter(source, escaped, pass);
  }
}

function* readCharacter(source: Source, character: string, pass: (text: string) => void): Reading {
  yield* source.expect(character);
  pass(character);
}

function* readEscape(source: Source): Reading<string> {
  yield* source.expect('\\');
  const letter = yield* source.peek();
  if (letter === undefined) throw new Malformed();
  yield* source.expect(letter);
  if (letter !== 'u') return escapes[letter] ?? letter;
  const unit = yield* readUnit(source);
  // Both halves of a surrogate pair are passed on together.
  if (unit < 0xd800 || unit > 0xdbff || !(yield* source.accept('\\u'))) return String.fromCharCode(unit);
  return String.fromCharCode(unit, yield* readUnit(source));
}

function* readUnit(source: Source): Reading<number> {
  let digits = '';
  while (digits.length < 4) {
    const digit = yield* source.peek();
    if (digit === undefined || !/[\da-fA-F]/.test(digit)) throw new Malformed();
    yield* source.expect(digit);
    digits += digit;
  }
  return parseInt(digits, 16);
}

const escapes: Readonly<Record<string, string>> = { b: '\b', f: '\f', n: '\n', r: '\r', t: '\t' };
const stringRun = /[^"\\]+/y;
const structureRun = /[^"{}[\]<]+/y;
const scalarRun = /[\w.+-]+/y;
