import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { readEveryCut, shown, type ReadingOptions } from './reading.ts';
import type { FormatName } from './templates.ts';

interface Case {
  readonly what: string;
  readonly text: string;
  readonly gives: readonly string[];
  readonly options?: Omit<ReadingOptions, 'format'>;
}

const call = '{"name": "get_weather", "arguments": {"city": "Paris"}}';
const paris = 'get_weather {"city": "Paris"}';
const tag = (inner: string) => `<tool_call>\n${inner}\n</tool_call>`;

/** What models write (§4.2.2), in the words of their own templates and of recorded answers. */
const cases: Partial<Readonly<Record<FormatName, readonly Case[]>>> = {
  hermes: [
    { what: 'one call', text: tag(call), gives: [paris] },
    { what: 'text, then a call', text: `Let me look.\n${tag(call)}`, gives: ['text: Let me look.\n', paris] },
    { what: 'blanks around calls', text: `\n\n${tag(call)}\n${tag(call)}\n`, gives: [paris, paris] },
    { what: 'text between calls', text: `${tag(call)} and ${tag(call)}`, gives: [paris, 'text:  and ', paris] },
    { what: 'all in one line', text: `<tool_call>${call}</tool_call>`, gives: [paris] },
    { what: 'no end mark', text: `<tool_call>\n${call}`, gives: [paris] },
    { what: 'cut behind the arguments', text: `<tool_call>\n${call.slice(0, -1)}`, gives: [paris] },
    {
      what: 'cut inside the arguments',
      text: '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Pa',
      gives: ['get_weather {"city": "Pa'],
    },
    {
      what: 'cut before the name is whole',
      text: '<tool_call>\n{"name": "get_wea',
      gives: ['text: <tool_call>\n{"name": "get_wea'],
    },
    { what: 'cut inside the mark', text: 'So: <tool_ca', gives: ['text: So: <tool_ca'] },
    {
      what: 'arguments before the name',
      text: tag('{"arguments": {"city": "Paris"}, "name": "get_weather"}'),
      gives: [paris],
    },
    { what: 'no arguments', text: tag('{"name": "now"}'), gives: ['now {}'] },
    { what: 'null for arguments', text: tag('{"name": "now", "arguments": null}'), gives: ['now {}'] },
    { what: 'empty arguments', text: tag('{"name": "now", "arguments": {}}'), gives: ['now {}'] },
    {
      what: 'arguments in a string',
      text: tag('{"name": "get_weather", "arguments": "{\\"city\\": \\"\\ud83d\\ude00\\"}"}'),
      gives: ['get_weather {"city": "😀"}'],
    },
    {
      what: 'the marks of a call inside a string',
      text: tag('{"name": "get_weather", "arguments": {"city": "</tool_call><tool_call>{\\"}"}}'),
      gives: ['get_weather {"city": "</tool_call><tool_call>{\\"}"}'],
    },
    {
      what: 'nested objects, escapes and other letters',
      text: tag('{"name": "get_weather", "arguments": {"a": [{"b": {}}, "]}"], "c": "\\\\", "d": "日本"}}'),
      gives: ['get_weather {"a": [{"b": {}}, "]}"], "c": "\\\\", "d": "日本"}'],
    },
    {
      what: 'an escaped name',
      text: tag('{"name": "get\\u005fweather", "arguments": {}}'),
      gives: ['get_weather {}'],
    },
    {
      what: 'fields twice: the first counts',
      text: tag('{"name": "now", "name": "get_weather", "arguments": {"a": 1}, "arguments": {"b": 2}}'),
      gives: ['now {"a": 1}'],
    },
    { what: 'further fields', text: tag('{"id": "x1", "type": "function", "name": "now"}'), gives: ['now {}'] },
    {
      what: 'a name that was not offered',
      text: tag('{"name": "rm", "arguments": {}}'),
      gives: [`text: ${tag('{"name": "rm", "arguments": {}}')}`],
    },
    {
      what: 'a name that was not offered, between calls that were',
      text: `${tag(call)}\n${tag('{"name": "rm"}')}\n${tag(call)}`,
      gives: [paris, `text: \n${tag('{"name": "rm"}')}\n`, paris],
    },
    { what: 'no JSON', text: tag('get_weather(Paris)'), gives: [`text: ${tag('get_weather(Paris)')}`] },
    { what: 'no name', text: tag('{"arguments": {}}'), gives: [`text: ${tag('{"arguments": {}}')}`] },
    { what: 'an array', text: tag('[1]'), gives: [`text: ${tag('[1]')}`] },
    { what: 'a list of calls', text: tag(`[${call}, ${call}]`), gives: [paris, paris] },
    { what: 'two start marks', text: `<tool_call>${tag(call)}`, gives: ['text: <tool_call>', paris] },
    {
      what: 'an object that is left open',
      text: '<tool_call>{"name": "now", "arguments": {"a": 1</tool_call> done',
      gives: ['now {"a": 1', 'text:  done'],
    },
    {
      what: 'garbage behind the arguments',
      text: '<tool_call>{"name": "now", "arguments": {}} nonsense</tool_call>',
      gives: ['now {}', 'text: } nonsense</tool_call>'],
    },
    {
      what: 'text that looks a little like a mark',
      text: 'a < b, <tool>, <tool_call',
      gives: ['text: a < b, <tool>, <tool_call'],
    },
    { what: 'no tools offered', text: tag(call), gives: [`text: ${tag(call)}`], options: { tools: undefined } },
    { what: 'one call at most', text: `${tag(call)}\n${tag(call)} bye`, gives: [paris], options: { callsMax: 1 } },
    { what: 'blanks alone', text: ' \n', gives: ['text:  \n'] },
  ],
  'qwen-xml': [
    {
      what: 'parameters by their schemas',
      text: tag(
        '<function=get_weather>\n<parameter=city>\nParis "Nord"\nline two\n</parameter>\n<parameter=days>\n3\n</parameter>\n<parameter=tags>\n["a", "b"]\n</parameter>\n</function>',
      ),
      gives: ['get_weather {"city": "Paris \\"Nord\\"\\nline two", "days": 3, "tags": ["a", "b"]}'],
    },
    { what: 'no parameters', text: tag('<function=now>\n</function>'), gives: ['now {}'] },
    {
      what: 'Python words, and what is no JSON',
      text: tag(
        '<function=now><parameter=a>True</parameter><parameter=b>None</parameter><parameter=c>x y</parameter></function>',
      ),
      gives: ['now {"a": true, "b": null, "c": "x y"}'],
    },
    {
      what: 'a text that is cut',
      text: '<tool_call>\n<function=get_weather>\n<parameter=city>\nPa',
      gives: ['get_weather {"city": "Pa'],
    },
    {
      what: 'line breaks and characters of two halves',
      text: tag('<function=get_weather><parameter=city>\n\n😀\n\n</parameter></function>'),
      gives: ['get_weather {"city": "\\n😀\\n"}'],
    },
    {
      what: 'a name that was not offered',
      text: tag('<function=rm></function>'),
      gives: [`text: ${tag('<function=rm></function>')}`],
    },
    { what: 'JSON between the same marks', text: tag(call), gives: [paris] },
  ],
  llama3: [
    { what: 'an object', text: '{"name": "get_weather", "parameters": {"city": "Paris"}}', gives: [paris] },
    {
      what: 'behind its tag, with a type',
      text: '<|python_tag|>{"type": "function", "name": "get_weather", "parameters": {"city": "Paris"}}',
      gives: [paris],
    },
    {
      what: 'several',
      text: '{"name": "now", "parameters": {}}; {"name": "now", "parameters": {}}',
      gives: ['now {}', 'now {}'],
    },
    {
      what: 'text and a tag',
      text: 'I will look.<|python_tag|>{"name": "now", "parameters": {}}',
      gives: ['text: I will look.', 'now {}'],
    },
    {
      what: 'an answer in JSON',
      text: '{"temperature": 20, "name": "now"}',
      gives: ['text: {"temperature": 20, "name": "now"}'],
    },
    { what: 'plain text', text: '\nIt is {"name"}', gives: ['text: \nIt is {"name"}'] },
    {
      what: 'a built-in tool',
      text: '<|python_tag|>brave_search.call(query="x")',
      gives: ['text: <|python_tag|>brave_search.call(query="x")'],
    },
    {
      what: 'a name that was not offered',
      text: '{"name": "rm", "parameters": {}}',
      gives: ['text: {"name": "rm", "parameters": {}}'],
    },
  ],
  'mistral-array': [
    { what: 'an array', text: `[TOOL_CALLS] [${call}]`, gives: [paris] },
    {
      what: 'two calls with ids',
      text: '[TOOL_CALLS][{"name": "now", "arguments": {}, "id": "VvvODy9mT"}, {"name": "now", "arguments": {}, "id": "0UIFziTBA"}]',
      gives: ['now {}', 'now {}'],
    },
    { what: 'text before it', text: `Well. [TOOL_CALLS] [${call}]`, gives: ['text: Well. ', paris] },
    { what: 'an array that is cut', text: `[TOOL_CALLS] [${call}, {"na`, gives: [paris] },
    { what: 'brackets in a text', text: '[1] and [TOOL]', gives: ['text: [1] and [TOOL]'] },
  ],
  mistral: [
    { what: 'name and arguments', text: '[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}', gives: [paris] },
    { what: 'without a mark between', text: '[TOOL_CALLS]get_weather{"city": "Paris"}', gives: [paris] },
    { what: 'cut in the name', text: '[TOOL_CALLS]get_wea', gives: ['text: [TOOL_CALLS]get_wea'] },
    { what: 'a name that was not offered', text: '[TOOL_CALLS]rm[ARGS]{}', gives: ['text: [TOOL_CALLS]rm[ARGS]{}'] },
  ],
  'mistral-id': [
    {
      what: 'two calls, one with an id',
      text: '[TOOL_CALLS]now[CALL_ID]abc123def[ARGS]{}[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}',
      gives: ['now {}', paris],
    },
  ],
  'deepseek-fenced': [
    {
      what: 'two calls',
      text: '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{"city": "Paris"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
      gives: [paris, 'now {}'],
    },
    {
      what: 'without the outer marks',
      text: 'So.<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```<｜tool▁call▁end｜>',
      gives: ['text: So.', 'now {}'],
    },
    {
      what: 'a name that was not offered',
      text: '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>rm\n```json\n{}',
      gives: ['text: <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>rm\n```json\n{}'],
    },
  ],
  deepseek: [
    {
      what: 'two calls',
      text: 'Let me see.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"city": "Paris"}<｜tool▁call▁end｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
      gives: ['text: Let me see.', paris, 'now {}'],
    },
    {
      what: 'cut inside the arguments',
      text: '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"ci',
      gives: ['get_weather {"ci'],
    },
  ],
  harmony: [
    {
      what: 'reasoning, then the answer',
      text: '<|channel|>analysis<|message|>Easy.<|end|><|start|>assistant<|channel|>final<|message|>Paris.<|return|>',
      gives: ['reasoning: Easy.', 'text: Paris.'],
    },
    {
      what: 'reasoning, then a call',
      text: '<|channel|>analysis<|message|>I need the weather.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Paris"}<|call|>',
      gives: ['reasoning: I need the weather.', paris],
    },
    {
      what: 'the recipient before the channel, and no end',
      text: ' to=functions.get_weather<|channel|>commentary json<|message|>{"city": "Paris"}',
      gives: [paris],
    },
    {
      what: 'a preamble, then a call',
      text: '<|channel|>commentary<|message|>I will look.<|end|><|start|>assistant<|channel|>commentary to=functions.now<|message|>{}<|call|>',
      gives: ['text: I will look.', 'now {}'],
    },
    { what: 'no channel at all', text: 'Hello there', gives: ['text: Hello there'] },
    { what: 'only reasoning', text: '<|channel|>analysis<|message|>Hm', gives: ['reasoning: Hm'] },
    {
      what: 'a header that is cut',
      text: '<|channel|>analysis<|message|>Hm<|end|><|start|>assistant<|chan',
      gives: ['reasoning: Hm', 'text: <|start|>assistant<|chan'],
    },
    {
      what: 'a function that was not offered',
      text: '<|channel|>commentary to=functions.rm<|message|>{}<|call|>',
      gives: ['text: <|channel|>commentary to=functions.rm<|message|>{}'],
    },
    {
      what: 'a channel without an end mark before it',
      text: '<|channel|>analysis<|message|>Hm<|channel|>final<|message|>Yes',
      gives: ['reasoning: Hm', 'text: Yes'],
    },
    {
      what: 'no tools offered',
      text: '<|channel|>commentary to=functions.now<|message|>{}',
      gives: ['text: <|channel|>commentary to=functions.now<|message|>{}'],
      options: { tools: undefined },
    },
  ],
};

for (const [format, list] of Object.entries(cases) as [FormatName, readonly Case[]][]) {
  describe(`calls in the format ${format}`, () => {
    for (const { what, text, gives, options } of list) {
      test(what, () => assert.deepEqual(shown(readEveryCut(text, { ...options, format })), gives));
    }
  });
}
