import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { hasLength } from '../../../src/inference/constraints/automaton-rules.ts';
import {
  accepts,
  anyText,
  anyTextBut,
  automatonOf,
  combined,
  isEmptyAutomaton,
  ofLength,
  textsOf,
  type Automaton,
} from '../../../src/inference/constraints/automaton.ts';
import { jsonSchemaGrammar } from '../../../src/inference/constraints/json-schema.ts';
import { regexForm } from '../../../src/inference/constraints/regex-form.ts';
import { regexExpression } from '../../../src/inference/constraints/regex.ts';
import { lengthsOf } from '../../../src/inference/constraints/string-length.ts';
import { ApiError } from '../../../src/platform/errors.ts';
import { Work } from '../../../src/inference/constraints/work.ts';
import { follower } from './follower.ts';

/** All texts of a and b up to 6 characters, and some others. */
const texts = [
  ...Array.from({ length: 7 }, (_, length) =>
    Array.from({ length: 2 ** length }, (__, index) =>
      Array.from({ length }, (___, at) => ((index >> at) & 1 ? 'b' : 'a')).join(''),
    ),
  ).flat(),
  ...['c', 'ac', 'ca', 'abc', 'acb', 'é', '😀a', 'aaaaaaa', 'abababa', 'bbbbbbbb', 'a'.repeat(12)],
];
const patterns = [
  ...['^a*$', '^a+b$', 'a', '^[ab]+$', '^(ab)*$', '^(ab|b)*$', '^a?b?a?$', '^(a|ab)(b|bb)?$', 'b$', '^a|b$', '', '^$'],
  ...[
    '^(aa|bbb)*$',
    '^a{2,4}$',
    '^(a{1,3}b){0,2}$',
    '^.{3}$',
    '^a[^a]*$',
    '^(ab*a|b)*$',
    '^ab{0,9}a?$',
    '^x?(ab|ba)*c?$',
  ],
  ...[
    '^a{3}b*$',
    '^(a|b)*abb(a|b)*$',
    '^b*(ab*ab*)*$',
    '^(a*|b*)$',
    '^((a?){3}b){3}$',
    '^(a{1,4}b?){1,3}$',
    '^(a|b)?(a|b)?b$',
  ],
];
const bounds: readonly (readonly [number | undefined, number | undefined])[] = [
  ...([
    [undefined, undefined],
    [0, 0],
    [1, undefined],
    [undefined, 2],
    [2, 4],
    [3, 3],
    [4, undefined],
    [5, 6],
    [7, 20],
  ] as const),
];
const work = () => new Work('schema', 10_000_000);
const automatonFor = (pattern: string): Automaton => automatonOf(regexExpression(pattern, 'search', work()), work());
const isWithin = (text: string, [min, max]: readonly [number | undefined, number | undefined]): boolean =>
  [...text].length >= (min ?? 0) && [...text].length <= (max ?? Infinity);

/** Whether a text is written under the schema; a schema that allows no value writes none. */
function writes(schema: unknown): (value: unknown) => boolean {
  try {
    const isWritten = follower(jsonSchemaGrammar(schema, 'schema'));
    return (value) => isWritten(JSON.stringify(value));
  } catch (error) {
    assert.ok(error instanceof ApiError && /allows no value/.test(error.message), String(error));
    return () => false;
  }
}

describe('texts of patterns and lengths', () => {
  for (const pattern of patterns) {
    it(`/${pattern}/ with each length`, () => {
      const regex = new RegExp(pattern, 'u');
      for (const bound of bounds) {
        const [minLength, maxLength] = bound;
        const isWritten = writes(JSON.parse(JSON.stringify({ type: 'string', pattern, minLength, maxLength })));
        for (const text of texts)
          assert.equal(isWritten(text), regex.test(text) && isWithin(text, bound), `${text} ${String(bound)}`);
      }
    });
  }

  it('two patterns and a length', () => {
    for (const [index, left] of patterns.entries()) {
      const right = patterns[(index + 5) % patterns.length]!;
      const bound = bounds[index % bounds.length]!;
      const [minLength, maxLength] = bound;
      const schema = {
        type: 'string',
        allOf: [
          { pattern: left, minLength },
          { pattern: right, maxLength },
        ],
      };
      const isWritten = writes(JSON.parse(JSON.stringify(schema)));
      const both = [new RegExp(left, 'u'), new RegExp(right, 'u')];
      for (const text of texts)
        assert.equal(
          isWritten(text),
          both.every((each) => each.test(text)) && isWithin(text, bound),
          `${left} ${right} ${text}`,
        );
    }
  });

  it('names of patterns, of lengths, and that are none of some others', () => {
    for (const pattern of patterns.slice(0, 12)) {
      const regex = new RegExp(pattern, 'u');
      const schema = {
        type: 'object',
        properties: { ab: true, a: false },
        propertyNames: { minLength: 1, maxLength: 5 },
        patternProperties: { [pattern]: { const: 1 }, '^b': { enum: [1, 2] } },
        additionalProperties: { const: 3 },
      };
      const isWritten = writes(schema);
      for (const text of texts) {
        for (const value of [1, 2, 3]) {
          const others = regex.test(text) || text.startsWith('b') ? value !== 3 : value === 3;
          const wanted =
            text === 'a'
              ? false
              : (!regex.test(text) || value === 1) && (!text.startsWith('b') || value < 3) && (text === 'ab' || others);
          assert.equal(isWritten({ [text]: value }), wanted && isWithin(text, [1, 5]), `${pattern} ${text} ${value}`);
        }
      }
    }
  });
});

describe('an automaton', () => {
  it('accepts what RegExp matches, alone, in pairs, and within a length', () => {
    for (const [index, pattern] of patterns.entries()) {
      const [left, regex] = [automatonFor(pattern), new RegExp(pattern, 'u')];
      const other = patterns[(index + 3) % patterns.length]!;
      const [right, second] = [automatonFor(other), new RegExp(other, 'u')];
      const [both, without] = [combined(left, right, 'and', work()), combined(left, right, 'without', work())];
      for (const text of texts) {
        assert.equal(accepts(left, text), regex.test(text), `${pattern} ${text}`);
        assert.equal(accepts(both, text), regex.test(text) && second.test(text), `${pattern} and ${other}: ${text}`);
        assert.equal(
          accepts(without, text),
          regex.test(text) && !second.test(text),
          `${pattern} without ${other}: ${text}`,
        );
      }
      for (const [min, max] of bounds) {
        const cut = ofLength(left, min ?? 0, max, work());
        const found = texts.filter((text) => regex.test(text) && isWithin(text, [min, max]));
        assert.deepEqual(
          texts.filter((text) => accepts(cut, text)),
          found,
        );
        assert.equal(isEmptyAutomaton(cut), !hasLength(left, { min: min ?? 0, max }, work()));
        assert.ok(found.length === 0 || !isEmptyAutomaton(cut), `${pattern} ${min} ${max}`);
      }
    }
  });

  it('is no larger than it has to be', () => {
    const sizes: readonly (readonly [string, number])[] = [
      ['^a*$', 1],
      ['^a+$', 2],
      ['^ab$', 3],
      ['^(ab|cd)$', 4],
      ['^(a|b|[c-f])*$', 1],
      ['a', 2],
      ['', 1],
      ['^(a|ab)*$', 2],
      ['^a{5}$', 6],
      ['^(a?){5}$', 6],
      ['abc', 6],
    ];
    for (const [pattern, states] of sizes) assert.equal(automatonFor(pattern).length, states, pattern);
    assert.equal(combined(automatonFor('^a*$'), automatonFor('^[ab]*$'), 'and', work()).length, 1);
    assert.equal(combined(anyText, automatonFor('^a$'), 'and', work()).length, 2);
    assert.equal(combined(automatonFor('^a$'), automatonFor('^[ab]$'), 'without', work()).length, 0);
    assert.equal(ofLength(automatonFor('^a*$'), 2, 3, work()).length, 4);
    assert.equal(ofLength(automatonFor('^a*$'), 2, undefined, work()).length, 3);
    assert.equal(anyTextBut(['ab', 'ac'], work()).length, 5);
  });

  it('of every text but some', () => {
    for (const but of [[], [''], ['a'], ['a', 'ab', 'b'], ['abba', 'é', 'abb'], ['\ud800', 'a'], ['😀a']]) {
      const automaton = anyTextBut(but, work());
      for (const text of [...texts, ''])
        assert.equal(accepts(automaton, text), !but.includes(text), `${but.join(' ')}: ${text}`);
    }
  });

  it('lists its texts where they are few and short', () => {
    const rows: readonly (readonly [string, number, number, readonly string[] | undefined])[] = [
      ['^(ab|a|c)$', 3, 2, ['a', 'ab', 'c']],
      ['^(ab|a|c)$', 2, 2, undefined],
      ['^(ab|a|c)$', 9, 1, undefined],
      ['^[a-d]?$', 5, 1, ['', 'a', 'b', 'c', 'd']],
      ['^a*$', 9, 9, undefined],
      ['^a{3}$', 1, 3, ['aaa']],
      ['^(b|a)[xy]$', 4, 2, ['ax', 'ay', 'bx', 'by']],
    ];
    for (const [pattern, max, lengthMax, expected] of rows)
      assert.deepEqual(textsOf(automatonFor(pattern), { max, lengthMax }, work()), expected, pattern);
    assert.deepEqual(textsOf([], { max: 9, lengthMax: 9 }, work()), []);
  });

  it('has a text of a length, or not', () => {
    const rows: readonly (readonly [string, number, number | undefined, boolean])[] = [
      ['^(abc)+$', 4, 5, false],
      ['^(abc)+$', 4, 6, true],
      ['^(abc)+$', 7, undefined, true],
      ['^(abc)?$', 4, undefined, false],
      ['^(abc)?$', 3, 3, true],
      ['^(abc)?$', 0, 0, true],
      ['^(abc)+$', 0, 2, false],
      ['^a{7}$', 7, undefined, true],
      ['^(aa)*$', 9, 9, false],
      ['^(aa)*$', 100, 101, true],
      ['^(aaaaa)*$', 11, undefined, true],
    ];
    for (const [pattern, min, max, has] of rows)
      assert.equal(hasLength(automatonFor(pattern), { min, max }, work()), has, `${pattern} ${min} ${max}`);
    assert.ok(!hasLength([], { min: 0, max: undefined }, work()));
  });
});

describe('a pattern', () => {
  it('has the lengths of its texts, in characters', () => {
    const rows: readonly (readonly [string, number, number])[] = [
      ['ab', 2, 2],
      ['😀', 1, 1],
      ['[a-z]', 1, 1],
      ['a?b{2,3}', 2, 4],
      ['(a|bcd)', 1, 3],
      ['(ab){2,5}', 4, 10],
      ['(ab)*', 0, Infinity],
      ['(){0,}', 0, 0],
      ['(a|){3}', 0, 3],
      ['a{3}(b|cc)d*', 4, Infinity],
    ];
    for (const [pattern, min, max] of rows)
      assert.deepEqual(lengthsOf(regexExpression(pattern, 'whole', work())), { min, max }, pattern);
    assert.throws(() => lengthsOf({ kind: 'rule', name: 'x' }));
  });

  it('is kept, unless an engine would be at many places of it at once', () => {
    const rows: readonly (readonly [string, 'expression' | 'automaton' | 'refused'])[] = [
      ['[a-z]{1,100000}', 'expression'],
      ['id-[0-9]{1,1000}x', 'expression'],
      ['(ab?){32}', 'expression'],
      ['(a{1,9}){1,9}', 'automaton'],
      ['(a{1,8}){1,8}', 'expression'],
      ['(a{1,8}){1,9}', 'expression'],
      ['(a?b?){33}', 'automaton'],
      ['(a?){64}', 'expression'],
      ['(a?){65}', 'automaton'],
      ['[a-z]{0,200}[0-9]{0,200}', 'expression'],
      ['(a|b)*a(a|b){12}', 'expression'],
      ['((a|b)*a(a|b){5}){9}', 'automaton'],
      [`${'a?'.repeat(66)}`, 'automaton'],
      [`${'a?'.repeat(8)}b${'a?'.repeat(8)}b{60}`, 'expression'],
      [`${'a?'.repeat(9)}b{60}`, 'expression'],
      ['(ab|cd){40}', 'expression'],
      ['(a|aa|aaa){60}', 'automaton'],
      ['a{65}', 'expression'],
      ['(a|b){65}(c|dd)*', 'expression'],
      ['.{0,50}x.{0,50}y.{0,50}', 'expression'],
      ['(a{0,9}b?){0,9}', 'automaton'],
    ];
    const kinds = rows.map(([pattern]) => {
      try {
        return regexForm(regexExpression(pattern, 'whole', work()), new Work('schema', 300_000)).type;
      } catch (error) {
        if (!(error instanceof ApiError)) throw error;
        return error.message;
      }
    });
    assert.deepEqual(
      rows.map(([pattern], index) => [pattern, kinds[index]]),
      rows,
    );
  });
});
