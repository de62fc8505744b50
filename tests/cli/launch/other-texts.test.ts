import assert from 'node:assert/strict';
import { describe, test } from 'node:test';

import { diffLines } from '../../../src/platform/diff.ts';
import { withTomlValues } from '../../../src/cli/launch/toml-text.ts';
import { readYamlText, withYamlItem } from '../../../src/cli/launch/yaml-text.ts';

describe('a change in the text of TOML', () => {
  const changes = [
    { table: [], values: { model: 'm"1' } },
    { table: ['p', 't'], values: { url: 'u', key: 'k' } },
  ];
  const table = '[p.t]\nurl = "u"\nkey = "k"\n';
  for (const [name, before, after] of [
    ['an empty file', '', `model = "m\\"1"\n\n${table}`],
    [
      'a table first',
      '# about\n\n# of a\n[a]\nx = 1\n',
      `# about\n\nmodel = "m\\"1"\n\n# of a\n[a]\nx = 1\n\n${table}`,
    ],
    [
      'a value that is there, with a comment',
      "model = 'old' # why\ny = 2\n",
      `model = "m\\"1" # why\ny = 2\n\n${table}`,
    ],
    [
      'a table that is there',
      'model = "a"\n[ p . "t" ] # mine\nother = 3\nurl = """\n[x]\nkey = 1\n"""\n\n[z]\n',
      'model = "m\\"1"\n[ p . "t" ] # mine\nother = 3\nurl = "u"\nkey = "k"\n\n[z]\n',
    ],
    [
      'values of many lines, and brackets in texts',
      'a = [ # [\n  "]", \'[\',\n]\nb = { c = "}" }\n',
      `a = [ # [\n  "]", '[',\n]\nb = { c = "}" }\nmodel = "m\\"1"\n\n${table}`,
    ],
    [
      'lines that end with CR LF',
      'x = 1\r\n[q]\r\n',
      `x = 1\r\nmodel = "m\\"1"\r\n[q]\r\n\r\n${table.replaceAll('\n', '\r\n')}`,
    ],
    ['no end of the last line', 'x = 1', `x = 1\nmodel = "m\\"1"\n\n${table}`],
  ] as const)
    test(name, () => {
      assert.equal(withTomlValues(before, changes), after);
      assert.equal(withTomlValues(after, changes), after, 'again changes nothing more');
    });

  for (const [text, message] of [
    ['p = { t = 1 }\n', /line 1, column 1: p\.t is written in a form/],
    ['[p]\nt = {}\n', /line 2/],
    ['p.t.url = "x"\n', /p\.t is written in a form/],
    ['[[p]]\n', /p\.t is written in a form/],
    ['x = "a\n', /a string has no end/],
    ['x = [1\n', /expected a value/],
    ['x 1\n', /expected =/],
    ['[x\n', /expected \]/],
    ['x = 1 y = 2\n[x]]\n', /./],
  ] as const)
    test(`refuses ${JSON.stringify(text)}`, () => assert.throws(() => withTomlValues(text, changes), message));
});

describe('a change in the text of YAML', () => {
  const item = { name: 'T', key: 'k', roles: ['chat'] };
  const inserted = (indent: string): string =>
    ['- name: T', '  key: k', '  roles:', '    - chat', ''].join(`\n${indent}`).replace(/\n\s*$/, '\n');
  for (const [name, before, after] of [
    ['an empty file', '', `models:\n  ${inserted('  ')}`],
    ['other values', '# mine\nname: a   # b\n', `# mine\nname: a   # b\nmodels:\n  ${inserted('  ')}`],
    [
      'a list with comments, which is not indented',
      'models:\n- name: A # first\n  x:   1\n# end\nrules: []\n',
      `models:\n- name: A # first\n  x:   1\n${inserted('')}# end\nrules: []\n`,
    ],
    [
      'an item that is there',
      'models:\n    - name: T\n      key:   old\n    # of B\n    - name: B\n',
      `models:\n    ${inserted('    ')}    # of B\n    - name: B\n`,
    ],
  ] as const)
    test(name, () => {
      assert.equal(withYamlItem(before, ['models'], item), after);
      assert.equal(withYamlItem(after, ['models'], item), after, 'again changes nothing more');
    });

  for (const [name, before] of [
    ['a list in brackets', 'a: 1 # one\nmodels: [{ name: A }] # all\n'],
    ['an empty list', 'models: [] # none\na: 1\n'],
    ['a list below something that is there', '# about\nmodels:\n  other: 1 # one\n'],
  ] as const)
    test(`${name}: comments stay`, () => {
      const path = name.startsWith('a list below') ? ['models', 'custom'] : ['models'];
      const after = withYamlItem(before, path, item);
      for (const [comment] of before.matchAll(/#.*/g)) assert.ok(after.includes(comment), after);
      const list = path.reduce<unknown>((value, key) => (value as Record<string, unknown>)[key], readYamlText(after));
      assert.deepEqual((list as unknown[]).at(-1), item);
    });

  for (const text of ['a: [1\n', '- 1\n', 'a: 1\na: 2\n'])
    test(`refuses ${JSON.stringify(text)}`, () =>
      assert.throws(() => withYamlItem(text, ['models'], item), /^TextProblem|line \d/));
});

test('a difference shows what goes and what comes, with three lines around it', () => {
  const before = Array.from({ length: 20 }, (_, index) => `line ${index}`);
  const after = before.with(10, 'other').toSpliced(19, 0, 'new');
  assert.deepEqual(diffLines(`${before.join('\n')}\n`, `${after.join('\n')}\n`), [
    '@@ line 8 @@',
    ...[' line 7', ' line 8', ' line 9', '-line 10', '+other', ' line 11', ' line 12', ' line 13'],
    '@@ line 17 @@',
    ...[' line 16', ' line 17', ' line 18', '+new', ' line 19'],
  ]);
  assert.deepEqual(diffLines('', 'a\n'), ['@@ line 1 @@', '+a']);
  assert.deepEqual(diffLines('a\n', 'a\n'), []);
});
