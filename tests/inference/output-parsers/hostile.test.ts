import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { literalsOf } from '../../../src/inference/output-parsers/format.ts';
import { joined, newReader, read, readEveryCut, shown, type ReadingOptions } from './reading.ts';
import { formatNames, formatOf } from './templates.ts';

const formats = formatNames;

/** Marks, halves of marks, and what stands between them: put together at random, some of it is a call. */
const fragments = [
  ...formats.flatMap((format) => literalsOf(formatOf(format))),
  ...['<think>', '</think>', '<tool_call', '</', '<', '[', '[TOOL_', '<｜tool', '<|', '|>'],
  ...[
    '{"name": "get_weather", "arguments": ',
    '{"name": "now", "parameters": {}}',
    '{"name":',
    '"arguments"',
    '{',
    '}',
  ],
  ...[
    'get_weather',
    'now',
    ' to=functions.now',
    'analysis',
    'commentary',
    'final',
    'assistant',
    'function',
    '```json\n',
  ],
  ...['<function=now>', '</function>', '<parameter=city>', '</parameter>', '{"city": "Pa\\u00e9"}', '[', ']', ',', ';'],
  ...['"', '\\', '\\"', '\n', ' ', '  \n', 'text', '😀', '\ud83d', 'null', '3'],
];
const texts = fc.array(fc.constantFrom(...fragments), { maxLength: 24 }).map((parts) => parts.join(''));
const thinking = { type: 'marks', marks: { start: '<think>', end: '</think>' } } as const;
const readings: fc.Arbitrary<ReadingOptions> = fc.record({
  format: fc.constantFrom(...formats),
  thinking: fc.constantFrom(thinking, { type: 'none' } as const, { type: 'channels' } as const),
  startsInThought: fc.boolean(),
  callsMax: fc.constantFrom(1, Infinity),
});

describe('a reader of any text', () => {
  test('finds the same whatever the cuts', () => {
    fc.assert(
      fc.property(texts, readings, fc.array(fc.nat(200), { maxLength: 6 }), (text, options, cuts) => {
        const at = [0, ...cuts.map((cut) => Math.min(cut, text.length)).sort((a, b) => a - b), text.length];
        const pieces = at.slice(1).map((to, index) => text.slice(at[index], to));
        const whole = read([text], options);
        assert.deepEqual(read(pieces, options), whole);
        assert.deepEqual(read(text.split(''), options), whole);
      }),
      { numRuns: 2000 },
    );
  });

  test('loses nothing where there is no call', () => {
    fc.assert(
      fc.property(texts, fc.constantFrom(...formats), (text, format) => {
        if (format === 'harmony') return;
        const events = read([text], { format });
        if (events.some((event) => event.type === 'tool-call')) return;
        assert.deepEqual(shown(events), text === '' ? [] : [`text: ${text}`]);
      }),
      { numRuns: 2000 },
    );
  });

  test('announces a call before its arguments, only of tools that were offered, in order', () => {
    fc.assert(
      fc.property(texts, readings, (text, options) => {
        let calls = 0;
        for (const event of read([text], options)) {
          if (event.type === 'tool-call') {
            assert.equal(event.call, calls++);
            assert.ok(['get_weather', 'now'].includes(event.name));
          } else if (event.type === 'tool-arguments') assert.equal(event.call, calls - 1);
        }
        assert.ok(calls <= (options.callsMax ?? Infinity));
      }),
      { numRuns: 2000 },
    );
  });
});

describe('what a reader keeps back', () => {
  /** Characters pushed that have left neither as an event nor as a mark, at most. */
  function heldMax(pieces: readonly string[], options: ReadingOptions): { held: number; left: number } {
    const reader = newReader(options);
    let pushed = 0;
    let left = 0;
    let held = 0;
    for (const piece of pieces) {
      pushed += piece.length;
      for (const event of reader.push(piece)) if (event.type !== 'tool-call') left += event.text.length;
      held = Math.max(held, pushed - left);
    }
    return { held, left };
  }
  const mebibyte = 2 ** 20;
  const repeated = (text: string, length = mebibyte) =>
    Array.from({ length: Math.ceil(length / text.length) }, () => text);

  test('a megabyte of half marks is kept no longer than a mark', () => {
    for (const [format, half] of [
      ['hermes', '<tool_cal'],
      ['hermes', '<'],
      ['llama3', 'x<|python_ta'],
      ['mistral', '[TOOL_CALL'],
      ['deepseek', '<｜tool▁calls▁begi'],
      ['harmony', 'x<|en'],
    ] as const) {
      assert.ok(heldMax(repeated(half), { format }).held <= 32, `${format} ${half}`);
    }
    assert.ok(heldMax(repeated('</thin'), { thinking, startsInThought: true }).held <= 32);
  });

  test('what begins like a call is given up at a bound, and the rest of it is read on', () => {
    const bound = 64 * 1024;
    for (const [format, start, rest] of [
      ['hermes', '<tool_call>{"name": "', 'x'],
      ['hermes', '<tool_call>{"arguments": [', '['],
      ['hermes', '<tool_call>', ' '],
      ['llama3', '{"name": "now", "id": "', 'y'],
      ['mistral', '[TOOL_CALLS]', 'z'],
      ['deepseek', '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>', 'n'],
      ['harmony', '<|channel|>', 'c'],
    ] as const) {
      const { held } = heldMax([start, ...repeated(rest, 4 * bound)], { format });
      assert.ok(held <= bound + 1024, `${format} ${start} ${held}`);
      const all = [start, ...repeated(rest, 4 * bound), '<tool_call>{"name": "now"}</tool_call>'];
      if (format === 'hermes') assert.equal(read(all, { format }).at(-2)?.type, 'tool-call');
    }
  });

  test('arguments leave as they come, however long and however deep', () => {
    const start = '<tool_call>{"name": "get_weather", "arguments": {"a": ';
    for (const [rest, most] of [
      ['[', 8],
      ['{"a":', 8],
      ['"x", ', 8],
      ['1234567890', 8],
    ] as const) {
      assert.ok(heldMax([start, ...repeated(rest)], {}).held <= start.length + most, rest);
    }
    const text = [`${start}"`, ...repeated('\\\\</tool_call>')];
    assert.ok(heldMax(text, {}).held <= start.length + 32);
  });

  test('a thousand marks in a row are a thousand times one mark', () => {
    const text = '<tool_call>'.repeat(1000);
    assert.deepEqual(shown(read([text])), [`text: ${text}`]);
    assert.deepEqual(shown(read(text.split(''))), [`text: ${text}`]);
  });

  test('blanks are held only as far as they can be layout', () => {
    assert.ok(heldMax(repeated(' '), {}).held <= 64);
    assert.deepEqual(shown(readEveryCut(`${' '.repeat(70)}x`)), [`text: ${' '.repeat(70)}x`]);
  });
});

describe('strings that are no text yet', () => {
  test('escapes are cut anywhere', () => {
    const inner = '{\\"a\\": \\"\\\\u00e9 \\ud83d\\ude00 \\/ \\t\\"}';
    const events = readEveryCut(`<tool_call>{"name": "now", "arguments": "${inner}"}</tool_call>`);
    assert.deepEqual(shown(events), ['now {"a": "\\u00e9 😀 / \t"}']);
  });

  test('a broken escape ends a call that is not announced, and is the end of one that is', () => {
    assert.deepEqual(shown(readEveryCut('<tool_call>{"name": "n\\u00zz"}')), ['text: <tool_call>{"name": "n\\u00zz"}']);
    const [first] = joined(readEveryCut('<tool_call>{"name": "now", "arguments": "a\\u12'));
    assert.deepEqual(first, { type: 'tool-call', call: 0, name: 'now' });
  });
});
