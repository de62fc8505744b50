import { readBlanks } from './calls.ts';
import type { EventSink } from './parsed-event.ts';
import { Marks, type Reading, type Source } from './source.ts';

/** The marks around reasoning. */
export interface ThinkMarks {
  readonly start: string;
  readonly end: string;
}

export const knownThinkMarks: readonly ThinkMarks[] = [
  { start: '<think>', end: '</think>' },
  { start: '[THINK]', end: '[/THINK]' },
  { start: '<seed:think>', end: '</seed:think>' },
];

/** Whether a prompt ends inside reasoning, because its template opened it. */
export function endsInThought(prompt: string, { start, end }: ThinkMarks): boolean {
  return prompt.lastIndexOf(start) > prompt.lastIndexOf(end) && prompt.trimEnd().endsWith(start);
}

/**
 * Reads the text before the answer: reasoning, if the text begins with its mark or inside it. Without an end mark, all of it is reasoning.
 * Blanks around the marks are layout.
 */
export function* readThought(
  source: Source,
  sink: EventSink,
  marks: ThinkMarks,
  startsInside: boolean,
  enter: (phase: 'reasoning' | 'answer') => void,
): Reading {
  const blanks = yield* readBlanks(source, sink);
  // Some models repeat the mark that their template has already written.
  const isMarked = yield* source.accept(marks.start);
  if (!startsInside && !isMarked) {
    sink.text(blanks);
    return enter('answer');
  }
  enter('reasoning');
  yield* source.blanks();
  yield* source.until(new Marks([marks.end]), (text) => sink.reasoning(text));
  enter('answer');
  yield* source.blanks();
}
