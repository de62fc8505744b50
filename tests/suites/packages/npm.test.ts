/**
 * `npx tokenhouse` as a newcomer gives it: an empty folder, an empty home folder, and a registry that has our packages and no others.
 * The model is in its cache, because its download is the network's time and not ours.
 */
import assert from 'node:assert/strict';
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { homedir, tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { after, before, test } from 'node:test';

import { freePort } from '../../support/free-port.ts';
import { root } from '../../support/repository.ts';
import { until } from '../../support/service.ts';

const downloadBytesMax = 20e6;
const diskBytesMax = 60e6;

const folder = mkdtempSync(join(tmpdir(), 'tokenhouse-packages-'));
const at = (...names: string[]): string => join(folder, ...names);
const [home, empty] = [at('home'), at('empty')];
const platform = `${process.platform}-${process.arch}`;
const children = new Set<ChildProcess>();
after(() => {
  for (const { pid } of children) if (pid !== undefined) signalGroup(pid, 'SIGKILL');
  rmSync(folder, { recursive: true, force: true });
});

interface Package {
  readonly name: string;
  readonly version: string;
  readonly optionalDependencies?: Readonly<Record<string, string>>;
}

const archives = new Map<string, { readonly about: Package; readonly file: string }>();
const fetched: string[] = [];

/** What the registry says of a package. Those of other platforms are there too, but npm never fetches them. */
function listing(name: string, origin: string): unknown {
  const [system, processor] = name.slice('@tokenhouse/'.length).split('-');
  const { about, file } = archives.get(name) ?? {
    about: { name, version: archives.get('tokenhouse')!.about.version, os: [system], cpu: [processor] },
    file: 'none.tgz',
  };
  const dist = { tarball: `${origin}/archives/${basename(file)}` };
  return { name, 'dist-tags': { latest: about.version }, versions: { [about.version]: { ...about, dist } } };
}

const registry = createServer((request, response) => {
  const origin = `http://127.0.0.1:${(registry.address() as AddressInfo).port}`;
  const name = decodeURIComponent(request.url!.slice(1));
  if (name === 'tokenhouse' || /^@tokenhouse\/\w+-\w+$/.test(name)) {
    response.setHeader('content-type', 'application/json');
    response.end(JSON.stringify(listing(name, origin)));
  } else if (name.startsWith('archives/') && existsSync(at('packages', basename(name)))) {
    fetched.push(basename(name));
    response.end(readFileSync(at('packages', basename(name))));
  } else response.writeHead(404).end('{}');
});

function modelFolder(): string {
  const cache = process.env['XDG_CACHE_HOME'] || join(homedir(), '.cache');
  return process.env['TOKENHOUSE_MODEL_DIR'] ?? join(cache, 'tokenhouse', 'models');
}

let variables: NodeJS.ProcessEnv;
before(async () => {
  execFileSync(process.execPath, [join(root, 'scripts', 'packages.mjs'), at('packages'), platform], {
    stdio: ['ignore', 'inherit', 'inherit'],
  });
  for (const name of readdirSync(at('packages')).filter((one) => one.endsWith('.tgz'))) {
    const text = execFileSync('tar', ['-xzOf', at('packages', name), 'package/package.json'], { encoding: 'utf8' });
    const about = JSON.parse(text) as Package;
    archives.set(about.name, { about, file: name });
  }
  for (const one of [home, empty]) mkdirSync(one);
  await new Promise<void>((resolve) => registry.listen(0, '127.0.0.1', resolve));
  const ports = [await freePort(), await freePort()];
  variables = {
    PATH: process.env['PATH'],
    HOME: home,
    TOKENHOUSE_MODEL_DIR: modelFolder(),
    TOKENHOUSE_SERVER__INFERENCE__PORT: String(ports[0]),
    TOKENHOUSE_SERVER__ACCOUNT__PORT: String(ports[1]),
    npm_config_registry: `http://127.0.0.1:${(registry.address() as AddressInfo).port}`,
    npm_config_update_notifier: 'false',
    npm_config_audit: 'false',
  };
});
after(() => registry.close());

const command = (...args: string[]) =>
  spawnSync('npx', ['--yes', 'tokenhouse', ...args], { cwd: empty, env: variables, encoding: 'utf8' });

function signalGroup(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(-pid, signal);
  } catch {
    // All of it has ended.
  }
}

async function start(): Promise<{ readonly said: string; stop(): Promise<void> }> {
  const child = spawn('npx', ['--yes', 'tokenhouse'], {
    cwd: empty,
    env: variables,
    stdio: ['ignore', 'ignore', 'pipe'],
    detached: true,
  });
  children.add(child);
  let said = '';
  child.stderr.on('data', (text: Buffer) => (said += text.toString()));
  await until(() => {
    assert.equal(child.exitCode, null, said);
    return /^ready in /m.test(said);
  }, 240_000);
  return {
    said,
    stop: async () => {
      const ended = new Promise((resolve) => child.on('close', resolve));
      signalGroup(child.pid!, 'SIGINT');
      await ended;
    },
  };
}

test('nothing runs at the installation, and only the package of this platform is named with code', () => {
  assert.deepEqual([...archives.keys()].toSorted(), [`@tokenhouse/${platform}`, 'tokenhouse']);
  for (const { about } of archives.values()) {
    assert.ok(!('scripts' in about) && !('dependencies' in about), about.name);
    for (const dependency of Object.values(about.optionalDependencies ?? {})) assert.equal(dependency, about.version);
  }
});

test('npx tokenhouse gives a real answer, and bills it', async () => {
  const service = await start();
  const key = /tkh_[0-9A-Za-z]+/.exec(service.said)?.[0] ?? '';
  const answer = await fetch(`http://127.0.0.1:${variables['TOKENHOUSE_SERVER__INFERENCE__PORT']}/v1/chat/completions`, {
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
  const usage = command('usage', '--json');
  assert.match(usage.stdout, /smollm2-135m-instruct/, usage.stderr);
  assert.equal(command('ledger', 'verify').status, 0);
  await service.stop();
});

test('the data are in the data folder of the user, and the folder stays empty', () => {
  assert.deepEqual(readdirSync(empty), []);
  const parts = process.platform === 'darwin' ? ['Library', 'Application Support'] : ['.local', 'share'];
  assert.ok(existsSync(join(home, ...parts, 'tokenhouse', 'data', 'tokenhouse.db')));
});

test('a folder with data of its own keeps them', () => {
  mkdirSync(join(empty, 'data'));
  writeFileSync(join(empty, 'data', 'tokenhouse.db'), '');
  const shown = command('config', 'show', '--json');
  const { settings } = JSON.parse(shown.stdout) as { settings: { key: string; value: string }[] };
  assert.equal(settings.find(({ key }) => key === 'storage')?.value, `sqlite:${join(empty, 'data', 'tokenhouse.db')}`);
  rmSync(join(empty, 'data'), { recursive: true });
});

test('every library that is loaded only when it is needed is there', () => {
  const { stdout, stderr } = command('doctor', '--json');
  const { checks } = JSON.parse(stdout) as { checks: { check: string; state: string }[] };
  assert.ok(
    checks.some(({ check, state }) => check === 'libraries' && state === 'ok'),
    stderr,
  );
});

test('it takes at most 20 MB to fetch and 60 MB on disk', () => {
  assert.deepEqual(fetched.toSorted(), [...archives.values()].map(({ file }) => file).toSorted(), 'each once');
  const download = fetched.reduce((sum, file) => sum + statSync(at('packages', file)).size, 0);
  const installed = readdirSync(join(home, '.npm', '_npx'), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .reduce((sum, entry) => sum + statSync(join(entry.parentPath, entry.name)).size, 0);
  assert.ok(download < downloadBytesMax, `${download} bytes to fetch`);
  assert.ok(installed > 10e6 && installed < diskBytesMax, `${installed} bytes on disk`);
});
