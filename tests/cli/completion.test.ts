import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { chmodSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import type { Command } from 'commander';

import { commandProgram } from '../../src/cli/command-line.ts';
import { anyFile, candidatesFor, completionScripts } from '../../src/cli/completion.ts';
import { errorTable } from '../../src/platform/errors.ts';
import { TestService, scriptedModel } from '../support/service.ts';
import { jsonOf, runCommand } from './command.ts';
import { mainFile } from '../support/built.ts';

/** What the program answers to a shell, for every command; and a real bash, which asks the real program. */
const service = new TestService({ config: scriptedModel('- say: [ { text: "hello" } ]', { id: 'owner/demo:8b' }) });
const program = commandProgram();

before(async () => {
  await service.start();
  mkdirSync(join(service.folder, 'bin'));
  writeFileSync(
    join(service.folder, 'bin', 'tokenhouse'),
    `#!/bin/sh\nexec '${process.execPath}' '${mainFile}' "$@"\n`,
  );
  chmodSync(join(service.folder, 'bin', 'tokenhouse'), 0o755);
  for (const [shell, script] of Object.entries(completionScripts)) writeFileSync(join(service.folder, shell), script);
});
after(() => service.dispose());

/** The words that may stand in the place of the last one. */
const offered = async (...words: readonly string[]): Promise<readonly string[]> =>
  (await candidatesFor(program, words, service.folder)).map(([word]) => word);

const environment = () => ({ ...process.env, PATH: `${join(service.folder, 'bin')}:${process.env['PATH'] ?? ''}` });

/** What bash offers after each of these lines, in one shell. */
function inBash(...lines: readonly string[]): readonly (readonly string[])[] {
  const ask = lines.map(
    (line) => `COMP_LINE='${line}'; COMP_POINT=\${#COMP_LINE}; COMP_WORDS=(tokenhouse); COMP_CWORD=1
_tokenhouse; printf '%s\\n' "\${COMPREPLY[@]}"; echo ===`,
  );
  const { stdout, stderr, error } = spawnSync('bash', ['--norc', '-c', `. ./bash\n${ask.join('\n')}`], {
    cwd: service.folder,
    encoding: 'utf8',
    env: environment(),
    timeout: 120_000,
  });
  assert.equal(error, undefined, 'this test needs bash: apt install bash, or brew install bash');
  assert.equal(stderr, '');
  return stdout
    .split('===\n')
    .slice(0, -1)
    .map((text) => text.split('\n').filter((word) => word !== ''));
}

/** fish completes without a terminal as well. */
function completesInFish(): void {
  const script = `source fish; ${['ke', 'chat ', 'explain backend_t'].map((line) => `complete -C 'tokenhouse ${line}'`).join('; ')}`;
  const { stdout } = spawnSync('fish', ['--no-config', '-c', script], {
    cwd: service.folder,
    encoding: 'utf8',
    env: environment(),
    timeout: 120_000,
  });
  const { meaning } = errorTable.backend_timeout;
  assert.equal(stdout, `keys\tAPI keys\nowner/demo:8b\tDemo\nbackend_timeout\t${meaning}\n`);
}

/** Every command with its words. */
function commandsOf(
  command: Command,
  words: readonly string[] = [],
): readonly (readonly [readonly string[], Command])[] {
  const children = command.createHelp().visibleCommands(command);
  return [
    [words, command],
    ...children
      .filter((child) => child.name() !== 'help')
      .flatMap((child) => commandsOf(child, [...words, child.name()])),
  ];
}

test('the program completes every command and every option', async () => {
  const all = commandsOf(program);
  for (const [words, command] of all) {
    const help = command.createHelp();
    const children = help.visibleCommands(command).filter((child) => child.name() !== 'help');
    if (children.length > 0)
      assert.deepEqual(
        await offered(...words, ''),
        children.map((child) => child.name()),
      );
    const options = help.visibleOptions(command).flatMap(({ short, long }) => [short, long].filter(Boolean));
    assert.deepEqual(await offered(...words, '-'), options, words.join(' '));
  }
  assert.ok(all.length > 90);
});

test('it completes beginnings, choices, codes, files and ids, and nothing where a text is free', async () => {
  const made = jsonOf(await runCommand(service.folder, ['keys', 'create', '--json'])) as { id: string };
  const codes = Object.keys(errorTable).filter((code) => code.startsWith('context_'));
  assert.ok(codes.length > 0);
  for (const [line, words] of [
    ['ke', ['keys']],
    ['keys create --role o', ['owner']],
    ['completion ', ['bash', 'zsh', 'fish']],
    ['explain context_', codes],
    ['config check token', [anyFile[0]]],
    ['config check --json -c ', [anyFile[0]]],
    ['keys create --name ', []],
    ['nothing of the kind ', []],
    ['chat ', ['owner/demo:8b']],
    ['models pull own', ['owner/demo:8b']],
    ['models pull other', []],
    ['usage --limit 5 --account ', [service.accountId]],
    ['keys limit key_x --no-z', ['--no-zdr-only']],
  ] as const)
    assert.deepEqual(await offered(...line.split(' ')), words, line);
  assert.ok((await offered('keys', 'revoke', 'key_')).includes(made.id));
});

test('the configuration that is named counts, and a broken one is silence', async () => {
  writeFileSync(join(service.folder, 'other.yaml'), scriptedModel('- say: [ { text: "a" } ]', { id: 'other' }));
  assert.deepEqual(await offered('chat', '-c', 'other.yaml', ''), ['other']);
  writeFileSync(join(service.folder, 'broken.yaml'), 'servr: {}\n');
  const { code, stdout, stderr } = await runCommand(service.folder, ['__complete', 'chat', '-c', 'broken.yaml', '']);
  assert.deepEqual([code, stdout, stderr], [0, '', '']);
});

test('bash asks the program', () => {
  assert.deepEqual(
    inBash(
      'tokenhouse ke',
      'tokenhouse completion ',
      'tokenhouse config check token',
      'tokenhouse config check --json -c bas',
      'tokenhouse keys create --name ',
      'tokenhouse models pull own',
      'tokenhouse chat owner/demo:',
    ),
    [['keys'], ['bash', 'zsh', 'fish'], ['tokenhouse.yaml'], ['bash'], [], ['owner/demo:8b'], ['8b']],
    'readline has cut the last word at the colon',
  );
});

for (const shell of ['bash', 'zsh', 'fish'] as const)
  test(`${shell}: the syntax is right, where the shell is installed`, (t) => {
    const { status, stderr, error } = spawnSync(shell, ['-n', join(service.folder, shell)], { encoding: 'utf8' });
    if (error !== undefined) t.diagnostic(`${shell} is not here; to check its script: apt install ${shell}`);
    else assert.deepEqual([status, stderr], [0, '']);
    if (shell === 'fish' && error === undefined) completesInFish();
  });

test('completion prints the script of a shell, and refuses others', async () => {
  const { code, stdout } = await runCommand(service.folder, ['completion', 'bash']);
  assert.equal(code, 0);
  assert.equal(stdout, `${completionScripts.bash}\n`);
  const other = await runCommand(service.folder, ['completion', 'tcsh']);
  assert.equal(other.code, 64);
  assert.match(other.stderr, /Allowed choices are bash, zsh, fish/);
});
