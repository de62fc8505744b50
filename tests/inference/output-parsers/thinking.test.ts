import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { endsInThought } from '../../../src/inference/output-parsers/thinking.ts';
import { newReader, readEveryCut, shown, type ReadingOptions } from './reading.ts';

const marks = { start: '<think>', end: '</think>' };
const thinking = { type: 'marks', marks } as const;
const call = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>';

describe('reasoning between marks (§4.2.5(1))', () => {
  const cases: readonly (readonly [string, string, readonly string[], ReadingOptions?])[] = [
    ['around it', '<think>\nHm.\n</think>\n\nYes.', ['reasoning: Hm.\n', 'text: Yes.']],
    ['blanks before it', '\n <think>Hm.</think>Yes.', ['reasoning: Hm.', 'text: Yes.']],
    ['none at all', 'Yes.', ['text: Yes.']],
    ['none, with blanks', '\n\nYes.', ['text: \n\nYes.']],
    ['the start in the prompt', 'Hm.</think>\nYes.', ['reasoning: Hm.', 'text: Yes.'], { startsInThought: true }],
    ['the start in both', '<think>\nHm.</think>Yes.', ['reasoning: Hm.', 'text: Yes.'], { startsInThought: true }],
    ['no end', '<think>Hm. <b>', ['reasoning: Hm. <b>']],
    ['a half end', '<think>Hm. </thin', ['reasoning: Hm. </thin']],
    ['nothing between', '<think>\n\n</think>\n\nYes.', ['text: Yes.']],
    ['nothing behind', '<think>Hm.</think>\n', ['reasoning: Hm.']],
    ['marks in the answer are text', 'Write <think> and </think>.', ['text: Write <think> and </think>.']],
    ['a second thought is text', '<think>a</think>b<think>c</think>', ['reasoning: a', 'text: b<think>c</think>']],
    ['a call inside is reasoning', `<think>${call}</think>Yes.`, [`reasoning: ${call}`, 'text: Yes.']],
    ['a call behind it', `<think>Hm.</think>\n\n${call}`, ['reasoning: Hm.', 'now {}']],
    ['calls without an end', `<think>Hm.\n${call}\n${call}\n`, ['reasoning: Hm.\n', 'now {}', 'now {}']],
    ['a call, and the end behind it', `<think>Hm.${call}</think>\n`, ['reasoning: Hm.', 'now {}']],
    ['a thought about a call', `<think>So ${call} it is.</think>${call}`, [`reasoning: So ${call} it is.`, 'now {}']],
    ['a thought about a call, then it', `<think>Hm.${call}</think>${call}`, [`reasoning: Hm.${call}`, 'now {}']],
    ['a call that is cut', '<think>Hm.<tool_call>{"name": "now', ['reasoning: Hm.<tool_call>{"name": "now']],
    ['a call of another function', '<think><tool_call>{"name": "rm"}', ['reasoning: <tool_call>{"name": "rm"}']],
    ['one call of two', `<think>Hm.${call}${call}`, ['reasoning: Hm.', 'now {}'], { callsMax: 1 }],
    ['a start that is cut', '<thi', ['text: <thi']],
  ];
  for (const [what, text, gives, options] of cases) {
    test(what, () => assert.deepEqual(shown(readEveryCut(text, { thinking, ...options })), gives));
  }

  test('other marks', () => {
    const other = { type: 'marks', marks: { start: '[THINK]', end: '[/THINK]' } } as const;
    assert.deepEqual(shown(readEveryCut('[THINK]Hm.[/THINK]Yes.', { thinking: other, format: 'mistral' })), [
      'reasoning: Hm.',
      'text: Yes.',
    ]);
  });
});

describe('a reader tells where it is', () => {
  test('reasoning is from its first mark to its last', () => {
    const reader = newReader({ thinking });
    const phases = ['\n', '<think>', 'H', '', 'm', '</think>', '\n', 'Yes'].map((token) => {
      reader.push(token);
      return reader.phase;
    });
    assert.deepEqual(phases, [
      ...['beginning', 'reasoning', 'reasoning', 'reasoning', 'reasoning', 'answer', 'answer', 'answer'],
    ]);
  });

  test('inside from the first token when the prompt leaves off inside', () => {
    const reader = newReader({ thinking, startsInThought: true });
    assert.equal(reader.phase, 'reasoning');
    const phases = ['a', 'b', '</think>', 'c'].map((token) => {
      reader.push(token);
      return reader.phase;
    });
    assert.deepEqual(phases, ['reasoning', 'reasoning', 'answer', 'answer']);
  });

  test('messages of Harmony', () => {
    const reader = newReader({ format: 'harmony' });
    const tokens = ['<|channel|>', 'analysis', '<|message|>', 'Hm', '<|end|>', '<|start|>', 'assistant'];
    const phases = [...tokens, '<|channel|>', 'final', '<|message|>', 'Yes'].map((token) => {
      reader.push(token);
      return reader.phase;
    });
    assert.deepEqual(phases.slice(0, 5), ['beginning', 'beginning', 'reasoning', 'reasoning', 'answer']);
    assert.equal(phases.at(-1), 'answer');
  });

  test('is over after the last call that is wanted (parallel_tool_calls: false)', () => {
    const reader = newReader({ callsMax: 1 });
    reader.push('<tool_call>{"name": "now", "arguments": {}');
    assert.equal(reader.isOver, true);
    assert.deepEqual(reader.push(`}</tool_call>${call} bye`), []);
    assert.deepEqual(reader.end(), []);
    assert.equal(reader.calls, 1);
  });
});

test('a prompt ends inside reasoning when its template has opened it', () => {
  for (const [prompt, inside] of [
    ['<|im_start|>assistant\n<think>\n', true],
    ['<|im_start|>assistant\n<think>\n\n</think>\n\n', false],
    ['<|im_start|>assistant\n', false],
    ['<think>old</think><|im_start|>assistant\n<think>', true],
    ['write <think> now', false],
  ] as const) {
    assert.equal(endsInThought(prompt, marks), inside, prompt);
  }
});
