/** `models add` of what the embedded engine cannot load: an entry whose server a program of this computer is, which the service starts. */
import assert from 'node:assert/strict';
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { parse } from 'yaml';

import { fileServer, type FileServer } from '../inference/model-files/file-server.ts';
import { built } from '../support/built.ts';
import { TestService } from '../support/service.ts';
import { CommandFolder, jsonOf } from './command.ts';

const commit = 'b2'.repeat(20);
const made = mkdtempSync(join(tmpdir(), 'tokenhouse-served-'));
const model = join(made, 'Tiny-Folder');
mkdirSync(model);
writeFileSync(join(model, 'config.json'), '{"text_config": {"max_position_embeddings": 2048}}');
writeFileSync(join(model, 'model.safetensors'), 'x'.repeat(1_000));

/** Starts the scripted server of a model at the port of its arguments. */
const program = (name: string): string => {
  const folder = join(made, `bin-${name}`);
  mkdirSync(folder);
  const file = join(folder, name);
  const server = built('tests/support/model-server.ts');
  writeFileSync(
    file,
    `#!/bin/sh\necho "$@" > "${made}/said"\nwhile [ "$1" != --port ]; do shift; done\nexec "${process.execPath}" "${server}" "$2" "${made}/log" 100 right\n`,
  );
  chmodSync(file, 0o755);
  return folder;
};
const folders = { vllm: program('vllm'), sglang: program('sglang') };

let hub: FileServer;
before(async () => {
  hub = await fileServer((request, response) => {
    const url = request.url ?? '';
    if (url === '/api/models/org/Model-1/revision/main') response.end(JSON.stringify({ sha: commit }));
    else if (url === `/api/models/org/Model-1/tree/${commit}?recursive=true`)
      response.end(
        JSON.stringify(
          ['config.json', 'model-1.safetensors', 'model-2.safetensors'].map((path) => ({
            type: 'file',
            path,
            size: 500,
          })),
        ),
      );
    else if (url === `/org/Model-1/resolve/${commit}/config.json`) response.end('{"max_position_embeddings": 131072}');
    else response.writeHead(404).end();
  });
});
after(async () => {
  await hub.close();
  rmSync(made, { recursive: true, force: true });
});

const first = `models:
  - id: first
    context_length: 4096
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    backends: [ { engine: scripted, scripts: [ { say: [ { text: hi } ] } ] } ]
`;

function folderWith(...names: readonly (keyof typeof folders)[]): CommandFolder {
  const folder = new CommandFolder(first, {
    ...{ HF_ENDPOINT: hub.url, HTTPS_PROXY: 'http://127.0.0.1:9', NO_PROXY: '127.0.0.1' },
    PATH: [...names.map((name) => folders[name]), '/usr/bin', '/bin'].join(':'),
  });
  after(() => folder.dispose());
  return folder;
}
const configOf = (folder: CommandFolder): string => readFileSync(join(folder.path, 'tokenhouse.yaml'), 'utf8');

const cases = [
  {
    installed: ['sglang', 'vllm'],
    source: 'hf:org/Model-1',
    command: [
      ...[join(folders.vllm, 'vllm'), 'serve', 'org/Model-1', '--revision', commit, '--served-model-name', 'model-1'],
      ...['--host', '127.0.0.1', '--port', '{port}', '--max-model-len', '32768', '--enable-prompt-tokens-details'],
    ],
    window: 32_768,
  },
  {
    installed: ['sglang'],
    source: model,
    command: [
      ...[join(folders.sglang, 'sglang'), 'serve', '--model-path', model, '--served-model-name', 'tiny-folder'],
      ...['--host', '127.0.0.1', '--port', '{port}', '--context-length', '2048'],
    ],
    window: 2_048,
  },
] as const;
for (const { installed, source, command, window } of cases)
  test(`${source.replace(made, '')} by ${installed.join(' and ')}: written with its command and window, as a draft that is not sold`, async () => {
    const folder = folderWith(...installed);
    const added = jsonOf(await folder.run('models', 'add', source, '--json')) as Readonly<Record<string, unknown>>;
    assert.deepEqual([added['command'], added['context_length'], added['bytes']], [command, window, 1_000]);
    assert.deepEqual(added['pricing'], { input_dollars_per_million: 0, output_dollars_per_million: 0 });
    const shown = parse(configOf(folder)) as {
      models: { id: string; backends: { managed?: { command: unknown } }[] }[];
    };
    assert.deepEqual(shown.models.find(({ id }) => id === added['id'])?.backends[0]?.managed?.command, command);
    const again = await folder.run('models', 'add', source);
    assert.match(again.stderr, /There is a model .* already/);
    assert.equal((await folder.run('models', 'add', source, '--id', 'priced', '--price', '0.10/0.40')).code, 0);
    assert.match(configOf(folder), /id: priced[\s\S]*input_dollars_per_million: 0\.1/);
  });

test('without a program that serves it nothing is written, and what helps is said', async () => {
  const folder = folderWith();
  for (const source of ['hf:org/Model-1', model]) {
    const { code, stderr } = await folder.run('models', 'add', source);
    assert.notEqual(code, 0);
    assert.match(stderr, /neither vllm nor sglang is in the PATH[\s\S]*pip install vllm/);
    assert.equal(configOf(folder), first);
  }
});

test('a quantization that a repository does not have is not taken for its weights', async () => {
  const folder = folderWith('vllm');
  const { code, stderr } = await folder.run('models', 'add', 'hf:org/Model-1:Q8_0');
  assert.notEqual(code, 0);
  assert.match(stderr, /there is no \.gguf file in this repository/);
  assert.equal(configOf(folder), first);
});

test('the entry of a running service is served: its program is started by the first request', async () => {
  const PATH = [folders.vllm, '/usr/bin', '/bin'].join(':');
  const service = await new TestService({ config: first, environment: { PATH } }).start();
  try {
    const added = await service.command('models', 'add', model, '--price', '0.10/0.40');
    assert.match(added.stdout, /The running service has taken it over/, added.stderr);
    const answer = await service.chat({ model: 'tiny-folder', messages: [{ role: 'user', content: 'hello' }] });
    assert.equal(answer.status, 200, await answer.text());
    assert.match(readFileSync(join(made, 'said'), 'utf8'), /^serve .*Tiny-Folder --served-model-name tiny-folder/);
  } finally {
    await service.verify();
    await service.dispose();
  }
});
