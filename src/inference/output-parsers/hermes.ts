import { readCallArray, readCallObject } from './call-object.ts';
import { readAnswer, type Calls } from './calls.ts';
import type { CallFormat } from './format.ts';
import { readXmlCall } from './qwen-xml.ts';
import { Marks, type Reading, type Source } from './source.ts';

const start = '<tool_call>';
const end = '</tool_call>';
const marks = new Marks([start]);

/** Hermes, Qwen 2.5 and 3, and models whose prompt asks for this format. */
export const hermes: CallFormat = {
  specials: [start, end],
  hasShortIds: false,
  spelling: {
    open: '',
    beforeName: `${start}\n{"name": `,
    name: 'json',
    beforeArguments: ', "arguments": ',
    afterArguments: `}\n${end}`,
    between: '\n',
    close: '',
    trigger: start,
  },
  read: (source, sink, calls) => readAnswer(source, sink, calls, marks, readCall, start),
};

/** Qwen 3 Coder: a different spelling of calls between the same marks. Forced calls are JSON here too; the parser accepts both. */
export const qwenXml: CallFormat = { ...hermes, spelling: { ...hermes.spelling, trigger: undefined } };

function* readCall(source: Source, calls: Calls): Reading {
  yield* source.blanks();
  if ((yield* source.peek()) === '<') yield* readXmlCall(source, calls);
  else if (yield* source.accept('[')) yield* readCallArray(source, calls);
  else yield* readCallObject(source, calls);
  yield* source.blanks();
  yield* source.expect(end);
}
