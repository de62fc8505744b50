import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { ebnfGrammar } from '../../../src/inference/constraints/ebnf.ts';
import { printGbnf } from '../../../src/inference/constraints/grammar.ts';
import { matches } from './matcher.ts';
import { refusal } from './refusal.ts';

const lines = (count: number, line: (index: number) => string): string =>
  Array.from({ length: count }, (_, i) => line(i)).join('\n');
/** Rules of which each names the next. */
const chain = (rules: number): string =>
  `root ::= r0\n${lines(rules - 2, (i) => `r${i} ::= "a"? r${i + 1}`)}\nr${rules - 2} ::= "b"`;
const groups = (depth: number): string => `root ::= ${'('.repeat(depth)}"a"${')'.repeat(depth)}`;

const read: readonly (readonly [text: string, accepted: readonly string[], refused: readonly string[]])[] = [
  ['root ::= "\\n\\r\\t\\"\\\\\\]\\-"', ['\n\r\t"\\]-'], ['n']],
  ['root ::= "\\x41\\u00e9\\U0001F600"', ['Aé😀'], ['x41']],
  ["root ::= '\\x41' 'b'", ['Ab'], ['ab']],
  ['root ::= #x41 #x1F600 "#x42"', ['A😀#x42'], ['A😀B']],
  ['root ::= [#x41-#x43#x45]', ['A', 'B', 'C', 'E'], ['D', '#', 'x', '4']],
  ['root ::= [a-c-] [a\\-c] [^a-c] [\\]^] [-a]', ['b-d]-', '-ax^a', 'c-d]a'], ['b-b]-', 'bbd]-', 'd-d]-', 'b-daa']],
  ['root ::= [a-c]{2} [x]{2,} [y]{1,3} [z]{0}', ['abxxy', 'abxxxxyyy'], ['axxy', 'abxy', 'abxx', 'abxxyyyy', 'abxxyz']],
  ['root ::= "a"* "b"+ "c"? .', ['bx', 'aabbcx', 'b😀'], ['x', 'aax', 'b\n', 'b\r', 'b\u2028', 'bccx', 'b']],
  ['root ::= "a" | ("b" | "c") "d" |', ['a', 'bd', 'cd', ''], ['ad', 'b']],
  ['root ::= "a"{2}{3}', ['aaaaaa'], ['aaaaa', 'aaaaaaa']],
  ['root ::= "a"?+', ['', 'a', 'aa'], ['b']],
  ['root ::= a_b a-b <c d>\na_b ::= "1"\na-b ::= "2"\n<c d> ::= "3"\nunused ::= "4"', ['123'], ['12', '124']],
  ['# one\nroot ::= /* two */ "a" (* three\n *) "b" # four', ['ab'], ['a']],
  ['root ::=\n  "a"\n  b\nb ::= "b"', ['ab'], ['a']],
  ['root ::= "a" root | "b"', ['b', 'aab'], ['a', '']],
  ['root ::= "(" root ")" | ""', ['', '(())'], ['(', ')(']],
  ['a = "x", { "y" }, [ "z" ] ;', ['x', 'xyyz'], ['y', 'xzz']],
  ['a = 2 * \'x\' | "y" ; b = a .', ['xx', 'y'], ['x', 'xxx']],
  ['b = "1" ;\nroot = b, b ;', ['11'], ['1']],
  ['a := "x" "y"', ['xy'], ['x']],
  ['a = "\\n" ;;', ['\\n'], ['\n']],
  ['a = "x" (* "y" *) /* z */ "w" ;', ['xw'], ['xyw']],
  ['a = ( "x" | "y" ), 3 * ( "z" | "w" ) ;', ['xzwz', 'ywww'], ['xzz', 'zzz']],
  ['a = "x"+, "y"* ;', ['x', 'xxyy'], ['y', '']],
  // Parts that can be left out, and counts in counts, just within their bounds.
  [`root ::= ${'"a"? '.repeat(64)}"!"`, ['!', `${'a'.repeat(64)}!`], [`${'a'.repeat(65)}!`]],
  [`root ::= ${'"a"? '.repeat(40)}"!" ${'"a"? '.repeat(40)}`, ['!'], ['']],
  [`root ::= x x "!"\nx ::= ${'"a"? '.repeat(32)}`, ['!'], ['']],
  ['root ::= ("a"{1,20}){1,20}', ['a'], ['', 'a'.repeat(401)]],
  ['root ::= ("a"{1,50} ","){1,50}', ['a,', 'aa,a,'], ['a', ',']],
  ['root ::= (x ","){1,50}\nx ::= "a"{1,400}', ['a,'], ['a']],
  ['root ::= x{1,50}\nx ::= [a-z]{1,400} ","', ['a,'], ['a']],
  ['root ::= ([a-c] | "x"{2,3}){1,133} "."', ['a.', 'axx.'], ['.']],
  ['root ::= "a"{1,100000}', ['a'], ['']],
  [groups(99), ['a'], ['']],
  [chain(301), ['b', 'ab'], ['a']],
];

const at = (problem: string, line: number, column: number): string =>
  `'ebnf': ${problem} (line ${line}, column ${column}).`;
const refused: readonly (readonly [text: string, message: string])[] = [
  ['', at("the grammar has no rule 'root'", 1, 1)],
  ['a ::= "x"', at("the grammar has no rule 'root'", 1, 1)],
  ['root ::= "\ud800"', at('the grammar has an unpaired surrogate', 1, 1)],
  ['root ::= "a" b\n\n  c ::= "c"', at('this rule is not defined', 1, 14)],
  ['root ::= "a"\nb ::= "b" c', at('this rule is not defined', 2, 11)],
  ['root ::= "a"\n  root ::= "b"', at('this rule is defined twice', 2, 3)],
  ['"a"', at('a rule is expected', 1, 1)],
  ['root ::= "a"\n)', at('a rule is expected', 2, 1)],
  ['root', at("'=' is expected", 1, 5)],
  ['root ::= "a" |\nx ::= "b" "c" ::= ', at("'::=' is not expected here", 2, 15)],
  ['root ::= "a"\n  (', at("')' is missing", 2, 3)],
  ['root ::= ("a" | "b"', at("')' is missing", 1, 10)],
  ['a = [ "b" ;', at("']' is missing", 1, 5)],
  ['a = { "b" )', at("'}' is missing", 1, 5)],
  ['root ::= * "a"', at("'*' is not expected here", 1, 10)],
  ['root ::= {2}', at('a count has nothing to repeat', 1, 10)],
  ['root ::= "a"{3,2}', at('the end of a count is below its start', 1, 13)],
  ['root ::= "a"\n[c-a]', at('the end of a range is below its start', 2, 1)],
  ['root ::= [^\\U00000000-\\uD7FF\\uE000-\\U0010FFFF]', at('a class that no character matches', 1, 10)],
  ['root ::= []', at('a class that no character matches', 1, 10)],
  ['root ::= "\\q"', at('an escape that does not exist', 1, 10)],
  ['root ::= [\\ud800]', at('an escape that does not exist', 1, 10)],
  ['root ::= "\\U00110000"', at('an escape that does not exist', 1, 10)],
  ['root ::= #xD800', at('a number that is not a character', 1, 10)],
  ['root ::= #x110000', at('a number that is not a character', 1, 10)],
  ['a = 3 "x" ;', at("'*' is expected after a number", 1, 7)],
  ['a = "x" + ? ;', at("'?', a special sequence, is not supported", 1, 11)],
  ['root ::= "a\nb"', at('a literal is not closed', 1, 10)],
  ["root ::= 'a", at('a literal is not closed', 1, 10)],
  ['root ::= [a\nb]', at('a class is not closed', 1, 10)],
  ['root ::= /* a', at('a comment is not closed', 1, 10)],
  ['a = /* a', at('a comment is not closed', 1, 5)],
  ['root ::= "a" - "b"', at("'-', an exception, is not supported", 1, 14)],
  ['root ::= "a" {x}', at("'{' without a count like {2,5}", 1, 14)],
  ['root ::= <[12]>', at('tokens by name or id are not supported', 1, 10)],
  ['root ::= !"a"', at('tokens by name or id are not supported', 1, 10)],
  ['root ::= "a" ~', at('this character is not expected here', 1, 14)],
  // Rules that lead nowhere or too far.
  ['root ::= b\nb ::= c? b', at('this rule is not defined', 2, 7)],
  ['root ::= b\nb ::= "c"? b "d" | "e"', at('this rule begins with itself', 2, 1)],
  ['root ::= x* root "a" | "b"\nx ::= "c"', at('this rule begins with itself', 1, 1)],
  ['root ::= "a" b\nb ::= ("" | "c") d\nd ::= b', at('this rule begins with itself', 2, 1)],
  ['root ::= "a" b\nb ::= "c" b', at('this rule never ends', 1, 1)],
  ['root ::= "a" | "d" b\nb ::= "c" b', at('this rule never ends', 2, 1)],
  [`root ::= ${'"a"? '.repeat(65)}"!"`, at('more than 64 parts in a row can be left out in this rule', 1, 1)],
  [
    `root ::= "!"\n  x x\nx ::= ${'"a"* '.repeat(33)}`,
    at('more than 64 parts in a row can be left out in this rule', 1, 1),
  ],
  [
    `root ::= "!" x\nx ::= "b" | "c" (${'"a"* '.repeat(65)}){2}`,
    at('more than 64 parts in a row can be left out in this rule', 1, 1),
  ],
  ['root ::= ("a"{1,21}){1,20}', at('counts inside each other multiply to more than 400 in this rule', 1, 1)],
  [
    'root ::= "x" y\ny ::= (z | "b"){1,2}\nz ::= "a"{1,201}',
    at('counts inside each other multiply to more than 400 in this rule', 1, 1),
  ],
  ['root ::= ("a"{1,50} "aa"){1,50}', at('counts inside each other multiply to more than 400 in this rule', 1, 1)],
  ['root ::= ([a,]{1,50} ","){1,50}', at('counts inside each other multiply to more than 400 in this rule', 1, 1)],
  [
    'root ::= (("," | "a"){1,50} ","){1,50}',
    at('counts inside each other multiply to more than 400 in this rule', 1, 1),
  ],
  [
    'root ::= (x{1,50} ","){1,50}\nx ::= "a" | ","',
    at('counts inside each other multiply to more than 400 in this rule', 1, 1),
  ],
  [groups(100), at('groups nest deeper than 100', 1, 110)],
  [chain(302), at('more than 300 rules name each other in a chain', 302, 1)],
  [`root ::= "a"\n${lines(1_000, (i) => `r${i} ::= "b"`)}`, at('the grammar has more than 1000 rules', 1, 1)],
  [`root ::= "${'a'.repeat(65_526)}"`, at('the grammar is longer than 65536 characters', 1, 1)],
];

describe('a grammar', () => {
  for (const [text, accepted, others] of read) {
    it(`${JSON.stringify(text.slice(0, 70))} is read`, () => {
      const grammar = ebnfGrammar(text, 'ebnf');
      assert.deepEqual(
        [...accepted, ...others].map((each) => matches(grammar, each)),
        [...accepted.map(() => true), ...others.map(() => false)],
      );
    });
  }

  it('of 1,000 rules and 65,536 characters is read', () => {
    ebnfGrammar(`root ::= "a"\n${lines(999, (i) => `r${i} ::= "b"`)}`, 'ebnf');
    ebnfGrammar(`root ::= "${'a'.repeat(65_525)}"`, 'ebnf');
  });

  for (const [text, message] of refused) {
    it(`${JSON.stringify(text.slice(0, 70))} is refused`, () => {
      assert.equal(
        refusal(() => ebnfGrammar(text, 'ebnf'), 'unsupported_value', 'ebnf'),
        message,
      );
    });
  }

  it('has names that every engine takes, each rule another one', () => {
    const text = 'root ::= a_b a-b <a b> b_ start\na_b ::= "1"\na-b ::= "2"\n<a b> ::= "3"\nb_ ::= "4"\nstart ::= "5"';
    const grammar = ebnfGrammar(text, 'ebnf');
    assert.deepEqual([...grammar.rules.keys()], ['root', 'a-b', 'a-b-2', 'a-b-3', 'b-', 'start']);
    assert.equal(printGbnf(grammar).split('\n')[0], 'root ::= a-b a-b-2 a-b-3 b- start');
    const iso = ebnfGrammar('first = root2 ; root2 = "x" ;', 'ebnf');
    assert.deepEqual([...iso.rules.keys()], ['root', 'root2']);
  });
});
