import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { ApiError } from '../../../../src/platform/errors.ts';
import type { EngineRequest, Message } from '../../../../src/generation/request.ts';
import { chatMlTemplate, type TinyGgufOptions } from '../../../support/tiny-gguf.ts';
import { assistant, chat, collect, never, startEngine, tinyModel, user } from './support.ts';

// Contracts §1.2, prefill, on real llama.cpp: a conversation that ends with the assistant's words is gone on with.

/** Without thinking the template closes an empty thought, as Qwen3 has it. */
const switchable = `${chatMlTemplate}{%- if add_generation_prompt and enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}`;
/** Every answer begins inside a thought, as DeepSeek-R1 has it. */
const always = `${chatMlTemplate}{%- if add_generation_prompt %}{{- '<think>\\n' }}{%- endif %}`;
const harmony = `{%- for m in messages %}{{- '<|start|>' + m.role + '<|channel|>final<|message|>' + m.content + '<|end|>' }}{%- endfor %}{%- if add_generation_prompt %}{{- '<|start|>assistant' }}{%- endif %}`;

const begun = (text: string): Message => ({ ...assistant(text), isBeginning: true }) as Message;
const goOn = (text: string, more: Partial<EngineRequest> = {}): EngineRequest =>
  chat('', { prompt: { type: 'messages', messages: [user('Count.'), begun(text)] }, effort: 'none', ...more });

/** What a prompt ends with decides what is said: words that end with a `#` are gone on with, and a new turn begins anew. */
const script = [
  ['#', ' two', ' three', '<|im_end|>'],
  ['assistant\n', 'anew', '<|im_end|>'],
];

async function engineOf(context: TestContext, options: TinyGgufOptions = {}) {
  const model = tinyModel(context, { script, ...options });
  return (await startEngine(context, model, { contextLength: 1024 })).engine;
}

test('the answer is what follows the words, with its first blank', async (context) => {
  const engine = await engineOf(context);
  const answer = await collect(engine, goOn('one #'), never);
  assert.deepEqual([answer.text, answer.finish?.reason, answer.usage?.completionTokens], [' two three', 'stop', 2]);
  // Another turn would begin from the beginning.
  const closed = { type: 'messages', messages: [user('Count.'), assistant('one #')] } as const;
  assert.equal((await collect(engine, goOn('', { prompt: closed }), never)).text, 'anew');
});

test('with a vocabulary that drops the first blank of a text, too', async (context) => {
  const engine = await engineOf(context, { tokenizer: 'spm', script: [['#', '\u2581the', 'th', '</s>']] });
  const { text } = await collect(engine, goOn('one #'), never);
  assert.equal(text, ' theth');
});

test('what is counted is what is read', async (context) => {
  const engine = await engineOf(context);
  const request = goOn('one #');
  const answer = await collect(engine, request, never);
  assert.equal(await engine.countTokens(request, never), answer.start?.promptTokens);
});

for (const [name, chatTemplate] of Object.entries({ 'a template that can': switchable, 'one that cannot': always })) {
  test(`the words stand behind a thought that is closed, by ${name}`, async (context) => {
    const engine = await engineOf(context, { chatTemplate });
    const answer = await collect(engine, goOn('one #'), never);
    assert.equal(answer.text, ' two three');
    assert.equal(answer.usage?.reasoningTokens, 0);
    assert.ok(answer.events.every((event) => event.type !== 'reasoning'));
  });
}

test('calls may follow the words', async (context) => {
  const call = ['\n', '<tool_call>', '\n{"name": "f", "arguments": {}}\n', '</tool_call>'];
  const engine = await engineOf(context, { script: [['#', ' well', ...call, '<|im_end|>']] });
  const tools = [
    { type: 'function', name: 'f', description: undefined, parameters: { type: 'object', properties: {} } },
  ];
  const answer = await collect(engine, goOn('#', { tools, toolChoice: { type: 'auto' } }), never);
  assert.deepEqual([answer.text.trim(), answer.finish?.reason], ['well', 'tool-calls']);
});

test('a model that names a channel before it speaks cannot, and says so', async (context) => {
  const engine = await engineOf(context, {
    chatTemplate: harmony,
    controls: ['<|start|>', '<|end|>', '<|channel|>', '<|message|>', '<|return|>', '<|call|>'],
  });
  await assert.rejects(
    collect(engine, goOn('one #'), never),
    (error) => error instanceof ApiError && error.code === 'unsupported_feature' && error.param === 'messages',
  );
});
