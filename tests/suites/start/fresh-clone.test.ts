/**
 * The first command of README.md as a newcomer gives it: a fresh clone, an empty home folder, and a registry. The model is in
 * its cache, because its download is the network's time and not ours.
 */
import assert from 'node:assert/strict';
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { homedir, tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, before, test } from 'node:test';

import { freePort } from '../../support/free-port.ts';
import { pdfOf } from '../../support/pdf-files.ts';
import { inRepository, root } from '../../support/repository.ts';
import { until } from '../../support/service.ts';

const bytesMax = 120 * 1024 * 1024;
const folder = mkdtempSync(join(tmpdir(), 'tokenhouse-fresh-'));
const clone = join(folder, 'clone');
const home = join(folder, 'home');
const environment = { ...process.env, HOME: home, XDG_CACHE_HOME: '', TOKENHOUSE_MODEL_DIR: modelFolder() };
const children = new Set<ChildProcess>();
after(() => {
  for (const child of children) signalGroup(child, 'SIGKILL');
  rmSync(folder, { recursive: true, force: true });
});

function modelFolder(): string {
  const cache = process.env['XDG_CACHE_HOME'] || join(homedir(), '.cache');
  return process.env['TOKENHOUSE_MODEL_DIR'] ?? join(cache, 'tokenhouse', 'models');
}

/** The files that git knows or would add: a clone of what is here, committed or not. */
before(() => {
  const listed = execFileSync('git', ['ls-files', '-z', '--cached', '--others', '--exclude-standard'], {
    cwd: root,
    encoding: 'utf8',
    maxBuffer: 64 * 1024 * 1024,
  });
  mkdirSync(home, { recursive: true });
  for (const file of listed.split('\0').filter((name) => name !== '' && existsSync(inRepository(name)))) {
    mkdirSync(dirname(join(clone, file)), { recursive: true });
    cpSync(inRepository(file), join(clone, file));
  }
});

interface Started {
  readonly child: ChildProcess;
  readonly url: string;
  readonly accountUrl: string;
  /** Until it was ready. */
  readonly said: string;
  /** Until now. */
  hasSaid(): string;
}

async function start(variables: Readonly<Record<string, string>> = {}): Promise<Started> {
  const ports = [await freePort(), await freePort()];
  const child = spawn('npm', ['start', '--', '--port', String(ports[0]), '--account-port', String(ports[1])], {
    cwd: clone,
    env: { ...environment, ...variables },
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
  const [url, accountUrl] = ports.map((port) => `http://localhost:${port}`);
  return { child, url: url!, accountUrl: accountUrl!, said, hasSaid: () => said };
}

/** As Ctrl-C does it: npm and the service have the signal, and npm may be gone before the service. */
async function stop({ child }: Started): Promise<void> {
  const ended = new Promise((resolve) => child.on('close', resolve));
  signalGroup(child, 'SIGINT');
  await ended;
}

function signalGroup({ pid }: ChildProcess, signal: NodeJS.Signals): void {
  try {
    process.kill(-pid!, signal);
  } catch {
    // All of it has ended.
  }
}

const command = (...args: string[]) =>
  spawnSync('npx', ['tokenhouse', ...args], { cwd: clone, env: environment, encoding: 'utf8' });

function bytesBelow(where: string): number {
  return readdirSync(where, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .reduce((sum, entry) => sum + statSync(join(entry.parentPath, entry.name)).size, 0);
}

let first: Started;
test('npm start sets up everything and serves a real answer', async () => {
  first = await start();
  assert.match(first.said, /^install {2}what runs/m);
  const key = /tkh_[0-9A-Za-z]+/.exec(first.said)?.[0] ?? '';
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
  const usage = command('usage');
  assert.match(usage.stdout, /smollm2-135m-instruct/, usage.stderr);
});

test('the console is built meanwhile, and its packages are gone afterwards', async () => {
  assert.match(
    first.said,
    /^ {2}Console http:\/\/localhost:\d+(?: {2}\(being built; .*\))?\n/m,
    'the first thing to open',
  );
  const page = async () => await fetch(first.accountUrl, { headers: { accept: 'text/html' } });
  await until(() => /^console {2}/m.test(first.hasSaid()), 240_000);
  assert.match(first.hasSaid(), /^console {2}\d+ files/m);
  const shown = await page();
  assert.equal(shown.status, 200);
  assert.match(await shown.text(), /<script type="module" src="\/assets\/console-\w+\.js">/);
  await until(() => !existsSync(join(clone, 'web', 'node_modules')));
});

test('the documentation is built after it, from what is installed to run', async () => {
  await until(() => /^docs {5}/m.test(first.hasSaid()), 240_000);
  assert.match(first.hasSaid(), /^docs {5}\d+ files/m);
  const page = await fetch(`${first.accountUrl}/docs/reference/account/keys`);
  assert.equal(page.status, 200);
  assert.match(await page.text(), /POST \/v1\/keys/);
});

test('what is installed and built takes at most 120 MB, without what is for development or another platform', () => {
  const bytes = bytesBelow(join(clone, 'node_modules')) + bytesBelow(join(clone, 'dist'));
  assert.ok(bytes < bytesMax, `${Math.round(bytes / 1024 / 1024)} MB in node_modules and dist`);
  for (const name of ['typescript', 'oxlint', 'prettier', 'smtp-server'])
    assert.ok(!existsSync(join(clone, 'node_modules', name)), name);
});

test('every library that is loaded only when it is needed is there', () => {
  const { stdout, stderr } = command('doctor', '--json');
  const { checks } = JSON.parse(stdout) as { checks: { check: string; state: string; found: string; why?: string }[] };
  const problems = checks.filter(({ state }) => state === 'problem');
  assert.deepEqual(problems, [], stderr);
  assert.ok(checks.some(({ check, state }) => check === 'libraries' && state === 'ok'));
  const pdf = join(folder, 'a.pdf');
  writeFileSync(pdf, pdfOf(['A page of text.']));
  const read = execFileSync('/bin/sh', ['-c', `exec node dist/pdf-child.js 10 1000 < '${pdf}'`], { cwd: clone });
  assert.match(read.toString(), /A page of text\./);
});

test('a later start installs nothing, needs no network, and goes on with the same data', async () => {
  await stop(first);
  const second = await start({ npm_config_offline: 'true' });
  assert.doesNotMatch(second.said, /^install/m);
  assert.doesNotMatch(second.said, /The first account was created/);
  assert.equal((await fetch(second.accountUrl, { headers: { accept: 'text/html' } })).status, 200);
  await stop(second);
  assert.doesNotMatch(second.hasSaid(), /^(install|console|docs)/m);
});

test('a start that cannot build the console, without a network, serves all the same and says why in one line', async () => {
  rmSync(join(clone, 'dist', 'console'), { recursive: true });
  const third = await start({ npm_config_offline: 'true', npm_config_cache: join(folder, 'no-cache') });
  await until(() => /^console {2}/m.test(third.hasSaid()), 240_000);
  const reasons = third
    .hasSaid()
    .split('\n')
    .filter((line) => line.startsWith('console  '));
  assert.deepEqual(
    reasons.map((line) => line.split(':')[0]),
    ['console  not built'],
  );
  const missing = await fetch(third.accountUrl, { headers: { accept: 'text/html' } });
  assert.equal(missing.status, 503);
  assert.match(await missing.text(), /npm run build console/);
  assert.equal((await fetch(`${third.url}/healthz`)).status, 200);
  await stop(third);
});

test('a source that needs more of the packages brings them back', () => {
  const source = join(clone, 'src', 'more-child.ts');
  const text = "import { jsonArrayFrom } from 'kysely/helpers/mssql';\nprocess.stdout.write(typeof jsonArrayFrom);\n";
  writeFileSync(source, text);
  const built = spawnSync('npm', ['run', 'build'], { cwd: clone, env: environment, encoding: 'utf8' });
  assert.equal(built.status, 0, built.stderr);
  assert.match(built.stderr, /^install {2}what runs/m);
  assert.equal(
    execFileSync(process.execPath, [join(clone, 'dist', 'more-child.js')], { encoding: 'utf8' }),
    'function',
  );
});
