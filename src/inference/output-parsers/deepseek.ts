import { readArguments } from './call-object.ts';
import { readAnswer, type Calls } from './calls.ts';
import type { CallFormat } from './format.ts';
import { Malformed, Marks, type Reading, type Source } from './source.ts';

const callsBegin = '<｜tool▁calls▁begin｜>';
const callsEnd = '<｜tool▁calls▁end｜>';
const callBegin = '<｜tool▁call▁begin｜>';
const callEnd = '<｜tool▁call▁end｜>';
const separator = '<｜tool▁sep｜>';
const marks = new Marks([callsBegin, callBegin]);
const separators = new Marks([separator]);

/** DeepSeek V3 and R1: `…begin｜>function<｜tool▁sep｜>name`, then the arguments in a fence. */
export const deepseekFenced: CallFormat = {
  specials: [callsBegin, callsEnd, callBegin, callEnd, separator],
  hasShortIds: false,
  spelling: {
    open: callsBegin,
    beforeName: `${callBegin}function${separator}`,
    name: 'bare',
    beforeArguments: '\n```json\n',
    afterArguments: `\n\`\`\`${callEnd}`,
    between: '\n',
    close: callsEnd,
    trigger: callsBegin,
  },
  read: (source, sink, calls) => readAnswer(source, sink, calls, marks, readCalls, callsBegin),
};

/** DeepSeek V3.1: `…begin｜>name<｜tool▁sep｜>{…}`. */
export const deepseek: CallFormat = {
  ...deepseekFenced,
  spelling: {
    ...deepseekFenced.spelling,
    beforeName: callBegin,
    beforeArguments: separator,
    afterArguments: callEnd,
    between: '',
  },
};

function* readCalls(source: Source, calls: Calls, mark: string): Reading {
  yield* source.blanks();
  if (mark === callsBegin) yield* source.expect(callBegin);
  for (;;) {
    yield* readCall(source, calls);
    yield* source.blanks();
    if (yield* source.accept(callsEnd)) return;
    yield* source.expect(callBegin);
  }
}

function* readCall(source: Source, calls: Calls): Reading {
  let name = '';
  const found = yield* source.until(separators, (text) => {
    name += text;
  });
  if (found === undefined) throw new Malformed();
  yield* source.blanks();
  if ((yield* source.peek()) !== '{') {
    // That was the type of the call, not its name.
    name = '';
    yield* source.while(lineRun, (text) => {
      name += text;
    });
    yield* source.blanks();
    yield* source.accept('```json');
    yield* source.blanks();
  }
  calls.begin(name.trim());
  const isWhole = yield* readArguments(source, calls.arguments);
  calls.finish();
  yield* source.blanks();
  if (isWhole) yield* source.accept('```');
  yield* source.blanks();
  yield* source.expect(callEnd);
}

const lineRun = /[^\n]+/y;
