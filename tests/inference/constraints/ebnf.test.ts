import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { ebnfGrammar } from '../../../src/inference/constraints/ebnf.ts';
import { printGbnf } from '../../../src/inference/constraints/grammar.ts';
import { openGrammarJudge, type GrammarJudge } from '../../support/grammar-judge.ts';
import { matches } from './matcher.ts';
import { refusal } from './refusal.ts';

interface Dialect {
  readonly name: string;
  readonly text: string;
  readonly accepted: readonly string[];
  readonly rejected: readonly string[];
}

const dialects: readonly Dialect[] = [
  {
    name: 'GBNF',
    text: 'root ::= expr\nexpr ::= term ("+" term)*\nterm ::= [0-9]+ | "(" expr ")"',
    accepted: ['1+(2+3)', '7'],
    rejected: ['1+', 'a', ''],
  },
  {
    name: 'GBNF with counts, comments, escapes and names with underscores',
    text: '# c\nroot ::= "a\\n"{1,2} [\\x41-\\x43\\]] my_rule # t\nmy_rule ::= . | my-rule\nmy-rule ::= [^a-z\\n]{2,}',
    accepted: ['a\nAx', 'a\na\n]😀', 'a\nBAAA'],
    rejected: ['aA', 'a\nA', 'a\nAaa'],
  },
  {
    name: 'rules over several lines',
    text: 'root ::= "a"\n  | "b"\n  other?\nother ::=\n  "c"',
    accepted: ['a', 'b', 'bc'],
    rejected: ['ac', 'c'],
  },
  {
    name: 'W3C',
    text: "/* c */ root ::= 'a' #x42? [^#x30-#x39]+ <a name>*\n<a name> ::= 'z'",
    accepted: ['aBx', 'ax'],
    rejected: ['a1', 'a'],
  },
  {
    name: 'ISO 14977, the first rule is the start',
    text: '(* sum *) expr = term, { "+", term } ; term = digit | "(", expr, ")" ; digit = 2 * "1" | "2" ; sign = [ "-" ] .',
    accepted: ['11+2', '(11+11)+2'],
    rejected: ['1+2', '11+'],
  },
  {
    name: 'repetitions that can be empty',
    text: 'root ::= (x y)* z{0,1000} "!"\nx ::= "a"?\ny ::= "b"*\nz ::= "c" | ""',
    accepted: ['!', 'abbac!', 'cc!', 'ba!'],
    rejected: ['', 'ca!'],
  },
];

const mistakes: readonly (readonly [string, RegExp])[] = [
  ['root ::= "a', /literal is not closed \(line 1, column 10\)/],
  ['root ::= "a"\n  | [a', /class is not closed \(line 2, column 5\)/],
  ['root ::= "a" (', /ends too early|'\)' is missing/],
  ['root ::= ("a"', /'\)' is missing \(line 1, column 10\)/],
  ['root ::= ]', /no grammar has here \(line 1, column 10\)/],
  ['root ::= a\nb ::= "b"', /not defined \(line 1, column 10\)/],
  ['start ::= "a"', /the grammar has no rule 'root'/],
  ['', /the grammar has no rule 'root'/],
  ['root ::= root "a" | "b"', /begins with itself \(line 1, column 1\)/],
  ['root ::= a\na ::= b? a "x" | "y"\nb ::= "b"', /begins with itself \(line 2, column 1\)/],
  ['root ::= a "x"\na ::= "y" root', /never ends/],
  ['root ::= "a"\nroot ::= "b"', /defined twice \(line 2, column 1\)/],
  ['root ::= [z-a]', /end of a range is below its start \(line 1, column 10\)/],
  ['root ::= "\\q"', /escape that does not exist/],
  ['root ::= "a"{3,1}', /is below its start/],
  ['root ::= "a" - "b"', /exception, is not supported \(line 1, column 14\)/],
  ['a = ? anything ? ;', /special sequence/],
  ['root ::= <think>', /not defined|not supported/],
  ['root ::= ([a-z]{1,50}){1,50}', /multiply to more than 400/],
  [`root ::= ${'"a"? '.repeat(65)}`, /more than 64 parts/],
  [`root ::= ${'('.repeat(200)}"a"${')'.repeat(200)}`, /nest deeper/],
  [`root ::= "${'a'.repeat(65_536)}"`, /longer than 65536/],
  [`root ::= "a"\n${Array.from({ length: 1001 }, (_, i) => `r${i} ::= "b"`).join('\n')}`, /more than 1000 rules/],
];

describe('EBNF', () => {
  let judge: GrammarJudge;
  before(async () => (judge = await openGrammarJudge()));
  after(() => judge.dispose());

  for (const { name, text, accepted, rejected } of dialects) {
    it(`${name}`, async () => {
      const grammar = ebnfGrammar(text, 'ebnf');
      const all = [...accepted, ...rejected];
      const expected = all.map((_, index) => index < accepted.length);
      assert.deepEqual(await judge.accepts(printGbnf(grammar), all), expected);
      assert.deepEqual(
        all.map((each) => matches(grammar, each)),
        expected,
      );
    });
  }

  for (const [text, message] of mistakes) {
    it(`contracts decision 13: ${JSON.stringify(text.slice(0, 40))} is refused with its place`, () => {
      const found = refusal(() => ebnfGrammar(text, 'ebnf'), 'unsupported_value', 'ebnf');
      assert.match(found, message);
      assert.match(found, /\(line \d+, column \d+\)/);
    });
  }

  it('a count beyond what llama.cpp takes is built of smaller ones, exactly', async () => {
    const gbnf = printGbnf(ebnfGrammar('root ::= [a-z]{3,2600} "."', 'ebnf'));
    const lengths = [2, 3, 499, 500, 501, 2500, 2503, 2599, 2600, 2601];
    const answers = await judge.accepts(
      gbnf,
      lengths.map((length) => `${'a'.repeat(length)}.`),
    );
    assert.deepEqual(
      lengths.filter((_, index) => answers[index]),
      [3, 499, 500, 501, 2500, 2503, 2599, 2600],
    );
  });
});
