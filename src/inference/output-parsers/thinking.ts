import { readBlanks, Calls, type CallRules } from './calls.ts';
import type { Prober, ProbeTurn } from './derive.ts';
import type { CallFormat } from './format.ts';
import { EventSink } from './parsed-event.ts';
import { marksOf, readGroup } from './read-calls.ts';
import { Malformed, Marks, type Reading, type Source } from './source.ts';

/** The marks around reasoning. */
export interface ThinkMarks {
  readonly start: string;
  readonly end: string;
}

export type Thinking =
  { readonly type: 'marks'; readonly marks: ThinkMarks } | { readonly type: 'channels' } | { readonly type: 'none' };

/** Marks of templates that leave out the reasoning of earlier turns. */
const knownThinkMarks: readonly ThinkMarks[] = [
  { start: '<think>', end: '</think>' },
  { start: '[THINK]', end: '[/THINK]' },
  { start: '<seed:think>', end: '</seed:think>' },
  { start: '<|START_THINKING|>', end: '<|END_THINKING|>' },
];

/** The fields of a message in which templates look for its reasoning. */
const reasoningFields = ['reasoning_content', 'thinking', 'reasoning'] as const;

export interface FoundThinking {
  readonly thinking: Thinking;
  readonly reasoningField: (typeof reasoningFields)[number];
}

/** Finds the marks that a template prints around reasoning, in a turn of text or of a call. */
export function thinkingOf(source: string, render: Prober): FoundThinking {
  if (source.includes('<|channel|>')) return { thinking: { type: 'channels' }, reasoningField: 'reasoning_content' };
  const calls = [
    { id: 'pr0be1d01', type: 'function', function: { name: 'probefirst', arguments: { akey: 'Avalue' } } },
  ];
  for (const reasoningField of reasoningFields) {
    for (const turn of [{ content: 'Probesaid' }, { content: '', tool_calls: calls }]) {
      const marks = printedMarks(render, { role: 'assistant', ...turn, [reasoningField]: thought });
      if (marks !== undefined) return { thinking: { type: 'marks', marks }, reasoningField };
    }
  }
  const marks = knownThinkMarks.find(({ end }) => source.includes(end));
  return {
    thinking: marks === undefined ? { type: 'none' } : { type: 'marks', marks },
    reasoningField: 'reasoning_content',
  };
}

const thought = 'Probethought';

function printedMarks(render: Prober, turn: ProbeTurn): ThinkMarks | undefined {
  const user = 'probeuser';
  const printed = render([{ role: 'user', content: user }, turn], ['probefirst']) ?? '';
  const at = printed.lastIndexOf(thought);
  const answer = printed.slice(printed.lastIndexOf(user, at) + user.length);
  const before = answer.slice(0, answer.lastIndexOf(thought));
  const start = /(?:<[^<>\s]+>|\[[A-Z_]+\])\w*(?=\s*$)/.exec(before)?.[0];
  const end = /^\s*(<[^<>\s]+>|\[\/?[A-Z_]+\])/.exec(answer.slice(before.length + thought.length))?.[1];
  if (at < 0 || start === undefined || end === undefined) return undefined;
  // Marks that other parts of a turn have too do not tell reasoning from them.
  const isOnly = (mark: string): boolean => answer.split(mark).length === 2;
  return isOnly(start) && isOnly(end) ? { start, end } : undefined;
}

/** Whether a prompt ends inside reasoning, because its template opened it. */
export function endsInThought(prompt: string, { start, end }: ThinkMarks): boolean {
  return prompt.lastIndexOf(start) > prompt.lastIndexOf(end) && prompt.trimEnd().endsWith(start);
}

/** The calls that an answer may have, and how they are written. */
interface PossibleCalls {
  readonly format: CallFormat;
  readonly rules: CallRules;
  readonly calls: Calls;
}

/**
 * Reads the text before the answer: reasoning, if the text begins with its mark or inside it. Without an end mark, all of it is reasoning,
 * except for the calls that it ends with. Blanks around the marks are layout.
 */
export function* readThought(
  source: Source,
  sink: EventSink,
  marks: ThinkMarks,
  startsInside: boolean,
  possible: PossibleCalls | undefined,
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
  const begins = possible === undefined || possible.format.mark === '' ? [] : marksOf(possible.format).literals;
  const searched = new Marks([marks.end, ...begins]);
  for (;;) {
    const mark = yield* source.until(searched, (text) => sink.reasoning(text));
    if (mark === undefined || mark === marks.end || possible === undefined) break;
    if (yield* readLastCalls(source, sink, marks, possible, searched, mark)) break;
  }
  enter('answer');
  yield* source.blanks();
}

/**
 * Reads a call inside reasoning. Many models forget to end their reasoning before they call (vllm-project/vllm#39056), and others think
 * about calls in the same words. A call is the last thing that a model writes, so what only another mark or the end follows is one, and
 * what text follows is a thought. Returns whether the reasoning has ended.
 */
function* readLastCalls(
  source: Source,
  sink: EventSink,
  marks: ThinkMarks,
  { format, rules, calls }: PossibleCalls,
  searched: Marks,
  first: string,
): Reading<boolean> {
  const trial = new EventSink();
  const tried = new Calls(source, trial, { ...rules, callsMax: Infinity, bound: 'nothing' }, true);
  source.record(first);
  let mark: string | undefined = first;
  let hasEnded = false;
  try {
    while (mark !== undefined) {
      if (mark === marks.end) hasEnded = true;
      else yield* readGroup(format, source, tried, mark);
      yield* source.blanks();
      mark = undefined;
      for (const next of searched.literals)
        if (!hasEnded && mark === undefined && (yield* source.accept(next))) mark = next;
    }
    if ((yield* source.peek()) === undefined) {
      source.settle();
      calls.adopt(trial.drain());
      return true;
    }
  } catch (error) {
    if (!(error instanceof Malformed)) throw error;
  }
  const text = source.settle();
  sink.reasoning(hasEnded ? text.slice(0, text.lastIndexOf(marks.end)) : text);
  return hasEnded;
}
