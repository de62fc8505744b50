/**
 * `tokenhouse launch` with the real clients: each is installed from the npm registry, reads what was written for it, gets a streamed
 * answer that its own key is charged for, and shows the error of a key that was revoked. Their homes are empty folders.
 */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { after, before, test } from 'node:test';

import type { ClientName } from '../../../src/cli/launch/clients.ts';
import { temporaryFolder } from '../../store/fixture.ts';
import { runProcess } from '../../support/command.ts';
import { scriptedModel, TestService } from '../../support/service.ts';

const service = new TestService({
  config: scriptedModel(
    `- { when: { last_role: tool }, say: [ { text: "The file was read." } ] }
- { when: { last_text: "in said.txt" }, say: [ { tool_call: { name: Read, arguments: { filepath: said.txt } } } ] }
- say: [ { text: "The answer of the service." } ]`,
    { contextLength: 200_000 },
  ),
});
before(() => service.start());
after(() => service.dispose());

/** One question, and the answer on standard output. */
const questions: Readonly<Partial<Record<ClientName, readonly string[]>>> = {
  claude: ['claude', '--print', 'What is the answer?'],
  codex: ['codex', 'exec', '--skip-git-repo-check', 'What is the answer?'],
  opencode: ['opencode', 'run', 'What is the answer?'],
  cline: ['cline', 'What is the answer?'],
  continue: ['cn', '--print', 'What is the answer?'],
};

/** Where the model has a tool of the client called, which needs nobody's permission. */
const readings: Readonly<Partial<Record<ClientName, readonly string[]>>> = {
  continue: ['cn', '--print', 'Tell me what is in said.txt.'],
};

interface Ran {
  readonly code: number | null;
  readonly said: string;
}

function run(words: readonly string[], folder: string, environment: NodeJS.ProcessEnv): Promise<Ran> {
  return new Promise((resolve) => {
    const child = execFile(
      words[0]!,
      words.slice(1),
      { cwd: folder, env: environment, timeout: 240_000, killSignal: 'SIGKILL', maxBuffer: 16 * 1024 * 1024 },
      (error, stdout, stderr) => {
        const code = error === null ? 0 : typeof error.code === 'number' ? error.code : null;
        resolve({ code, said: stdout + stderr });
      },
    );
    child.stdin!.end();
  });
}

/** Of the newest request, by a client. */
const newestAnswer = (): Readonly<Record<string, unknown>> =>
  service.log.filter(({ event }) => event === 'answer').at(-1)!;

const charged = async (tag: string): Promise<number> => {
  const { stdout } = await runProcess(service.folder, ['costs', '--by', 'tag', '--json']);
  const rows = JSON.parse(stdout) as Record<string, unknown>[];
  return Number(rows.find((row) => Object.values(row).includes(tag))?.['requests'] ?? 0);
};

for (const [name, words] of Object.entries(questions))
  test(`${name} answers with what was set up for it, and what was set up can be undone`, async (t) => {
    const home = temporaryFolder(t);
    const work = join(home, 'work');
    mkdirSync(work);
    const folder = process.env[`TOKENHOUSE_TEST_${name.toUpperCase()}`]!;
    const own = { HOME: home, XDG_DATA_HOME: '', XDG_CONFIG_HOME: '', XDG_CACHE_HOME: '', XDG_STATE_HOME: '' };
    const environment = {
      ...Object.fromEntries(
        Object.entries(process.env).filter(
          ([variable]) => !/^(TOKENHOUSE|ANTHROPIC|OPENAI|CLAUDE|CODEX|npm)_/i.test(variable),
        ),
      ),
      ...own,
      PATH: `${folder}${delimiter}${process.env['PATH']}`,
      // None of them is to ask its maker for anything.
      CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1',
      DISABLE_AUTOUPDATER: '1',
      CLINE_NO_AUTO_UPDATE: '1',
      OPENCODE_DISABLE_AUTOUPDATE: '1',
      CONTINUE_TELEMETRY_ENABLED: '0',
    };
    const config = ['--config', join(service.folder, 'tokenhouse.yaml')];
    const done = await runProcess(work, ['launch', name, '--yes', '--no-start', ...config], own);
    assert.equal(done.code, 0, done.stderr);
    const answered = await run(words, work, environment);
    assert.match(answered.said, /The answer of the service\./, `ended with ${answered.code}`);
    assert.ok((await charged(name)) > 0, 'its key was charged');
    assert.equal(newestAnswer()['streamed'], true);
    const reading = readings[name as ClientName];
    if (reading !== undefined) {
      writeFileSync(join(work, 'said.txt'), 'what the file says');
      const read = await run(reading, work, environment);
      assert.match(read.said, /The file was read\./, `ended with ${read.code}`);
    }
    const revoked = await runProcess(service.folder, ['keys', 'revoke', String(newestAnswer()['key'])]);
    assert.equal(revoked.code, 0, revoked.stderr);
    const refused = await run(words, work, environment);
    assert.match(refused.said, /revoked|invalid_api_key/, `ended with ${refused.code}`);
    const undone = await runProcess(work, ['launch', name, '--restore', ...config], own);
    assert.equal(undone.code, 0, undone.stderr);
  });
