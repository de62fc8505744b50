/** What comes from others: packages by their hash and licence, none with a new install script, actions of workflows by their commit. */
import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { it } from 'node:test';
import { inRepository, root } from '../support/repository.ts';
import { run } from '../support/run.ts';

interface Locked {
  readonly integrity?: string;
  readonly resolved?: string;
  readonly license?: string;
  readonly name?: string;
  readonly version: string;
  readonly dev?: boolean;
  readonly devOptional?: boolean;
  readonly hasInstallScript?: boolean;
}

/** Packages that would run something when they are installed. Ours run none (`npm ci --ignore-scripts`); who installs otherwise, does. */
const installScripts = ['@photostructure/sqlite', 'esbuild', 'node-llama-cpp'];

/** Licences of what is shipped: all allow it to be used, changed and passed on with its text (`THIRD-PARTY.txt`). */
const licences = ['0BSD', 'Apache-2.0', 'BSD-3-Clause', 'BlueOak-1.0.0', 'ISC', 'MIT', 'MIT-0', 'Unlicense'];
/** Its archive has the text of MIT, its description no licence. */
const unnamed = ['png-js'];

const lockOf = (folder: string): readonly (readonly [place: string, Locked])[] => {
  const { packages } = JSON.parse(readFileSync(path.join(root, folder, 'package-lock.json'), 'utf8')) as {
    packages: Readonly<Record<string, Locked>>;
  };
  return Object.entries(packages).filter(([place]) => place !== '');
};
const nameOf = (place: string): string => place.split('node_modules/').at(-1)!;
const isForDevelopment = ({ dev, devOptional }: Locked): boolean => dev === true || devOptional === true;

for (const [folder, least, isShipped] of [
  ['.', 50, true],
  ['web', 50, true],
  [path.join('tests', 'clients'), 20, false],
] as const) {
  const locked = lockOf(folder);
  const namesOf = (isFound: (one: Locked) => boolean): readonly string[] =>
    locked.filter(([, one]) => isFound(one)).map(([place]) => nameOf(place));

  it(`every locked package of ${folder} comes from the registry with its hash`, () => {
    assert.ok(locked.length > least);
    assert.deepEqual(
      namesOf(({ integrity = '' }) => !/^sha512-/.test(integrity)),
      [],
    );
    // A host written into the lock would keep others from using their own registry.
    assert.deepEqual(
      namesOf(({ resolved }) => resolved !== undefined),
      [],
    );
  });

  it(`no package of ${folder} brings a new install script`, () => {
    const found = namesOf(({ hasInstallScript }) => hasInstallScript === true);
    assert.deepEqual(
      found.filter((name) => !installScripts.includes(name)),
      [],
      'read what it runs and find out whether the package works without it, before you add it to this list',
    );
    if (folder === '.') assert.deepEqual(found.toSorted(), installScripts, 'one that is gone leaves the list');
  });

  if (isShipped)
    it(`what is shipped of ${folder} has a licence that allows it`, () => {
      const others = locked.filter(([, one]) => !isForDevelopment(one) && !licences.includes(one.license ?? ''));
      assert.deepEqual(
        others.map(([place, { license }]) => [nameOf(place), license]),
        folder === '.' ? unnamed.map((name) => [name, undefined]) : [],
      );
    });
}

it('actions are named by a commit, which nobody can move, and the version is beside it', () => {
  const folder = inRepository('.github', 'workflows');
  const uses = readdirSync(folder).flatMap((name) =>
    readFileSync(path.join(folder, name), 'utf8')
      .split('\n')
      .flatMap((line) => /^\s*(?:- )?uses: (.*)$/.exec(line)?.[1] ?? []),
  );
  assert.ok(uses.length > 10);
  const versions = new Map<string, string>();
  for (const one of uses) {
    const [, action, commit, version] = /^([\w-]+\/[\w-]+)@([0-9a-f]{40}) # (v\d+\.\d+\.\d+)$/.exec(one) ?? [];
    assert.ok(action !== undefined && commit !== undefined && version !== undefined, one);
    assert.equal(versions.get(action) ?? one, one, 'one action, one version');
    versions.set(action, one);
  }
});

it('the bills of materials name each shipped package of the locks, and the report each with its licence', async () => {
  const folder = mkdtempSync(path.join(tmpdir(), 'tokenhouse-sbom-'));
  try {
    const made = await run(process.execPath, [inRepository('scripts/sbom.mjs'), '--to', folder], { cwd: root });
    assert.equal(made.code, 0, made.stderr);
    const report = readFileSync(path.join(folder, 'licences.txt'), 'utf8').split('\n');
    for (const [file, of] of [
      ['program.cdx.json', '.'],
      ['console.cdx.json', 'web'],
    ] as const) {
      const text = readFileSync(path.join(folder, file), 'utf8');
      const { bomFormat, components } = JSON.parse(text) as {
        bomFormat: string;
        components: readonly { 'bom-ref': string; hashes: readonly unknown[] }[];
      };
      assert.equal(bomFormat, 'CycloneDX');
      const shipped = lockOf(of).filter(([, one]) => !isForDevelopment(one));
      const names = new Set(shipped.map(([place, { name = nameOf(place), version }]) => `${name}@${version}`));
      assert.deepEqual(components.map((one) => one['bom-ref']).toSorted(), [...names].toSorted());
      assert.ok(components.every(({ hashes }) => hashes.length === 1));
      for (const name of names) assert.ok(report.includes(`  ${name}`), name);
      assert.doesNotMatch(text, /timestamp|urn:uuid/, 'nothing of the run');
    }
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});
