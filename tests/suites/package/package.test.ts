/**
 * `npx tokenhouse` as a newcomer gives it: an empty folder, an empty home folder, and a registry that has what `npm run build package` made
 * and nothing else. The model is in its cache, because its download is the network's time and not ours.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  copyFileSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  realpathSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { homedir, tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, before, test } from 'node:test';

import { freePort } from '../../support/free-port.ts';
import { pdfOf } from '../../support/pdf-files.ts';
import { inRepository, root } from '../../support/repository.ts';
import { assertRuns, run, type Ran } from '../../support/run.ts';
import { until } from '../../support/service.ts';
import { serveRegistry } from './registry.ts';
import type { Registry } from './registry.ts';

const megabyte = 1024 * 1024;
const [fetchedBytesMax, installedBytesMax] = [20 * megabyte, 60 * megabyte];
const folder = mkdtempSync(join(tmpdir(), 'tokenhouse-package-'));
const [packages, home, empty] = ['packages', 'home', 'empty'].map((name) => join(folder, name)) as [
  string,
  string,
  string,
];
const cache = join(folder, 'npm-cache');
const children = new Set<ChildProcess>();
let registry: Registry;

function modelFolder(): string {
  const caches = process.env['XDG_CACHE_HOME'] || join(homedir(), '.cache');
  return process.env['TOKENHOUSE_MODEL_DIR'] ?? join(caches, 'tokenhouse', 'models');
}

/** Nothing of how npm was set up for whoever runs the tests. */
const environment = (): NodeJS.ProcessEnv => ({
  ...Object.fromEntries(Object.entries(process.env).filter(([name]) => !/^(npm_|XDG_|TOKENHOUSE_|NODE_)/i.test(name))),
  HOME: home,
  TOKENHOUSE_MODEL_DIR: modelFolder(),
  npm_config_registry: registry.url,
  npm_config_cache: cache,
  npm_config_update_notifier: 'false',
});

before(async () => {
  for (const made of [home, empty]) mkdirSync(made);
  const packed = await run(process.execPath, [inRepository('scripts/package.mjs'), '--to', packages], { cwd: root });
  assert.equal(packed.code, 0, packed.stderr);
  registry = await serveRegistry(packages);
});
after(async () => {
  for (const child of children) signalGroup(child, 'SIGKILL');
  await registry.close();
  rmSync(folder, { recursive: true, force: true });
});

function signalGroup({ pid }: ChildProcess, signal: NodeJS.Signals): void {
  try {
    process.kill(-pid!, signal);
  } catch {
    // All of it has ended.
  }
}

interface Started {
  readonly child: ChildProcess;
  readonly url: string;
  readonly accountUrl: string;
  readonly said: string;
}

/** Without a word, as the page says it: the ports are given by the environment. */
async function start(directory: string): Promise<Started> {
  const ports = [await freePort(), await freePort()];
  const child = spawn('npx', ['--yes', 'tokenhouse'], {
    cwd: directory,
    env: {
      ...environment(),
      TOKENHOUSE_SERVER__INFERENCE__PORT: String(ports[0]),
      TOKENHOUSE_SERVER__ACCOUNT__PORT: String(ports[1]),
    },
    stdio: ['ignore', 'ignore', 'pipe'],
    detached: true,
  });
  children.add(child);
  let said = '';
  child.stderr.on('data', (text: Buffer) => (said += text.toString()));
  await until(() => {
    assert.equal(child.exitCode, null, said);
    return /^ready in /m.test(said);
  }, 120_000);
  const [url, accountUrl] = ports.map((port) => `http://localhost:${port}`) as [string, string];
  return { child, url, accountUrl, said };
}

async function stop({ child }: Started): Promise<void> {
  const ended = new Promise((resolve) => child.on('close', resolve));
  signalGroup(child, 'SIGINT');
  await ended;
}

const command = (...args: string[]): Promise<Ran> =>
  run('npx', ['--yes', 'tokenhouse', ...args], { cwd: empty, env: environment() });

const bytesBelow = (where: string): number =>
  readdirSync(where, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .reduce((sum, entry) => sum + statSync(join(entry.parentPath, entry.name)).size, 0);

/** The `node_modules` that npx has made. */
const installed = (): string => join(cache, '_npx', readdirSync(join(cache, '_npx'))[0]!, 'node_modules');

const digestsOf = (made: string): Readonly<Record<string, string>> =>
  Object.fromEntries(
    readdirSync(made)
      .filter((name) => name.endsWith('.tgz'))
      .map((name) => [
        name,
        createHash('sha256')
          .update(readFileSync(join(made, name)))
          .digest('hex'),
      ]),
  );

/** The files of the repository as they are, with dates of their own, in a folder of another length, and the packages as links. */
async function copyOfRepository(copy: string): Promise<void> {
  const listed = ['ls-files', '-z', '--cached', '--others', '--exclude-standard'];
  const names = (await assertRuns('git', listed, { cwd: root })).split('\0');
  for (const name of names.filter((one) => one !== '' && existsSync(join(root, one)))) {
    if (lstatSync(join(root, name)).isSymbolicLink()) continue;
    mkdirSync(dirname(join(copy, name)), { recursive: true });
    copyFileSync(join(root, name), join(copy, name));
    utimesSync(join(copy, name), 1_000_000_000, 1_000_000_000);
  }
  for (const where of ['.', 'web'])
    symlinkSync(realpathSync(join(root, where, 'node_modules')), join(copy, where, 'node_modules'));
}

test('another folder, at another time, with other dates, rights and language, gives the same bytes', async () => {
  const [copy, again] = ['a-copy-with-a-longer-name', 'again'].map((name) => join(folder, name)) as [string, string];
  await copyOfRepository(copy);
  const made = `umask 077; exec '${process.execPath}' scripts/package.mjs --to '${again}'`;
  const env = { ...process.env, TZ: 'Pacific/Auckland', LC_ALL: 'C', LANG: 'C', TMPDIR: folder };
  await assertRuns('/bin/sh', ['-c', made], { cwd: copy, env });
  const digests = digestsOf(packages);
  assert.equal(Object.keys(digests).length, 2);
  assert.deepEqual(digestsOf(again), digests, `compare ${packages} and ${again}`);
});

let first: Started;
let key = '';
test('npx tokenhouse in an empty folder serves a real answer, and charges it', async () => {
  first = await start(empty);
  key = /tkh_[0-9A-Za-z]+/.exec(first.said)?.[0] ?? '';
  const answer = await fetch(`${first.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    body: JSON.stringify({
      model: 'smollm2-135m-instruct',
      messages: [{ role: 'user', content: 'What is the capital of France?' }],
      temperature: 0,
    }),
  });
  const { choices } = (await answer.json()) as { choices: { message: { content: string } }[] };
  assert.match(choices[0]!.message.content, /Paris/);
  const usage = await command('usage');
  assert.match(usage.stdout, /smollm2-135m-instruct.*\$0\.0000\d+ {2}finished/, usage.stderr);
});

test('its data are in the folder of the user, and the folder that it was started in stays empty', () => {
  assert.deepEqual(readdirSync(empty), []);
  assert.ok(existsSync(join(home, '.local', 'share', 'tokenhouse', 'data', 'tokenhouse.db')));
});

test('the console and the documentation are there at once', async () => {
  const page = async (path: string): Promise<string> => {
    const response = await fetch(first.accountUrl + path, { headers: { accept: 'text/html' } });
    assert.equal(response.status, 200, path);
    return await response.text();
  };
  const script = /<script type="module" src="(\/assets\/console-\w+\.js)">/.exec(await page('/'))?.[1];
  assert.ok(script !== undefined);
  assert.ok((await page(script)).length > 10_000);
  assert.match(await page('/docs/reference/account/keys'), /POST \/v1\/keys/);
  assert.match(await page('/docs/search?q=budget'), /href="\/docs\//);
});

test('what is fetched and installed for this platform is small, and nothing of it runs at its installation', () => {
  const names = [...registry.fetched.keys()].toSorted();
  const version = JSON.parse(readFileSync(inRepository('package.json'), 'utf8')) as { version: string };
  const platform = `tokenhouse-${process.platform}-${process.arch}-${version.version}.tgz`;
  assert.deepEqual(names, [`tokenhouse-${version.version}.tgz`, platform].toSorted());
  const fetched = [...registry.fetched.values()].reduce((sum, bytes) => sum + bytes, 0);
  const onDisk = bytesBelow(installed());
  const shown = `${(fetched / megabyte).toFixed(1)} MB fetched, ${(onDisk / megabyte).toFixed(1)} MB on disk`;
  console.log(shown);
  assert.ok(fetched <= fetchedBytesMax && onDisk <= installedBytesMax, shown);
  for (const part of readdirSync(join(packages, 'parts'))) {
    const file = readFileSync(join(packages, 'parts', part, 'package.json'), 'utf8');
    assert.deepEqual(
      Object.keys(JSON.parse(file) as object).filter((name) => /scripts|gypfile/.test(name)),
      [],
    );
  }
});

test('every library that is loaded only when it is needed is in it', async () => {
  const { stdout, stderr } = await command('doctor', '--json');
  const { checks } = JSON.parse(stdout) as { checks: { check: string; state: string; found: string }[] };
  assert.deepEqual(
    checks.filter(({ state }) => state === 'problem'),
    [],
    stderr,
  );
  assert.ok(checks.some(({ check, state }) => check === 'libraries' && state === 'ok'));
  const pdf = join(folder, 'a.pdf');
  writeFileSync(pdf, pdfOf(['A page of text.']));
  const child = join(installed(), 'tokenhouse', 'dist', 'pdf-child.js');
  const read = await run('/bin/sh', ['-c', `exec node '${child}' 10 1000 < '${pdf}'`], { cwd: empty });
  assert.match(read.stdout, /A page of text\./);
});

test('its bill of materials names what is bundled, with the versions of the lock files', () => {
  const parts = join(installed(), 'tokenhouse');
  const { components } = JSON.parse(readFileSync(join(parts, 'sbom.cdx.json'), 'utf8')) as {
    components: { group?: string; name: string; version: string; purl: string; hashes: object[] }[];
  };
  const listed = new Set(
    components.map(({ group, name, version }) => `${group === undefined ? name : `${group}/${name}`} ${version}`),
  );
  const { dependencies } = JSON.parse(readFileSync(inRepository('package.json'), 'utf8')) as {
    dependencies: Record<string, string>;
  };
  // Those build the program and are no part of it.
  const builders = new Set(['esbuild', 'marked']);
  for (const [name, version] of Object.entries(dependencies))
    if (!builders.has(name)) assert.ok(listed.has(`${name} ${version}`), name);
  assert.ok(
    [...listed].some((one) => one.startsWith('react ')),
    'the console too',
  );
  for (const { purl, hashes } of components) assert.equal(hashes.length, 1, purl);
  const licences = readFileSync(join(parts, 'THIRD-PARTY.txt'), 'utf8');
  for (const one of listed) assert.ok(licences.includes(`${one} (`), one);
});

test('a later start needs no registry, and goes on with the same key', async () => {
  await stop(first);
  const before = registry.fetched.size;
  const again = await start(empty);
  assert.doesNotMatch(again.said, /The first account was created/);
  const models = await fetch(`${again.url}/v1/models`, { headers: { authorization: `Bearer ${key}` } });
  assert.equal(models.status, 200);
  assert.equal(registry.fetched.size, before);
  await stop(again);
});

test('a message names commands that this installation has', async () => {
  const { stderr } = await run('npx', ['--yes', 'tokenhouse', 'keys', 'list'], {
    cwd: empty,
    env: { ...environment(), HOME: join(folder, 'nobody') },
  });
  assert.match(stderr, /Start the service once: npx tokenhouse serve/);
});

test('an installation without the native parts says what is missing', async () => {
  const bare = join(folder, 'bare');
  mkdirSync(bare);
  const done = await run('npm', ['install', 'tokenhouse', '--omit=optional'], { cwd: bare, env: environment() });
  assert.equal(done.code, 0, done.stderr);
  const { code, stderr } = await run(join(bare, 'node_modules', '.bin', 'tokenhouse'), [], {
    cwd: bare,
    env: environment(),
  });
  assert.equal(code, 1);
  assert.match(
    stderr,
    /^The package @tokenhouse\/[\w-]+ with the binaries of this computer is missing\. .*npm install/,
  );
});
