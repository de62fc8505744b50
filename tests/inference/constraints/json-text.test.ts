import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { literal, rule, type Expression } from '../../../src/inference/constraints/grammar.ts';
import {
  anyJsonGrammar,
  escaped,
  jsonObjectGrammar,
  jsonValue,
  withJsonRules,
  type JsonRule,
} from '../../../src/inference/constraints/json-text.ts';
import { follower } from './follower.ts';

const expressed = (expression: Expression) => follower(withJsonRules(expression, new Map()));
const named = (name: JsonRule) => expressed(rule(name));
const zeros = (count: number): string => '0'.repeat(count);
const parses = (text: string): boolean => {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
};

type Row = readonly [JsonRule, accepted: readonly string[], refused: readonly string[]];
const rows: readonly Row[] = [
  [
    'json-space',
    ['', ' ', '\n', '\n  \t', `\n${' '.repeat(40)}`],
    ['  ', '\t', '\r', '\n\n', ' \n', `\n${' '.repeat(41)}`],
  ],
  ['json-boolean', ['true', 'false'], ['', 'null', 'True']],
  [
    'json-integer',
    ['0', '-0', '7', '10', '-19', `1${zeros(17)}`],
    ['', '-', '01', '-01', '+1', '1.0', '1e1', `1${zeros(18)}`],
  ],
  [
    'json-number',
    [
      '0',
      '-0',
      '0.0',
      '1.5',
      `1.${zeros(17)}`,
      `1${zeros(17)}`,
      '1e5',
      '1E5',
      '1e+5',
      '1e-5',
      '1e00',
      '1e99',
      '1e100',
      '1e199',
      '1e200',
      '1e289',
      '1e-999',
      '-1.5E-12',
    ],
    [
      '1.',
      '.5',
      '1e',
      '1e+',
      '1e-',
      `1.${zeros(18)}`,
      `1${zeros(18)}`,
      '1e290',
      '1e300',
      '1e0000',
      '1e-1000',
      '1e1000',
      '1e+-1',
      '00',
      '1e999',
    ],
  ],
  [
    'json-array',
    ['[]', '[1]', '[ 1 ]', '[1,2]', '[1, [2]]', '[\n 1,\n 2\n]'],
    ['[ ]', '[', '[1', '[,1]', '[1,]', '[1 ,2]', '[1 2]'],
  ],
  [
    'json-object',
    ['{}', '{"a":1}', '{ "a": 1 }', '{"a":1, "b":{}}', '{"a":\n1}'],
    ['{ }', '{', '{"a"}', '{"a":}', '{"a" :1}', '{a:1}', '{1:1}', '{"a":1,}', '{"a":1 ,"b":1}', '[1]'],
  ],
  [
    'json-value',
    ['null', 'true', '1', '-1.5e3', '"a"', '[]', '{}', '[{"a":[null,false]}]'],
    ['', 'nul', 'NaN', "'a'", ' 1', '1 '],
  ],
  ['json-string', ['""', '"a"', '"a b"', '"é😀"', '"\\n\\u00e9"'], ['', '"', '"a', '"\n"', '"a""', '"\\"']],
];

describe('the text of JSON', () => {
  for (const [name, accepted, refused] of rows) {
    it(name, () => {
      const matches = named(name);
      for (const text of accepted) assert.ok(matches(text), JSON.stringify(text));
      for (const text of refused) assert.ok(!matches(text), JSON.stringify(text));
      if (name !== 'json-space')
        for (const text of accepted)
          assert.ok(Number.isFinite(JSON.parse(text)) || typeof JSON.parse(text) !== 'number');
    });
  }

  it('a character of a string: each spelling that JSON has, and no half of a pair', () => {
    const matches = named('json-char');
    for (let point = 0; point < 0x180; point++) {
      const character = String.fromCodePoint(point);
      assert.equal(matches(character), parses(`"${character}"`), `U+${point.toString(16)}`);
      assert.equal(matches(`\\${character}`), parses(`"\\${character}"`), `backslash and U+${point.toString(16)}`);
    }
    // Each first, and each second, digit of a unit.
    for (let unit = 0; unit < 0x10000; unit += 0x40) {
      const digits = unit.toString(16).padStart(4, '0');
      const isHalf = unit >= 0xd800 && unit <= 0xdfff;
      for (const text of [`\\u${digits}`, `\\u${digits.toUpperCase()}`]) assert.equal(matches(text), !isHalf, text);
      const isLow = unit >= 0xdc00 && unit <= 0xdfff;
      for (const high of ['\\ud800', '\\uDBFF', '\\uDaaF']) {
        for (const text of [`${high}\\u${digits}`, `${high}\\u${digits.toUpperCase()}`])
          assert.equal(matches(text), isLow, text);
      }
    }
    for (const text of ['\\u00e', '\\u00e99', '\\u00g0', '\\x41', '\\ud83d', '\\ud83d\\ude0', 'ab', ''])
      assert.ok(!matches(text), text);
    for (const text of ['\u{10ffff}', '\u2028', '\ue000', '\\uFFFF', '\\ud83d\\ude00', '\\uabcd', '\\uABCD'])
      assert.ok(matches(text), text);
  });

  it('a character of a pattern: the one spelling of JSON.stringify, for each set', () => {
    const points = [...Array.from({ length: 0x80 }, (_, i) => i), 0xe9, 0x2028, 0x1f600];
    const spelled = points.map((point) => JSON.stringify(String.fromCodePoint(point)).slice(1, -1));
    const others = [
      '\\/',
      '\\u000a',
      '\\u000A',
      '\\u0008',
      '\\u001F',
      '\\u0020',
      '\\u0022',
      '\\u0041',
      '\\u005c',
      '\n',
      '\\',
      '"',
      '',
    ];
    const sets = [
      ...points.filter((point) => point < 0x24 || point === 0x5c).map((point) => [[point, point]] as const),
      [[0, 0x7f]],
      [[0, 0x10ffff]],
      [[0, 31]],
      [
        [1, 31],
        [0x22, 0x22],
        [0x5c, 0x5c],
      ],
      [[0, 9]],
      [[8, 13]],
      [[14, 16]],
      [
        [0x0b, 0x22],
        [0x5b, 0x5d],
      ],
      [[0x20, 0x21]],
    ] as const;
    for (const set of sets) {
      const matches = expressed(escaped({ kind: 'characters', set }));
      points.forEach((point, index) => {
        const isIn = set.some(([first, last]) => first <= point && point <= last);
        assert.equal(matches(spelled[index]!), isIn, `${spelled[index]} of ${JSON.stringify(set)}`);
      });
      for (const text of others) assert.ok(!matches(text), `${JSON.stringify(text)} of ${JSON.stringify(set)}`);
    }
  });

  it('texts inside an expression are escaped, wherever they stand', () => {
    const quote = literal('"\n');
    const form: Expression = {
      kind: 'sequence',
      items: [
        { kind: 'alternatives', items: [quote, literal('b')] },
        { kind: 'repetition', item: quote, min: 1, max: 2 },
      ],
    };
    const matches = expressed(escaped(form));
    for (const text of ['\\"\\n\\"\\n', 'b\\"\\n', 'b\\"\\n\\"\\n']) assert.ok(matches(text), text);
    for (const text of ['b', '"\n"\n', 'b\\"\\n\\"\\n\\"\\n', '\\"\\n']) assert.ok(!matches(text), text);
  });

  it('one value, with room for blanks', () => {
    const value = { a: [1, 'x', [], {}], 'b"': { c: null } };
    const matches = expressed(jsonValue(value));
    for (const indent of [undefined, 1, 4])
      assert.ok(matches(JSON.stringify(value, undefined, indent)), String(indent));
    assert.ok(matches('{ "a": [ 1, "x", [], {} ], "b\\"": { "c": null } }'));
    for (const text of ['{"a":[1,"x",[],{}]}', '{"a":[1,"x",[ ],{}],"b\\"":{"c":null}}', '{}', ''])
      assert.ok(!matches(text), text);
  });

  it('json_object: an object, and nothing around it', () => {
    const matches = follower(jsonObjectGrammar());
    assert.deepEqual(['{}', '{"a":[1]}', '[]', ' {}', '{} ', ''].map(matches), [
      true,
      true,
      false,
      false,
      false,
      false,
    ]);
  });

  it('any JSON, however it is spaced and spelled', () => {
    const texts = [
      ...[
        '{}',
        ' {} ',
        '[ ]',
        '[\r\n\t1 , 2 ]',
        '{ "a" : 1 , "b" : [ ] }',
        '01',
        '00.50',
        '-0',
        '1e999',
        '1E+5',
        '1e-5',
        '1.25',
        '"\\ud800"',
      ],
      ...[
        '"\\/\\b\\u00E9"',
        '"a\u007f"',
        'true',
        'false',
        'null',
        '"',
        '"\n"',
        '"\u001f"',
        '"\\x"',
        '"\\u12"',
        '[1,]',
        '{"a"}',
        '{,}',
        '{"a":1,}',
      ],
      ...['[,1]', '1.', '.5', 'e5', '1e', '+1', 'nul', '', ' ', '[1 2]', '{"a" 1}', '{1:2}', '[', '[1}'],
    ];
    const isNumberWithZeros = (text: string): boolean => /^0\d/.test(text);
    const [value, object] = [follower(anyJsonGrammar('value')), follower(anyJsonGrammar('object'))];
    for (const text of texts) {
      // Zeros in front are for engines that write them.
      const isJson = parses(text) || isNumberWithZeros(text);
      assert.equal(value(text), isJson, text);
      assert.equal(object(text), isJson && text.trim().startsWith('{'), text);
    }
  });
});
