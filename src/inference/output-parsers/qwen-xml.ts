import type { Calls } from './calls.ts';
import { Malformed, Marks, type Reading, type Source } from './source.ts';

/**
 * Reads `<function=f><parameter=a>…</parameter></function>` and passes it on as JSON. A parameter's text is interpreted by its schema: a
 * string is quoted, anything else should already be JSON.
 */
export function* readXmlCall(source: Source, calls: Calls): Reading {
  yield* source.expect('<function=');
  const name = yield* readName(source);
  calls.begin(name);
  let separator = '{';
  for (;;) {
    yield* source.blanks();
    if (yield* source.accept('</function>')) break;
    // Cut off, or malformed: the object stays open, as broken as it is.
    if (!(yield* source.accept('<parameter='))) throw new Malformed();
    const parameter = yield* readName(source);
    calls.arguments(`${separator}${JSON.stringify(parameter)}: `);
    separator = ', ';
    if (calls.isText(name, parameter)) yield* readText(source, calls.arguments);
    else yield* readJson(source, calls.arguments);
  }
  calls.arguments(separator === '{' ? '{}' : '}');
  calls.finish();
}

function* readName(source: Source): Reading<string> {
  let name = '';
  yield* source.while(nameRun, (text) => {
    name += text;
    if (name.length > nameCharactersMax) throw new Malformed();
  });
  yield* source.expect('>');
  return name;
}

/** The line breaks after the opening mark and before the closing one are layout. */
function* readText(source: Source, pass: (text: string) => void): Reading {
  yield* source.accept('\n');
  pass('"');
  let held = '';
  const mark = yield* source.until(
    closing,
    (text) => {
      const whole = held + text;
      // A line break that may be the last one, or half a surrogate pair, which cannot be quoted alone.
      held = /[\n\ud800-\udbff]$/.exec(whole)?.[0] ?? '';
      pass(quoted(whole.slice(0, whole.length - held.length)));
    },
    true,
  );
  if (held !== '\n') pass(quoted(held));
  if (mark === undefined) throw new Malformed();
  pass('"');
}

function* readJson(source: Source, pass: (text: string) => void): Reading {
  let text = '';
  let isLong = false;
  const mark = yield* source.until(
    closing,
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

const closing = new Marks(['</parameter>']);
const nameRun = /[^<>]+/y;
const nameCharactersMax = 1024;
/** A value that is not text is read as a whole; a longer one is passed on unchanged. */
const jsonCharactersMax = 64 * 1024;
