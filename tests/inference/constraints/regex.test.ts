import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import fc from 'fast-check';
import { printGbnf } from '../../../src/inference/constraints/grammar.ts';
import { jsonSchemaGrammar } from '../../../src/inference/constraints/json-schema.ts';
import { regexGrammar } from '../../../src/inference/constraints/regex.ts';
import { openGrammarJudge, type GrammarJudge } from '../../support/grammar-judge.ts';
import { matches } from './matcher.ts';
import { refusal, unlessRefused } from './refusal.ts';

const patterns = [
  '[A-F]{2}-\\d{3}',
  '(?:yes|no)\\s?\\w*',
  '[^"\\\\]*',
  'a{2,}b?',
  '\\d{1,3}(\\.\\d{1,3}){3}',
  'x.y',
  '[\\w.+-]+@[\\w-]+\\.[a-z]{2,4}',
  'é+|ü',
  '(a|b)*c{0,2}',
  '[\\]\\-^]',
  '\\u0041\\x42',
  '(foo|ba[rz])?',
  '[a\\-z]+',
  '\\p{Lu}\\p{Ll}+',
  '(?<y>\\d{4})-(?<m>0[1-9]|1[0-2])',
  '\\+?1?',
  '[\\s\\S]{0,3}',
  '',
  'a||b',
  '\\$\\{x\\}',
  '(a?)*b',
  '(a?b?){2}',
  '(a*)*',
  '((a|b?)*c?){0,3}',
  '\\/\\*.*?\\*\\/',
  '[^\\x00-\\x7f]+',
  '\\u{1F600}|\\ud83d\\ude01',
];
const texts = [
  ...['AB-123', 'yes x', 'no', 'aab', '1.2.3.4', 'xqy', 'a.b@c.de', 'éé', 'abacc', ']', 'AB', 'baz', 'a-z', 'Abc'],
  ...[
    '2024-09',
    '+1',
    '${x}',
    'aaa',
    '/* x */',
    'x\ny',
    'q"',
    'b',
    '',
    'ab',
    'abab',
    'aac',
    '😀',
    '😁',
    'éü',
    'c',
    'cc',
  ],
];

const tooLarge = /steps to compile|too many ways|no value/;

describe('regular expressions', () => {
  let judge: GrammarJudge;
  before(async () => (judge = await openGrammarJudge()));
  after(() => judge.dispose());

  for (const pattern of patterns) {
    it(`llama.cpp and JavaScript agree about /${pattern}/, alone and in a JSON string`, async () => {
      const whole = new RegExp(`^(?:${pattern})$`, 'u');
      const answers = await judge.accepts(printGbnf(regexGrammar(pattern, 'regex')), texts);
      assert.deepEqual(
        texts.filter((_, index) => answers[index]),
        texts.filter((text) => whole.test(text)),
      );
      const found = new RegExp(pattern, 'u');
      const schema = printGbnf(jsonSchemaGrammar({ type: 'string', pattern }, 'schema'));
      const inJson = await judge.accepts(
        schema,
        texts.map((text) => JSON.stringify(text)),
      );
      assert.deepEqual(
        texts.filter((_, index) => inJson[index]),
        texts.filter((text) => found.test(text)),
      );
    });
  }

  it('random expressions match what RegExp matches', () => {
    const atom = fc.constantFrom(
      'a',
      'b',
      'c',
      '.',
      '[ab]',
      '[^a]',
      '\\d',
      '\\w',
      '\\s',
      '\\.',
      'é',
      '\\u{1F600}',
      '[a-c1]',
    );
    const times = fc.constantFrom('', '', '', '*', '+', '?', '{2}', '{1,3}', '{0,2}', '{2,}', '*?', '+?');
    const { pattern } = fc.letrec<{ pattern: string; sequence: string; piece: string }>((tie) => ({
      pattern: fc.oneof(
        { depthSize: 'xsmall' },
        tie('sequence'),
        fc.tuple(tie('sequence'), tie('pattern')).map((both) => both.join('|')),
      ),
      sequence: fc.array(tie('piece'), { maxLength: 3 }).map((pieces) => pieces.join('')),
      piece: fc
        .tuple(
          fc.oneof(
            { depthSize: 'xsmall' },
            atom,
            tie('pattern').map((inner) => `(${inner})`),
          ),
          times,
        )
        .map(([item, quantifier]) => item + quantifier),
    }));
    const text = fc.string({ unit: fc.constantFrom('a', 'b', 'c', '1', '.', ' ', 'é', '😀', '\n'), maxLength: 7 });
    let [tried, compared] = [0, 0];
    fc.assert(
      fc.property(pattern, fc.array(text, { minLength: 5, maxLength: 10 }), (source, samples) => {
        const expected = new RegExp(`^(?:${source})$`, 'u');
        tried++;
        const grammar = unlessRefused(() => regexGrammar(source, 'regex'), tooLarge);
        const schema = unlessRefused(
          () => jsonSchemaGrammar({ type: 'string', pattern: `^(?:${source})$`, maxLength: 5 }, 'schema'),
          tooLarge,
        );
        if (grammar === undefined || schema === undefined) return;
        compared++;
        for (const sample of samples) {
          assert.equal(matches(grammar, sample), expected.test(sample), `${source} on ${JSON.stringify(sample)}`);
          const isShort = [...sample].length <= 5;
          assert.equal(
            matches(schema, JSON.stringify(sample)),
            isShort && expected.test(sample),
            `${source}, length 5`,
          );
        }
      }),
      { numRuns: 200 },
    );
    assert.ok(compared > tried * 0.8, `${compared} of ${tried} were compared`);
  });

  it('a leading ^ and a trailing $ change nothing; anchors in alternatives are understood', () => {
    for (const pattern of ['^ab$', 'ab', '^ab', '(^ab)', '(^|x)ab'])
      assert.ok(matches(regexGrammar(pattern, 'regex'), 'ab'));
    const search = jsonSchemaGrammar({ type: 'string', pattern: '(^|,)foo(,|$)' }, 'schema');
    for (const text of ['foo', 'a,foo', 'foo,b', 'a,foo,b']) assert.ok(matches(search, JSON.stringify(text)), text);
    for (const text of ['afoo', 'food', 'a,food']) assert.ok(!matches(search, JSON.stringify(text)), text);
  });

  it('(?i) ignores case as JavaScript does', () => {
    const grammar = regexGrammar('(?i)straße[^a-c]', 'regex');
    for (const text of ['STRAßE!', 'Straßed']) assert.ok(matches(grammar, text), text);
    for (const text of ['straßeB', 'straße', 'strasse!']) assert.ok(!matches(grammar, text), text);
  });

  const refused: readonly (readonly [string, RegExp])[] = [
    ['(?=a)b', /lookaround.*character 0/],
    ['x(?<!a)b', /lookaround.*character 1/],
    ['(a)\\1', /back-reference.*character 3/],
    ['(?<n>a)\\k<n>', /back-reference.*character 7/],
    ['\\bfoo', /word boundary.*character 0/],
    ['a**', /nothing to repeat.*character 2/],
    ['(a', /not closed.*character 0/],
    ['a)', /'\)' without.*character 1/],
    ['[b-a]', /range.*character 2/],
    ['[]', /no character matches/],
    ['(?m)a', /flag.*character 0/],
    ['a^b', /'\^' after the start.*character 1/],
    ['a$b', /'\$' before the end.*character 2/],
    ['(^a)*', /anchor is repeated/],
    ['\\q', /is not an escape.*character 0/],
    ['a{3,2}', /is below its start/],
    ['\\p{Nonsense}', /Unicode property.*character 0/],
    ['\\p{L}\\p{N}\\p{Lu}\\p{Ll}', /more than 3 Unicode properties/],
    ['\\ud800', /not a character/],
    ['((a{100}){100}){2}', /more than 10000 repetitions/],
    ['a'.repeat(4097), /longer than 4096/],
    [`${'('.repeat(101)}a${')'.repeat(101)}`, /nest deeper than 100/],
  ];
  for (const [pattern, message] of refused) {
    it(`contracts decision 13: /${pattern.slice(0, 30)}/ is refused by name and place`, () => {
      assert.match(
        refusal(() => regexGrammar(pattern, 'regex'), 'unsupported_value', 'regex'),
        message,
      );
    });
  }
});
