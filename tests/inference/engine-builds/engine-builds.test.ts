import assert from 'node:assert/strict';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';

import { BuildProblem } from '../../../src/inference/engine-builds/build-problem.ts';
import { buildFor, buildsForPlatforms, engineVersion } from '../../../src/inference/engine-builds/builds.ts';
import { installBuild } from '../../../src/inference/engine-builds/install.ts';
import { buildFolder, installedBuilds, noteName, removeBuild } from '../../../src/inference/engine-builds/installed.ts';
import { problemOf } from '../../../src/inference/engine-builds/npm.ts';
import { inRepository } from '../../support/repository.ts';

function folderOf(context: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), 'tokenhouse-builds-'));
  context.after(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

test('builds are of the release of node-llama-cpp that the program is made with', () => {
  const lock = JSON.parse(readFileSync(inRepository('package-lock.json'), 'utf8')) as {
    readonly packages: Readonly<Record<string, { readonly version: string; optionalDependencies?: object }>>;
  };
  const { version, optionalDependencies = {} } = lock.packages['node_modules/node-llama-cpp']!;
  assert.equal(engineVersion, version);
  for (const { packages, binaries, os, cpu, kind } of buildsForPlatforms) {
    assert.equal(binaries, `${os === 'win32' ? 'win' : os}-${cpu}-${kind}`);
    for (const { name, integrity, packedBytes, bytes } of packages) {
      assert.ok(Object.hasOwn(optionalDependencies, name), name);
      assert.match(integrity, /^sha512-[A-Za-z0-9+/]{86}==$/);
      assert.ok(packedBytes > 10e6 && packedBytes < bytes, name);
    }
  }
  // All that node-llama-cpp has, and each only once.
  const known = buildsForPlatforms.flatMap(({ packages }) => packages.map(({ name }) => name));
  const there = Object.keys(optionalDependencies).filter((name) => /-(cuda|vulkan)(-ext)?$/.test(name));
  assert.deepEqual(known.toSorted(), there.toSorted());
});

test('platforms for which there are none', async (context) => {
  const engineFolder = folderOf(context);
  for (const [os, cpu, kind, says] of [
    ['darwin', 'arm64', 'cuda', /there is no build for cuda on darwin arm64/],
    ['linux', 'arm64', 'vulkan', /there is no build for vulkan on linux arm64/],
    ['freebsd', 'x64', 'vulkan', /there is no build for vulkan on freebsd x64/],
  ] as const) {
    assert.equal(buildFor(kind, os, cpu), undefined);
    await assert.rejects(
      installBuild(kind, { engineFolder, variables: {}, platform: { os, cpu } }),
      (error: unknown) =>
        error instanceof BuildProblem &&
        error.kind === 'platform' &&
        says.test(error.message) &&
        (os === 'darwin') === (error.remedy !== undefined),
    );
  }
  assert.deepEqual(readdirSync(engineFolder), []);
});

test('a computer without npm', async (context) => {
  const engineFolder = folderOf(context);
  await assert.rejects(
    installBuild('vulkan', {
      ...{ engineFolder, variables: { PATH: engineFolder }, node: join(engineFolder, 'bin', 'node') },
      platform: { os: 'linux', cpu: 'x64' },
    }),
    (error: unknown) =>
      error instanceof BuildProblem && error.kind === 'npm' && /comes with Node/.test(error.remedy ?? ''),
  );
  assert.deepEqual(readdirSync(engineFolder), []);
});

test('what npm reports, in words', () => {
  for (const [code, kind, says] of [
    ['EINTEGRITY', 'package', /its checksum is another/],
    ['E404', 'package', /does not have the package/],
    ['ENOSPC', 'space', /the disk is full/],
    ['E401', 'network', /refuses access/],
    ['ENOTFOUND', 'network', /cannot be reached \(ENOTFOUND\)/],
    ['EOTHER', 'npm', /^npm failed: EOTHER it was so$/],
  ] as const) {
    for (const prefix of ['npm error', 'npm ERR!']) {
      const problem = problemOf(`${prefix} code ${code}\n${prefix} it was so\n`, 1);
      assert.equal(problem.kind, kind, code);
      assert.match(problem.message, says);
    }
  }
  const withKey = problemOf('npm error code EOTHER\nnpm error at https://name:key@registry.test/\n', 1);
  assert.equal(withKey.message, 'npm failed: EOTHER at https://registry.test/');
  assert.equal(problemOf('', 7).message, 'npm failed with code 7');
});

/** A build as an installation leaves it. */
function make(engineFolder: string, version: string, kind: 'cuda' | 'vulkan', isWhole = true): string {
  const folder = buildFolder(engineFolder, version, kind);
  mkdirSync(join(folder, 'bins'), { recursive: true });
  writeFileSync(join(folder, noteName), JSON.stringify({ binaries: 'bins', furtherBinaries: null, bytes: 7 }));
  if (isWhole) writeFileSync(join(folder, 'bins', 'llama-addon.node'), '');
  return folder;
}

test('what is installed: whole builds, those of this release first', async (context) => {
  const engineFolder = folderOf(context);
  assert.deepEqual(installedBuilds(join(engineFolder, 'none')), []);
  const old = make(engineFolder, '3.0.0', 'vulkan');
  const usable = make(engineFolder, engineVersion, 'vulkan');
  make(engineFolder, engineVersion, 'cuda', false);
  mkdirSync(join(engineFolder, '.making-cuda'));
  writeFileSync(join(engineFolder, 'other'), '');
  assert.deepEqual(
    installedBuilds(engineFolder).map(({ kind, version, isUsable }) => [kind, version, isUsable]),
    [
      ['vulkan', engineVersion, true],
      ['vulkan', '3.0.0', false],
    ],
  );
  assert.equal((await removeBuild(engineFolder, 'cuda')).length, 0);
  assert.equal((await removeBuild(engineFolder, 'vulkan')).length, 2);
  assert.ok(!existsSync(old) && !existsSync(usable));
  assert.deepEqual(installedBuilds(engineFolder), []);
});
