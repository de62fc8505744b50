import assert from 'node:assert/strict';
import { appendFileSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { spawnSync } from 'node:child_process';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { describe, it, type TestContext } from 'node:test';
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
const { suites, missedText, readArguments, testFiles } = (await script('suites.mjs')) as {
  suites: Readonly<
    Record<string, { readonly files?: string; readonly only?: readonly string[]; readonly ci?: boolean }>
  >;
  readArguments(args: readonly string[]): Arguments;
  testFiles(
    root: string,
    name: string,
    words: readonly string[],
  ): { readonly all: string[]; readonly chosen: string[]; readonly missed: string[] };
  missedText(suite: string, missed: readonly string[], files: readonly string[]): string;
};
const { groupFile, groupSource, groupsOf } = (await script('test-groups.mjs')) as {
  groupFile(index: number): string;
  groupSource(files: readonly string[], built: (file: string) => string, notesUrl: string): string;
  groupsOf(files: readonly string[], root: string): string[][];
};
const { notingUrl } = (await script('processor-time.mjs')) as { notingUrl(notesFile: string): string };
const { failedTogether, processorNotes, summaryLines } = (await script('test-summary.mjs')) as {
  failedTogether(
    file: string,
    root: string,
    groups?: readonly (readonly string[])[],
    filesWith?: (module: string) => readonly string[],
  ): string[][];
  processorNotes(file: string): string;
  summaryLines(of: { suite: string; file: string; root: string; seconds: number }): string[];
};
const { runOnceMore } = (await script('once-more.mjs')) as {
  runOnceMore(
    run: (
      files: readonly string[],
      concurrency: number,
    ) => Promise<{ readonly code: number; readonly failed: readonly (readonly string[])[] }>,
    files: readonly string[],
    concurrency: number,
    again: boolean,
  ): Promise<{ readonly code: number; readonly unsteady: readonly string[] }>;
};

describe('the suites', () => {
  const names = Object.keys(suites).filter((name) => name !== 'ordinary');

  it('each have, but for those that CI does not run, a stage of it', () => {
    const ci = readFileSync(path.join(root, '.ci', 'run'), 'utf8');
    for (const name of names) {
      const line = new RegExp(`^ *(suite |')\\d+ ${name} \\d+( [A-Z_]+=\\d+)*'?$`, 'm');
      if (suites[name]!.ci === false) assert.doesNotMatch(ci, line);
      else assert.match(ci, line);
    }
    assert.match(ci, /^ *stage test \d+ npm test -- --again &$/m);
    assert.match(ci, /^ *stage check \d+ npm run check &$/m);
    const seconds = [...ci.matchAll(/^ *'(\d+) /gm)].map(([, each]) => Number(each));
    assert.deepEqual(
      seconds,
      seconds.toSorted((a, b) => b - a),
      'the longest first',
    );
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
    const file = path.join('tests', 'setup', 'suites.test.ts');
    for (const word of ['setup/suites', file])
      assert.deepEqual(testFiles(root, 'ordinary', [word]), { all: ordinary, chosen: [file], missed: [] });
    assert.deepEqual(testFiles(root, 'ordinary', ['setup/suites', 'mistyped']).missed, ['mistyped']);
  });

  it('name the files that a mistyped word is nearest to, a few of them', () => {
    const { all } = testFiles(root, 'ordinary', []);
    const nearest = (...words: readonly string[]): readonly string[] =>
      missedText('ordinary', words, all).split('. Nearest: ')[1]?.split(', ') ?? [];
    const file = path.join('tests', 'setup', 'suites.test.ts');
    for (const word of ['siutes', 'setup/suite.test', 'sutes', 'SUITES']) {
      const files = nearest(word);
      assert.ok(files.includes(file), `${word}: ${files.join(', ')}`);
      assert.ok(files.length <= 5 && files.every((one) => all.includes(one)), word);
    }
    assert.ok(nearest('siutes', 'architectrue').includes(path.join('tests', 'architecture.test.ts')));
    for (const word of ['xyzzyq', '!', ''])
      assert.match(missedText('ordinary', [word], all), /Its \d+ files are in tests.account-api, .{100,1000}$/, word);
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
    readonly failed: readonly (readonly string[])[];
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
  const failed = { code: 1, failed: [['b']] };

  it('is for the few that failed, alone, and names those that pass then', async () => {
    assert.deepEqual(await runs([failed, passed], true), { code: 0, unsteady: ['b'], again: [[['b'], 1]] });
    assert.deepEqual(await runs([failed, failed], true), { code: 1, unsteady: [], again: [[['b'], 1]] });
  });

  it('is for each file of a group that broke down', async () => {
    const group = ['a', 'b', 'c', 'd'];
    const broke = { code: 1, failed: [group] };
    assert.deepEqual(await runs([broke, passed], true), { code: 0, unsteady: group, again: [[group, 1]] });
  });

  it('is not for many, for what was ended, for what passed, or when nobody asked for it', async () => {
    const none = { unsteady: [], again: [] };
    assert.deepEqual(await runs([passed], true), { code: 0, ...none });
    assert.deepEqual(await runs([failed], false), { code: 1, ...none });
    assert.deepEqual(await runs([{ code: 1, failed: [] }], true), { code: 1, ...none });
    assert.deepEqual(await runs([{ code: 1, failed: [['a'], ['b'], ['c'], ['d']] }], true), { code: 1, ...none });
  });
});

describe('the summary', () => {
  it('has the ten files that took most processor seconds, what failed, what was skipped, and counts', (t) => {
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
      'ordinary took 61 s, and 22 s of processors; its dearest files, in time and processors:',
      '     1.0 s      20.5 s  tests/1.test.ts',
      '    10.0 s           ?  tests/10.test.ts',
    ]);
    assert.deepEqual(lines.slice(-5), [
      '     2.0 s           ?  tests/2.test.ts',
      'skipped: tests/4.test.ts: a thing',
      'failed: tests/3.test.ts: a promise',
      'failed: tests/3.test.ts: another promise',
      'ordinary: 2 passed, 2 failed, 1 skipped',
    ]);
    assert.deepEqual(failedTogether(file, root), [[path.join('tests', '3.test.ts')]]);
    assert.deepEqual(failedTogether(`${file}-gone`, root), []);
    // Tests that stand in a module of several files are run again by these files, or not at all.
    appendFileSync(file, `${JSON.stringify({ file: of('chunk-A.js'), failed: 'a shared test' })}\n`);
    const sweeps = ['tests/desktop.test.ts', 'tests/phone.test.ts'];
    const filesWith = (module: string): readonly string[] => (module.endsWith('chunk-A.js') ? sweeps : []);
    assert.deepEqual(failedTogether(file, root, [], filesWith), [[path.join('tests', '3.test.ts')], sweeps]);
    assert.deepEqual(failedTogether(file, root), [], 'a second try without it would pass');
    assert.match(summaryLines({ suite: 'soak', file: `${file}-gone`, root, seconds: 1 }).at(-1)!, /^soak: 0 passed/);
  });
});

describe('files that share a process', () => {
  const written = (t: TestContext, files: Readonly<Record<string, string>>): string => {
    const folder = mkdtempSync(path.join(tmpdir(), 'tokenhouse-groups-'));
    t.after(() => rmSync(folder, { recursive: true, force: true }));
    mkdirSync(path.join(folder, 'tests'));
    for (const [name, text] of Object.entries(files)) writeFileSync(path.join(folder, name), text);
    return folder;
  };
  const namesOf = (count: number): string[] => Array.from({ length: count }, (_, n) => `tests/${n + 10}.test.ts`);

  it('are neighbours, ten at most, and those that must not share are alone and last', (t) => {
    const names = namesOf(24);
    const alone = names[3]!;
    const folder = written(t, {
      ...Object.fromEntries(names.map((name) => [name, 'test();\n'])),
      [alone]: "import a from 'b';\n// Alone in its process: it measures it.\n",
    });
    const groups = groupsOf(names, folder);
    assert.deepEqual(groups.flat(), [...names.filter((name) => name !== alone), alone]);
    assert.deepEqual(
      groups.map(({ length }) => length),
      [8, 7, 8, 1],
    );
    assert.deepEqual(groupsOf([], folder), []);
    assert.deepEqual(groupsOf([alone], folder), [[alone]]);
  });

  /** Runs groups as `npm test` does, and resolves with what is noted of them. */
  const noted = (t: TestContext, files: Readonly<Record<string, string>>, groups: readonly (readonly string[])[]) => {
    const folder = written(t, files);
    const summary = path.join(folder, 'summary');
    const notesUrl = notingUrl(processorNotes(summary));
    const built = (file: string): string => path.join(folder, file.replace(/\.ts$/, '.js'));
    const entries = groups.map((group, index) => {
      if (group.length === 1) return built(group[0]!);
      writeFileSync(path.join(folder, groupFile(index)), groupSource(group, built, notesUrl));
      return path.join(folder, groupFile(index));
    });
    writeFileSync(path.join(folder, 'package.json'), '{ "type": "module" }');
    const reporter = pathToFileURL(path.join(root, 'scripts', 'test-summary.mjs')).href;
    const { NODE_TEST_CONTEXT: _, ...environment } = process.env;
    spawnSync(
      process.execPath,
      [
        '--import',
        notesUrl,
        '--test',
        `--test-reporter=${reporter}`,
        `--test-reporter-destination=${summary}`,
        ...entries,
      ],
      { cwd: folder, env: environment },
    );
    return { summary, folder, lines: summaryLines({ suite: 'ordinary', file: summary, root: folder, seconds: 1 }) };
  };
  const begin = "import { after, before, describe, test } from 'node:test';\n";

  it('have hooks, times, passes, skips and failures of their own', (t) => {
    const said = path.join(tmpdir(), `tokenhouse-groups-${process.pid}.txt`);
    t.after(() => rmSync(said, { force: true }));
    const says = `import { appendFileSync } from 'node:fs';\nconst say = (text) => appendFileSync(${JSON.stringify(said)}, text);\n`;
    const { summary, folder, lines } = noted(
      t,
      {
        'tests/a.test.js': `${begin}${says}before(() => say('1'));\nafter(() => say('3'));\nawait 0;\ntest('one', () => say('2'));\ntest('less', { skip: true });\n`,
        'tests/b.test.js': `${begin}${says}say('4');\ndescribe('of b', () => { test('is broken', () => { throw new Error(); }); });\n`,
        'tests/c.test.js': 'throw new Error("not even loaded");\n',
        'tests/d.test.js': `${begin}test('one', () => {});\n`,
        'tests/e.test.js': `${begin}test('is broken, too', () => { throw new Error(); });\n`,
      },
      [['tests/a.test.ts', 'tests/b.test.ts', 'tests/c.test.ts', 'tests/d.test.ts'], ['tests/e.test.ts']],
    );
    assert.equal(readFileSync(said, 'utf8'), '1234');
    assert.deepEqual(lines.slice(-5), [
      'skipped: tests/a.test.ts: less',
      'failed: tests/b.test.ts: is broken',
      'failed: tests/c.test.ts: the file itself',
      'failed: tests/e.test.ts: is broken, too',
      'ordinary: 2 passed, 3 failed, 1 skipped',
    ]);
    const timed = lines.filter((line) => /^ +[\d.]+ s +[\d.]+ s +tests/.test(line)).map((line) => line.slice(-15));
    assert.deepEqual(
      timed.toSorted(),
      ['a', 'b', 'c', 'd', 'e'].map((name) => `tests/${name}.test.ts`),
    );
    assert.deepEqual(failedTogether(summary, folder), [['tests/b.test.ts'], ['tests/c.test.ts'], ['tests/e.test.ts']]);
  });

  it('are repeated together when the process breaks down', (t) => {
    const group = ['tests/a.test.ts', 'tests/b.test.ts'];
    const { summary, folder, lines } = noted(
      t,
      {
        'tests/a.test.js': `${begin}test('one', () => process.kill(process.pid, 'SIGKILL'));\n`,
        'tests/b.test.js': `${begin}test('one', () => {});\n`,
      },
      [group],
    );
    assert.deepEqual(failedTogether(summary, folder, [group]), [group]);
    assert.match(lines.at(-1)!, /: 0 passed, 1 failed, 0 skipped$/);
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
