import { readArguments, readCallObject } from './call-object.ts';
import { attempt, readAnswer, readBlanks, type Calls } from './calls.ts';
import { readCodeArguments, readRun, readTaggedArguments } from './argument-forms.ts';
import { idSlot, markOf, type CallFormat } from './format.ts';
import type { EventSink } from './parsed-event.ts';
import { Malformed, Marks, ignore, type Reading, type Source } from './source.ts';

/**
 * Reads an answer of text, with calls in between, as the format spells them. Models are read with indulgence: blanks, ids and all literals
 * between the first mark and the arguments may be missing, and a call may be an object with `name` and `arguments` in every format.
 */
export function* readFormat(format: CallFormat, source: Source, sink: EventSink, calls: Calls): Reading {
  if (format.read !== undefined) return yield* format.read(source, sink, calls);
  const group = (from: Source, to: Calls, mark: string) => readGroup(format, from, to, mark);
  if (format.mark !== '') return yield* readAnswer(source, sink, calls, marksOf(format), group, format.mark);
  let blanks = yield* readBlanks(source, sink);
  if ((yield* source.peek()) === '{') {
    yield* attempt(source, sink, calls, blanks, '', readGroup(format, source, calls, ''));
    blanks = '';
  }
  yield* readAnswer(source, sink, calls, new Marks([pythonTag]), group, undefined, blanks);
}

/** Llama writes this before an object too, although its templates do not. */
const pythonTag = '<|python_tag|>';

/** The literals that begin calls: of the group, or of one call where the group's is missing. */
export function marksOf({ mark, open, openCall }: CallFormat): Marks {
  const inner = markOf(openCall);
  return new Marks(open.trim() !== '' && inner.startsWith('<') && inner !== mark ? [mark, inner] : [mark]);
}

export function* readGroup(format: CallFormat, source: Source, calls: Calls, mark: string): Reading {
  const { open, openCall, closeCall, close } = format;
  const isObject = format.name === 'json';
  const whole = (open + openCall).trimStart();
  const begun = whole.startsWith(mark) ? whole : openCall.trimStart();
  yield* skip(source, begun.slice(mark.length));
  yield* source.blanks();
  const isList = (isObject || format.arguments.type === 'code') && (yield* source.accept('['));
  const inner = markOf(openCall);
  const words = wordsOf(closeCall);
  for (;;) {
    yield* source.blanks();
    const isBare = (yield* source.peek()) !== '{';
    // The first mark behind arguments between marks has been read with them.
    const endsWithMark = isBare && format.arguments.type === 'tagged';
    if (!isBare) yield* readCallObject(source, calls, format.beforeName.trim() === '{');
    else if (isObject) throw new Malformed();
    else yield* readNamed(format, source, calls);
    if (isList && isObject) {
      yield* source.blanks();
      if (yield* source.accept(',')) continue;
      yield* source.expect(']');
      return yield* expectLast(source, `${closeCall} ${close}`);
    }
    yield* expectLast(source, endsWithMark ? words.slice(1).join(' ') : closeCall);
    if (close.trim() === '' && !isList && !(isObject && closeCall === '')) return;
    yield* source.blanks();
    if ((isObject || isList) && ((yield* source.accept(',')) || (yield* source.accept(';')))) continue;
    if (isList) {
      yield* source.expect(']');
      return yield* expectLast(source, close);
    }
    const [first, ...rest] = wordsOf(close);
    if (first !== undefined && (yield* source.accept(first))) return yield* skip(source, rest.join(' '));
    if (inner !== '' && (yield* source.accept(inner))) yield* skip(source, openCall.trimStart().slice(inner.length));
    else if ((yield* source.peek()) === '{') continue;
    else if (first !== undefined) throw new Malformed();
    else return;
  }
}

function* readNamed(format: CallFormat, source: Source, calls: Calls): Reading {
  const { beforeArguments, closeCall } = format;
  const name = yield* readRun(source, beforeArguments.charAt(0));
  calls.begin(name);
  const form = format.arguments;
  switch (form.type) {
    case 'json':
      yield* skip(source, beforeArguments);
      yield* source.blanks();
      if ((yield* source.peek()) !== '{') throw new Malformed();
      yield* readArguments(source, calls.arguments);
      return calls.finish();
    case 'tagged':
      yield* skip(source, beforeArguments);
      return yield* readTaggedArguments(form, source, calls, name, wordsOf(closeCall)[0] ?? '');
    case 'code':
      yield* source.blanks();
      yield* source.expect(beforeArguments.trim());
      return yield* readCodeArguments(form, source, calls, closeCall.trim().charAt(0));
  }
}

/** The words of a literal; the brackets of a list are read by themselves. */
const wordsOf = (text: string): readonly string[] =>
  text
    .replace(/\[\s*$|^\s*\]/, '')
    .split(/\s+/)
    .filter((word) => word !== '');

/** Reads as many of the words as are there. */
function* skip(source: Source, text: string): Reading {
  for (const [index, part] of text.split(idSlot).entries()) {
    if (index > 0) yield* source.while(/[^\s<>[\]{}"|]+/y, ignore);
    for (const word of wordsOf(part)) {
      yield* source.blanks();
      yield* source.accept(word);
    }
  }
}

/** Reads the words; the last one may not be missing. */
function* expectLast(source: Source, text: string): Reading {
  const words = wordsOf(text);
  for (const [index, word] of words.entries()) {
    yield* source.blanks();
    if (index === words.length - 1) yield* source.expect(word);
    else yield* source.accept(word);
  }
}
