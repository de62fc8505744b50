import { readCallObject } from './call-object.ts';
import { attempt, readAnswer, readBlanks, type Calls } from './calls.ts';
import type { EventSink } from './parsed-event.ts';
import type { CallFormat } from './format.ts';
import { Marks, type Reading, type Source } from './source.ts';

const tag = '<|python_tag|>';
const marks = new Marks([tag]);

/** Llama 3: an answer that is one object with `name` and `parameters`, or several between semicolons, with or without a tag. */
export const llama3: CallFormat = {
  specials: [tag],
  hasShortIds: false,
  spelling: {
    open: '',
    beforeName: '{"name": ',
    name: 'json',
    beforeArguments: ', "parameters": ',
    afterArguments: '}',
    between: '; ',
    close: '',
    // An answer may be JSON without being a call.
    trigger: undefined,
  },
  read: readLlama3,
};

function* readLlama3(source: Source, sink: EventSink, calls: Calls): Reading {
  let blanks = yield* readBlanks(source, sink);
  if ((yield* source.peek()) === '{') {
    yield* attempt(source, sink, calls, blanks, '', readObjects(source, calls));
    blanks = '';
  }
  yield* readAnswer(source, sink, calls, marks, readObjects, undefined, blanks);
}

function* readObjects(source: Source, calls: Calls): Reading {
  do {
    yield* source.blanks();
    yield* readCallObject(source, calls);
    yield* source.blanks();
  } while (yield* source.accept(';'));
}
