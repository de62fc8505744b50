/**
 * The Debian package in the life of a server: made of the npm packages, installed on a Debian 12 that has nothing else but Node,
 * upgraded, removed and purged. There is no systemd in it: the service is started as its unit says, by its user, with its variables.
 */
import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import {
  chmodSync,
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { homedir, tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { freePort } from '../../support/free-port.ts';
import { inRepository, root } from '../../support/repository.ts';
import { until } from '../../support/service.ts';

const megabyte = 1024 * 1024;
const folder = mkdtempSync(join(tmpdir(), 'tokenhouse-deb-'));
const [parts, debian] = ['packages/parts', 'debian'].map((name) => join(folder, name)) as [string, string];
const inDebian = (path: string): string => join(debian, path);
const [data, models] = ['/var/lib/tokenhouse', '/var/cache/tokenhouse/models'];
const configuration = '/etc/tokenhouse/tokenhouse.yaml';
const environmentFile = '/etc/tokenhouse/environment';
const path = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';
const nextVersion = '99.0.0-rc.1';

interface Ran {
  readonly code: number | null;
  readonly said: string;
}

/** All are made as of one time, whatever is committed meanwhile. */
const madeAt = { SOURCE_DATE_EPOCH: '1700000000' };

function run(command: string, args: readonly string[], variables: NodeJS.ProcessEnv = {}): Promise<Ran> {
  return new Promise((resolve) => {
    const options = { cwd: root, maxBuffer: 64 * megabyte, env: { ...process.env, ...madeAt, ...variables } };
    execFile(command, args, options, (error, stdout, stderr) =>
      resolve({ code: error === null ? 0 : Number(error.code ?? 1), said: stdout + stderr }),
    );
  });
}

async function assertRuns(command: string, args: readonly string[], variables?: NodeJS.ProcessEnv): Promise<string> {
  const { code, said } = await run(command, args, variables);
  assert.equal(code, 0, `${command} ${args.join(' ')}\n${said}`);
  return said;
}

/** A command of that Debian, with a `/proc` that goes with it, and nothing of this process's environment. */
const within = (words: readonly string[], user = 'root'): readonly [string, string[]] => [
  'unshare',
  [
    ...[
      '--mount',
      'sh',
      '-c',
      'mount -t proc proc "$0/proc" && exec chroot "$@"',
      debian,
      `--userspec=${user}`,
      debian,
    ],
    ...['env', '-i', `PATH=${path}`, 'DEBIAN_FRONTEND=noninteractive', ...words],
  ],
];
const runWithin = (...words: string[]): Promise<Ran> => run(...within(words));
const assertRunsWithin = (...words: string[]): Promise<string> => assertRuns(...within(words));

async function packageOf(from: string, to: string, variables?: NodeJS.ProcessEnv): Promise<string> {
  const script = inRepository('scripts/package-deb.mjs');
  await assertRuns(process.execPath, [script, '--from', from, '--to', join(folder, to)], variables);
  const [name] = readdirSync(join(folder, to));
  return join(folder, to, name!);
}

/** Gives it to that Debian's own dpkg. */
function install(archive: string, ...options: string[]): Promise<Ran> {
  copyFileSync(archive, inDebian('/tmp/package.deb'));
  return runWithin('dpkg', ...options, '--install', '/tmp/package.deb');
}

/** This computer's Node as Debian would have it. */
async function nodePackage(named: string): Promise<string> {
  const tree = join(folder, `nodejs-${named}`);
  mkdirSync(join(tree, 'DEBIAN'), { recursive: true });
  mkdirSync(join(tree, 'usr/bin'), { recursive: true });
  copyFileSync(process.execPath, join(tree, 'usr/bin/node'));
  chmodSync(join(tree, 'usr/bin/node'), 0o755);
  const control = `Package: nodejs\nVersion: ${named}\nArchitecture: amd64\nMaintainer: Tests <tests@localhost>\nDescription: Node.js\n`;
  writeFileSync(join(tree, 'DEBIAN/control'), control);
  await assertRuns('dpkg-deb', ['--root-owner-group', '-Znone', '--build', tree, `${tree}.deb`]);
  return `${tree}.deb`;
}

let first: string;
let next: string;
before(async () => {
  mkdirSync(debian);
  await assertRuns('tar', ['-xf', process.env['DEBIAN_ROOT']!, '-C', debian]);
  await assertRuns(process.execPath, [inRepository('scripts/package.mjs'), '--to', join(folder, 'packages')]);
  first = await packageOf(join(folder, 'packages'), 'first');
  const later = join(folder, 'later', 'parts');
  cpSync(parts, later, { recursive: true });
  for (const part of readdirSync(later)) {
    const file = join(later, part, 'package.json');
    writeFileSync(
      file,
      JSON.stringify({ ...(JSON.parse(readFileSync(file, 'utf8')) as object), version: nextVersion }),
    );
  }
  // Nobody looks at its size.
  next = await packageOf(join(folder, 'later'), 'next', { DPKG_DEB_COMPRESSOR_LEVEL: '1' });
});
after(async () => {
  if (service !== undefined) await stop();
  rmSync(folder, { recursive: true, force: true });
});

let service: ChildProcess | undefined;
let ports: readonly number[];
let key = '';

/** The unit as it is installed, started as systemd would: its user, command, variables and mask. */
async function start(): Promise<void> {
  const unit = readFileSync(inDebian('/usr/lib/systemd/system/tokenhouse.service'), 'utf8');
  const all = (name: string): string[] =>
    [...unit.matchAll(new RegExp(`^${name}=(.*)$`, 'gm'))].map(([, value]) => value!);
  const [user, mask] = [all('User')[0]!, all('UMask')[0]!];
  assert.deepEqual(all('EnvironmentFile'), [`-${environmentFile}`]);
  const secrets = readFileSync(inDebian(environmentFile), 'utf8').split('\n').filter(Boolean);
  const variables = [...all('Environment'), ...secrets, `HOME=${data}`, `USER=${user}`];
  const command = ['sh', '-c', 'umask "$0"; exec "$@"', mask, ...all('ExecStart')[0]!.split(' ')];
  const child = spawn(...within([...variables, ...command], `${user}:${user}`), {
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  service = child;
  let said = '';
  child.stderr.on('data', (text: Buffer) => (said += text.toString()));
  await until(() => {
    assert.equal(child.exitCode, null, said);
    return /^ready in /m.test(said);
  }, 120_000);
}

/** Ends with what systemd would take for a clean end. */
async function stop(): Promise<void> {
  const child = service!;
  service = undefined;
  const ended = new Promise((resolve) => child.on('close', resolve));
  child.kill('SIGTERM');
  await ended;
  assert.deepEqual([child.exitCode, child.signalCode], [0, null]);
}

async function ask(): Promise<string> {
  const answer = await fetch(`http://127.0.0.1:${ports[0]}/v1/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    body: JSON.stringify({
      model: 'smollm2-135m-instruct',
      messages: [{ role: 'user', content: 'What is the capital of France?' }],
      temperature: 0,
    }),
  });
  const text = await answer.text();
  assert.equal(answer.status, 200, text);
  return (JSON.parse(text) as { choices: { message: { content: string } }[] }).choices[0]!.message.content;
}

/** The rows that were charged. */
const charged = async (): Promise<number> =>
  (await assertRunsWithin('tokenhouse', 'usage')).match(/smollm2-135m-instruct.*\$0\.0000\d+ {2}finished/g)?.length ??
  0;

const mode = (file: string): string => (statSync(inDebian(file)).mode & 0o777).toString(8);
const ownerOf = async (file: string): Promise<string> =>
  (await assertRunsWithin('stat', '--format=%U:%G', file)).trim();

test('the same packages give the same bytes, without an error of lintian', async () => {
  const again = await packageOf(join(folder, 'packages'), 'again');
  assert.ok(readFileSync(again).equals(readFileSync(first)));
  console.log(`${(statSync(first).size / megabyte).toFixed(1)} MB to fetch`);
  // Who publishes the package names an address that receives mail.
  const address = 'bogus-mail-host,bogus-mail-host-in-debian-changelog';
  const { said } = await run('lintian', ['--no-cfg', '--suppress-tags', address, first]);
  assert.deepEqual(
    said.split('\n').filter((line) => line.startsWith('E:')),
    [],
  );
});

test('without Node, or with that of Debian 12, dpkg does not set it up', async () => {
  const without = await install(first);
  assert.notEqual(without.code, 0);
  assert.match(without.said, /tokenhouse depends on nodejs \(>= 20\.19\)/);
  assert.ok((await install(await nodePackage('18.20.4'))).code === 0);
  assert.match((await runWithin('dpkg', '--configure', 'tokenhouse')).said, /Version of nodejs on system is 18\.20\.4/);
  assert.ok(!existsSync(inDebian(data)));
});

test('with Node it is installed: a user without a shell, its folders, and a unit that starts with the computer', async () => {
  assert.ok((await install(await nodePackage(process.versions.node))).code === 0);
  const done = await install(first);
  assert.equal(done.code, 0, done.said);
  assert.match(
    await assertRunsWithin('getent', 'passwd', 'tokenhouse'),
    /:\/var\/lib\/tokenhouse:\/usr\/sbin\/nologin$/m,
  );
  assert.deepEqual([await ownerOf(data), mode(data)], ['tokenhouse:tokenhouse', '700']);
  assert.deepEqual([await ownerOf(configuration), mode(configuration)], ['root:root', '644']);
  assert.ok(readdirSync(inDebian('/etc/systemd/system/multi-user.target.wants')).includes('tokenhouse.service'));
  const repeated = await runWithin('dpkg-reconfigure', 'tokenhouse');
  assert.equal(repeated.code, 0, repeated.said);
});

test('the service that its unit starts gives a real answer to the first key, and charges it', async () => {
  ports = [await freePort(), await freePort()];
  const names = ['INFERENCE', 'ACCOUNT'];
  const lines = names.map((name, index) => `TOKENHOUSE_SERVER__${name}__PORT=${ports[index]}\n`);
  writeFileSync(inDebian(environmentFile), lines.join(''), { mode: 0o600 });
  // Its download is the network's time and not ours.
  const cached =
    process.env['TOKENHOUSE_MODEL_DIR'] ??
    join(process.env['XDG_CACHE_HOME'] || join(homedir(), '.cache'), 'tokenhouse/models');
  cpSync(cached, inDebian(models), {
    recursive: true,
    filter: (file) => !/\.gguf$/.test(file) || /SmolLM2-135M/.test(file),
  });
  await assertRunsWithin('chown', '-R', 'tokenhouse:tokenhouse', '/var/cache/tokenhouse');
  await start();
  key = /tkh_[0-9A-Za-z]+/.exec(await assertRunsWithin('tokenhouse', 'keys', 'create', '--name', 'first'))![0];
  assert.match(await ask(), /Paris/);
  await until(async () => (await charged()) === 1, 30_000);
  const files = readdirSync(inDebian(data));
  assert.ok(files.includes('tokenhouse.db'));
  for (const file of files) assert.equal(await ownerOf(join(data, file)), 'tokenhouse:tokenhouse', file);
  const page = await fetch(`http://127.0.0.1:${ports[1]}/docs`, { headers: { accept: 'text/html' } });
  assert.equal(page.status, 200);
  await stop();
});

test('an upgrade keeps data, key and the configuration that was edited', async () => {
  const edited = `${readFileSync(inDebian(configuration), 'utf8')}# edited\n`;
  writeFileSync(inDebian(configuration), edited);
  const done = await install(next);
  assert.equal(done.code, 0, done.said);
  const shown = await assertRunsWithin('dpkg-query', '--show', '--showformat=${Version}', 'tokenhouse');
  assert.equal(shown, nextVersion.replace('-', '~'));
  const compared = ['dpkg', '--compare-versions', shown, 'lt', '99.0.0'];
  await assertRunsWithin(...compared);
  assert.equal(readFileSync(inDebian(configuration), 'utf8'), edited);
  await start();
  assert.match(await ask(), /Paris/);
  await until(async () => (await charged()) === 2, 30_000);
  await stop();
});

test('a removal keeps data and configuration, and a later installation goes on with them', async () => {
  await assertRunsWithin('dpkg', '--remove', 'tokenhouse');
  assert.ok(!existsSync(inDebian('/usr/lib/tokenhouse')) && !existsSync(inDebian('/usr/bin/tokenhouse')));
  for (const file of [configuration, environmentFile, join(data, 'tokenhouse.db')])
    assert.ok(existsSync(inDebian(file)), file);
  const done = await install(first);
  assert.equal(done.code, 0, done.said);
  assert.equal(await charged(), 2);
});

test('a purge removes data, models, configuration and secrets', async () => {
  await assertRunsWithin('dpkg', '--purge', 'tokenhouse');
  for (const file of [
    data,
    '/var/cache/tokenhouse',
    '/etc/tokenhouse',
    '/usr/lib/tokenhouse',
    '/usr/share/doc/tokenhouse',
  ])
    assert.ok(!existsSync(inDebian(file)), file);
  const left = await run('find', [inDebian('/etc/systemd'), inDebian('/var/lib/systemd'), '-name', '*tokenhouse*']);
  assert.equal(left.said, '');
  const again = await runWithin('dpkg', '--purge', 'tokenhouse');
  assert.equal(again.code, 0, again.said);
});
