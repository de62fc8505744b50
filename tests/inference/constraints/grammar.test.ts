import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { codePoints, complement } from '../../../src/inference/constraints/code-points.ts';
import {
  characters,
  literal,
  printGbnf,
  sequence,
  type Expression,
} from '../../../src/inference/constraints/grammar.ts';
import { regexGrammar } from '../../../src/inference/constraints/regex.ts';
import { openGrammarJudge, type GrammarJudge } from '../../support/grammar-judge.ts';

const printed = (root: Expression): string => printGbnf({ root: 'root', rules: new Map([['root', root]]) });
const ascii = Array.from({ length: 127 }, (_, i) => String.fromCodePoint(i + 1));
const others = ['\u0080', 'ÿ', 'Ā', '˺', '漢', '\uffff', '🙂', '\u{10ffff}'];

describe('a printed grammar', () => {
  let judge: GrammarJudge;
  before(async () => {
    judge = await openGrammarJudge();
  });
  after(() => judge.dispose());

  // xgrammar reads all hexadecimal digits that follow `\x`, llama.cpp two of them.
  it('writes no character in a way that its readers understand differently', () => {
    for (const character of [...ascii, ...others]) {
      for (const text of [printed(literal(`${character}a0`)), printed(sequence(characters(character, 'a-f')))]) {
        assert.doesNotMatch(text, /\\x/);
        assert.doesNotMatch(text, /\\u(?![0-9A-F]{4})|\\U(?![0-9A-F]{8})/);
      }
    }
    assert.equal(printGbnf(regexGrammar('[/a]{4}', 'regex')), 'root ::= [/a]{4}\n');
    assert.equal(printGbnf(regexGrammar('[-b]{4}', 'regex')), 'root ::= [\\u002Db]{4}\n');
    assert.equal(printGbnf(regexGrammar('[A-Za-z_]{3}', 'regex')), 'root ::= [A-Z_a-z]{3}\n');
    assert.equal(printGbnf(regexGrammar('\\x7fabc', 'regex')), 'root ::= "\\u007Fabc"\n');
  });

  it('is what was meant to llama.cpp: each character in a class and in a text, alone and beside digits', async () => {
    const all = [...ascii, ...others];
    for (const character of all) {
      const inClass = await judge.accepts(printed(characters(character)), all);
      assert.deepEqual(
        all.filter((_, i) => inClass[i]),
        [character],
      );
      const range = character === 'a' ? [character] : [character, 'a'];
      assert.deepEqual(await judge.accepts(printed(characters(...range)), [...range, `${character}a`, '0', '\u02fa']), [
        ...range.map(() => true),
        false,
        range.includes('0'),
        range.includes('\u02fa'),
      ]);
      assert.deepEqual(await judge.accepts(printed(literal(`${character}a0`)), [`${character}a0`, character]), [
        true,
        false,
      ]);
    }
  });

  it('is what was meant to llama.cpp where a class excludes a character', async () => {
    for (const character of ascii) {
      const point = character.codePointAt(0)!;
      const set = complement(codePoints([[point, point]]));
      const accepted = await judge.accepts(printed({ kind: 'characters', set }), ascii);
      assert.deepEqual(
        ascii.filter((_, i) => !accepted[i]),
        [character],
      );
    }
  });
});
