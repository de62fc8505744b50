import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';

import { CommandFolder, jsonOf } from './command.ts';

/** `models list` and `models pull`, without a service and without a network. */
const content = 'not a model, but a file with a checksum';
const sha256 = createHash('sha256').update(content).digest('hex');
const pricing = 'pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }';
const folder = new CommandFolder(
  `models:
  - id: Local-File
    display_name: A Local File
    context_length: 4096
    max_output_tokens: 512
    defaults: { temperature: 0.5, top_k: 20 }
    ${pricing}
    backends: [ { engine: llama, sources: [ "file:./model.gguf" ], sha256: ${sha256} } ]
  - id: two
    context_length: 8192
    ${pricing}
    backends:
      - { engine: openai, flavor: vllm, url: "http://127.0.0.1:9/v1", name: gpu }
      - { engine: scripted, scripts: [ { say: [ { text: hi } ] } ] }
`,
  { TOKENHOUSE_MODEL_DIR: './cache' },
);
writeFileSync(join(folder.path, 'model.gguf'), content);
after(() => folder.dispose());

/** What only a running service knows. */
const notRunning = { state: null, memory: null, tokens_per_second: null };

test('models list, as a table and as JSON', async () => {
  const table = await folder.run('models', 'list');
  assert.equal(table.code, 0, table.stderr);
  const lines = table.stdout
    .trimEnd()
    .split('\n')
    .map((line) => line.trim().split(/ {2,}/));
  assert.deepEqual(lines, [
    ['id', 'context', 'output', 'size', 'state', 'memory', 'tokens/s', 'backends'],
    ['Local-File', '4096', '512', `${content.length} bytes`, 'file is here', '–', '–', 'llama'],
    ['two', '8192', 'window', '–', 'not running', '–', '–', 'gpu, scripted-2'],
  ]);
  assert.deepEqual(jsonOf(await folder.run('models', 'list', '--json')), [
    {
      id: 'Local-File',
      display_name: 'A Local File',
      adapter_of: null,
      context_length: 4096,
      max_output_tokens: 512,
      backends: [
        {
          ...{ engine: 'llama', name: 'llama', bytes: content.length, file: join(folder.path, 'model.gguf') },
          ...notRunning,
        },
      ],
    },
    {
      id: 'two',
      display_name: 'two',
      adapter_of: null,
      context_length: 8192,
      max_output_tokens: null,
      backends: [
        { engine: 'openai', name: 'gpu', bytes: null, file: null, ...notRunning },
        { engine: 'scripted', name: 'scripted-2', bytes: null, file: null, ...notRunning },
      ],
    },
  ]);
});

test('models show, as a table and as JSON, also while the file is not here', async () => {
  const { stdout, stderr } = await folder.run('models', 'show', 'local-file');
  assert.match(stdout, /^Local-File +A Local File$/m, stderr);
  assert.match(stdout, /^default temperature +0\.5$/m);
  assert.match(stdout, /^default top_k +20$/m);
  assert.match(stdout, /^input dollars per million +0\.05$/m);
  assert.match(stdout, /^backend llama +.*model\.gguf$/m);
  const shown = jsonOf(await folder.run('models', 'show', 'two', '--json')) as Readonly<Record<string, unknown>>;
  assert.deepEqual(shown['defaults'], {});
  assert.deepEqual(shown['backends'], [
    { engine: 'openai', name: 'gpu', file: null },
    { engine: 'scripted', name: 'scripted-2', file: null },
  ]);
  assert.match((await folder.run('models', 'show', 'tow')).stderr, /did you mean two/);
});

test('models list without a configuration shows the default model', async () => {
  const empty = new CommandFolder();
  const { stdout } = await empty.run('models', 'list');
  assert.match(stdout, /^smollm2-135m-instruct +8192 +4096 +98\.4 MB +(to be fetched|file is here) +– +– +llama$/m);
  empty.dispose();
});

test('models pull fetches what the configuration names, in any case of its id', async () => {
  interface Pulled {
    readonly name: string;
    readonly path: string;
    readonly already_there: boolean;
  }
  for (const input of [[], ['local-file'], ['Local-File']]) {
    const pulled = jsonOf(await folder.run('models', 'pull', '--json', ...input)) as Pulled[];
    assert.equal(pulled.length, 1);
    assert.equal(pulled[0]?.name, 'Local-File');
    assert.match(pulled[0].path, /\.gguf$/);
  }
});

test('models pull of a source needs its checksum, and what has another one is refused', async () => {
  const without = await folder.run('models', 'pull', 'file:./model.gguf');
  assert.equal(without.code, 1);
  assert.match(without.stderr, /publishes no hash: give --sha256/);
  const right = await folder.run('models', 'pull', 'file:./model.gguf', '--sha256', sha256);
  assert.equal(right.code, 0, right.stderr);
  const wrong = await folder.run('models', 'pull', 'file:./model.gguf', '--sha256', 'a'.repeat(64));
  assert.equal(wrong.code, 69, wrong.stdout);
  assert.match(wrong.stderr, /sha256|checksum/i);
});

test('models pull says what failed, why, and what to do', async () => {
  const { code, stderr } = await folder.run('models', 'pull', 'file:./nothing.gguf', '--sha256', 'a'.repeat(64));
  assert.equal(code, 69);
  assert.match(stderr, /nothing\.gguf: the file does not exist/);
  assert.match(stderr, /TOKENHOUSE_MODEL_DIR/);
  assert.match(stderr, /another source/);
});

test('models pull of something that is no source is refused in words', async () => {
  const { code, stderr } = await folder.run('models', 'pull', 'ftp://nowhere/model.gguf', '--sha256', sha256);
  assert.equal(code, 1);
  assert.match(stderr, /neither a configured model with a file nor a source/);
});
