import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { spawnSync } from 'node:child_process';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { describe, it } from 'node:test';
import { pathToFileURL } from 'node:url';
import { root } from '../support/repository.ts';

interface Arguments {
  readonly problem?: string;
  readonly suite?: string;
  readonly node?: string;
  readonly newestClients?: boolean;
  readonly again?: boolean;
  readonly words?: readonly string[];
  readonly options?: readonly string[];
}
const script = (file: string): Promise<unknown> => import(pathToFileURL(path.join(root, 'scripts', file)).href);
const { suites, readArguments, testFiles } = (await script('suites.mjs')) as {
  suites: Readonly<
    Record<string, { readonly files?: string; readonly only?: readonly string[]; readonly ci?: boolean }>
  >;
  readArguments(args: readonly string[]): Arguments;
  testFiles(
    root: string,
    name: string,
    words: readonly string[],
  ): { readonly all: string[]; readonly chosen: string[] };
};
const { failedFiles, processorNotes, summaryLines } = (await script('test-summary.mjs')) as {
  failedFiles(file: string, root: string): string[];
  processorNotes(file: string): string;
  summaryLines(of: { suite: string; file: string; root: string; seconds: number }): string[];
};
const { runOnceMore } = (await script('once-more.mjs')) as {
  runOnceMore(
    run: (
      files: readonly string[],
      concurrency: number,
    ) => Promise<{ readonly code: number; readonly failed: readonly string[] }>,
    files: readonly string[],
    concurrency: number,
    again: boolean,
  ): Promise<{ readonly code: number; readonly unsteady: readonly string[] }>;
};

describe('the suites', () => {
  const names = Object.keys(suites).filter((name) => name !== 'ordinary');

  it('each have a command and, but for those that CI does not run, a stage of it', () => {
    const { scripts } = JSON.parse(readFileSync(path.join(root, 'package.json'), 'utf8')) as {
      scripts: Record<string, string>;
    };
    const ci = readFileSync(path.join(root, '.ci', 'run'), 'utf8');
    for (const name of names) {
      assert.equal(scripts[`test:${name}`], `node scripts/test.mjs --suite ${name}`);
      const stage = new RegExp(
        `^ *(fitting \\d+ )?stage ${name} \\d+ (env [A-Z_=\\d ]+)?npm run test:${name} -- --again( &)?$`,
        'm',
      );
      if (suites[name]!.ci === false) assert.doesNotMatch(ci, stage);
      else assert.match(ci, stage);
    }
    assert.match(ci, /^ *stage test \d+ npm test -- --again$/m);
    assert.match(ci, /^ *stage check \d+ npm run check$/m);
  });

  it('have every file of tests/suites, and ordinary has the others', () => {
    const folders = readdirSync(path.join(root, 'tests', 'suites'));
    for (const folder of folders) assert.ok(names.includes(folder), `tests/suites/${folder} belongs to no suite`);
    const ordinary = testFiles(root, 'ordinary', []).chosen;
    assert.ok(ordinary.length > 50 && ordinary.every((file) => !file.includes(path.join('tests', 'suites'))));
    const node24 = testFiles(root, 'node24', []).chosen;
    assert.ok(node24.length < ordinary.length && node24.every((file) => ordinary.includes(file)));
    const { only = [] } = suites['node24']!;
    for (const beginning of only)
      assert.ok(
        node24.some((file) => file.startsWith(path.join('tests', beginning))),
        `${beginning} is no file or folder of tests any more`,
      );
    const isSoak = (file: string): boolean => file.endsWith('.soak.test.ts');
    assert.ok(!ordinary.some(isSoak));
    const soak = testFiles(root, 'soak', []).chosen;
    assert.ok(soak.some(isSoak) && soak.every((file) => isSoak(file) || file.includes(path.join('suites', 'soak'))));
    assert.deepEqual(testFiles(root, 'ordinary', ['setup/suites']).chosen, [
      path.join('tests', 'setup', 'suites.test.ts'),
    ]);
  });
});

describe('the arguments', () => {
  it('are words, our options, and options of node --test', () => {
    const none = { suite: 'ordinary', node: undefined, newestClients: false, again: false, words: [], options: [] };
    const table: readonly (readonly [readonly string[], object])[] = [
      [[], none],
      [['endings', 'http'], { ...none, words: ['endings', 'http'] }],
      [['--suite', 'soak'], { ...none, suite: 'soak' }],
      [['--suite=node24'], { ...none, suite: 'node24', node: '24', newestClients: true }],
      [['--node', '22', 'store'], { ...none, node: '22', words: ['store'] }],
      [['--suite', 'node24', '--node=26'], { ...none, suite: 'node24', node: '26', newestClients: true }],
      [['--newest-clients'], { ...none, newestClients: true }],
      [['--again', 'store'], { ...none, again: true, words: ['store'] }],
      [['--test-name-pattern=x'], { ...none, options: ['--test-name-pattern=x'] }],
    ];
    for (const [args, expected] of table) assert.deepEqual(readArguments(args), expected, args.join(' '));
  });

  it('that make no sense are reported in words', () => {
    assert.match(readArguments(['--suite', 'sok']).problem!, /no suite 'sok'[^]*soak/);
    for (const name of ['toString', '__proto__', ''])
      assert.match(readArguments(['--suite', name]).problem!, /no suite/);
    for (const version of ['24.1', 'lts', ''])
      assert.match(readArguments([`--node=${version}`]).problem!, /major version/);
  });
});

describe('a second try', () => {
  interface Run {
    readonly code: number;
    readonly failed: readonly string[];
  }
  const runs = async (answers: readonly Run[], again: boolean) => {
    const asked: (readonly [readonly string[], number])[] = [];
    const outcome = await runOnceMore(
      (files, concurrency) => {
        asked.push([files, concurrency]);
        return Promise.resolve(answers[asked.length - 1]!);
      },
      ['a', 'b', 'c', 'd'],
      2,
      again,
    );
    return { ...outcome, again: asked.slice(1) };
  };
  const passed = { code: 0, failed: [] };
  const failed = { code: 1, failed: ['b'] };

  it('is for the few that failed, alone, and names those that pass then', async () => {
    assert.deepEqual(await runs([failed, passed], true), { code: 0, unsteady: ['b'], again: [[['b'], 1]] });
    assert.deepEqual(await runs([failed, failed], true), { code: 1, unsteady: [], again: [[['b'], 1]] });
  });

  it('is not for many, for what was ended, for what passed, or when nobody asked for it', async () => {
    const none = { unsteady: [], again: [] };
    assert.deepEqual(await runs([passed], true), { code: 0, ...none });
    assert.deepEqual(await runs([failed], false), { code: 1, ...none });
    assert.deepEqual(await runs([{ code: 1, failed: [] }], true), { code: 1, ...none });
    assert.deepEqual(await runs([{ code: 1, failed: ['a', 'b', 'c', 'd'] }], true), { code: 1, ...none });
  });
});

describe('the summary', () => {
  it('has the ten slowest files with their processor seconds, what failed, what was skipped, and counts', (t) => {
    const folder = mkdtempSync(path.join(tmpdir(), 'tokenhouse-summary-'));
    t.after(() => rmSync(folder, { recursive: true, force: true }));
    const file = path.join(folder, 'notes');
    const of = (name: string): string => path.join(root, 'dist', 'test-a1B2c3', 'tests', name);
    const notes = [
      ...Array.from({ length: 12 }, (_, index) => ({ file: of(`${index}.test.js`), durationMs: index * 1_000 })),
      { passed: 1 },
      { passed: 1 },
      { file: of('3.test.js'), failed: 'a promise' },
      { file: path.join(root, 'tests', '3.test.ts'), failed: 'another promise' },
      { file: of('4.test.js'), skipped: 'a thing' },
    ];
    writeFileSync(file, notes.map((note) => `${JSON.stringify(note)}\n`).join(''));
    const processors = [
      { file: of('11.test.js'), processorMs: 1_500 },
      { file: of('1.test.js'), processorMs: 20_500 },
    ];
    writeFileSync(processorNotes(file), processors.map((note) => `${JSON.stringify(note)}\n`).join(''));
    const lines = summaryLines({ suite: 'ordinary', file, root, seconds: 61 });
    assert.deepEqual(lines.slice(1, 4), [
      'ordinary took 61 s, and 22 s of processors; its slowest files, and their processors:',
      '    11.0 s       1.5 s  tests/11.test.ts',
      '    10.0 s           ?  tests/10.test.ts',
    ]);
    assert.deepEqual(lines.slice(-5), [
      '     2.0 s           ?  tests/2.test.ts',
      'skipped: tests/4.test.ts: a thing',
      'failed: tests/3.test.ts: a promise',
      'failed: tests/3.test.ts: another promise',
      'ordinary: 2 passed, 2 failed, 1 skipped',
    ]);
    assert.deepEqual(failedFiles(file, root), [path.join('tests', '3.test.ts')]);
    assert.deepEqual(failedFiles(`${file}-gone`, root), []);
    assert.match(summaryLines({ suite: 'soak', file: `${file}-gone`, root, seconds: 1 }).at(-1)!, /^soak: 0 passed/);
  });
});

describe('the newest clients', () => {
  it('take the place of the locked ones, and of nothing else', (t) => {
    const folder = mkdtempSync(path.join(tmpdir(), 'tokenhouse-clients-'));
    t.after(() => rmSync(folder, { recursive: true, force: true }));
    const packageFolder = path.join(folder, 'node_modules', 'openai');
    mkdirSync(packageFolder, { recursive: true });
    writeFileSync(path.join(packageFolder, 'package.json'), '{ "type": "module", "main": "index.js" }');
    writeFileSync(path.join(packageFolder, 'index.js'), "export default 'the newest';");
    const hooks = pathToFileURL(path.join(root, 'scripts', 'import-clients.mjs'));
    hooks.search = new URLSearchParams({ openai: folder }).toString();
    const program = "import openai from 'openai'; import 'undici'; process.stdout.write(openai);";
    const run = spawnSync(process.execPath, ['--import', hooks.href, '--input-type=module', '-e', program], {
      cwd: root,
      encoding: 'utf8',
    });
    assert.deepEqual([run.stdout, run.status], ['the newest', 0], run.stderr);
    const { dependencies } = JSON.parse(readFileSync(path.join(root, 'tests', 'clients', 'package.json'), 'utf8')) as {
      dependencies: Readonly<Record<string, string>>;
    };
    assert.ok(dependencies['openai'], 'the locked ones are there to be replaced');
  });
});
