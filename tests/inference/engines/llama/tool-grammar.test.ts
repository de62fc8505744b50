import assert from 'node:assert/strict';
import { after, describe, test } from 'node:test';
import { getLlama, LlamaLogLevel } from 'node-llama-cpp';
import { toolGrammar, type ToolsRequest } from '../../../../src/inference/engines/llama/tool-grammar.ts';
import { ApiError } from '../../../../src/platform/errors.ts';
import type { Tool } from '../../../../src/generation/request.ts';
import { spelled as spelledCalls } from '../../../../src/inference/output-parsers/format.ts';
import { read, shown } from '../../output-parsers/reading.ts';
import { formatNames as formats, formatOf, type FormatName } from '../../output-parsers/templates.ts';

/** llama.cpp is the judge: it reads the grammar and says whether a whole text matches. */
const llama = await getLlama({ gpu: false, build: 'never', progressLogs: false, logLevel: LlamaLogLevel.disabled });
after(() => llama.dispose());

const weather: Tool = {
  type: 'function',
  name: 'get_weather',
  description: undefined,
  parameters: {
    type: 'object',
    properties: { city: { type: 'string' }, unit: { enum: ['c', 'f'] } },
    required: ['city'],
  },
};
const now: Tool = { type: 'function', name: 'now', description: undefined, parameters: undefined };
const auto = { tools: [weather, now], toolChoice: { type: 'auto' }, parallelToolCalls: true } as const;
const required = { ...auto, toolChoice: { type: 'required' } } as const;
const named = { ...auto, toolChoice: { type: 'function', name: 'now' } } as const;

function gbnfOf(request: ToolsRequest, format: FormatName): string | undefined {
  const work = toolGrammar(request, formatOf(format));
  for (;;) {
    const { done, value } = work.next();
    if (done === true) return value;
  }
}

async function judgeOf(request: ToolsRequest, format: FormatName): Promise<(text: string) => boolean> {
  const gbnf = gbnfOf(request, format);
  assert.ok(gbnf !== undefined);
  const grammar = (await llama.createGrammar({ grammar: gbnf })) as unknown as { _testText(text: string): boolean };
  return (text) => grammar._testText(text);
}

/** Calls as the format spells them. */
function spelled(format: FormatName, calls: readonly (readonly [name: string, args: string])[]): string {
  const written = calls.map(([name, args], index) => ({ id: `${index}`, name, arguments: parsed(args) }));
  return spelledCalls(formatOf(format), written);
}

/** The arguments, or what is no JSON as it is. */
function parsed(args: string): unknown {
  try {
    return JSON.parse(args) as unknown;
  } catch {
    return args;
  }
}
const paris = ['get_weather', '{"city": "Paris"}'] as const;
const tools = { get_weather: weather.parameters, now: { type: 'object' } };

for (const format of formats) {
  describe(`forced calls in the format ${format}`, () => {
    const hasMany = formatOf(format).between !== undefined;

    test('are what the reader reads, and nothing else', async () => {
      const accepts = await judgeOf(required, format);
      for (const calls of [[paris], [['now', '{}']], ...(hasMany ? [[paris, ['now', '{}']]] : [])] as const) {
        const text = spelled(format, calls as readonly (readonly [string, string])[]);
        assert.ok(accepts(text), text);
        assert.deepEqual(
          shown(read([text], { format, tools })),
          calls.map(([name, args]) => `${name} ${args}`),
        );
      }
      const { arguments: form } = formatOf(format);
      const isUntyped = form.type === 'tagged' && form.beforeText === form.beforeOther;
      for (const [name, args] of [
        ['get_weather', '{}'],
        // Where nothing says what is text, a number is one.
        ['get_weather', isUntyped ? '{"town": 3}' : '{"city": 3}'],
        ['get_weather', '{"city": "Paris", "unit": "k"}'],
        ['get_weather', '{"town": "Paris"}'],
        ['get_weather', '{"city": "Paris"'],
        ['now', '{"city": "Paris"}'],
        ['rm', '{}'],
      ] as const) {
        assert.ok(!accepts(spelled(format, [[name, args]])), `${name} ${args}`);
      }
      for (const text of ['', 'Paris', ` ${spelled(format, [paris])}`, `${spelled(format, [paris])} done`]) {
        assert.ok(!accepts(text), text);
      }
    });

    test('one, when no more are wanted', async () => {
      const accepts = await judgeOf({ ...required, parallelToolCalls: false }, format);
      assert.ok(accepts(spelled(format, [paris])));
      assert.ok(!accepts(spelled(format, [paris, paris])));
    });

    test('of the function that is named, once', async () => {
      const accepts = await judgeOf(named, format);
      assert.ok(accepts(spelled(format, [['now', '{}']])));
      assert.ok(!accepts(spelled(format, [paris])));
      assert.ok(
        !accepts(
          spelled(format, [
            ['now', '{}'],
            ['now', '{}'],
          ]),
        ),
      );
    });
  });
}

describe('calls that the model begins by itself', () => {
  const marked = formats.filter((format) => formatOf(format).mark !== '');

  test('are held to the tools where a mark tells them from text', () => {
    assert.deepEqual(
      formats.filter((format) => !marked.includes(format)),
      ['llama3', 'harmony'],
    );
    for (const format of formats) assert.equal(gbnfOf(auto, format) !== undefined, marked.includes(format));
  });

  for (const format of marked) {
    test(`text is free and calls are not, in the format ${format}`, async () => {
      const accepts = await judgeOf(auto, format);
      const trigger = formatOf(format).mark;
      const call = spelled(format, [paris]);
      const halves = Array.from({ length: trigger.length - 1 }, (_, length) => trigger.slice(0, length));
      for (const text of [
        '',
        'Hello.',
        '日本 😀\n\n{"a": 1}',
        ...halves,
        halves.join(''),
        `${halves.at(-1)}${trigger[0]}`,
      ]) {
        assert.ok(accepts(text), text);
        assert.ok(accepts(text + call), text);
        assert.ok(!accepts(text + trigger), text);
        assert.ok(!accepts(text + spelled(format, [['rm', '{}']])), text);
        assert.ok(!accepts(text + spelled(format, [['get_weather', '{"town": 3}']])), text);
        assert.ok(!accepts(`${text}${call} And so on.`), text);
      }
      if (formatOf(format).between !== undefined) assert.ok(accepts(spelled(format, [paris, ['now', '{}'], paris])));
    });
  }

  test('a schema that cannot be enforced leaves any object, and a forced call is refused for it', async () => {
    const parameters = { type: 'object', properties: { a: { type: 'string', pattern: '(?=x)' } } };
    const request = { ...auto, tools: [{ ...weather, parameters }] };
    const accepts = await judgeOf(request, 'hermes');
    assert.ok(accepts(spelled('hermes', [['get_weather', '{"a": "y"}']])));
    assert.throws(
      () => gbnfOf({ ...request, toolChoice: { type: 'required' } }, 'hermes'),
      (error: unknown) => error instanceof ApiError && error.param === 'tools[0].function.parameters',
    );
  });
});

test('no grammar without tools, or when none may be called', () => {
  assert.equal(gbnfOf({ ...required, tools: [] }, 'hermes'), undefined);
  assert.equal(gbnfOf({ ...auto, toolChoice: { type: 'none' } }, 'hermes'), undefined);
});

test('names with quotes are spelled as JSON has them', async () => {
  const accepts = await judgeOf({ ...required, tools: [{ ...now, name: 'a"b\\' }] }, 'hermes');
  assert.ok(accepts(spelled('hermes', [['a"b\\', '{}']])));
});

test('two hundred tools make a grammar that is read at once', async () => {
  const many = Array.from({ length: 200 }, (_, index) => ({ ...weather, name: `tool_${index}` }));
  const accepts = await judgeOf({ ...required, tools: many }, 'hermes');
  assert.ok(accepts(spelled('hermes', [['tool_177', '{"city": "Paris"}']])));
});
