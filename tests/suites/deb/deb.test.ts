/**
 * The Debian package in the life of a server: made of the npm packages, installed on a Debian 12 that has nothing else but Node,
 * upgraded, removed and purged. The Debian is booted by its own systemd, which runs the unit as it is installed.
 */
import assert from 'node:assert/strict';
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

import { inRepository, root } from '../../support/repository.ts';
import { longQuestion, question, requestFrom, streamFrom } from '../../support/request-from.ts';
import { assertRuns, run } from '../../support/run.ts';
import type { Ran } from '../../support/run.ts';
import { until } from '../../support/service.ts';
import { Machine } from './machine.ts';

const megabyte = 1024 * 1024;
const folder = mkdtempSync(join(tmpdir(), 'tokenhouse-deb-'));
const [parts, debian] = ['packages/parts', 'debian'].map((name) => join(folder, name)) as [string, string];
const inDebian = (path: string): string => join(debian, path);
const [data, cache] = ['/var/lib/tokenhouse', '/var/cache/tokenhouse'];
const configuration = '/etc/tokenhouse/tokenhouse.yaml';
const environmentFile = '/etc/tokenhouse/environment';
const nextVersion = '99.0.0-rc.1';
/** Its own network, so the defaults. */
const [inference, account] = ['http://127.0.0.1:8080', 'http://127.0.0.1:8081'];
const startTimeoutMs = 120_000;

/** All packages are made as of one time, whatever is committed meanwhile. */
const ofRepository = (variables: NodeJS.ProcessEnv = {}) => ({
  cwd: root,
  env: { ...process.env, SOURCE_DATE_EPOCH: '1700000000', ...variables },
});

async function packageOf(from: string, to: string, variables?: NodeJS.ProcessEnv): Promise<string> {
  const script = inRepository('scripts/package-deb.mjs');
  await assertRuns(process.execPath, [script, '--from', from, '--to', join(folder, to)], ofRepository(variables));
  const [name] = readdirSync(join(folder, to));
  return join(folder, to, name!);
}

/** Gives it to that Debian's own dpkg. */
function install(archive: string): Promise<Ran> {
  copyFileSync(archive, inDebian('/root/package.deb'));
  return machine.run('dpkg', '--install', '/root/package.deb');
}

async function assertInstalls(archive: string): Promise<void> {
  const { code, said } = await install(archive);
  assert.equal(code, 0, said);
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

/** The model's download is the network's time and not ours: its file as somebody who has it puts it there. */
function copyModel(): void {
  const cached =
    process.env['TOKENHOUSE_MODEL_DIR'] ??
    join(process.env['XDG_CACHE_HOME'] || join(homedir(), '.cache'), 'tokenhouse/models');
  const filter = (file: string): boolean => !/\.gguf$/.test(file) || /SmolLM2-135M/.test(file);
  cpSync(cached, inDebian(join(cache, 'models')), { recursive: true, filter });
}

let machine: Machine;
let first: string;
let next: string;
before(async () => {
  mkdirSync(debian);
  await assertRuns('tar', ['-xf', process.env['DEBIAN_ROOT']!, '-C', debian]);
  const packager = inRepository('scripts/package.mjs');
  await assertRuns(process.execPath, [packager, '--to', join(folder, 'packages')], ofRepository());
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
  machine = await Machine.boot(debian);
});
after(async () => {
  await machine?.shutDown();
  rmSync(folder, { recursive: true, force: true });
});

const systemctl = (...words: readonly string[]): Promise<string> => machine.assertRuns('systemctl', ...words);

/** What systemd says of the service, such as `MainPID`. */
const property = async (name: string): Promise<string> =>
  (await systemctl('show', '--property', name, '--value', 'tokenhouse')).trim();

/** What the service has said since the machine was booted. */
const journal = (): Promise<string> =>
  machine.assertRuns('journalctl', '--boot', '--unit', 'tokenhouse', '--output', 'cat', '--no-pager');

/** How often it has become ready since the machine was booted. */
const starts = async (): Promise<number> => (await journal()).match(/^ready in /gm)?.length ?? 0;

const untilStarts = (count: number): Promise<void> =>
  until(async () => {
    assert.notEqual(await property('ActiveState'), 'failed', await journal());
    return (await starts()) === count;
  }, startTimeoutMs);

/** Does what makes systemd start the service, and waits until it is ready. */
async function started(by: () => Promise<unknown>): Promise<void> {
  const before = await starts();
  await by();
  await untilStarts(before + 1);
}

let key = '';
async function assertAnswers(): Promise<void> {
  const { status, text } = await requestFrom(machine.network, `${inference}/v1/chat/completions`, {
    key,
    body: question,
  });
  assert.equal(status, 200, text);
  assert.match(text, /Paris/);
}

/** The rows that were charged. */
const charged = async (): Promise<number> =>
  (await machine.assertRuns('tokenhouse', 'usage')).match(/smollm2-135m-instruct.*\$0\.000\d+ {2}finished/g)?.length ??
  0;

const mode = (file: string): string => (statSync(inDebian(file)).mode & 0o777).toString(8);
const ownerOf = async (file: string): Promise<string> =>
  (await machine.assertRuns('stat', '--format=%U:%G', file)).trim();

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
  await assertInstalls(await nodePackage('18.20.4'));
  assert.match(
    (await machine.run('dpkg', '--configure', 'tokenhouse')).said,
    /Version of nodejs on system is 18\.20\.4/,
  );
  assert.ok(!existsSync(inDebian(data)));
});

test('with Node it is installed: a user without a shell, its folders, and a service that runs', async () => {
  copyModel();
  await assertInstalls(await nodePackage(process.versions.node));
  const startedAt = performance.now();
  await started(() => assertInstalls(first));
  console.log(`installed and ready after ${((performance.now() - startedAt) / 1000).toFixed(1)} s`);
  assert.match(
    await machine.assertRuns('getent', 'passwd', 'tokenhouse'),
    /:\/var\/lib\/tokenhouse:\/usr\/sbin\/nologin$/m,
  );
  assert.deepEqual([await ownerOf(data), mode(data)], ['tokenhouse:tokenhouse', '700']);
  assert.deepEqual([await ownerOf(configuration), mode(configuration)], ['root:root', '644']);
  assert.match(await systemctl('status', '--no-pager', 'tokenhouse'), /enabled.*\n +Active: active \(running\)/);
  await started(() => machine.assertRuns('dpkg-reconfigure', 'tokenhouse'));
});

test('the service gives a real answer to the first key, and charges it', async () => {
  const startedAt = performance.now();
  const made = await machine.assertRuns('tokenhouse', 'keys', 'create', '--name', 'first');
  key = /tkh_[0-9A-Za-z]+/.exec(made)![0];
  await assertAnswers();
  console.log(`a key and the first answer after ${((performance.now() - startedAt) / 1000).toFixed(1)} s`);
  await until(async () => (await charged()) === 1, 30_000);
  const files = readdirSync(inDebian(data));
  assert.ok(files.includes('tokenhouse.db'));
  for (const file of files) assert.equal(await ownerOf(join(data, file)), 'tokenhouse:tokenhouse', file);
  const page = await requestFrom(machine.network, `${account}/docs`, { options: ['--header', 'accept: text/html'] });
  assert.equal(page.status, 200);
  assert.doesNotMatch(await journal(), /tkh_/);
});

test('systemd has shut it in: no rights, no files but its own, and no system calls of administrators', async () => {
  const pid = await property('MainPID');
  const status = await machine.assertRuns('cat', `/proc/${pid}/status`);
  for (const line of [/^CapEff:\t0{16}$/m, /^CapBnd:\t0{16}$/m, /^NoNewPrivs:\t1$/m, /^Seccomp:\t2$/m])
    assert.match(status, line);
  const uid = (await machine.assertRuns('id', '-u', 'tokenhouse')).trim();
  assert.match(status, new RegExp(`^Uid:${`\t${uid}`.repeat(4)}$`, 'm'));
  // Even root, who can read all, cannot write where the service looks.
  const where = ['nsenter', '--target', pid, '--mount'];
  for (const place of ['/usr', '/etc', '/etc/tokenhouse', '/root', '/home', '/sys/fs', '/var/lib', '/opt'])
    assert.match(
      (await machine.run(...where, 'touch', join(place, 'x'))).said,
      /Read-only file system|Permission denied/,
      place,
    );
  for (const place of [data, cache, '/tmp']) {
    await machine.assertRuns(...where, 'touch', join(place, 'x'));
    await machine.assertRuns(...where, 'rm', join(place, 'x'));
  }
  const devices = await machine.assertRuns(...where, 'ls', '/dev');
  assert.match(devices, /^null$/m);
  assert.doesNotMatch(devices, /^(console|kmsg|fuse|tty1)$/m);
  const judged = await machine.assertRuns('systemd-analyze', 'security', '--no-pager', 'tokenhouse');
  const [line, exposure] = /Overall exposure level for tokenhouse\.service: (\d+\.\d)/.exec(judged)!;
  console.log(line);
  // What remains is the network, memory that V8 compiles into, and all of /proc that is not of processes.
  assert.ok(Number(exposure) <= 1.5, judged);
});

test('after kill -9 systemd starts it again, and keys, charges and answers go on', async () => {
  const pid = await property('MainPID');
  await started(() => machine.assertRuns('kill', '-9', pid));
  assert.notEqual(await property('MainPID'), pid);
  assert.equal(await property('NRestarts'), '1');
  await assertAnswers();
  await until(async () => (await charged()) === 2, 30_000);
});

test('a reload takes an edited configuration, and a wrong one is refused without a stop', async () => {
  const written = readFileSync(inDebian(configuration), 'utf8');
  const pid = await property('MainPID');
  writeFileSync(inDebian(configuration), `${written}server: { limits: { drain_timeout_seconds: 29 } }\n`);
  await systemctl('reload', 'tokenhouse');
  await until(async () => /config_reloaded.*drainTimeoutMs/.test(await journal()), 30_000);
  writeFileSync(inDebian(configuration), `${written}server: { limits: { drain_timeout_second: 29 } }\n`);
  await systemctl('reload', 'tokenhouse');
  await until(async () => /drain_timeout_second\b/.test(await journal()), 30_000);
  assert.deepEqual([await property('ActiveState'), await property('MainPID')], ['active', pid]);

  // A start with it ends with 78, and systemd leaves it at that.
  await machine.run('systemctl', 'restart', 'tokenhouse');
  await until(async () => (await property('ActiveState')) === 'failed', startTimeoutMs);
  assert.equal(await property('ExecMainStatus'), '78');
  assert.equal(await property('Result'), 'exit-code');
  writeFileSync(inDebian(configuration), written);
  await started(() => systemctl('start', 'tokenhouse'));
});

test('a stop lets a running answer finish, and refuses others meanwhile', async () => {
  const stream = streamFrom(machine.network, `${inference}/v1/chat/completions`, key, longQuestion);
  await until(() => stream.text().includes('"content"'), 60_000);
  const stopped = systemctl('stop', 'tokenhouse');
  await until(async () => /^stopping: /m.test((await journal()).split(/^ready in /m).at(-1)!), 30_000);
  assert.doesNotMatch(stream.text(), /\[DONE\]/, 'the answer was over before the stop');
  await stopped;
  assert.match(await stream.whole, /data: \[DONE\]\n\n$/);
  assert.deepEqual([await property('Result'), await property('ExecMainStatus')], ['success', '0']);
  assert.equal(await property('ActiveState'), 'inactive');
  assert.equal(await charged(), 3);
});

test('an upgrade starts the other version, and keeps data, key and the configuration that was edited', async () => {
  const edited = `${readFileSync(inDebian(configuration), 'utf8')}# edited\n`;
  writeFileSync(inDebian(configuration), edited);
  await started(() => systemctl('start', 'tokenhouse'));
  const pid = await property('MainPID');
  await started(() => assertInstalls(next));
  assert.notEqual(await property('MainPID'), pid);
  const shown = await machine.assertRuns('dpkg-query', '--show', '--showformat=${Version}', 'tokenhouse');
  assert.equal(shown, nextVersion.replace('-', '~'));
  await machine.assertRuns('dpkg', '--compare-versions', shown, 'lt', '99.0.0');
  assert.equal(readFileSync(inDebian(configuration), 'utf8'), edited);
  await assertAnswers();
  await until(async () => (await charged()) === 4, 30_000);
});

test('the service starts with the computer, whose shutdown stops it in good order', async () => {
  await machine.shutDown();
  machine = await Machine.boot(debian);
  await untilStarts(1);
  await assertAnswers();
  await until(async () => (await charged()) === 5, 30_000);
});

test('a removal stops it and keeps data and configuration, and a later installation goes on with them', async () => {
  const pid = await property('MainPID');
  await machine.assertRuns('dpkg', '--remove', 'tokenhouse');
  assert.notEqual((await machine.run('kill', '-0', pid)).code, 0);
  assert.equal(await property('LoadState'), 'not-found');
  assert.ok(!existsSync(inDebian('/usr/lib/tokenhouse')) && !existsSync(inDebian('/usr/bin/tokenhouse')));
  writeFileSync(inDebian(environmentFile), 'TOKENHOUSE_METRICS_TOKEN=secret-of-the-metrics-that-nobody-guesses\n', {
    mode: 0o600,
  });
  for (const file of [configuration, join(data, 'tokenhouse.db')]) assert.ok(existsSync(inDebian(file)), file);
  await started(() => assertInstalls(first));
  assert.equal(await charged(), 5);
  // Root's file of secrets is read by systemd, before the service gives up its rights.
  const metrics = await requestFrom(machine.network, `${account}/metrics`, {
    key: 'secret-of-the-metrics-that-nobody-guesses',
  });
  assert.deepEqual([metrics.status, mode(environmentFile)], [200, '600']);
});

test('a purge removes data, models, configuration and secrets', async () => {
  await machine.assertRuns('dpkg', '--purge', 'tokenhouse');
  for (const file of [data, cache, '/etc/tokenhouse', '/usr/lib/tokenhouse', '/usr/share/doc/tokenhouse'])
    assert.ok(!existsSync(inDebian(file)), file);
  const left = await run('find', [inDebian('/etc/systemd'), inDebian('/var/lib/systemd'), '-name', '*tokenhouse*']);
  assert.equal(left.said, '');
  assert.equal(await property('LoadState'), 'not-found');
  const again = await machine.run('dpkg', '--purge', 'tokenhouse');
  assert.equal(again.code, 0, again.said);
});
