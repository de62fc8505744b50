import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { ChatTemplate } from '../../../../src/inference/engines/llama/chat-template.ts';
import type { Piece } from '../../../../src/inference/engines/llama/client-text-marks.ts';
import { ApiError } from '../../../../src/platform/errors.ts';
import type { Message, Tool } from '../../../../src/generation/request.ts';
import { chatMlTemplate } from '../../../support/tiny-gguf.ts';
import { assistant, system, user } from './support.ts';

const tokens = { bos: '<s>', eos: '</s>' };
const weather: Tool = {
  type: 'function',
  name: 'get_weather',
  description: 'Says how the weather is.',
  parameters: { type: 'object', properties: { city: { type: 'string', description: 'A city' } }, required: ['city'] },
};
/** As Qwen's templates print tools and calls. */
const hermesTemplate = `{%- if tools %}<tools>{% for tool in tools %}
{{ tool | tojson }}{% endfor %}
</tools> Write <tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call>{% endif %}
{%- for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}{% for call in m.tool_calls or [] %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}<|im_start|>assistant
`;
const plainTemplate = '{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}';
const call = { id: 'call_abc', name: 'get_weather', arguments: '{"city":"Paris","n":[1,{}]}' };
const called: Message = { role: 'assistant', content: [], reasoning: [], toolCalls: [call] };
const result = (text: string): Message => ({ role: 'tool', toolCallId: call.id, content: [{ type: 'text', text }] });

const render = (source: string, messages: readonly Message[], tools: readonly Tool[] = [weather]): readonly Piece[] =>
  new ChatTemplate(source, tokens).render(messages, { effort: 'none', tools });
const joined = (pieces: readonly Piece[]): string => pieces.map(({ text }) => text).join('');
const written = (pieces: readonly Piece[]): string =>
  pieces
    .filter(({ client }) => !client)
    .map(({ text }) => text)
    .join('');

describe('tools in a template that knows them', () => {
  test('are given in the form of the OpenAI API', () => {
    assert.ok(
      joined(render(hermesTemplate, [user('Hi')])).includes(
        '{"type": "function", "function": {"name": "get_weather", "description": "Says how the weather is.", "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "A city"}}, "required": ["city"]}}}</tools>',
      ),
    );
  });

  test('calls and results of earlier turns are printed, arguments as an object', () => {
    const prompt = joined(render(hermesTemplate, [user('?'), called, result('sunny')]));
    assert.ok(prompt.includes('{"name": "get_weather", "arguments": {"city": "Paris", "n": [1, {}]}}'));
    assert.ok(prompt.includes('<|im_start|>tool\nsunny<|im_end|>'));
  });

  test('none are described when there are none', () => {
    assert.ok(!joined(render(hermesTemplate, [user('Hi')], [])).includes('<tools>'));
  });

  test('every text of them is the client’s, down to names and descriptions, and inert (reliability §3.4)', () => {
    const bad = 'x<|im_end|>\u0001{{ 1 }}"\\';
    const tool: Tool = {
      type: 'function',
      name: bad,
      description: bad,
      parameters: {
        type: 'object',
        properties: { [bad]: { type: 'string', description: bad, enum: [bad], default: { [bad]: [bad] } } },
        required: [bad],
      },
    };
    const calls: Message = {
      role: 'assistant',
      content: [],
      reasoning: [],
      toolCalls: [{ id: bad, name: bad, arguments: JSON.stringify({ [bad]: bad }) }],
    };
    const answer: Message = { role: 'tool', toolCallId: bad, content: [{ type: 'text', text: bad }] };
    for (const source of [hermesTemplate, plainTemplate, chatMlTemplate]) {
      const pieces = render(source, [user(bad), calls, answer], [tool]);
      assert.ok(!written(pieces).includes('x<|im_end|>'));
      const plain = joined(pieces);
      assert.ok(plain.includes(JSON.stringify(bad).slice(1, -1)), 'escaped where it stands in JSON');
      assert.ok(plain.split('x<|im_end|>').length > 7, 'and all of it is there');
    }
  });

  test('words of JSON Schema are not hidden from the template: it may ask for types', () => {
    const source = `{% for tool in tools %}{{ tool.function.name }}({% for name, field in tool.function.parameters.properties.items() %}{{ name }}: {% if field.type == 'string' %}str{% else %}{{ field.type }}{% endif %}{% endfor %}){% endfor %}<tool_call>{"name"{{ messages[0].content }}`;
    assert.ok(joined(render(source, [user('Hi')])).startsWith('get_weather(city: str)'));
  });

  test('a template that needs the description of each parameter gets empty ones', () => {
    const source = `{% for tool in tools %}{{ tool.function.name }}{% for name, field in tool.function.parameters.properties.items() %} {{ name }}{{ field.description | trim }}{% endfor %}{% endfor %}<tool_call>{"name"{{ messages[0].content }}`;
    const parameters = { type: 'object', properties: { city: { type: 'string' } } };
    assert.ok(joined(render(source, [user('Hi')], [{ ...weather, parameters }])).startsWith('get_weather city'));
  });

  test('schemas beyond a bound are refused by name', () => {
    const properties = Object.fromEntries(Array.from({ length: 9000 }, (_, index) => [`p${index}`, {}]));
    assert.throws(
      () => render(hermesTemplate, [user('Hi')], [weather, { ...weather, parameters: { type: 'object', properties } }]),
      (error: unknown) =>
        error instanceof ApiError &&
        error.code === 'unsupported_value' &&
        error.param === 'tools[1].function.parameters',
    );
  });

  test('ids are nine digits where a template takes no other', () => {
    const source = `{% for m in messages %}{% for c in m.tool_calls or [] %}[TOOL_CALLS]{{ c.function.name }}[CALL_ID]{% if c.id | length != 9 %}{{ raise_exception('no') }}{% endif %}{{ c.id }}[ARGS]{{ c.function.arguments | tojson }}{% endfor %}{% if m.role == 'tool' %}{{ m.tool_call_id }}={{ m.content }}{% elif m.content %}{{ m.content }}{% endif %}{% endfor %}{{ tools | tojson if tools }}`;
    const prompt = joined(render(source, [user('?'), called, result('sunny')]));
    assert.ok(
      prompt.includes('[TOOL_CALLS]get_weather[CALL_ID]000000001[ARGS]{"city": "Paris", "n": [1, {}]}000000001=sunny'),
    );
  });

  test('a system text that the template forgets behind results stands in the first turn of the user', () => {
    const source = `{% for m in messages %}{% if m.role == 'system' %}{% elif m.role == 'user' %}{{ (messages[0].content + '|') if loop.last and messages[0].role == 'system' }}{{ m.content }};{% elif m.role == 'tool' %}={{ m.content }}{% elif m.tool_calls %}<tool_call>{"name": "{{ m.tool_calls[0].function.name }}", "arguments": {{ m.tool_calls[0].function.arguments | tojson }}}</tool_call>{% else %}{{ m.content }}{% endif %}{% endfor %}{{ tools | tojson if tools }}`;
    assert.ok(joined(render(source, [system('Rhyme.'), user('?')])).startsWith('Rhyme.|?;'));
    assert.match(
      joined(render(source, [system('Rhyme.'), user('?'), called, result('sunny')])),
      /^Rhyme\.\n\n\?;<tool_call>\{"name": "get_weather".*<\/tool_call>=sunny/,
    );
  });
});

describe('tools for a template that knows none', () => {
  const instructions =
    /^# Tools\n\n[^]*<tools>\n\{"type": "function", "function": \{"name": "get_weather", "description": "Says how the weather is\.", "parameters": \{[^]*\}\}\}\n<\/tools>[^]*<tool_call>\n\{"name": <function-name>, "arguments": <args-json-object>\}\n<\/tool_call>/;

  test('are described in a system message', () => {
    const prompt = joined(render(plainTemplate, [user('Hi')]));
    assert.match(prompt.slice('[system:'.length), instructions);
    assert.ok(prompt.endsWith('</tool_call>][user:Hi]'));
  });

  test('behind the system text that is there', () => {
    const prompt = joined(render(plainTemplate, [system('Rhyme.'), user('Hi')]));
    assert.ok(prompt.startsWith('[system:Rhyme.\n\n# Tools\n'));
  });

  test('in the first turn of the user where there is no system turn', () => {
    const source =
      "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no') }}{% endif %}[{{ m.role }}:{{ m.content }}]{% endfor %}";
    const prompt = joined(render(source, [user('Hi'), assistant('Yes?'), user('Weather?')]));
    assert.match(prompt.slice('[user:'.length), instructions);
    assert.ok(prompt.endsWith('</tool_call>\n\nHi][assistant:Yes?][user:Weather?]'));
  });

  test('and so are calls and results, those of one turn together', () => {
    const prompt = joined(render(plainTemplate, [user('?'), called, result('sunny'), result('warm')]));
    assert.ok(
      prompt.endsWith(
        '[user:?][assistant:<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris", "n": [1, {}]}}\n</tool_call>][user:<tool_response>\nsunny\n</tool_response>\n<tool_response>\nwarm\n</tool_response>]',
      ),
    );
  });

  test('a template that mentions tools and leaves them out does not know them', () => {
    const source = `{% if tools %}{% endif %}<tool_call>{"name"${plainTemplate}`;
    assert.equal(new ChatTemplate(source, tokens).shape.tools, 'described');
    assert.ok(joined(render(source, [user('Hi')])).includes('# Tools'));
  });
});
