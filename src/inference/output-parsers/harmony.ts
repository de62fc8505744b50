import type { Calls } from './calls.ts';
import type { EventSink } from './parsed-event.ts';
import type { CallFormat } from './format.ts';
import { Malformed, Marks, type Reading, type Source } from './source.ts';

const channel = '<|channel|>';
const message = '<|message|>';
const start = '<|start|>';
const constrain = '<|constrain|>';
const bodyEnd = ['<|end|>', '<|return|>', '<|call|>'] as const;
const headerEnds = new Marks([message, ...bodyEnd]);
const bodyEnds = new Marks([...bodyEnd, start, channel]);

/** Harmony (gpt-oss): every message names its channel, and a call is a message to a function. */
export const harmony: CallFormat = {
  open: '',
  openCall: '',
  beforeName: `${channel}commentary to=functions.`,
  name: 'bare',
  beforeArguments: ` ${constrain}json${message}`,
  arguments: { type: 'json' },
  // The mark after the arguments ends the generation.
  afterArguments: '',
  closeCall: '',
  between: undefined,
  close: '',
  mark: '',
  ids: 'any',
  literals: [channel, message, start, constrain, ...bodyEnd],
  read: (source, sink, calls) => readHarmony(source, sink, calls, () => {}),
};

/** The marks of reasoning and the answer, for grammars. */
export const harmonyMarks = {
  thoughtBegin: `${channel}analysis${message}`,
  thoughtEnd: bodyEnd[0],
  answerBegin: `${channel}final${message}`,
  nextMessage: `${start}assistant`,
} as const;

/** `enter` is called when a message begins, and when reasoning has ended. Without `calls`, a message to a function is text. */
export function* readHarmony(
  source: Source,
  sink: EventSink,
  calls: Calls | undefined,
  enter: (phase: 'reasoning' | 'answer') => void,
): Reading {
  let opening = '';
  while ((yield* source.peek()) !== undefined) {
    const header = yield* readHeader(source, opening);
    const body = header.isWhole ? kindOf(header.text, calls) : 'text';
    let end: string | undefined;
    if (body === 'reasoning') {
      enter('reasoning');
      end = yield* source.until(bodyEnds, (text) => sink.reasoning(text));
      enter('answer');
    } else if (body === 'text') {
      enter('answer');
      if (!header.isWhole || isAddressed(header.text)) sink.text(header.text);
      end = yield* source.until(bodyEnds, (text) => sink.text(text));
    } else {
      enter('answer');
      body.calls.begin(body.name);
      end = yield* source.until(bodyEnds, body.calls.arguments, true);
      // The mark after a call mostly ends the generation and is not seen: only an empty message is certain to be cut.
      if (end === undefined && !body.calls.isAnnounced) sink.text(header.text);
      else body.calls.finish();
      source.settle();
    }
    opening = end === start || end === channel ? end : '';
  }
}

/** Reads a header up to and including its mark; not whole if it turns out to be text. */
function* readHeader(source: Source, opening: string): Reading<{ readonly text: string; readonly isWhole: boolean }> {
  if (opening === '') {
    for (const possible of [start, channel, recipient]) {
      if (opening === '' && (yield* source.accept(possible))) opening = possible;
    }
    if (opening === '') return { text: '', isWhole: false };
  }
  source.record(opening);
  try {
    const mark = yield* source.until(headerEnds, () => {});
    return { text: source.settle(), isWhole: mark === message };
  } catch (error) {
    if (!(error instanceof Malformed)) throw error;
    return { text: source.settle(), isWhole: false };
  }
}

function kindOf(header: string, calls: Calls | undefined): 'reasoning' | 'text' | { calls: Calls; name: string } {
  const name = /\sto=functions\.([^\s<]+)/.exec(header)?.[1];
  if (name !== undefined && calls?.isOffered(name) === true) return { calls, name };
  return !isAddressed(header) && header.includes(`${channel}analysis`) ? 'reasoning' : 'text';
}

/** Whether the recipient is not the user: a message to anything not offered is shown unchanged. */
function isAddressed(header: string): boolean {
  return header.includes(recipient);
}

const recipient = ' to=';
