/** The colours of code in answers: the text stays what it was, a text that grows is not read again, and no text takes long. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';

import fc from 'fast-check';

import {
  colouredCharactersMax,
  highlight,
  languageOf,
  languages,
  noCode,
  pieceCharactersMax,
} from '../../web/src/pages/playground/highlight.ts';
import type { Highlighted, Look } from '../../web/src/pages/playground/highlight.ts';

const runsOf = ({ pieces }: Highlighted) => pieces.flatMap(({ runs }) => runs);
const textOf = (read: Highlighted): string =>
  runsOf(read)
    .map(({ text }) => text)
    .join('');
/** Of the run in which this text stands. */
const lookOf = (read: Highlighted, part: string): Look | undefined =>
  runsOf(read).find(({ text }) => text.includes(part))?.look;

test('a language by the name that a block gives it; one that is not known has no colours', () => {
  for (const [info, language] of [
    ['python', 'python'],
    ['PY title="a.py"', 'py'],
    [' c++ ', 'c++'],
    ['c#', 'c#'],
    ['html', 'html'],
    ['toml', 'toml'],
    ['console', 'console'],
    ['mermaid', undefined],
    ['constructor', undefined],
    ['__proto__', undefined],
    ['{.python}', undefined],
    ['', undefined],
    [undefined, undefined],
  ] as const)
    assert.equal(languageOf(info), language, info);
});

test('what is what', () => {
  const python = highlight('# why\ndef add(a):\n    return f"sum {a}" + 1\n', 'python');
  for (const [part, look] of [
    ['why', 'comment'],
    ['def', 'keyword'],
    ['add', 'title'],
    ['sum', 'string'],
    ['{a}', undefined],
    ['1', 'number'],
  ] as const)
    assert.equal(lookOf(python, part), look, part);
  const others: readonly (readonly [string, string, string, Look])[] = [
    ['json', '{"a": true}', '"a"', 'name'],
    ['diff', '+ new\n- old', '- old', 'removed'],
    ['xml', '<b class="c">&amp; \'d\'</b>', 'class', 'name'],
    ['sql', 'select 1', 'select', 'keyword'],
  ];
  for (const [language, text, part, look] of others) {
    const read = highlight(text, language);
    assert.equal(textOf(read), text);
    assert.equal(lookOf(read, part), look, language);
  }
});

describe('a long text', () => {
  test('has the colour of what began in an earlier piece', () => {
    const lines = 'this is if not "text" 12 of it\n'.repeat(Math.ceil((5 * pieceCharactersMax) / 30));
    for (const [language, text, look, lookOfTwo] of [
      ['javascript', `let a = 1;\n/* ${lines}*/\nlet z = 2;\n`, 'comment', 'number'],
      ['python', `a = """${lines}"""\nz = 2\n`, 'string', 'number'],
      ['xml', `<a>\n<!-- ${lines}-->\n<z b="2"/>\n`, 'comment', 'string'],
    ] as const) {
      const read = highlight(text, language);
      assert.ok(read.pieces.length > 5, `${read.pieces.length}`);
      assert.equal(textOf(read), text);
      for (const run of runsOf(read).filter(({ text: own }) => own.includes('this is')))
        assert.equal(run.look, look, `${language}: ${run.text}`);
      const two = runsOf(read).findLast(({ text: own }) => own.includes('2'));
      assert.equal(two?.look, lookOfTwo, `${language}: what comes after it`);
    }
  });

  test('is cut between two lines, and within no character', () => {
    const { pieces } = highlight('let word = 12;\n'.repeat(300), 'typescript');
    assert.ok(pieces.length > 4);
    for (const { runs, length } of pieces) {
      assert.match(runs.map(({ text }) => text).join(''), /\n$/);
      assert.ok(length > pieceCharactersMax / 2 && length <= pieceCharactersMax, `${length}`);
    }
    for (const start of ['', 'a'])
      for (const { text } of runsOf(highlight(start + '\u{1F600}'.repeat(2000), 'json')))
        assert.doesNotMatch(text, /^[\uDC00-\uDFFF]|[\uD800-\uDBFF]$/);
  });

  test('is plain from where it is too long', () => {
    const read = highlight('if (a) b();\n'.repeat(colouredCharactersMax / 10), 'c');
    assert.equal(textOf(read), read.text);
    assert.deepEqual(
      read.pieces.at(-1)!.runs.map(({ look }) => look),
      [undefined],
    );
    assert.ok(read.pieces.at(-1)!.length > colouredCharactersMax / 10);
  });
});

/** What code is made of, and what it is not, in any order. */
const parts = fc.constantFrom(
  ...['let ', 'def f(', 'class A ', '"', "'", '`', '${', '}', '{', '/*', '*/', '//', '#', '\n', '\n\n', '    ', '"""'],
  ...[
    '<a b="',
    '</a>',
    '<!--',
    '-->',
    '<script>',
    '&amp;',
    '&',
    '12',
    '0x',
    'word',
    ': ',
    '- ',
    '@',
    '\\',
    '\u{1F600}',
  ],
  ...['\r\n', '\u2028', '<?php ', '?>', '<<EOF\n', 'x'.repeat(300), 'if (a) {\n  b();\n}\n'.repeat(20)],
);
const names = fc.constantFrom(...Object.keys(languages));

test('a text that grows is read as the whole one, and no piece but the last is read again', () => {
  fc.assert(
    fc.property(names, fc.array(fc.array(parts, { maxLength: 20 }), { maxLength: 8 }), (language, groups) => {
      let text = '';
      let read = noCode;
      for (const group of groups) {
        text += group.join('');
        const before = read;
        read = highlight(text, language, before);
        assert.equal(textOf(read), text);
        assert.deepEqual(read, highlight(text, language));
        for (const [at, piece] of before.pieces.slice(0, -1).entries())
          assert.equal(read.pieces[at], piece, 'the same object');
      }
    }),
    { numRuns: 150 },
  );
});

test('no text takes long, though the time of grammars grows with the square of the length', () => {
  const dearest: readonly (readonly [string, string])[] = [
    ['java', '$a'],
    ['ini', '--'],
    ['csharp', 'async '],
    ['markdown', '['],
    ['python', '\n'],
    ...Object.keys(languages).map((language) => [language, 'a'] as const),
  ];
  for (const [language, part] of dearest) {
    const text = part.repeat(colouredCharactersMax).slice(0, colouredCharactersMax);
    const before = process.cpuUsage();
    const read = highlight(text, language);
    const { user } = process.cpuUsage(before);
    // A second on a slow machine; without pieces, a minute for the dearest.
    assert.ok(user < 10_000_000, `${language}, ${JSON.stringify(part)}: ${user} µs`);
    assert.equal(textOf(read), text);
  }
});
