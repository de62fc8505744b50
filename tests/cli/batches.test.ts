/** Batches from the command line, at a service elsewhere. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { runCommandLine } from '../../src/cli/command-line.ts';
import { chatLine, jsonl } from '../support/batch-client.ts';
import { InnerService, noFeatures, scriptedModel } from '../support/service.ts';
import { CommandFolder, jsonOf } from './command.ts';

const service = new InnerService({
  config: scriptedModel(
    `- { when: { last_text: slow }, say: [{ text: ["word "] }], repeat: 2000, pace_ms: 50 }
- { say: [{ text: "one two three" }] }`,
    { settings: noFeatures },
  ),
});
const folder = new CommandFolder();
before(() => service.start());
after(async () => {
  await service.verify();
  await service.dispose();
  folder.dispose();
});

const at = (): readonly string[] => ['--url', service.url, '--key', service.key];
const run = (...args: string[]) => folder.run('batches', ...args, ...at());

test('a file is uploaded, followed, shown and downloaded', async () => {
  folder.write('requests.jsonl', jsonl([chatLine('a', 'x'), chatLine('b', 'x', { max_tokens: 1 })]));
  const made = await run('create', 'requests.jsonl', '--wait');
  assert.equal(made.code, 0, made.stderr);
  const [, id] = /^(batch_[0-9a-f]{32}) +completed\n/.exec(made.stdout) ?? [];
  assert.ok(id, made.stdout);
  assert.match(made.stdout, /^lines .* 2: 2 answered, 0 without an answer$/m);
  assert.match(made.stderr, /completed 2 of 2/);
  assert.match((await run('list')).stdout, new RegExp(`^${id} .* completed +2 +0 +2 +/v1/chat/completions demo$`, 'm'));
  assert.equal((jsonOf(await run('show', id, '--json')) as { readonly id: string }).id, id);
  const lines = (await run('download', id)).stdout.trimEnd().split('\n');
  assert.deepEqual(
    lines.map((line) => (JSON.parse(line) as { readonly custom_id: string }).custom_id),
    ['a', 'b'],
  );
  assert.equal((await run('download', id, '-o', 'out.jsonl')).code, 0);
  assert.equal(readFileSync(join(folder.path, 'out.jsonl'), 'utf8'), `${lines.join('\n')}\n`);
  const none = await run('download', id, '--errors');
  assert.deepEqual([none.code, none.stdout], [1, '']);
  assert.match(none.stderr, /no lines without an answer/);
});

test('a batch of messages is shown, cancelled and downloaded like those of files', async () => {
  const params = { model: 'demo', max_tokens: 5, messages: [{ role: 'user', content: 'slow' }] };
  const answer = await fetch(`${service.url}/v1/messages/batches`, {
    method: 'POST',
    headers: { 'x-api-key': service.key },
    body: JSON.stringify({ requests: [{ custom_id: 'a', params }] }),
  });
  const { id } = (await answer.json()) as { readonly id: string };
  assert.match((await run('download', id)).stderr, /it is not over: in_progress/);
  assert.equal((await run('cancel', id)).code, 0);
  // On a terminal it is one line that is drawn again.
  let drawn = '';
  const stderr = { isTTY: true, columns: 120, write: (text: string) => (drawn += text) };
  const stdout = { write: () => true };
  const around = { directory: folder.path, stdout, stderr } as unknown as Parameters<typeof runCommandLine>[1];
  assert.equal(await runCommandLine(['batches', 'show', '--wait', id, ...at()], around), 0);
  assert.match(drawn, /\r.*▕█{20}▏ ended 1 of 1, 1 failed.*\n$/);
  assert.equal((await run('download', id)).stdout, '{"custom_id":"a","result":{"type":"canceled"}}\n');
  assert.match((await run('list')).stdout, new RegExp(`^${id} .* ended +0 +1 +1 +/v1/messages$`, 'm'));
});

test('what is wrong is said: a file of something else, faults of lines, no key, no such batch', async () => {
  folder.write('letter.txt', 'Dear reader\n');
  const letter = await run('create', 'letter.txt');
  assert.deepEqual([letter.code, letter.stdout], [64, '']);
  assert.match(letter.stderr, /letter\.txt is no file of a batch/);
  folder.write('wrong.jsonl', jsonl([chatLine('a', 'x'), chatLine('b', 'x', { model: 'none' })]));
  const wrong = await run('create', 'wrong.jsonl', '--wait');
  assert.equal(wrong.code, 1);
  assert.match(wrong.stdout, /^line 2, body\.model: /m);
  assert.match((await run('show', 'batch_none')).stderr, /http_404/);
  const keyless = await folder.run('batches', 'list', '--url', service.url);
  assert.match(keyless.stderr, /There is no API key/);
  assert.notEqual((await folder.run('batches', 'create', 'missing.jsonl', ...at())).code, 0);
});
