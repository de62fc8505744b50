import assert from 'node:assert/strict';
import { test } from 'node:test';

import { lineInWords } from '../../src/cli/log-output.ts';
import { printer, table, tableLines } from '../../src/cli/output.ts';

const [accounts] = table(
  ['id', 'name', 'balance'],
  [
    ['acct_1', 'Example Ltd of a long street', '$5.00'],
    ['acct_2', null, '$1,250.00'],
  ],
);

test('a table has columns where they fit, and on a narrower terminal no line is broken in a word', () => {
  const wide = [
    'id      name                            balance',
    'acct_1  Example Ltd of a long street      $5.00',
    'acct_2  –                             $1,250.00',
  ];
  for (const columns of [undefined, 47, 200]) assert.deepEqual(tableLines(accounts, columns), wide);
  assert.deepEqual(tableLines(accounts, 46), [
    'id       acct_1',
    'name     Example Ltd of a long street',
    'balance  $5.00',
    '',
    'id       acct_2',
    'name     –',
    'balance  $1,250.00',
  ]);
});

test('a line of the log in words has its facts in their order, and nothing that a terminal would obey', () => {
  for (const [record, words] of [
    [{ event: 'started', level: 'info', workers: 2, config: null }, 'started workers=2'],
    [{ level: 'warn', event: 'backend_failed', model: 'a b' }, 'warn backend_failed model="a b"'],
    [{ event: 'answer', text: '\u001b[31mred', empty: '' }, 'answer text="\\u001b[31mred" empty=""'],
    [{ event: 'answer', list: ['a', 1] }, 'answer list="[\\"a\\",1]"'],
  ] as const)
    assert.equal(lineInWords(JSON.stringify({ time: '2027-01-02T03:04:05.678Z', ...record })), `03:04:05 ${words}`);
  assert.equal(lineInWords('not JSON'), 'not JSON');
});

test('what customers and servers have chosen moves no cursor and turns no line, in tables, lines, messages and JSON', () => {
  // Clears the screen in both sets of controls, sets the title, rings, overwrites the line, turns it, and is an 8-bit terminator.
  const hostile = '\u001b[2J\u009b2J\u001b]0;owned\u0007\rfree\u202Etxt\u2066iso\u009c\u007f';
  const shown: string[] = [];
  const stream = { write: (text: string) => void shown.push(text) } as unknown as NodeJS.WritableStream;
  for (const json of [false, true]) {
    const print = printer(json, { stdout: stream, stderr: stream });
    print.result({ name: hostile }, [hostile, ...table(['name', 'tag'], [[hostile, hostile]])]);
    print.say(hostile);
    shown.push(lineInWords(JSON.stringify({ time: '', event: 'answer', text: hostile, list: [hostile] })));
  }
  for (const text of shown)
    assert.doesNotMatch(text, /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/);
  assert.equal(JSON.parse(shown.find((text) => text.startsWith('{'))!).name, hostile, 'JSON says all of it');
  const [head, row] = shown[0]!.split('\n').slice(1);
  assert.equal(head!.indexOf('tag'), row!.lastIndexOf('[2J2J'), 'the columns stay below their heads');
});
