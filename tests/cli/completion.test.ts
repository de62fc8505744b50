import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { chmodSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';

import type { Command } from 'commander';

import { commandProgram } from '../../src/cli/command-line.ts';
import { completionScript } from '../../src/cli/completion.ts';
import { errorTable } from '../../src/platform/errors.ts';
import { TestService, scriptedModel } from '../support/service.ts';
import { jsonOf, runCommand } from './command.ts';
import { mainFile } from '../support/built.ts';

/** The scripts complete what the program has: bash is asked for real, the others are held against the declarations. */
const service = new TestService({ config: scriptedModel('- say: [ { text: "hello" } ]', { id: 'owner/demo:8b' }) });
const program = commandProgram();
const asked = join(service.folder, 'asked');

before(async () => {
  await service.start();
  mkdirSync(join(service.folder, 'bin'));
  writeFileSync(
    join(service.folder, 'bin', 'tokenhouse'),
    `#!/bin/sh\necho "$*" >> '${asked}'\nexec '${process.execPath}' '${mainFile}' "$@"\n`,
  );
  chmodSync(join(service.folder, 'bin', 'tokenhouse'), 0o755);
  writeFileSync(join(service.folder, 'bash.sh'), completionScript(program, 'bash'));
});
after(() => service.dispose());

/** What bash offers after each of these lines, in one shell. */
function offered(...lines: readonly string[]): readonly (readonly string[])[] {
  const ask = lines.map(
    (line) => `COMP_LINE='${line}'; COMP_POINT=\${#COMP_LINE}; COMP_WORDS=(tokenhouse); COMP_CWORD=1
_tokenhouse; printf '%s\\n' "\${COMPREPLY[@]}"; echo ===`,
  );
  const { stdout, stderr, error } = spawnSync('bash', ['--norc', '-c', `. ./bash.sh\n${ask.join('\n')}`], {
    cwd: service.folder,
    encoding: 'utf8',
    env: { ...process.env, PATH: `${join(service.folder, 'bin')}:${process.env['PATH'] ?? ''}` },
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
    env: { ...process.env, PATH: `${join(service.folder, 'bin')}:${process.env['PATH'] ?? ''}` },
    timeout: 120_000,
  });
  assert.equal(stdout, 'keys\tAPI keys\nowner/demo:8b\tDemo\nbackend_timeout\n');
}

/** Every command with its words. */
function commandsOf(command: Command, words: readonly string[] = []): readonly (readonly [string, Command])[] {
  const children = command.createHelp().visibleCommands(command);
  return [
    [words.join(' '), command],
    ...children
      .filter((child) => child.name() !== 'help')
      .flatMap((child) => commandsOf(child, [...words, child.name()])),
  ];
}

describe('bash', () => {
  test('completes every command and every option', () => {
    const all = commandsOf(program);
    const replies = offered(...all.flatMap(([words]) => [`tokenhouse ${words} `, `tokenhouse ${words} -`]));
    for (const [index, [words, command]] of all.entries()) {
      const help = command.createHelp();
      const children = help.visibleCommands(command).filter((child) => child.name() !== 'help');
      if (children.length > 0)
        assert.deepEqual(
          replies[2 * index],
          children.map((child) => child.name()),
          words,
        );
      const options = help.visibleOptions(command).flatMap(({ short, long }) => [short, long].filter(Boolean));
      assert.deepEqual(replies[2 * index + 1], options, words);
    }
    assert.ok(all.length > 20);
  });

  test('completes beginnings, choices, codes and files, and nothing where a text is free', () => {
    const [keys, shells, codes, file, free, config] = offered(
      'tokenhouse ke',
      'tokenhouse completion ',
      'tokenhouse explain context_',
      'tokenhouse config check token',
      'tokenhouse keys create --name ',
      'tokenhouse config check --json -c bash.s',
    );
    assert.deepEqual(keys, ['keys']);
    assert.deepEqual(shells, ['bash', 'zsh', 'fish']);
    assert.deepEqual(
      codes,
      Object.keys(errorTable).filter((code) => code.startsWith('context_')),
    );
    assert.deepEqual(file, ['tokenhouse.yaml']);
    assert.deepEqual(free, []);
    assert.deepEqual(config, ['bash.sh']);
  });

  test('asks for models, keys and accounts, once in half a minute', async () => {
    const made = jsonOf(await runCommand(service.folder, ['keys', 'create', '--json'])) as { id: string };
    writeFileSync(asked, '');
    const [models, again, colon, keys, accounts] = offered(
      'tokenhouse chat ',
      'tokenhouse models pull own',
      'tokenhouse chat owner/demo:',
      'tokenhouse keys revoke key_',
      'tokenhouse usage --limit 5 --account ',
    );
    assert.deepEqual(models, ['owner/demo:8b']);
    assert.deepEqual(again, ['owner/demo:8b']);
    assert.deepEqual(colon, ['8b'], 'readline has cut the word at the colon');
    assert.ok(keys?.includes(made.id));
    assert.deepEqual(accounts, [service.accountId]);
    const calls = (await import('node:fs')).readFileSync(asked, 'utf8').trim().split('\n');
    assert.deepEqual(calls, ['complete-values model', 'complete-values key-id', 'complete-values account-id']);
  });

  test('is silent where the configuration is broken', async () => {
    writeFileSync(join(service.folder, 'broken.yaml'), 'servr: {}\n');
    const { code, stdout, stderr } = await runCommand(service.folder, [
      'complete-values',
      'model',
      '-c',
      'broken.yaml',
    ]);
    assert.deepEqual([code, stdout, stderr], [0, '', '']);
  });
});

describe('zsh and fish', () => {
  for (const shell of ['zsh', 'fish'] as const) {
    test(`${shell}: the script has every command and option`, () => {
      const script = completionScript(program, shell);
      for (const [words, command] of commandsOf(program)) {
        assert.ok(words === '' || script.includes(words), words);
        for (const { long } of command.createHelp().visibleOptions(command))
          assert.ok(script.includes(shell === 'fish' ? `-l ${long?.slice(2)}` : (long ?? '')), `${words} ${long}`);
      }
      for (const kind of ['model', 'key-id', 'account-id']) assert.match(script, new RegExp(`(asked|values) ${kind}`));
      assert.ok(script.includes('backend_timeout'));
    });

    test(`${shell}: the syntax is right, where the shell is installed`, (t) => {
      writeFileSync(join(service.folder, shell), completionScript(program, shell));
      const { status, stderr, error } = spawnSync(shell, ['-n', join(service.folder, shell)], { encoding: 'utf8' });
      if (error !== undefined) t.diagnostic(`${shell} is not here; to check its script: apt install ${shell}`);
      else assert.deepEqual([status, stderr], [0, '']);
      if (shell === 'fish' && error === undefined) completesInFish();
    });
  }
});

test('completion prints the script of a shell, and refuses others', async () => {
  const { code, stdout } = await runCommand(service.folder, ['completion', 'bash']);
  assert.equal(code, 0);
  assert.equal(stdout, `${completionScript(program, 'bash')}\n`);
  const other = await runCommand(service.folder, ['completion', 'tcsh']);
  assert.equal(other.code, 64);
  assert.match(other.stderr, /Allowed choices are bash, zsh, fish/);
});
