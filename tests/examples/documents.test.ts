import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { chmodSync, cpSync, existsSync, mkdirSync, readFileSync, readdirSync, writeFileSync, statSync } from 'node:fs';
import { basename, delimiter, dirname, join, relative } from 'node:path';
import { after, describe, test } from 'node:test';

import { CommandFolder, assertNoStack } from '../cli/command.ts';
import { TestService } from '../support/service.ts';
import { chatChunk, event, Upstream, usageChunk } from '../support/upstream.ts';
import { blocksOf, examplesOf, sentencesOf } from './extract.ts';
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
 *   default ports mean that service, `tkh_…` its first key, `TOKENHOUSE_URL` and `TOKENHOUSE_KEY` both; the address of the
 *   quickstart's vLLM means a server that answers like one. A tutorial is followed in one terminal: what a block has set, the next has.
 *   What is in `tests/examples/files/<document>/` is in the folder where they run.
 * - `<!-- example: program -->` in docs/clients.md and the first quickstart: `tests/clients/examples.test.ts` runs it.
 * - `<!-- example: python -->`: the suite `python` runs it.
 *
 * Every other block says with `<!-- run by: FILE -->` which test does the same, or with `<!-- not run: … -->` why none does.
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
  | {
      readonly file: string;
      readonly service: TestService;
      readonly shims: string;
      /** The server that the document puts behind the service. */
      readonly vllm: Upstream | undefined;
      output: string;
    }
  | undefined;
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
    environment: { VLLM_KEY: 'sk-example' },
  });
  const shims = join(service.folder, 'bin');
  const vllm = file === join('docs', 'quickstart-vllm.md') ? await startVllm() : undefined;
  current = { file, service, shims, vllm, output: '' };
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
  await ended?.vllm?.close();
}

/** Answers as the vLLM of the quickstart does; the suite `vllm` has a real one. */
const startVllm = () =>
  Upstream.start(
    (exchange) => {
      if (exchange.headers.get('authorization') !== 'Bearer sk-example') return exchange.json(401, {});
      if (exchange.path === '/v1/models')
        return exchange.json(200, {
          object: 'list',
          data: [{ id: 'qwen3-32b', owned_by: 'vllm', max_model_len: 40_960 }],
        });
      if (exchange.path !== '/v1/chat/completions') return exchange.json(404, {});
      exchange.events();
      const usage = usageChunk({ prompt_tokens: 3, completion_tokens: 1 });
      exchange.chunk(chatChunk({ content: 'Hello' }) + chatChunk({}, 'stop') + usage + event('[DONE]'));
      return exchange.endChunks();
    },
    { isLookedAt: true },
  );

describe('the documents', () => {
  test('have marked examples of every kind', () => {
    const kinds = new Set(examples.map((example) => example.kind));
    assert.deepEqual([...kinds].toSorted(), ['commands', 'config', 'program', 'python']);
  });

  test('say of every block who runs it, or why nobody does', () => {
    // Decisions and the changelog say what was, not what to do.
    for (const file of documents.filter((name) => dirname(name) !== join('docs', 'decisions')))
      for (const { where, said } of blocksOf(readFileSync(join(root, file), 'utf8'), file)) {
        const [, kind, what = ''] = /^(example|run by|not run): (.+)$/.exec(said ?? '') ?? [];
        assert.ok(kind !== undefined, `${where}: say on the line before it how it is run, or why it is not`);
        if (kind === 'run by') assert.ok(existsSync(join(root, what)), `${where}: there is no ${what}`);
      }
  });

  test('begin with quickstarts of at most 30 lines', () => {
    const quickstarts = documents.filter((file) => basename(file).startsWith('quickstart-'));
    assert.equal(quickstarts.length, 4);
    for (const file of quickstarts) {
      // As they are read: comments are for these tests.
      const lines = readFileSync(join(root, file), 'utf8')
        .replaceAll(/^<!--.*-->\n/gm, '')
        .trimEnd()
        .split('\n');
      assert.ok(lines.length <= 30, `${file} has ${lines.length} lines`);
    }
  });

  test('are in short sentences, without words that were ours alone', () => {
    // What they are called now is in docs/glossary.md; the code is held to it by tests/architecture.test.ts.
    const ours = /\b(purses?|desks?|lenders?|borrowers?|reborn|house accounts?|mailbox(es)?|wish(es)?|chores?)\b/i;
    const lengthOf = (sentence: string): number => sentence.split(' ').length;
    const pages = documents.filter((file) => dirname(file) !== join('docs', 'decisions') && file !== 'CHANGELOG.md');
    assert.ok(pages.length > 30);
    for (const file of pages) {
      const sentences = sentencesOf(readFileSync(join(root, file), 'utf8'));
      const mean = sentences.reduce((sum, one) => sum + lengthOf(one), 0) / sentences.length;
      assert.ok(mean <= 16, `${file}: ${mean.toFixed(1)} words in a sentence, on average`);
      const isForNewcomers = file === 'README.md' || /^(quickstart|tutorial)-/.test(basename(file));
      for (const sentence of sentences) {
        assert.doesNotMatch(sentence, ours, file);
        assert.ok(lengthOf(sentence) <= (isForNewcomers ? 40 : 60), `${file}: ${sentence}`);
      }
    }
  });

  test('show every picture that there is, small, and say what it shows', () => {
    const folder = join(root, 'docs', 'pictures');
    const shown = new Set<string>();
    for (const file of documents) {
      const text = readFileSync(join(root, file), 'utf8');
      for (const [, name = ''] of text.matchAll(/pictures\/([\w-]+\.webp)/g)) shown.add(name);
      for (const [image, words = ''] of text.matchAll(/!\[([^\]]*)\]\([^)]+\.webp\)/g))
        assert.ok(
          words.length > 60 && /^[^|]*\.$/.test(words),
          `${file}: ${image} needs a text for who does not see it`,
        );
    }
    const there = readdirSync(folder);
    assert.deepEqual([...shown].toSorted(), there.toSorted());
    for (const name of there) {
      const bytesMax = name.startsWith('console-') ? 150_000 : 60_000;
      assert.ok(statSync(join(folder, name)).size <= bytesMax, `${name} has more than ${bytesMax} bytes`);
    }
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
          return assert.match(example.where, /^docs\/(clients|quickstart-program)\.md:/);
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

  test('blocks of which nothing is said', () => {
    const markdown =
      '<!-- not run: why -->\n```sh\nx\n```\n\n```sh\n<!-- printed: in a block -->\n```\n<!-- printed: a -->\n```\n```\n<!-- end: a -->\n```\n```\n';
    assert.deepEqual(blocksOf(markdown, 'a.md'), [
      { where: 'a.md:2', said: 'not run: why' },
      { where: 'a.md:6', said: undefined },
      { where: 'a.md:13', said: 'end: a' },
    ]);
  });

  test('sentences', () => {
    const markdown =
      '# No\n\nOne `a b` [two](x.md#y)\nthree. Four five; six\n\n- seven eight\n- `x` nine\n\n| a b |\n\n```sh\nnot this.\n```\n';
    assert.deepEqual(sentencesOf(markdown), ['One code two three.', 'Four five;', 'seven eight', 'code nine']);
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
  const named = [...text.matchAll(/(?:api_key_env: |# )(\w+_\w+)/g)].map(([, name = '']) => [name, 'sk-example']);
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
  const file = where.split(':')[0] ?? where;
  const { service, shims, vllm } = await serviceFor(file);
  const isTutorial = basename(file).startsWith('tutorial-');
  const kept = join(service.folder, 'variables');
  const script = (isTutorial ? `set -a\n[ ! -f ${kept} ] || . ${kept}\n${text}export -p > ${kept}\n` : text)
    .replaceAll('http://10.0.0.5:8000/v1', (address) => vllm?.url ?? address)
    .replaceAll('VLLM_KEY=…', 'VLLM_KEY=sk-example')
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
