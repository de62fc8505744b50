import { readArguments, readCallArray } from './call-object.ts';
import { readAnswer, type Calls } from './calls.ts';
import type { CallFormat } from './format.ts';
import { ignore, Malformed, Marks, type Reading, type Source } from './source.ts';

const start = '[TOOL_CALLS]';
const marks = new Marks([start]);
const callId = '[CALL_ID]';
const args = '[ARGS]';

/** Mistral until tokenizer v7: `[TOOL_CALLS] [{"name": …, "arguments": …}, …]`. */
export const mistralArray: CallFormat = {
  specials: [start, callId, args],
  hasShortIds: true,
  spelling: {
    open: `${start} [`,
    beforeName: '{"name": ',
    name: 'json',
    beforeArguments: ', "arguments": ',
    afterArguments: '}',
    between: ', ',
    close: ']',
    trigger: start,
  },
  read: (source, sink, calls) => readAnswer(source, sink, calls, marks, readCalls, start),
};

/** Mistral since tokenizer v11: `[TOOL_CALLS]name[ARGS]{…}`, once per call. */
export const mistral: CallFormat = {
  ...mistralArray,
  spelling: {
    open: '',
    beforeName: start,
    name: 'bare',
    beforeArguments: args,
    afterArguments: '',
    between: '',
    close: '',
    trigger: start,
  },
};

function* readCalls(source: Source, calls: Calls): Reading {
  yield* source.blanks();
  if (yield* source.accept('[')) yield* readCallArray(source, calls);
  else yield* readNamed(source, calls);
}

function* readNamed(source: Source, calls: Calls): Reading {
  let name = '';
  yield* source.while(nameRun, (text) => {
    name += text;
  });
  if (yield* source.accept(callId)) yield* source.while(nameRun, ignore);
  yield* source.accept(args);
  yield* source.blanks();
  if ((yield* source.peek()) !== '{') throw new Malformed();
  calls.begin(name.trim());
  yield* readArguments(source, calls.arguments);
  calls.finish();
}

const nameRun = /[^[{]+/y;
