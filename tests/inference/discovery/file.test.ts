/** A file with a list of servers: what it may say, and how it is followed. */
import assert from 'node:assert/strict';
import { mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';

import { watchFile } from '../../../src/config/watch.ts';
import { openFile, serversIn } from '../../../src/inference/discovery/file.ts';
import { eventually } from '../../support/upstream.ts';
import { Reports } from './reader.ts';

test('a list of URLs in YAML or JSON, with weight and rank where they differ', () => {
  assert.deepEqual(serversIn('- http://10.0.0.1:8000/v1/\n- { url: "HTTPS://GPU.test/v1", weight: 2, rank: 3 }\n'), [
    { url: 'http://10.0.0.1:8000/v1' },
    { url: 'https://gpu.test/v1', weight: 2, rank: 3 },
  ]);
  assert.deepEqual(serversIn('["http://[fd00::1]:8000/v1"]'), [{ url: 'http://[fd00::1]:8000/v1' }]);
  assert.deepEqual(serversIn('[]'), []);
});

const wrong: readonly (readonly [string, RegExp])[] = [
  ['', /is empty; write \[\]/],
  ['# nothing yet\n', /is empty/],
  ['- http://10.0.0.1:8000/v1\n- http:/', /entry 2: it is not a URL/],
  ['["http://10.0.0.1:8000/v1", "http', /not valid YAML or JSON at line 1/],
  ['["http://10.0.0.1:8000/v1", ', /not valid YAML or JSON at line 1/],
  ['backends: [http://10.0.0.1/v1]', /not a list/],
  ['- 7', /entry 1 is neither/],
  ['- { url: http://10.0.0.1/v1, api_key: x }', /entry 1 has more than/],
  ['- { url: http://10.0.0.1/v1, weight: 0 }', /weight must be/],
  ['- { url: http://10.0.0.1/v1, rank: 1.5 }', /rank must be/],
  ['- &a http://10.0.0.1/v1\n- *a', /not valid YAML or JSON/],
  ...[
    'ftp://10.0.0.1/v1',
    'http://user:pass@10.0.0.1/v1',
    'http://10.0.0.1/v1?key=1',
    'http://10.0.0.1/v1#x',
    'http://0.0.0.0/v1',
    'http://169.254.169.254/v1',
    'http://2852039166/v1',
    'http://[fe80::1]/v1',
    'http://[::ffff:169.254.169.254]/v1',
    'http://exam ple/v1',
    'http://ex\u0000ample/v1',
    'http://bad!name/v1',
    `http://${'a'.repeat(64)}.test/v1`,
    `http://a.test/${'a'.repeat(2_000)}`,
    'file:///etc/passwd',
    'javascript:alert(1)',
  ].map((url) => [JSON.stringify([url]), /entry 1: (it|no server)/] as const),
];
for (const [text, words] of wrong)
  test(`a file is refused as a whole: ${JSON.stringify(text).slice(0, 60)}`, () => {
    assert.throws(() => serversIn(text), words);
  });

test('it is followed when it is written in place and when it is replaced; what is wrong or missing changes nothing', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'tokenhouse-file-'));
  const path = join(folder, 'backends.yaml');
  const reports = new Reports();
  const source = openFile({ by: 'file', path, maxBackends: 10, warmUp: true }, reports, { watch: watchFile });
  t.after(() => {
    source.close();
    rmSync(folder, { recursive: true });
  });
  await eventually('it is missed', () => reports.problems.length === 1);
  assert.match(reports.problems[0]!, /ENOENT/);
  writeFileSync(path, '- http://10.0.0.1/v1\n');
  await eventually('it is there', () => reports.urls.length === 1);
  writeFileSync(`${path}.new`, '- http://10.0.0.1/v1\n- http://10.0.0.2/v1\n');
  renameSync(`${path}.new`, path);
  await eventually('it is replaced', () => reports.urls.length === 2);
  writeFileSync(path, '["http://10.0.0.1/v1", "http://10.0.0.3/v1", "ht');
  await eventually('half of it', () => reports.problems.length === 2);
  assert.equal(reports.urls.length, 2);
  writeFileSync(path, '["http://10.0.0.1/v1", "http://10.0.0.3/v1"]');
  await eventually('all of it', () => reports.urls.includes('http://10.0.0.3/v1'));
  rmSync(path);
  await eventually('it is gone', () => reports.problems.length === 3);
  writeFileSync(path, Buffer.from([0xff, 0xfe, 0x2d]));
  await eventually('no text', () => reports.problems.length === 4);
  assert.match(reports.problems[3]!, /not UTF-8/);
  writeFileSync(path, '[]');
  await eventually('none', () => reports.lists.at(-1)!.length === 0);
});
