import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Message, Tool } from '../../../src/generation/request.ts';
import { ChatTemplate } from '../../../src/inference/engines/llama/chat-template.ts';
import { readEveryCut, shown } from './reading.ts';
import { chatTemplate, families, formatNames, formatOf, templateOf, type FormatName } from './templates.ts';

/** Two arguments with what formats stumble over: quotes, a line break, other letters, a nested object, an empty list. */
const args = { text: 'A "q", it\'s\nnew ü 😀', nested: { n: ['x', {}], m: [] } };
const parameters = {
  type: 'object',
  properties: { text: { type: 'string', description: '' }, nested: { type: 'object', description: '' } },
};
const tools: readonly Tool[] = [{ type: 'function', name: 'get_it', description: '', parameters }];
const called: Message = {
  role: 'assistant',
  content: [],
  reasoning: [],
  toolCalls: [{ id: 'functions.get_it:0', name: 'get_it', arguments: JSON.stringify(args) }],
};
const said = (text: string): Message => ({ role: 'user', content: [{ type: 'text', text }] });

/** How the template prints an earlier call; where it prints none, how the service writes one for it. */
function printed(name: FormatName): string {
  const pieces = chatTemplate(name).render([said('Hi'), called], { effort: 'none', tools });
  const prompt = pieces.map(({ text }) => text).join('');
  const turn = prompt.slice(prompt.indexOf('<|im_start|>assistant\n') + '<|im_start|>assistant\n'.length);
  return turn.slice(0, turn.indexOf('<|im_end|>'));
}

const inner = `{"text": ${JSON.stringify(args.text)}, "nested": {"n": ["x", {}], "m": []}}`;
const nested = '{"n": ["x", {}], "m": []}';

/** Each format, and what a call looks like in it. */
const looks: Readonly<Record<FormatName, string>> = {
  hermes: `<tool_call>\n{"name": "get_it", "arguments": ${inner}}\n</tool_call>`,
  'qwen-xml': `<tool_call>\n<function=get_it>\n<parameter=text>\n${args.text}\n</parameter>\n<parameter=nested>\n${nested}\n</parameter>\n</function>\n</tool_call>`,
  llama3: `{"name": "get_it", "parameters": ${inner}}`,
  'mistral-array': `[TOOL_CALLS] [{"name": "get_it", "arguments": ${inner}, "id": "000000001"}]`,
  mistral: `[TOOL_CALLS]get_it[ARGS]${inner}`,
  'mistral-id': `[TOOL_CALLS]get_it[CALL_ID]functions.get_it:0[ARGS]${inner}`,
  'deepseek-fenced': `<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_it\n\`\`\`json\n${inner}\n\`\`\`<｜tool▁call▁end｜><｜tool▁calls▁end｜>`,
  deepseek: `<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_it<｜tool▁sep｜>${inner}<｜tool▁call▁end｜><｜tool▁calls▁end｜>`,
  dsml: `\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name="get_it">\n<｜DSML｜parameter name="text" string="true">${args.text}</｜DSML｜parameter>\n<｜DSML｜parameter name="nested" string="false">${nested}</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>`,
  glm: `\n<tool_call>get_it\n<arg_key>text</arg_key>\n<arg_value>${args.text}</arg_value>\n<arg_key>nested</arg_key>\n<arg_value>${nested}</arg_value>\n</tool_call>`,
  'glm-dense': `<tool_call>get_it<arg_key>text</arg_key><arg_value>${args.text}</arg_value><arg_key>nested</arg_key><arg_value>${nested}</arg_value></tool_call>`,
  minimax: `\n<minimax:tool_call>\n<invoke name="get_it">\n<parameter name="text">${args.text}</parameter>\n<parameter name="nested">${nested}</parameter>\n</invoke>\n</minimax:tool_call>`,
  'minimax-list': `<tool_calls>\n{"name": "get_it", "arguments": ${inner}}\n</tool_calls>`,
  nemotron: `<TOOLCALL>[{"name": "get_it", "arguments": ${inner}}]</TOOLCALL>`,
  cohere: `<|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "get_it", "parameters": ${inner}}\n]<|END_ACTION|>`,
  apertus: `<|tools_prefix|>[{"get_it": ${inner}}]<|tools_suffix|>`,
  kimi: `<|tool_calls_section_begin|><|tool_call_begin|>functions.get_it:0<|tool_call_argument_begin|>${inner}<|tool_call_end|><|tool_calls_section_end|>`,
  solar: `<|tool_calls|><|tool_call:begin|>functions.get_it:0<|tool_call:name|>get_it<|tool_call:args|>${inner}<|tool_call:end|><|calls|>`,
  functionary: `<function=get_it>${inner}</function>`,
  gigachat: `<|function_call|>{"name": "get_it", "arguments": ${inner}}`,
  lfm: `<|tool_call_start|>[get_it(text='${args.text}', nested=${nested})]<|tool_call_end|>`,
  gemma: `<|tool_call>call:get_it{text:<|"|>${args.text}<|"|>,nested:{n:[<|"|>x<|"|>,{}],m:[]}}<tool_call|>`,
  granite3: `<|tool_call|>[{"name": "get_it", "arguments": ${inner}}]`,
  lfm2: `<|tool_call_start|>[get_it(text="A \\"q\\", it's\\nnew ü 😀", nested=${nested})]<|tool_call_end|>`,
  harmony: `<|start|>assistant to=functions.get_it<|channel|>commentary json<|message|>${inner}<|call|>`,
};

describe('how a model writes calls, by what its template prints', () => {
  for (const name of formatNames) {
    test(`${name}: ${families[name].families}`, () => {
      const { shape } = chatTemplate(name);
      const isNamed = families[name].families.endsWith('(named)');
      assert.equal(shape.tools, 'own');
      assert.equal(shape.printsCalls, !isNamed || name === 'harmony');
      const text = printed(name);
      assert.equal(text, looks[name]);
      const options = { format: name, tools: { get_it: parameters } } as const;
      const [line = '', ...others] = shown(readEveryCut(text, options));
      assert.deepEqual(others, []);
      assert.ok(line.startsWith('get_it '), line);
      assert.deepEqual(JSON.parse(line.slice('get_it '.length)), args);
    });
  }

  test('two calls are two calls', () => {
    for (const name of formatNames) {
      const { between } = formatOf(name);
      assert.equal(between === undefined, ['gigachat', 'harmony'].includes(name), name);
    }
  });

  for (const [what, calls] of [
    ['lists tools, and nothing says how they are called', ''],
    [
      'prints calls as a tree',
      '{% for c in m.tool_calls %}]<]x[>[<call><{{ c.function.name }}>{{ c.function.arguments.akey }}{% endfor %}',
    ],
    [
      'prints calls as a turn of their own',
      '{% for c in m.tool_calls %}<|im_end|>call {{ c.function.name }} {{ c.function.arguments | tojson }}{% endfor %}',
    ],
    [
      'prints calls whose words are those of the user',
      '{% for c in m.tool_calls %}Call {{ c.function.name }} {{ c.function.arguments | tojson }}{% endfor %}',
    ],
  ] as const) {
    test(`a template that ${what}: no tools`, () => {
      const template = new ChatTemplate(templateOf({ families: '', calls }), { bos: '', eos: '' });
      assert.equal(template.shape.tools, 'unknown');
      assert.throws(() => template.render([said('Hi')], { effort: 'none', tools }), /cannot call functions/);
      assert.ok(template.render([said('Hi')], { effort: 'none' }).length > 0);
    });
  }

  test('a template that cannot be rendered with tools: no tools', () => {
    const source = "{% if tools %}{{ raise_exception('no') }}{% endif %}{{ messages[0].content }}";
    assert.equal(new ChatTemplate(source, { bos: '', eos: '' }).shape.tools, 'unknown');
  });

  test('a template that prints calls and lists no tools: they are described in its form', () => {
    const source = templateOf(families.glm).replace('{% if tools %}{{ tools | tojson }}{% endif %}', '');
    const template = new ChatTemplate(source, { bos: '', eos: '' });
    assert.equal(template.shape.tools, 'described');
    const prompt = template
      .render([said('Hi')], { effort: 'none', tools })
      .map(({ text }) => text)
      .join('');
    assert.ok(
      prompt.includes(
        'return this:\n<tool_call><function-name>\n<arg_key>args-name</arg_key>\n<arg_value><args-value></arg_value>\n</tool_call>',
      ),
      prompt,
    );
  });
});
