import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';

import { mainFile } from '../support/built.ts';
import { noFeatures, scriptedModel, TestService } from '../support/service.ts';
import { temporaryFolder } from '../support/folder.ts';

const options = { skip: process.platform === 'linux' ? false : 'the limit of a process is in /proc' };

test('with 64 files to open, a service says so and nothing else', options, (t) => {
  for (const limit of [40, 64, 255]) {
    const command = `ulimit -n ${limit} && exec "$0" "$1" serve`;
    const { status, stderr, stdout } = spawnSync('sh', ['-c', command, process.execPath, mainFile], {
      cwd: temporaryFolder(t),
      encoding: 'utf8',
      timeout: 60_000,
    });
    assert.equal(status, 69, stderr);
    assert.equal(stdout, '');
    const lines = stderr.trimEnd().split('\n');
    assert.equal(lines.length, 3, stderr);
    assert.match(lines[0]!, new RegExp(`^This process may open ${limit} files and connections at once`));
  }
});

test('with a few hundred it starts, answers, and has said so in one line', options, async (t) => {
  const service = new TestService({
    config: scriptedModel('- { say: [{ text: "one" }] }', { settings: noFeatures }),
    within: ['prlimit', '--nofile=256:256'],
  });
  t.after(() => service.dispose());
  await service.start();
  const asked = await service.chat({ model: 'demo', messages: [{ role: 'user', content: 'hi' }] });
  assert.equal(asked.status, 200);
  assert.equal(service.output.match(/^note +256 files and connections may be open at once/gm)?.length, 1);
});
