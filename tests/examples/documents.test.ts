import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { chmodSync, cpSync, existsSync, mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { basename, delimiter, join, relative } from 'node:path';
import { after, describe, test } from 'node:test';

import { CommandFolder, assertNoStack } from '../cli/command.ts';
import { TestService } from '../support/service.ts';
import { examplesOf } from './extract.ts';
import type { Example } from './extract.ts';
import { mainFile } from '../support/built.ts';
import { slowness } from '../support/busy.ts';
import { inRepository, root } from '../support/repository.ts';
import { assertMigrated, assertSameModels } from './migrated.ts';

/**
 * The marked examples of README.md and docs/ do what they say. A marker is a comment on the line before the fence:
 *
 * - `<!-- example: config -->`: a whole tokenhouse.yaml; the boot code takes it.
 * - `<!-- example: commands -->`: shell commands, run beside a service of the document's own; all of them succeed. The addresses of the
 *   default ports mean that service, `tkh_…` its first key, `TOKENHOUSE_URL` and `TOKENHOUSE_KEY` both.
 *   What is in `tests/examples/files/<document>/` is in the folder where they run.
 * - `<!-- example: program -->` in docs/clients.md: `tests/clients/examples.test.ts` runs it.
 * - `<!-- example: python -->`: the suite `python` runs it.
 */
const documents = [
  ...readdirSync(root).filter((name) => name.endsWith('.md')),
  ...readdirSync(join(root, 'docs'), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.md'))
    .map((name) => join('docs', name)),
];
const examples = documents.flatMap((file) => examplesOf(readFileSync(join(root, file), 'utf8'), relative('.', file)));
const fileOf = (example: Example | undefined): string | undefined => example?.where.split(':')[0];
const migration = join('docs', 'migrate.md');

/** The service of one document: what its examples make, such as accounts, is not there for those of another. */
let current:
  { readonly file: string; readonly service: TestService; readonly shims: string; output: string } | undefined;
after(leave);

async function serviceFor(file: string) {
  if (current?.file === file) return current;
  await leave();
  const service = new TestService({
    config: `models:
  - id: smollm2-135m-instruct
    context_length: 8192
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    backends: [ { engine: scripted, scripts: [ { say: [ { text: "The capital of France is Paris." } ] } ] } ]`,
  });
  const shims = join(service.folder, 'bin');
  current = { file, service, shims, output: '' };
  const files = inRepository('tests', 'examples', 'files', basename(file, '.md'));
  if (existsSync(files)) cpSync(files, service.folder, { recursive: true });
  await service.start();
  mkdirSync(shims);
  const run = `exec '${process.execPath}' '${mainFile}' "$@"\n`;
  writeFileSync(join(shims, 'tokenhouse'), `#!/bin/sh\n${run}`);
  writeFileSync(join(shims, 'npx'), `#!/bin/sh\n[ "$1" = tokenhouse ] || exit 97\nshift\n${run}`);
  for (const shim of ['tokenhouse', 'npx']) chmodSync(join(shims, shim), 0o755);
  return current;
}

async function leave(): Promise<void> {
  const ended = current;
  current = undefined;
  await ended?.service.verify();
  await ended?.service.dispose();
}

describe('the documents', () => {
  test('have marked examples of every kind', () => {
    const kinds = new Set(examples.map((example) => example.kind));
    assert.deepEqual([...kinds].toSorted(), ['commands', 'config', 'program', 'python']);
  });

  for (const [index, example] of examples.entries()) {
    test(`${example.where} (${example.kind})`, async () => {
      switch (example.kind) {
        case 'config':
          return await checkConfig(example);
        case 'commands':
          return await checkCommands(example, 0);
        case 'program':
          // tests/clients/examples.test.ts runs it, with the client libraries.
          return assert.match(example.where, /^docs\/clients\.md:/);
        case 'python':
          return assert.equal(example.language, 'python');
        default:
          assert.fail(`'${example.kind}' is no kind of example; use config, commands, program or python`);
      }
    });
    if (fileOf(example) === migration && fileOf(examples[index + 1]) !== migration) {
      test('what they make of the exports of other gateways: keys, balances, budgets, models and prices', async () => {
        assert.equal(current?.file, migration);
        await assertMigrated(current.service, current.output);
      });
      test('a configuration of LiteLLM says the same in both forms', assertSameModels);
    }
  }
});

describe('the check finds', () => {
  const where = 'here';

  test('a key that does not exist', async () => {
    const wrong = { where, kind: 'config', language: 'yaml', text: 'server: { prot: 1 }\n' };
    await assert.rejects(checkConfig(wrong), /prot/);
  });

  test('a command that fails, also in the middle', async () => {
    const text = 'npx tokenhouse keys revoke key_nothing\necho done\n';
    await assert.rejects(checkCommands({ where, kind: 'commands', language: 'sh', text }, 0), /There is no key/);
  });

  test('a marker without a block', () => {
    assert.throws(() => examplesOf('<!-- example: config -->\n\n```yaml\n```\n', 'a.md'), /a\.md:1: no fenced block/);
    assert.throws(
      () => examplesOf('<!-- example: config -->\n```yaml\nx: 1\n', 'a.md'),
      /a\.md:1: the block has no end/,
    );
  });

  test('blocks and their text', () => {
    assert.deepEqual(
      examplesOf('a\n<!-- example: config -->\n```yaml\nx: 1\n\ny: 2\n```\n```sh\nnot marked\n```\n', 'a.md'),
      [{ where: 'a.md:2', kind: 'config', language: 'yaml', text: 'x: 1\n\ny: 2\n' }],
    );
  });
});

/** Loads it with the boot code, with every variable set that it names. */
async function checkConfig({ text, where, language }: Example): Promise<void> {
  assert.equal(language, 'yaml', where);
  const named = [...text.matchAll(/api_key_env: (\w+)/g)].map(([, name = '']) => [name, 'sk-example']);
  const folder = new CommandFolder(text, Object.fromEntries(named) as Record<string, string>);
  try {
    const { code, stdout, stderr } = await folder.run('models', 'list', '--json');
    assert.equal(code, 0, stderr);
    assert.ok((JSON.parse(stdout) as unknown[]).length > 0);
  } finally {
    folder.dispose();
  }
}

async function checkCommands({ text, where, language }: Example, expected: number): Promise<void> {
  assert.equal(language, 'sh', where);
  const { service, shims } = await serviceFor(where.split(':')[0] ?? where);
  const script = text
    .replaceAll(/http:\/\/(localhost|127\.0\.0\.1):8080/g, service.url)
    .replaceAll(/http:\/\/(localhost|127\.0\.0\.1):8081/g, service.accountUrl)
    .replaceAll('tkh_…', service.key);
  const child = spawn('sh', ['-e', '-c', script], {
    cwd: service.folder,
    env: {
      ...process.env,
      PATH: `${shims}${delimiter}${process.env['PATH'] ?? ''}`,
      TOKENHOUSE_URL: service.url,
      TOKENHOUSE_KEY: service.key,
    },
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: Math.round(60_000 * slowness),
  });
  let output = '';
  child.stdout.on('data', (bytes: Buffer) => (output += bytes.toString()));
  child.stderr.on('data', (bytes: Buffer) => (output += bytes.toString()));
  const code = await new Promise<number | null>((resolve, reject) => {
    child.on('error', reject);
    child.on('close', resolve);
  });
  assertNoStack(output);
  assert.equal(code, expected, `${where}: ${output}`);
  if (current !== undefined) current.output += output;
}
