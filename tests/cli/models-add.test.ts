import assert from 'node:assert/strict';
import { chmodSync, mkdtempSync, readdirSync, readFileSync, realpathSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, before, test } from 'node:test';

import type { FileServer } from '../inference/model-files/file-server.ts';
import { mainFile } from '../support/built.ts';
import { hubCommit, startHub, type HubFaults } from '../support/hub.ts';
import { TestService, until } from '../support/service.ts';
import { writeTinyBert } from '../support/tiny-bert.ts';
import { writeSplitTinyGguf, writeTinyGguf } from '../support/tiny-gguf.ts';
import { CommandFolder, jsonOf } from './command.ts';
import { sha256Of } from '../support/folder.ts';

/** `models add` and `models remove` against a hub on this computer, with the real engine. */
const made = mkdtempSync(join(tmpdir(), 'tokenhouse-add-'));
const script = [['assistant\n', 'Hello', ' there', '<|im_end|>']];
writeTinyGguf(join(made, 'tiny-Q8_0.gguf'), { script, contextLength: 2048 });
writeTinyGguf(join(made, 'plain-F16.gguf'), { chatTemplate: null, contextLength: 2048 });
writeTinyBert(join(made, 'bert-mean.gguf'), { contextLength: 512 });
writeTinyBert(join(made, 'bert-rank.gguf'), { contextLength: 512, pooling: 'rank' });
const parts = writeSplitTinyGguf(join(made, 'split-Q4_0'), 3, { script, contextLength: 2048 });
const bodies = new Map(readdirSync(made).map((name) => [name, readFileSync(join(made, name))]));

const faults: HubFaults = {};
let hub: FileServer;
before(async () => {
  hub = await startHub(bodies, faults);
});
after(async () => {
  await hub.close();
  rmSync(made, { recursive: true, force: true });
});

const written = `# my models
models:
  - id: first # the one that is there
    context_length: 4096
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    backends: [ { engine: scripted, scripts: [ { say: [ { text: hi } ] } ] } ]
`;

/** A folder with a configuration, an empty model folder, and nothing but the hub within reach. */
function folderOf(config: string | undefined = written): CommandFolder {
  const folder = new CommandFolder(config, {
    HF_ENDPOINT: hub.url,
    HTTPS_PROXY: 'http://127.0.0.1:9',
    NO_PROXY: '127.0.0.1',
    TOKENHOUSE_MODEL_DIR: './cache',
  });
  after(() => folder.dispose());
  return folder;
}
const configOf = (folder: CommandFolder): string => readFileSync(join(folder.path, 'tokenhouse.yaml'), 'utf8');

test('a quantization of a repository is pinned, fetched, tried and written, and comments stay', async () => {
  const folder = folderOf();
  const added = jsonOf(await folder.run('models', 'add', 'hf:o/r:Q8_0', '--json')) as Readonly<Record<string, unknown>>;
  assert.equal(added['id'], 'tiny-q8_0');
  assert.equal(added['context_length'], 2048);
  assert.deepEqual([added['chat'], added['tools'], added['reasoning']], [true, false, true]);
  assert.match(String(added['answer']), /Hello there/);
  const text = configOf(folder);
  assert.ok(text.startsWith('# my models\n'), text);
  assert.match(text, /id: first # the one that is there/);
  assert.match(text, new RegExp(`hf:o/r/tiny-Q8_0.gguf@${hubCommit}`));
  assert.match(text, new RegExp(sha256Of(bodies.get('tiny-Q8_0.gguf')!)));
  assert.match(text, /temperature: 0\.6/);
  const list = await folder.run('models', 'list');
  assert.match(list.stdout, /^tiny-q8_0 +2048 +window +[\d.]+ kB +file is here +– +– +llama$/m);

  const again = await folder.run('models', 'add', 'hf:o/r:Q8_0');
  assert.equal(again.code, 1);
  assert.match(again.stderr, /There is a model tiny-q8_0 already/);
  assert.equal(configOf(folder), text);

  const removed = await folder.run('models', 'remove', 'TINY-q8_0');
  assert.equal(removed.code, 0, removed.stderr);
  assert.doesNotMatch(configOf(folder), /tiny/);
  assert.match((await folder.run('models', 'remove', 'first')).stderr, /only model/);
});

test('without a configuration the new model comes first, and the default model stays', async () => {
  const folder = folderOf('');
  rmSync(join(folder.path, 'tokenhouse.yaml'));
  const { code, stderr, stdout } = await folder.run('models', 'add', join(made, 'plain-F16.gguf'), '--id', 'plain');
  assert.equal(code, 0, stderr);
  assert.match(stdout, /text completions only/);
  const list = jsonOf(await folder.run('models', 'list', '--json')) as readonly { readonly id: string }[];
  assert.deepEqual(
    list.map(({ id }) => id),
    ['plain', 'smollm2-135m-instruct'],
  );
});

test('a split model is fetched and loaded whole, after a download that broke off', async () => {
  const folder = folderOf();
  faults.cutAfter = 1000;
  const { code, stderr, stdout } = await folder.run('models', 'add', 'hf:o/r:Q4_0@v1');
  assert.equal(code, 0, stderr);
  assert.match(stdout, /says +"Hello there"/);
  const text = configOf(folder);
  for (const part of parts) assert.match(text, new RegExp(sha256Of(part)));
  // Goes on where it broke off.
  assert.ok(hub.seen.some(({ range }) => range !== undefined));
});

test('a local split model and a URL', async () => {
  const folder = folderOf();
  assert.equal((await folder.run('models', 'add', parts[0]!, '--id', 'local')).code, 0);
  const url = `${hub.url}/files/tiny-Q8_0.gguf`;
  const { code, stderr } = await folder.run('models', 'add', url, '--id', 'by-url');
  assert.equal(code, 0, stderr);
  assert.match(configOf(folder), new RegExp(`${sha256Of(bodies.get('tiny-Q8_0.gguf')!)}`));
});

test('a model that embeds or ranks gets the card for it, and is tried with that', async () => {
  const folder = folderOf();
  const embeds = jsonOf(
    await folder.run('models', 'add', join(made, 'bert-mean.gguf'), '--id', 'embeds', '--json'),
  ) as object;
  const expected = { context_length: 512, chat: false, embeddings: true, dimensions: 64 };
  assert.deepEqual({ ...embeds, ...expected }, embeds);
  const { code, stderr, stdout } = await folder.run('models', 'add', join(made, 'bert-rank.gguf'), '--id', 'ranks');
  assert.equal(code, 0, stderr);
  assert.match(stdout, /can +rerank: \/v1\/rerank\nmakes +a score for each document, from [\d.]+ tokens a second\n/);
  const text = configOf(folder);
  assert.match(
    text,
    /id: embeds[^]*capabilities:\s+embeddings:\s+supported: true[^]*id: ranks[^]*rerank:\s+supported: true/,
  );
});

/** A user whom no list names: clusters give one to a container. Only root can become one. */
const unknownUser = 'data:text/javascript,process.setgroups([]);process.setgid(54321);process.setuid(54321);';

/** Whether everybody may enter all folders above. */
const isReachable = (file: string): boolean =>
  dirname(file) === file || ((statSync(dirname(file)).mode & 1) === 1 && isReachable(dirname(file)));

test('a user without a home and without an entry loads a model', async () => {
  const isRoot = process.getuid?.() === 0;
  if (isRoot)
    for (const file of [realpathSync(process.execPath), mainFile])
      assert.ok(
        isReachable(file),
        `${file} lies where root alone may enter: move Node, or the clone, to another folder`,
      );
  const folder = new CommandFolder(written, {
    TOKENHOUSE_MODEL_DIR: './cache',
    ...(isRoot ? { NODE_OPTIONS: `--import=${unknownUser}` } : {}),
  });
  after(() => folder.dispose());
  chmodSync(folder.path, 0o777);
  chmodSync(join(folder.path, 'tokenhouse.yaml'), 0o666);
  chmodSync(made, 0o755);
  const { code, stderr, stdout } = await folder.run('models', 'add', join(made, 'tiny-Q8_0.gguf'), '--id', 'tiny');
  assert.equal(code, 0, stderr);
  assert.match(stdout, /says {5}"Hello there"/);
});

const refusals: readonly (readonly [string, Partial<typeof faults>, string, RegExp])[] = [
  ['another checksum than the hub states', { oid: 'f'.repeat(64) }, 'hf:o/r:Q8_0', /sha256/],
  ['no memory', { size: 1e14 }, 'hf:o/r:Q8_0', /needs 100\.0 TB of memory/],
  ['no such quantization', {}, 'hf:o/r:Q5_K_M', /no file is Q5_K_M; there are/],
  ['no such revision', {}, 'hf:o/r:Q8_0@v2', /404/],
  ['a further part on this computer', {}, parts[1]!, /name the first part/],
];
for (const [name, fault, source, words] of refusals) {
  test(`${name}: refused in words, and nothing is written`, async () => {
    const folder = folderOf();
    Object.assign(faults, fault);
    try {
      const { code, stderr } = await folder.run('models', 'add', source);
      assert.notEqual(code, 0);
      assert.match(stderr, words);
      assert.equal(configOf(folder), written);
    } finally {
      delete faults.oid;
      delete faults.size;
    }
  });
}

test('a changed file at a pinned revision is never loaded', async () => {
  const folder = folderOf();
  assert.equal((await folder.run('models', 'add', 'hf:o/r:Q8_0')).code, 0);
  rmSync(join(folder.path, 'cache'), { recursive: true });
  const original = bodies.get('tiny-Q8_0.gguf')!;
  bodies.set('tiny-Q8_0.gguf', Buffer.concat([original.subarray(0, -4), Buffer.from('oops')]));
  try {
    const { code, stderr } = await folder.run('models', 'pull', 'tiny-q8_0');
    assert.notEqual(code, 0);
    assert.match(stderr, /delivers another file/);
  } finally {
    bodies.set('tiny-Q8_0.gguf', original);
  }
});

test('a running service takes the model over without a restart, and lets it go', async () => {
  const service = new TestService({ config: written, environment: { HF_ENDPOINT: hub.url } });
  await service.start();
  try {
    const added = await service.command('models', 'add', join(made, 'tiny-Q8_0.gguf'), '--id', 'tiny');
    assert.equal(added.code, 0, added.stderr);
    assert.match(added.stdout, /running service has taken it over/);
    const ask = async () => {
      const answer = await fetch(`${service.url}/v1/chat/completions`, {
        method: 'POST',
        headers: { authorization: `Bearer ${service.key}`, 'content-type': 'application/json' },
        body: JSON.stringify({ model: 'tiny', messages: [{ role: 'user', content: 'Hi' }] }),
      });
      return { status: answer.status, text: await answer.text() };
    };
    await until(async () => (await ask()).status === 200, 60_000);
    assert.match((await ask()).text, /Hello there/);
    assert.match((await service.command('models', 'list')).stdout, /^tiny .* loaded /m);
    assert.equal((await service.command('models', 'remove', 'tiny')).code, 0);
    assert.equal((await ask()).status, 404);
  } finally {
    await service.verify();
    await service.dispose();
  }
});
