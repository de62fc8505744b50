import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  codePoints,
  complement,
  difference,
  holds,
  intersection,
  union,
  type CodePoints,
} from '../../../src/inference/constraints/code-points.ts';
import { regexExpression, regexGrammar } from '../../../src/inference/constraints/regex.ts';
import { Work } from '../../../src/inference/constraints/work.ts';
import { refusal } from './refusal.ts';

const span = (first: number, last: number, step = 1): readonly number[] =>
  Array.from({ length: Math.floor((last - first) / step) + 1 }, (_, i) => first + i * step);
/** All that the tables of the source have an end at, with what stands beside it, and some of each plane. */
const points = [
  ...new Set([
    ...span(0, 0x3200),
    ...span(0xa000, 0xa100),
    ...span(0xd700, 0xd7ff),
    ...span(0xe000, 0xe010),
    ...span(0xfef0, 0x10200),
    ...span(0x10400, 0x10450),
    ...span(0x1f5f0, 0x1f610),
    ...span(0x3fffd, 0x4fffd, 0x8000),
    ...[3, 4, 0xd, 0xe, 0xf].flatMap((plane) => span(plane * 0x10000 + 0xfffc, plane * 0x10000 + 0x10001)),
    ...span(0xdfff0, 0xe0200),
    ...span(0x20000, 0x10ffff, 0x3ff),
  ]),
];

function setOf(pattern: string): CodePoints {
  const expression = regexExpression(pattern, 'whole', new Work('regex'));
  if (expression.kind === 'characters') return expression.set;
  assert.ok(expression.kind === 'literal' && [...expression.text].length === 1, pattern);
  return codePoints([[expression.text.codePointAt(0)!, expression.text.codePointAt(0)!]]);
}

/** By code point, whether it is in the set. */
function marked(set: CodePoints): Uint8Array {
  const isIn = new Uint8Array(0x110000);
  for (const [first, last] of set) isIn.fill(1, first, last + 1);
  return isIn;
}

const single = [
  ...[
    '\\d',
    '\\D',
    '\\w',
    '\\W',
    '\\s',
    '\\S',
    '.',
    '\\n',
    '\\r',
    '\\t',
    '\\f',
    '\\v',
    '\\0',
    '\\cA',
    '\\cz',
    '\\cJ',
    '[\\b]',
  ],
  ...[
    '\\x41',
    '\\x7f',
    '\\u0041',
    '\\ud7ff',
    '\\ue000',
    '\\u{41}',
    '\\u{1F600}',
    '\\u{10ffff}',
    '\\ud83d\\ude00',
    '\\ud800\\udc00',
    '\\uDBFF\\uDFFF',
  ],
  ...[
    '[a-z]',
    '[^a-z]',
    '[a\\-z]',
    '[-a]',
    '[a-]',
    '[^-]',
    '[+--]',
    '[--/]',
    '[\\]\\\\^]',
    '[a^]',
    '[\\x00-\\x1f]',
    '[\\u{1F600}-\\u{1F64F}]',
    '[\\ud83d\\ude00-\\ud83d\\ude10]',
  ],
  ...[
    '[\\d\\s]',
    '[^\\w.]',
    '[\\W_]',
    '[^\\S\\n]',
    '[a-zA-Z_0-9]',
    '[^]',
    '[\\n-\\r]',
    '[\\0-\\x08]',
    '[é-ü]',
    '[.]',
    '[^.]',
    '[a-a]',
    '[\\cA-\\cZ]',
  ],
  ...[
    '\\.',
    '\\$',
    '\\^',
    '\\/',
    '\\*',
    '\\+',
    '\\?',
    '\\(',
    '\\)',
    '\\[',
    '\\]',
    '\\{',
    '\\}',
    '\\|',
    '\\\\',
    'é',
    '😀',
    '\u2028',
    '[\\d]',
    '[\\-]',
  ],
  ...[
    '\\p{L}',
    '\\P{L}',
    '\\p{Lu}',
    '\\p{Script=Greek}',
    '[\\p{N}_]',
    '[^\\p{L}\\p{N}]',
    '\\p{Cn}',
    '\\p{Co}',
    '\\p{ASCII}',
    '\\p{Any}',
    '\\p{White_Space}',
    '\\p{Noncharacter_Code_Point}',
  ],
];

describe('a class or an escape', () => {
  for (const pattern of single) {
    it(`/${pattern}/ is the characters that it is in JavaScript`, () => {
      const [regex, isIn] = [new RegExp(`^(?:${pattern})$`, 'u'), marked(setOf(pattern))];
      const wrong = points.filter((point) => (isIn[point] === 1) !== regex.test(String.fromCodePoint(point)));
      assert.deepEqual(wrong.slice(0, 10), []);
    });
  }

  it('with a set on either side of a hyphen has the hyphen, as JavaScript reads it without the flag u', () => {
    for (const pattern of ['[\\d-x]', '[a-\\d]', '[\\w-\\s]', '[\\d-]', '[^\\d-x]']) {
      const [regex, set] = [new RegExp(`^(?:${pattern})$`), setOf(pattern)];
      assert.deepEqual(
        span(0, 0x300).filter((point) => holds(set, point) !== regex.test(String.fromCodePoint(point))),
        [],
        pattern,
      );
    }
  });

  it('has both cases of its letters after (?i), of ASCII letters only those', () => {
    const rows: readonly (readonly [string, string])[] = [
      ['a', 'aA'],
      ['Z', 'zZ'],
      ['k', 'kK'],
      ['[h-k]', 'hijkHIJK'],
      ['s', 'sS'],
      ['é', 'éÉ'],
      ['É', 'éÉ'],
      ['ß', 'ß'],
      ['\\u212a', '\u212a'],
      ['ſ', 'ſ'],
      ['1', '1'],
      ['_', '_'],
      ['\\x41', 'aA'],
      ['𐐀', '𐐀𐐨'],
      ['İ', 'İ'],
    ];
    for (const [pattern, expected] of rows) {
      const isIn = marked(setOf(`(?i)${pattern}`));
      const found = points.filter((point) => isIn[point] === 1).map((point) => String.fromCodePoint(point));
      assert.deepEqual(found.sort(), [...expected].sort(), pattern);
    }
    const others = setOf('(?i)[^a]');
    assert.deepEqual(
      ['a', 'A', 'b', 'B'].map((each) => holds(others, each.codePointAt(0)!)),
      [false, false, true, true],
    );
    assert.deepEqual(setOf('(?i)\\d'), setOf('\\d'));
  });
});

describe('sets of characters', () => {
  const all = span(0, 12);
  const sets: readonly CodePoints[] = Array.from({ length: 32 }, (_, bits) =>
    codePoints(
      span(0, 5)
        .filter((bit) => (bits >> bit) & 1)
        .map((bit) => [2 * bit, 2 * bit + (bits % 3)] as const),
    ),
  );
  const listed = (set: CodePoints): readonly number[] => all.filter((point) => holds(set, point));

  it('are united, cut, and subtracted, and stay sorted and apart', () => {
    const isApart = (set: CodePoints): boolean =>
      set.every(([first, last], index) => first <= last && (index === 0 || first > set[index - 1]![1] + 1));
    for (const left of sets) {
      assert.ok(isApart(left));
      assert.deepEqual(
        listed(complement(left)),
        all.filter((point) => !holds(left, point)),
      );
      assert.deepEqual(complement(complement(left)), left);
      for (const right of sets) {
        for (const [made, keeps] of [
          [union(left, right), (point: number) => holds(left, point) || holds(right, point)],
          [intersection(left, right), (point: number) => holds(left, point) && holds(right, point)],
          [difference(left, right), (point: number) => holds(left, point) && !holds(right, point)],
        ] as const) {
          assert.ok(isApart(made), JSON.stringify([left, right, made]));
          assert.deepEqual(listed(made), all.filter(keeps));
        }
      }
    }
  });

  it('end at the last character, and have no surrogates', () => {
    assert.deepEqual(complement([]), [
      [0, 0xd7ff],
      [0xe000, 0x10ffff],
    ]);
    assert.deepEqual(
      complement([
        [0, 0xd7ff],
        [0xe000, 0x10ffff],
      ]),
      [],
    );
    assert.deepEqual(
      complement([
        [0, 0xd7ff],
        [0xe000, 0x10fffe],
      ]),
      [[0x10ffff, 0x10ffff]],
    );
    assert.deepEqual(complement([[1, 0x10ffff]]), [[0, 0]]);
    assert.deepEqual(codePoints([[0xd700, 0xe0ff]]), [
      [0xd700, 0xd7ff],
      [0xe000, 0xe0ff],
    ]);
    assert.deepEqual(
      codePoints([
        [5, 4],
        [9, 9],
        [1, 2],
        [3, 3],
      ]),
      [
        [1, 3],
        [9, 9],
      ],
    );
    assert.deepEqual(
      codePoints([
        [1, 9],
        [2, 3],
      ]),
      [[1, 9]],
    );
  });
});

const refused: readonly (readonly [pattern: string, problem: string])[] = [
  ['ab\\', "'\\' at the end (character 2 of the pattern)"],
  ['[a', "'[' is not closed (character 0 of the pattern)"],
  ['x[a-', "'[' is not closed (character 1 of the pattern)"],
  ['[a-\\', "'\\' at the end (character 3 of the pattern)"],
  ['[z-a]', 'the end of a range is below its start (character 2 of the pattern)'],
  ['[^\\s\\S]', 'a class that no character matches (character 0 of the pattern)'],
  ['\\x4', "'\\x' without 2 hex digits (character 2 of the pattern)"],
  ['\\xg0', "'\\x' without 2 hex digits (character 2 of the pattern)"],
  ['\\u004', "'\\u' without 4 hex digits (character 2 of the pattern)"],
  ['\\u{110000}', 'an escape that is not a character (character 0 of the pattern)'],
  ['a\\ud800', 'an escape that is not a character (character 1 of the pattern)'],
  ['\\udfff', 'an escape that is not a character (character 0 of the pattern)'],
  ['\\ud800\\u0041', 'an escape that is not a character (character 0 of the pattern)'],
  ['\\u{}', "'\\u{' without a number (character 0 of the pattern)"],
  ['\\u{123456789}', "'\\u{' without a number (character 0 of the pattern)"],
  ['\\u{41', "'\\u{' is not closed (character 3 of the pattern)"],
  ['\\c1', "'\\c' without a letter (character 0 of the pattern)"],
  ['\\p{L', "'\\p{' is not closed (character 3 of the pattern)"],
  ['\\P{L', "'\\P{' is not closed (character 3 of the pattern)"],
  ['\\p{}', 'a Unicode property that does not exist (character 0 of the pattern)'],
  ['a\\p{Nonsense}', 'a Unicode property that does not exist (character 1 of the pattern)'],
  ['\\p{L}\\p{L}\\p{L}\\P{L}', 'more than 3 Unicode properties (character 15 of the pattern)'],
  ['\\bx', "'\\b', a word boundary, is not supported (character 0 of the pattern)"],
  ['x\\B', "'\\B', a word boundary, is not supported (character 1 of the pattern)"],
  ['[\\B]', "'\\B', a word boundary, is not supported (character 1 of the pattern)"],
  ['\\k<n>', "'\\k', a back-reference, is not supported (character 0 of the pattern)"],
  ['\\1', "'\\1', a back-reference or octal escape, is not supported (character 0 of the pattern)"],
  ['\\01', "'\\0', a back-reference or octal escape, is not supported (character 0 of the pattern)"],
  ['\\q', "'\\q' is not an escape (character 0 of the pattern)"],
  ['(?<=a)b', "'(?<=', lookaround, is not supported (character 0 of the pattern)"],
  ['x(?!a)', "'(?!', lookaround, is not supported (character 1 of the pattern)"],
  ['(?<1>a)', 'the name of a group is invalid (character 0 of the pattern)'],
  ['(?<n', 'the name of a group is not closed (character 3 of the pattern)'],
  ['(?m:a)', "'(?' with a flag or in a form that is not supported (character 0 of the pattern)"],
  ['a(?i)b', "'(?' with a flag or in a form that is not supported (character 1 of the pattern)"],
  ['a{3,2}', 'the end of a count is below its start (character 1 of the pattern)'],
  ['*', 'nothing to repeat (character 0 of the pattern)'],
  ['a|+', 'nothing to repeat (character 2 of the pattern)'],
  ['(?)', "'(?' with a flag or in a form that is not supported (character 0 of the pattern)"],
  ['{2}', 'nothing to repeat (character 0 of the pattern)'],
  ['x(a', "'(' is not closed (character 1 of the pattern)"],
  ['x)', "')' without '(' (character 1 of the pattern)"],
  ['a(^b)', "'^' after the start (character 1 of the pattern)"],
  ['a^', "'^' after the start (character 1 of the pattern)"],
  ['$a', "'$' before the end (character 1 of the pattern)"],
  ['(a$)bc', "'$' before the end (character 4 of the pattern)"],
  ['(a$)(b|^c)', "'$' before the end (character 4 of the pattern)"],
  ['(a|$)(b|^c)', "'^' after the start (character 5 of the pattern)"],
  ['($a)', "'$' before the end (character 2 of the pattern)"],
  ['(^a)+', 'an anchor is repeated (character 0 of the pattern)'],
  ['b($)?', 'an anchor is repeated (character 1 of the pattern)'],
  ['x(a{101}){100}', 'more than 10000 repetitions inside each other (character 1 of the pattern)'],
  ['(a{5001,}){2}', 'more than 10000 repetitions inside each other (character 0 of the pattern)'],
  ['((a{2}){5001}|b)c', 'more than 10000 repetitions inside each other (character 1 of the pattern)'],
];

describe('a pattern that is refused', () => {
  for (const [pattern, problem] of refused) {
    it(`/${pattern}/: ${problem}`, () => {
      const found = refusal(() => regexGrammar(pattern, 'regex'), 'unsupported_value', 'regex');
      assert.equal(found, `'regex': ${problem}.`);
    });
  }

  it('is not one that is only just within a bound', () => {
    const within = [
      'a'.repeat(4_096),
      `${'('.repeat(100)}a${')'.repeat(100)}`,
      '(a{100}){100}',
      'a{1,99999}',
      '(a{2}){5000}',
      '\\p{L}\\p{L}\\p{L}',
      '(?i)a',
      '(?P<n>a)(?<$_é1>b)',
      'a{',
      'a{x}',
      'a{,2}',
      'a{1234567890}',
      ']',
      '}',
      '\\u{00000041}',
      'a{1}',
      '($)',
      '(^)a',
      'a($)',
      '()^a',
      'a$()',
    ];
    for (const pattern of within) regexExpression(pattern, 'whole', new Work('regex', 500_000));
    for (const [pattern, problem] of [
      ['a'.repeat(4_097), 'the pattern is longer than 4096 characters'],
      [`${'('.repeat(101)}a${')'.repeat(101)}`, 'groups nest deeper than 100 (character 100 of the pattern)'],
    ] as const)
      assert.equal(
        refusal(() => regexGrammar(pattern, 'regex'), 'unsupported_value', 'regex'),
        `'regex': ${problem}.`,
      );
  });
});
