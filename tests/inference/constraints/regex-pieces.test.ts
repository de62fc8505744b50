import assert from 'node:assert/strict';
import { it } from 'node:test';
import fc from 'fast-check';
import { regexGrammar } from '../../../src/inference/constraints/regex.ts';
import { mulberry32 } from '../../support/random.ts';
import { matches } from './matcher.ts';
import { randomTexts } from './random-text.ts';
import { unlessRefused } from './refusal.ts';

/** The pattern for a whole text; `undefined` where JavaScript does not take it. */
function inJavaScript(source: string): RegExp | undefined {
  try {
    void new RegExp(source, 'u');
    return new RegExp(`^(?:${source})$`, 'u');
  } catch {
    return undefined;
  }
}

it('pieces of patterns in any order are read as JavaScript reads them with the flag u, or refused', () => {
  const pieces = fc.array(
    fc.constantFrom(
      ...'ab1_-^$|()[]{}.*+?,&/ K\u212a\u017fß\u1e9eé\u2028'.split(''),
      ...[
        '\\d',
        '\\D',
        '\\w',
        '\\W',
        '\\s',
        '\\S',
        '\\n',
        '\\v',
        '\\f',
        '\\-',
        '\\/',
        '\\.',
        '\\$',
        '\\^',
        '\\0',
        '\\cA',
      ],
      ...['\\x41', '\\u0041', '\\u{41}', '\\ud83d\\ude00', '\\u{1F600}', '😀', '\\P{Lu}'],
      ...[
        '[^]',
        '[a-z]',
        '[^a]',
        '[\\b]',
        '[a\\-z]',
        '[\\d-]',
        '(?:',
        '(?<n>',
        '{2}',
        '{1,}',
        '{1,2}',
        '{,2}',
        '--',
        '&&',
      ],
    ),
    { maxLength: 7 },
  );
  const random = fc.string({
    unit: fc.constantFrom(...'ab1_-A\0\b\n\r\u2028\u212aK\u017fsß\u1e9eéΩ{}|,/ .&^$\\][\u0001'.split(''), '😀'),
    maxLength: 5,
  });
  let compared = 0;
  fc.assert(
    fc.property(pieces, fc.array(random, { minLength: 8, maxLength: 8 }), fc.integer(), (parts, samples, seed) => {
      const source = parts.join('');
      const expected = inJavaScript(source);
      const grammar = unlessRefused(() => regexGrammar(source, 'regex'));
      if (expected === undefined || grammar === undefined) return;
      compared++;
      const write = randomTexts(grammar, mulberry32(seed));
      // JavaScript may try each way to read a long text.
      const written = Array.from({ length: 4 }, write).filter((text) => text.length <= 24);
      for (const sample of [...samples, ...written]) {
        assert.equal(matches(grammar, sample), expected.test(sample), `/${source}/u on ${JSON.stringify(sample)}`);
      }
    }),
    { numRuns: 1000 },
  );
  assert.ok(compared > 250, `${compared} were compared`);
});
