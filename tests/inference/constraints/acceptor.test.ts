import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { Acceptor } from '../../../src/inference/constraints/acceptor.ts';
import { ebnfGrammar } from '../../../src/inference/constraints/ebnf.ts';
import type { Expression, Grammar } from '../../../src/inference/constraints/grammar.ts';
import { jsonSchemaGrammar } from '../../../src/inference/constraints/json-schema.ts';
import { jsonObjectGrammar } from '../../../src/inference/constraints/json-text.ts';
import { compileProgram } from '../../../src/inference/constraints/program.ts';
import { regexGrammar } from '../../../src/inference/constraints/regex.ts';
import { matches } from './matcher.ts';
import { grammars, textsOf } from './random-grammar.ts';

const acceptor = (grammar: Grammar): Acceptor => new Acceptor(compileProgram(grammar));
const regex = (pattern: string): Grammar => regexGrammar(pattern, 'regex');
const ebnf = (text: string): Grammar => ebnfGrammar(text, 'ebnf');
const schema = (value: unknown): Grammar => jsonSchemaGrammar(value, 'schema');

/** What is said of a text, and where it left the grammar. */
function judged(grammar: Grammar, text: string): string {
  const reader = acceptor(grammar);
  const characters = [...text];
  for (const [at, character] of characters.entries()) {
    const verdict = reader.push(character);
    if (verdict !== 'inside') return `${verdict} at ${at}`;
  }
  return reader.isComplete ? 'complete' : 'begun';
}

describe('a text is followed through a grammar', () => {
  const object = schema({
    type: 'object',
    properties: { city: { type: 'string', maxLength: 5 }, unit: { enum: ['c', 'f', 'k', 'r'] } },
    required: ['city'],
  });
  const list = ebnf('root ::= item ("," root)?\nitem ::= [a-c]+ | "(" root ")"');
  const table: readonly (readonly [Grammar, string, string])[] = [
    [regex('[/a]{4}'), '/a/a', 'complete'],
    [regex('[/a]{4}'), '/a/', 'begun'],
    [regex('[/a]{4}'), '˺˺˺', 'left at 0'],
    [regex('[/a]{4}'), '/a/a/', 'left at 4'],
    [regex('(?:ab?){2,}'), 'aba', 'complete'],
    [regex('(?:a?b?){3}'), '', 'complete'],
    [regex('(?:a?b?){3}'), 'abab', 'complete'],
    [regex('(?:a?b?){3}'), 'aaaa', 'left at 3'],
    [regex('.*🙂'), 'x🙂🙂', 'complete'],
    [regex('yes|no'), '-10000', 'left at 0'],
    [object, '{"city": "Paris", "unit": "c"}', 'complete'],
    [object, '{"city": "Paris"}', 'complete'],
    [object, '{"city": "Paris", "unit": "x"}', 'left at 27'],
    [object, '{"city": "Parisx', 'left at 15'],
    [object, '"Paris"', 'left at 0'],
    [object, '{"unit"', 'left at 2'],
    [jsonObjectGrammar(), '{"a": [1, {"b": null}], "c": "\\u00e9"}', 'complete'],
    [jsonObjectGrammar(), '{"a": [1, {"b": null}', 'begun'],
    [jsonObjectGrammar(), '{"a": ]', 'left at 6'],
    [list, 'a,b,(c,(aa,b)),c', 'complete'],
    [list, 'a,b,(c', 'begun'],
    [list, 'a,b)', 'left at 3'],
  ];
  for (const [grammar, text, expected] of table)
    it(`${text === '' ? 'the empty text' : text}: ${expected}`, () => assert.equal(judged(grammar, text), expected));

  it('the same in pieces of any size, with characters of two halves cut in the middle', () => {
    for (const size of [1, 2, 3, 7]) {
      const reader = acceptor(regex('(?:🙂é漢)+'));
      const text = '🙂é漢🙂é漢';
      for (let at = 0; at < text.length; at += size) assert.equal(reader.push(text.slice(at, at + size)), 'inside');
      assert.equal(reader.isComplete, true);
    }
  });

  it('half a character at the end, where the answer was cut, is not outside, and nothing may follow it', () => {
    const reader = acceptor(regex('é+'));
    assert.equal(reader.push('é\ufffd'), 'inside');
    assert.equal(reader.isComplete, false);
    assert.equal(reader.push('é'), 'left');
  });

  it('blanks in front may be missing, when they may', () => {
    const grammar = regex('\\n{2}yes');
    assert.equal(acceptor(grammar).push('yes'), 'left');
    for (const text of ['yes', '\nyes', '\n\nyes']) {
      const reader = acceptor(grammar);
      reader.mayLackBlanks();
      assert.equal(reader.push(text), 'inside');
      assert.equal(reader.isComplete, true);
    }
  });

  it('as many as 16 blanks in front may be missing, of the four that JSON has, and of nothing else', () => {
    const lacking = (pattern: string): Acceptor => {
      const reader = acceptor(regex(pattern));
      reader.mayLackBlanks();
      return reader;
    };
    for (const blank of ['\\t', '\\n', '\\r', ' ']) {
      assert.equal(lacking(`${blank}{16}yes`).push('yes'), 'inside', blank);
      assert.equal(lacking(`${blank}{17}yes`).push('yes'), 'left', blank);
      assert.equal(lacking(`${blank}{2}`).isComplete, true, blank);
      assert.equal(lacking(`${blank}{17}`).isComplete, false, blank);
    }
    for (const other of [8, 11, 12, 14, 31, 33, 0xa0]) {
      const reader = lacking(`\\u${other.toString(16).padStart(4, '0')}yes`);
      assert.equal(reader.isComplete, false);
      assert.equal(reader.push('yes'), 'left', String(other));
    }
    assert.equal(lacking('a|\\n').isComplete, true);
    assert.equal(lacking('').isComplete, true);
  });

  it('the ends of all planes, one half at a time', () => {
    const characters = ['\ud7ff', '\ue000', '\uffff', '\u{10000}', '\u{1ffff}', '\u{10fc00}', '\u{10ffff}'];
    for (const character of characters) {
      const reader = acceptor(regex(`a${character}`));
      assert.equal(reader.push('a'), 'inside');
      for (const [at, half] of character.split('').entries()) {
        assert.equal(reader.isComplete, false, `${character} ${at}`);
        assert.equal(reader.push(half), 'inside', `${character} ${at}`);
      }
      assert.equal(reader.isComplete, true, character);
      assert.equal(judged(regex('[^a]'), character), 'complete');
    }
    // Only a first half can be completed by what follows.
    for (const half of ['\udc00', '\udfff']) assert.equal(acceptor(regex('[^a]+')).push(half), 'left');
    for (const half of ['\ud800', '\udbff']) {
      const reader = acceptor(regex('[^a]*'));
      assert.equal(reader.push(`é${half}`), 'inside');
      assert.equal(reader.isComplete, false);
      assert.equal(reader.push('é'), 'left');
    }
  });

  it('U+FFFD is half a character only where the grammar has none', () => {
    assert.equal(judged(regex('.'), '\ufffd'), 'complete');
    assert.equal(judged(regex('é?'), '\ufffd'), 'begun');
    assert.equal(judged(regex('é?'), '\ufffd\ufffd'), 'left at 1');
    assert.equal(judged(regex('.*'), '\ufffdé'), 'complete');
  });

  it('a set of any number of ranges has what RegExp has in it', () => {
    const ascii = Array.from({ length: 128 }, (_, point) => String.fromCodePoint(point));
    for (const set of ['b', 'bd', 'bdf', 'b-dg-iyz', '0-9A-F_a-f', '!%-+0-47-9;?A-CE-GZ', ' -~']) {
      for (const pattern of [`[${set}]`, `[^${set}]`]) {
        const [grammar, expected] = [regex(pattern), new RegExp(`^${pattern}$`)];
        for (const character of ascii)
          assert.equal(judged(grammar, character) === 'complete', expected.test(character), `${pattern} ${character}`);
      }
    }
  });

  it('a rule of many callers, in many places and from many positions, returns to each of them', () => {
    const letters = 'cdefghijklmn'.split('');
    const places = ebnf(
      `root ::= ${letters.map((letter) => `x "${letter}" "${letter}"`).join(' | ')}\nx ::= "a" "b"? | ""`,
    );
    for (const letter of letters) {
      for (const begin of ['', 'a', 'ab'])
        assert.equal(judged(places, `${begin}${letter}${letter}`), 'complete', letter);
      assert.equal(judged(places, `a${letter}c`) === 'complete', letter === 'c');
    }
    const positions = ebnf('root ::= l l l l "!"\nl ::= "a"+ x "c"?\nx ::= "b"?');
    for (let length = 1; length <= 12; length++) {
      for (const end of ['!', 'b!', 'bc!', 'bcb!', 'ba!', 'bcac!']) {
        const text = `${'a'.repeat(length)}${end}`;
        assert.equal(judged(positions, text) === 'complete', matches(positions, text), text);
      }
    }
  });

  it('says as the slow matcher of every grammar what matches it, and leaves no text too early', () => {
    const texts = ['', ...textsOf(4)];
    fc.assert(
      fc.property(grammars, (grammar) => {
        const matching = new Set(texts.filter((text) => matches(grammar, text)));
        for (const text of texts) {
          const said = judged(grammar, text);
          assert.equal(said === 'complete', matching.has(text), `${JSON.stringify(grammar.rules.get('root'))} ${text}`);
          if (said.startsWith('left')) {
            const begin = [...text].slice(0, Number(said.slice('left at '.length)) + 1).join('');
            assert.ok(![...matching].some((other) => other.startsWith(begin)));
          }
        }
      }),
      { numRuns: 300 },
    );
  });
});

describe('following a text is bounded', () => {
  it('a list that names itself at its end takes the same for every item', () => {
    const reader = acceptor(ebnf('root ::= [a-z] ("," root)?'));
    // An item that took more than the one before it would soon take more steps than a character may.
    for (let i = 0; i < 4; i++) assert.equal(reader.push('a,'.repeat(10_000)), 'inside');
  });

  it('a large enum is followed, in a list of them too', () => {
    const names = Array.from({ length: 600 }, (_, i) => `name-${i}-${(i * 7919) % 600}`);
    const reader = acceptor(schema({ type: 'array', items: { enum: names } }));
    assert.equal(reader.push(JSON.stringify(names).replaceAll(',', ', ')), 'inside');
    assert.equal(reader.isComplete, true);
  });

  it('knows nothing any more where too many ways stay open, after a bounded number of steps', () => {
    // Built by hand: the checks of clients' grammars refuse the like.
    const any: Expression = { kind: 'characters', set: [[97, 97]] };
    const maybe: Expression = { kind: 'repetition', item: { kind: 'sequence', items: [any, any] }, min: 0, max: 1 };
    const items = Array.from({ length: 2_000 }, (): Expression => ({ kind: 'alternatives', items: [any, maybe] }));
    const reader = acceptor({ root: 'root', rules: new Map([['root', { kind: 'sequence', items } as const]]) });
    let verdict = 'inside';
    for (let i = 0; i < 2_000 && verdict === 'inside'; i++) verdict = reader.push('a');
    assert.equal(verdict, 'unknown');
    assert.equal(reader.push('b'), 'unknown');
  });
});
