import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { pathToFileURL } from 'node:url';
import { root } from '../support/repository.ts';

interface Kept {
  readonly folder: string;
  readonly made: Promise<void>;
}
const script = pathToFileURL(path.join(root, 'scripts', 'kept-builds.mjs')).href;
const { keptBuild } = (await import(script)) as {
  keptBuild(build: {
    readonly below: string;
    readonly kind: string;
    readonly recipe: readonly string[];
    readonly entries: readonly string[];
    readonly make: (folder: string) => Promise<readonly string[] | undefined>;
    readonly now?: number;
  }): Kept;
};

/** Sources that were written some time ago, and builds of them: `build` resolves with a folder and says whether it was made now. */
function workshop(t: TestContext) {
  const place = mkdtempSync(path.join(tmpdir(), 'tokenhouse-kept-'));
  t.after(() => rmSync(place, { recursive: true, force: true }));
  const below = path.join(place, 'dist');
  const source = path.join(place, 'source.ts');
  const installed = path.join(place, 'node_modules', 'library.js');
  const write = (file: string, text: string, ageSeconds = 60): void => {
    mkdirSync(path.dirname(file), { recursive: true });
    writeFileSync(file, text);
    const then = new Date(Date.now() - ageSeconds * 1_000);
    utimesSync(file, then, then);
  };
  write(source, 'one');
  write(installed, 'one');
  const build = async ({
    recipe = ['as usual'],
    entries = ['a', 'b'],
    inputs = [source, installed],
    during = () => {},
    now = Date.now(),
  }: {
    readonly recipe?: readonly string[];
    readonly entries?: readonly string[];
    readonly inputs?: readonly string[] | 'nobody knows';
    readonly during?: () => void;
    readonly now?: number;
  } = {}) => {
    let isNew = false;
    const make = (folder: string): Promise<readonly string[] | undefined> => {
      isNew = true;
      writeFileSync(path.join(folder, 'outcome'), entries.join(' '));
      during();
      return Promise.resolve(inputs === 'nobody knows' ? undefined : inputs);
    };
    const { folder, made } = keptBuild({ below, kind: 'build', recipe, entries, make, now });
    await made;
    assert.ok(existsSync(path.join(folder, 'outcome')));
    return { folder, isNew };
  };
  return { below, source, installed, write, build };
}

describe('a build that is kept', () => {
  it('is taken while nothing has changed, for fewer entries too', async (t) => {
    const { build, source, write } = workshop(t);
    const { folder, isNew } = await build();
    assert.ok(isNew);
    assert.deepEqual(await build(), { folder, isNew: false });
    assert.deepEqual(await build({ entries: ['b'] }), { folder, isNew: false });
    write(source, 'one', 30);
    assert.deepEqual(await build(), { folder, isNew: false }, 'the content counts, whenever it was written');
  });

  it('is made again after every change of what decides about it', async (t) => {
    const { build, source, installed, write, below } = workshop(t);
    const changes: readonly (readonly [string, () => Promise<{ readonly isNew: boolean }>])[] = [
      ['more entries', () => build({ entries: ['a', 'b', 'c'] })],
      ['another recipe', () => build({ recipe: ['as usual', ''] })],
      ['the same texts, divided in another way', () => build({ recipe: ['as', 'usual'] })],
      [
        'a source of the same length and time',
        () => {
          const { mtimeMs } = statSync(source);
          write(source, 'two', (Date.now() - mtimeMs) / 1_000);
          return build();
        },
      ],
      [
        'what is installed',
        () => {
          write(installed, 'one', 40);
          return build();
        },
      ],
      [
        'a manifest that cannot be read',
        async () => {
          const { folder } = await build();
          for (const text of ['{', '[]', '{"recipe":"x"}', '{"entries":["a","b"],"inputs":{}}'])
            writeFileSync(path.join(folder, 'kept.json'), text);
          return await build();
        },
      ],
      [
        'a source that is gone',
        () => {
          rmSync(source);
          return build({ inputs: [installed] });
        },
      ],
    ];
    for (const [what, change] of changes) {
      rmSync(below, { recursive: true, force: true });
      assert.ok((await build()).isNew);
      assert.ok((await change()).isNew, what);
    }
  });

  it('is for one run alone where nobody knows what it was made of', async (t) => {
    const { build, source, write } = workshop(t);
    for (const options of [
      { inputs: 'nobody knows' } as const,
      { inputs: [`${source}-gone`] },
      { during: () => write(source, 'changed meanwhile', -1) },
    ]) {
      assert.ok((await build(options)).isNew);
      assert.ok((await build(options)).isNew);
    }
  });

  it('goes when nobody could take it, but not while somebody uses it', async (t) => {
    const { build, source, below, write } = workshop(t);
    /** A build in a process of its own, which is killed. */
    const elsewhere = `
      import { keptBuild } from ${JSON.stringify(script)};
      const make = async () => [${JSON.stringify(source)}];
      const { made } = keptBuild({ below: ${JSON.stringify(below)}, kind: 'build', recipe: ['other'], entries: [], make });
      await made;
      process.kill(process.pid, 'SIGKILL');`;
    spawnSync(process.execPath, ['--input-type=module', '-e', elsewhere]);
    const [left] = readdirSync(below);
    assert.ok(left !== undefined);
    const later = Date.now() + 3_600_000;
    const first = path.basename((await build({ now: later })).folder);
    assert.deepEqual(readdirSync(below).toSorted(), [left, first].toSorted(), 'both could be taken');
    write(source, 'two');
    const second = path.basename((await build()).folder);
    assert.deepEqual(readdirSync(below).length, 3, 'a folder of this minute may be one that is being made');
    await build({ now: later });
    assert.deepEqual(readdirSync(below).toSorted(), [first, second].toSorted(), 'this process uses both');
  });
});
