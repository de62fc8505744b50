import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import type { EngineRequest } from '../../../../src/generation/request.ts';
import { chatMlTemplate } from '../../../support/tiny-gguf.ts';
import { chat, collect, never, says, startEngine, tinyModel, words, type Answer } from './support.ts';

// §4.2.5 on real llama.cpp: models whose script thinks before it answers.

const thoughtOf = (answer: Answer): string =>
  answer.events.reduce((text, event) => (event.type === 'reasoning' ? text + event.text : text), '');

/** As Qwen3 has it: without thinking the template closes an empty thought. */
const switchable = `${chatMlTemplate}{%- if add_generation_prompt and enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}`;
/** As DeepSeek-R1 has it: every answer begins inside a thought. */
const always = `${chatMlTemplate}{%- if add_generation_prompt %}{{- '<think>\\n' }}{%- endif %}`;

const thinking: Partial<EngineRequest> = { effort: 'max' };

async function engineSaying(
  context: TestContext,
  script: readonly (readonly string[])[],
  chatTemplate: string = chatMlTemplate,
) {
  return (await startEngine(context, tinyModel(context, { script, chatTemplate }), { contextLength: 1024 })).engine;
}

test('reasoning is its own event, counted with its marks, and the rest of the tokens is the answer', async (context) => {
  const engine = await engineSaying(context, says('<think>', 'Let me', ' see', '</think>', 'Four', '.'));
  const answer = await collect(engine, chat('Hi', thinking), never);
  assert.deepEqual([thoughtOf(answer), answer.text, answer.finish?.reason], ['Let me see', 'Four.', 'stop']);
  assert.deepEqual([answer.usage?.completionTokens, answer.usage?.reasoningTokens], [6, 4]);
});

test('marks may be written in several tokens', async (context) => {
  const engine = await engineSaying(context, says('<thi', 'nk', '>\n', 'Hm', '</', 'thin', 'k>\n\n', 'Four'));
  const answer = await collect(engine, chat('Hi', thinking), never);
  assert.deepEqual([thoughtOf(answer), answer.text], ['Hm', 'Four']);
  assert.deepEqual([answer.usage?.completionTokens, answer.usage?.reasoningTokens], [8, 7]);
});

test('a prompt that has begun the thought is read as one', async (context) => {
  const engine = await engineSaying(context, [['\n', 'Always', ' so', '</think>', 'Yes', '<|im_end|>']], always);
  const answer = await collect(engine, chat('Hi', { effort: 'low' }), never);
  assert.deepEqual([thoughtOf(answer), answer.text], ['Always so', 'Yes']);
  assert.equal(answer.usage?.reasoningTokens, 3);
});

test('effort none closes the thought of a template that can', async (context) => {
  const engine = await engineSaying(
    context,
    [
      ['assistant\n', '<think>', 'never', '</think>', 'seen', '<|im_end|>'],
      ['\n', 'Plain', ' answer', '<|im_end|>'],
    ],
    switchable,
  );
  const answer = await collect(engine, chat('Hi', { effort: 'none' }), never);
  assert.deepEqual([thoughtOf(answer), answer.text, answer.usage?.reasoningTokens], ['', 'Plain answer', 0]);
});

test('effort none ends the thought of a template that always begins one', async (context) => {
  const engine = await engineSaying(
    context,
    [
      ['\n', 'never', ' heard', '<|im_end|>'],
      ['</think>', 'At once', '<|im_end|>'],
    ],
    always,
  );
  const answer = await collect(engine, chat('Hi', { effort: 'none' }), never);
  assert.deepEqual([thoughtOf(answer), answer.text, answer.finish?.reason], ['', 'At once', 'stop']);
  assert.deepEqual([answer.usage?.completionTokens, answer.usage?.reasoningTokens], [2, 1]);
});

test('a thought that has used its budget is ended, and the answer follows', async (context) => {
  const engine = await engineSaying(context, [
    ['assistant\n', '<think>', ...words(700), '</think>'],
    ['</think>', 'Enough', '<|im_end|>'],
  ]);
  const answer = await collect(engine, chat('Hi', { effort: 'low', maxTokens: 900 }), never);
  assert.equal(answer.text, 'Enough');
  assert.equal(thoughtOf(answer), words(511).join('').trimStart());
  // 512 of the model's, and the mark that was said for it.
  assert.deepEqual([answer.usage?.reasoningTokens, answer.usage?.completionTokens], [513, 514]);
  const unbounded = await collect(engine, chat('Hi', { effort: 'max', maxTokens: 900 }), never);
  assert.equal(unbounded.usage?.reasoningTokens, 702);
});

test('§4.2.5(5) reasoning counts toward max_tokens: length with an empty answer', async (context) => {
  const engine = await engineSaying(context, says('<think>', ...words(50), '</think>', 'Four'));
  const answer = await collect(engine, chat('Hi', { ...thinking, maxTokens: 10 }), never);
  assert.deepEqual([answer.text, answer.finish?.reason, answer.finish?.cause], ['', 'length', 'max-tokens']);
  assert.deepEqual([answer.usage?.completionTokens, answer.usage?.reasoningTokens], [10, 10]);
});

test('§4.2.1(5) room for reasoning is for reasoning alone', async (context) => {
  const engine = await engineSaying(context, says('<think>', ...words(20), '</think>', ...words(20, 'a')));
  const ask = async (maxTokens: number, reasoningRoomTokens: number) => {
    const { usage } = await collect(engine, chat('Hi', { ...thinking, maxTokens, reasoningRoomTokens }), never);
    return [usage?.completionTokens, usage?.reasoningTokens];
  };
  assert.deepEqual(await ask(5, 100), [27, 22], 'five tokens of answer beside the thought');
  assert.deepEqual(await ask(1, 100), [23, 22]);
  assert.deepEqual(await ask(5, 10), [15, 15], 'no more room than there is');
  assert.deepEqual(await ask(5, 0), [5, 5]);
});

test('§4.2.5(4) hidden reasoning is neither shown nor counted as such, but counts', async (context) => {
  const engine = await engineSaying(context, [['\n', 'Secret', ' thing', '</think>', 'Yes', '<|im_end|>']], always);
  const hidden = chat('Hi', { effort: 'none', reasoningForm: 'hidden' });
  const answer = await collect(engine, hidden, never);
  assert.deepEqual([thoughtOf(answer), answer.text], ['', 'Yes']);
  assert.deepEqual([answer.usage?.completionTokens, answer.usage?.reasoningTokens], [4, 0]);
  const cut = await collect(engine, { ...hidden, maxTokens: 2 }, never);
  assert.deepEqual([cut.text, cut.finish?.reason, cut.usage?.completionTokens], ['', 'length', 2]);
});

test('§4.2.5(1) a model may inline its reasoning between think tags', async (context) => {
  const engine = await engineSaying(context, [['\n', 'Out', ' loud', '</think>', 'Yes', '<|im_end|>']], always);
  const answer = await collect(engine, chat('Hi', { ...thinking, reasoningForm: 'inline' }), never);
  assert.deepEqual([thoughtOf(answer), answer.text], ['', '<think>\nOut loud\n</think>\n\nYes']);
  assert.equal(answer.usage?.reasoningTokens, 0, 'it is in the answer');
});

test('stop sequences are looked for in the answer, not in reasoning', async (context) => {
  const engine = await engineSaying(context, says('<think>', 'STOP', ' it', '</think>', 'I', ' STO', 'P here'));
  const answer = await collect(engine, chat('Hi', { ...thinking, stop: ['STOP'] }), never);
  assert.deepEqual([thoughtOf(answer), answer.text, answer.finish?.stopSequence], ['STOP it', 'I ', 'STOP']);
});

test('a constraint holds from the end of reasoning on, which it begins where the model did not', async (context) => {
  const script = [
    ['assistant\n', 'No thought', '<|im_end|>'],
    ['<think>', 'Free', ' {text}', '</think>', 'not json', '<|im_end|>'],
  ];
  const engine = await engineSaying(context, script);
  const gbnf = 'root ::= "{" [a-c]{1,3} "}"';
  const constraint = { source: { type: 'grammar', text: gbnf }, gbnf } as const;
  const answer = await collect(engine, chat('Hi', { ...thinking, constraint }), never);
  assert.equal(thoughtOf(answer), 'Free {text}');
  assert.match(answer.text, /^\{[abc]{1,3}\}$/);
  assert.equal(answer.finish?.reason, 'stop');
  assert.equal(answer.usage?.reasoningTokens, 4);
  const without = await collect(engine, chat('Hi', { effort: 'none', constraint }), never);
  assert.equal(thoughtOf(without), '');
  assert.match(without.text, /^\{[abc]{1,3}\}$/);
});

test('a model that ends inside its thought still owes the constrained answer', async (context) => {
  const engine = await engineSaying(context, [['\n', 'Too short', '<|im_end|>']], always);
  const gbnf = 'root ::= "yes" | "no"';
  const constraint = { source: { type: 'grammar', text: gbnf }, gbnf } as const;
  const answer = await collect(engine, chat('Hi', { ...thinking, constraint }), never);
  assert.equal(thoughtOf(answer), 'Too short');
  assert.match(answer.text, /^(yes|no)$/);
  assert.equal(answer.finish?.reason, 'stop');
});

test('a model without marks in its template has no reasoning, whatever it writes', async (context) => {
  const plain = `{%- for message in messages %}{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}{%- endfor %}{{- '<|im_start|>assistant\\n' }}`;
  const engine = await engineSaying(context, says('<think>', 'x', '</think>', 'y'), plain);
  const answer = await collect(engine, chat('Hi', thinking), never);
  assert.deepEqual([thoughtOf(answer), answer.text, answer.usage?.reasoningTokens], ['', '<think>x</think>y', 0]);
});
