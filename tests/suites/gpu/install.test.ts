/** Builds of the engine for GPUs come from a registry that may be away, empty or false, onto a disk that may be full. */
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';

import { buildFor, engineVersion } from '../../../src/inference/engine-builds/builds.ts';
import { mainFile } from '../../support/built.ts';
import { runProcess } from '../../support/command.ts';
import { canCause } from '../../support/machine.ts';

const [wanted] = buildFor('vulkan', 'linux', 'x64')!.packages;

function folderOf(context: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), 'tokenhouse-gpu-'));
  context.after(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** A registry of npm with one package, which claims to be the build for Vulkan. `stated`: the hash that it states, if not the right one. */
async function falseRegistry(context: TestContext, stated?: string): Promise<string> {
  const folder = folderOf(context);
  const binaries = join(folder, 'package', 'bins', 'linux-x64-vulkan');
  mkdirSync(binaries, { recursive: true });
  writeFileSync(join(binaries, 'llama-addon.node'), 'not what it says');
  writeFileSync(join(folder, 'package', 'package.json'), JSON.stringify({ name: wanted.name, version: engineVersion }));
  assert.equal(spawnSync('tar', ['-czf', join(folder, 'a.tgz'), '-C', folder, 'package']).status, 0);
  const archive = readFileSync(join(folder, 'a.tgz'));
  const integrity = stated ?? `sha512-${createHash('sha512').update(archive).digest('base64')}`;
  return await serve(context, (url) => {
    if (url.endsWith('.tgz')) return archive;
    const version = { name: wanted.name, version: engineVersion, dist: { tarball: 'URL/a.tgz', integrity } };
    return JSON.stringify({ name: wanted.name, versions: { [engineVersion]: version } });
  });
}

async function serve(context: TestContext, answer: (url: string) => Buffer | string | undefined): Promise<string> {
  const server = createServer((request, response) => {
    const body = answer(request.url ?? '/');
    if (body === undefined) response.writeHead(404).end('{}');
    else response.end(typeof body === 'string' ? body.replaceAll('URL', `http://${request.headers.host}`) : body);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  context.after(() => {
    server.close();
    server.closeAllConnections();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
}

/** What is left of an installation that failed: nothing that looks like a build, and nothing that takes room. */
function assertNothingThere(modelDirectory: string): void {
  const engines = join(modelDirectory, '.engine');
  assert.deepEqual(existsSync(engines) ? readdirSync(engines) : [], []);
}

for (const { name, registry, why, repair } of [
  {
    name: 'a registry that has another package under the name, and states its hash',
    registry: (context: TestContext) => falseRegistry(context),
    why: /what the registry delivers is not the package that this version of Tokenhouse knows/,
    repair: /use another registry/,
  },
  {
    name: 'a registry that has another package under the name, and states the right hash',
    registry: (context: TestContext) => falseRegistry(context, wanted.integrity),
    why: /what the registry delivers is not the package that this version of Tokenhouse knows/,
    repair: /use another registry/,
  },
  {
    name: 'a registry without the package',
    registry: (context: TestContext) => serve(context, () => undefined),
    why: /the registry does not have the package \(E404\)/,
    repair: /npm config list/,
  },
  {
    name: 'a registry that cannot be reached',
    registry: () => Promise.resolve('http://127.0.0.1:9/'),
    why: /the npm registry cannot be reached \(ECONNREFUSED\)/,
    repair: /check the network/,
  },
])
  test(name, { timeout: 120_000 }, async (context) => {
    const folder = folderOf(context);
    const models = join(folder, 'models');
    const { code, stderr } = await runProcess(folder, ['engine', 'install', 'vulkan'], {
      TOKENHOUSE_MODEL_DIR: models,
      npm_config_registry: await registry(context),
      HOME: folder,
    });
    assert.equal(code, 69, stderr);
    assert.match(stderr, /The build for Vulkan was not installed, and nothing was changed\./);
    assert.match(stderr, why);
    assert.match(stderr, repair);
    assertNothingThere(models);
  });

test('a disk without room', async (context) => {
  if (!canCause(context, 'mount')) return;
  const folder = folderOf(context);
  const models = join(folder, 'models');
  mkdirSync(models);
  const script = `mount -t tmpfs -o size=60m tmpfs ${models} && "$@"; code=$?; ls -A ${models}/.engine; exit $code`;
  const args = ['-rm', 'sh', '-c', script, 'sh', process.execPath, mainFile, 'engine', 'install', 'vulkan'];
  const env = { ...process.env, TOKENHOUSE_MODEL_DIR: models };
  const child = spawn('unshare', args, { cwd: folder, env, stdio: ['ignore', 'pipe', 'pipe'] });
  let [stdout, stderr] = ['', ''];
  child.stdout.on('data', (text: Buffer) => (stdout += text.toString()));
  child.stderr.on('data', (text: Buffer) => (stderr += text.toString()));
  assert.equal(await new Promise((resolve) => child.once('close', resolve)), 69, stderr);
  assert.match(stderr, /118 MB are needed in .*, and \d+ MB are free there/);
  assert.match(stderr, /free some space, or name another folder with TOKENHOUSE_MODEL_DIR/);
  assert.equal(stdout, '');
});
