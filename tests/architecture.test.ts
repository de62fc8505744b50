import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join, posix, relative, sep } from 'node:path';
import { test } from 'node:test';

import ts from 'typescript';
import { fileLinesMax, folderWithBudget, lineBudgets, longFiles } from './line-budgets.ts';
import { inRepository } from './support/repository.ts';

/**
 * Holds the arrows of docs/architecture.md, "What may import what": the room of a file tells what it may know. A room is a
 * folder below `src/`; a name on the right covers the rooms inside it.
 */
const arrows: Readonly<Record<string, readonly string[]>> = {
  // The internal language of a request and of what an engine says.
  generation: [],
  // What has nothing to do with inference or money: errors, the log, ids, HTTP, threads.
  platform: [],
  // Countries, rates, and who is taxed how.
  tax: [],
  // Checks of any gateway, which know nothing of this one.
  prove: ['platform'],
  store: ['platform', 'tax'],
  catalog: ['generation', 'platform'],
  config: ['catalog', 'generation', 'platform', 'tax'],
  'notifications/mail': ['config', 'platform', 'store'],
  'notifications/webhooks': ['platform', 'store'],
  accounts: ['platform', 'store', 'tax'],
  // Who signs in, and how; one file of it loads better-auth.
  'accounts/users': ['accounts', 'config', 'notifications/mail', 'platform', 'store'],
  // Prices of models arrive as a function; of the catalog it knows their form.
  billing: ['catalog', 'generation', 'platform', 'store'],
  'billing/rate-limits': ['platform', 'store'],
  'billing/alerts': ['platform', 'store'],
  'billing/invoices': ['accounts', 'billing', 'platform', 'store', 'tax'],
  'billing/payments': ['accounts', 'config', 'notifications/mail', 'platform', 'store'],
  'billing/notices': ['billing', 'billing/invoices', 'notifications', 'platform', 'store'],
  'inference/constraints': ['platform'],
  'inference/dialects': ['generation', 'platform'],
  'inference/output-parsers': ['generation', 'platform'],
  'inference/engines': ['generation', 'inference/constraints', 'inference/output-parsers', 'platform'],
  'inference/images': ['generation', 'platform'],
  // Builds of the embedded engine for GPUs, and how they come onto this computer.
  'inference/engine-builds': ['inference/model-files', 'platform'],
  'inference/files': ['platform', 'store'],
  // Files of requests, and the work on them; what runs a line is given to it.
  'inference/batches': ['accounts', 'inference/files', 'platform', 'store'],
  'inference/model-files': ['config', 'generation', 'platform'],
  // What a backend is said to do, and whether it does.
  'inference/claims': ['generation', 'inference/engines', 'platform'],
  // Where backends come from: lists of addresses.
  'inference/discovery': ['config', 'platform'],
  // Which backend a request goes to; it knows no engine and no clock.
  'inference/routing': ['generation', 'platform'],
  'inference/pipeline': [
    'accounts',
    'billing',
    'billing/rate-limits',
    'catalog',
    'generation',
    'inference/constraints',
    'inference/dialects',
    'inference/engines',
    'inference/files',
    'inference/images',
    'inference/routing',
    'platform',
    'store',
  ],
  // What the inference host says of itself; it reads the schemas of the dialects and serves nothing.
  'inference/openapi': ['catalog', 'inference/dialects', 'platform'],
  'inference/http': [
    'accounts',
    'billing',
    'billing/rate-limits',
    'catalog',
    'generation',
    'inference/batches',
    'inference/dialects',
    'inference/files',
    'inference/images',
    'inference/openapi',
    'inference/pipeline',
    'platform',
  ],
  'account-api': [
    'accounts',
    'accounts/users',
    'billing',
    'billing/alerts',
    'billing/invoices',
    'billing/payments',
    'billing/rate-limits',
    'catalog',
    'config',
    'inference/dialects',
    'inference/files',
    'inference/http',
    'inference/openapi',
    'notifications',
    'platform',
    'store',
    'tax',
  ],
  // The socket through which the command line reaches a running service.
  'app/control': ['accounts', 'config', 'inference/pipeline'],
};

/** The only places where concrete engines and stores are named; they may import everything. */
const compositionRoots: ReadonlySet<string> = new Set(['main', 'app', 'cli']);

/** Arrows that end at these files: the interface of a part with several implementations, or what is pure in it. */
const narrowArrows: Readonly<Record<string, readonly string[]>> = {
  'inference/pipeline → inference/dialects': ['inference/dialects/dialect.ts'],
  'inference/pipeline → inference/engines': ['inference/engines/engine.ts'],
  'account-api → inference/files': ['inference/files/files.ts', 'inference/files/file-name.ts'],
  'config → catalog': ['catalog/card-flags.ts', 'catalog/pricing.ts'],
  'config → generation': [
    'generation/sampling-defaults.ts',
    'generation/flavor-names.ts',
    'generation/feature-names.ts',
  ],
  'inference/model-files → generation': ['generation/sampling-defaults.ts'],
  'app/control → inference/pipeline': ['inference/pipeline/traffic-recorder.ts'],
  'app/control → config': ['config/backend-state.ts', 'config/reload-outcome.ts'],
};

/** Where execution starts; the second half are threads and child processes, which nothing imports. */
const entryPoints = [
  'main.ts',
  'cli/serve-worker.ts',
  'store/sqlite/ledger-worker.ts',
  'store/sqlite/query-worker.ts',
  'inference/engines/llama/llama-child.ts',
  'platform/http/json/json-thread.ts',
  'inference/files/pdf-child.ts',
];

/** From its first line to its last one, with what it has of comments and empty lines. */
const functionLinesMax = 90;

/** Functions that may be longer, and why. */
const longFunctions: Readonly<Record<string, string>> = {
  'cli/command-line.ts commandProgram': 'a table of the commands, in the form that commander has for one',
};

/** So many fields of a class may change before it must say which of them belong together. */
const changingFieldsMax = 6;

/** Classes with more of them and no `#state`, and why. */
const statelessClasses: Readonly<Record<string, string>> = {
  'billing/rate-limits/admission.ts Admission': 'counts, and a cap that a rule moves: every combination may be',
  'inference/constraints/acceptor.ts Acceptor': 'where it is in a text, by all ways at once; its verdict is a union',
  'inference/engines/llama/choice-output.ts ChoiceOutput':
    'counts, and text that waits; the parser below has the phases',
  'inference/engines/openai/exchange.ts Exchange': 'has two lives, `#reading` and `#sending`, each a union',
  'inference/pipeline/meter.ts Meter': 'sums of a stream, and what of it is held back',
  'store/postgres/membership.ts Membership': 'times of heartbeats, each with its own rule',
};

const sources = readSources('src');
const tests = readSources('tests');

test('every import follows the arrows of the architecture', () => {
  assert.deepEqual(importFaults(sources), []);
});

test('rooms and files do not import each other in circles', () => {
  assert.deepEqual([...circles(sources, partOf), ...circles(sources, (file) => file)], []);
});

test('files of the console and of the scripts do not import each other in circles', () => {
  const asFiles = (file: string): string => file;
  assert.deepEqual(circles(readSources('web/src', /\.tsx?$/), asFiles), []);
  assert.deepEqual(circles(readSources('scripts', /\.mjs$/), asFiles), []);
});

test('the environment is read in src/config only, HTTP servers are made in src/platform/http only, nothing writes to the console, SQLite alone opens its files', () => {
  assert.deepEqual(wordFaults(sources), []);
});

test('no name of a file stands for three different jobs', () => {
  assert.deepEqual(nameFaults(sources), []);
});

test('identifiers are made of the words of the glossary, and not of those that they have replaced', () => {
  assert.deepEqual([...vocabularyFaults(sources), ...vocabularyFaults(tests, 'tests')], []);
});

test(`no function is longer than ${functionLinesMax} lines, but for those that are tables`, () => {
  assert.deepEqual(lengthFaults(sources, longFunctions), []);
});

test('no folder has more lines than its budget, and no file more than it may', () => {
  const lines = new Map<string, number>();
  for (const [file, text] of [...sources].map(([name, text]) => [`src/${name}`, text] as const))
    lines.set(file, text.split('\n').length - 1);
  const over: string[] = [];
  const counted = new Map<string, number>();
  for (const [file, count] of lines) {
    const most = longFiles[file] ?? fileLinesMax;
    if (count > most) over.push(`${file} has ${count} lines, of at most ${most}`);
    const folder = folderWithBudget(file);
    counted.set(folder, (counted.get(folder) ?? 0) + count);
  }
  for (const [folder, count] of counted) {
    const most = lineBudgets[folder] ?? 0;
    if (count > most)
      over.push(`${folder} has ${count} lines, of at most ${most}: what does it make unnecessary? (line-budgets.ts)`);
  }
  assert.deepEqual(over, []);
  const unused = Object.keys(lineBudgets).filter((folder) => !counted.has(folder));
  assert.deepEqual([...unused, ...Object.keys(longFiles).filter((file) => (lines.get(file) ?? 0) <= fileLinesMax)], []);
});

test(`a class with more than ${changingFieldsMax} fields that change names its states`, () => {
  assert.deepEqual(stateFaults(sources, statelessClasses), []);
});

test('docs/architecture.md names files and folders that exist', () => {
  const named = [...readFileSync(inRepository('docs/architecture.md'), 'utf8').matchAll(/`([\w-]+\/[\w./-]*)`/g)]
    .map(([, path = '']) => path)
    .filter((path) => path !== 'try/finally');
  assert.ok(named.length > 100, 'the paths were not found');
  const missing = (path: string): boolean => [path, join('src', path)].every((each) => !existsSync(inRepository(each)));
  assert.deepEqual([...new Set(named)].filter(missing), []);
});

test('comments are English, not translated', () => {
  const found: string[] = [];
  for (const [file, text] of sources)
    for (const [index, line] of text.split('\n').entries())
      if (/^\s*(\/\/|\/\*|\*)/.test(line) && translated.test(line))
        found.push(`src/${file}:${index + 1}: ${line.trim()}`);
  assert.deepEqual(found, []);
});

test('nothing in src is dead', () => {
  assert.deepEqual(deadFiles(sources, entryPoints), []);
});

test('each rule finds what it is for', () => {
  const faultsOf = (files: Record<string, string>): string[] => {
    const tree = new Map(Object.entries(files));
    return [
      ...importFaults(tree),
      ...circles(tree, partOf),
      ...circles(tree, (file) => file),
      ...wordFaults(tree),
      ...nameFaults(tree),
      ...vocabularyFaults(tree),
    ];
  };
  const rules: readonly (readonly [Record<string, string>, RegExp | null])[] = [
    [
      { 'generation/a.ts': "import { b } from '../platform/errors.ts';", 'platform/errors.ts': '' },
      /generation may import nothing of ours.*platform/,
    ],
    [
      { 'inference/dialects/a/a.ts': "import type { b } from '../../engines/engine.ts';" },
      /src\/inference\/dialects\/a\/a\.ts.*engines/,
    ],
    [{ 'store/a.ts': "export { b } from '../catalog/pricing.ts';" }, /src\/store\/a\.ts.*catalog/],
    [{ 'inference/engines/a/a.ts': "const b = await import('../../pipeline/run.ts');" }, /engines.*pipeline/],
    [{ 'inference/engines/a.ts': "type B = import('../pipeline/run.ts').B;" }, /engines.*pipeline/],
    [{ 'platform/log.ts': "import '../catalog/model.ts';" }, /platform may import nothing of ours/],
    [{ 'novel/a.ts': '' }, /no arrows for 'novel'/],
    [{ 'inference/novel/a.ts': '' }, /no arrows for 'inference'/],
    [
      { 'inference/pipeline/a.ts': "import { b } from '../engines/usage.ts';" },
      /only 'inference\/engines\/engine\.ts'/,
    ],
    [
      { 'config/a.ts': "import { b } from '../catalog/card.ts';" },
      /only 'catalog\/card-flags\.ts', 'catalog\/pricing\.ts'/,
    ],
    [{ 'inference/http/a.ts': "import { b } from '../../store/ledger.ts';" }, /http may import/],
    [{ 'billing/a.ts': "import { b } from './payments/provider.ts';" }, /billing may import/],
    [{ 'accounts/users/a.ts': "import { b } from '../owner.ts';" }, null],
    [{ 'accounts/a.ts': "import { b } from '../store/sqlite/store.ts';" }, /concrete/],
    [
      { 'inference/dialects/a/a.ts': "import { b } from '../b/b.ts';" },
      /does not import its sibling 'inference\/dialects\/b'/,
    ],
    [{ 'inference/engines/engine.ts': "import { b } from './b/b.ts';" }, /does not import its implementation/],
    [
      {
        'app/start.ts': "import { b } from '../inference/engines/llama/engine.ts';",
        'cli/a.ts': "import '../app/start.ts';",
      },
      null,
    ],
    [{ 'cli/a.ts': "import '../app/a.ts';", 'app/a.ts': "import '../cli/b.ts';" }, /circle: cli → app → cli/],
    [
      { 'store/a.ts': "import './b.ts';", 'store/b.ts': "import type { A } from './a.ts';" },
      /circle: store\/a\.ts → store\/b\.ts → store\/a\.ts/,
    ],
    [{ 'store/a.ts': 'const { env } = process;' }, /src\/store\/a\.ts.*environment/],
    [{ 'store/a.ts': "import { env } from 'node:process';" }, /environment/],
    [{ 'store/a.ts': "globalThis.process['env'].HOME" }, /environment/],
    [{ 'config/a.ts': 'process.env.HOME' }, null],
    [{ 'store/a.ts': '// process.env and console.log\nconst a = "console.log(process.env)";' }, null],
    [{ 'store/a.ts': 'console.error(1)' }, /src\/store\/a\.ts.*console/],
    [
      { 'inference/http/a.ts': "import { createServer as a } from 'node:http';" },
      /src\/inference\/http\/a\.ts makes an HTTP server/,
    ],
    [
      {
        'inference/http/a.ts': "import type { Server } from 'node:http';",
        'platform/http/a.ts': "import { createServer } from 'node:http';",
      },
      null,
    ],
    [{ 'inference/http/a.ts': "import { createServer } from 'node:net';" }, null],
    [
      { 'store/sqlite/a.ts': "import { openSync, statSync } from 'node:fs';" },
      /src\/store\/sqlite\/a\.ts opens files by hand/,
    ],
    [{ 'store/sqlite/a.ts': "import fs from 'node:fs/promises';" }, /opens files by hand/],
    [{ 'store/sqlite/a.ts': "import { statSync } from 'node:fs';" }, null],
    [{ 'app/a.ts': "import { stamp } from '../store/sqlite/backup.ts';" }, /only commands/],
    [{ 'cli/a.ts': "import { stamp } from '../store/sqlite/backup.ts';", 'store/sqlite/backup.ts': '' }, null],
    [
      { 'store/a.ts': 'const deskThread = 1;' },
      /src\/store\/a\.ts: deskThread has the word 'desk', now called 'repositories'/,
    ],
    [{ 'store/a.ts': 'class PurseTable {}' }, /'purse'/],
    [{ 'store/a.ts': 'const purse_id = 1;' }, /purse_id has the word 'purse'/],
    [{ 'store/a.ts': "const name = 'give_back_credit';" }, /'give back'/],
    [{ 'store/a.ts': "const answer = [row.sealed_answer, 'house_cash'];" }, null],
    [{ 'store/seals.ts': '' }, /seals has the word 'seal'/],
    [{ 'store/limits.ts': '', 'accounts/limits.ts': '', 'config/limits.ts': '' }, /limits\.ts stands for 3 jobs/],
    [
      { 'store/limits.ts': '', 'accounts/limits.ts': '', 'cli/limits.ts': '', 'account-api/routes/limits.ts': '' },
      null,
    ],
    [
      {
        'generation/a.ts': '',
        'inference/dialects/b/a.ts': '',
        'inference/dialects/c/a.ts': '',
        'inference/dialects/d/a.ts': '',
      },
      null,
    ],
  ];
  for (const [files, expected] of rules) {
    const reported = faultsOf(files).join('\n');
    if (expected === null) assert.equal(reported, '', JSON.stringify(files));
    else assert.match(reported, expected, JSON.stringify(files));
  }
  const tree = new Map([
    ['main.ts', "import './app/start.ts';"],
    ['app/start.ts', ''],
    ['store/lonely.ts', "import '../main.ts';"],
  ]);
  assert.deepEqual(deadFiles(tree, ['main.ts']), ['src/store/lonely.ts is dead: no entry point reaches it']);
  assert.match(deadFiles(tree, ['main.ts', 'gone.ts']).join(), /src\/gone\.ts is listed as an entry point/);

  const lines = '\n'.repeat(functionLinesMax - 1);
  const lengths = new Map([
    ['a.ts', `function fits() {${lines}}\nfunction long() {\n${lines}}`],
    ['b.ts', `const arrow = () => {\n${lines}};\nclass C { #method() {\n${lines}} }\nrun(() => {\n${lines}});`],
  ]);
  assert.deepEqual(
    lengthFaults(lengths, { 'a.ts long': 'a table', 'b.ts gone': 'a table' }).map((fault) => fault.slice(0, 37)),
    [
      'src/b.ts: arrow has 91 lines, of at m',
      'src/b.ts: #method has 91 lines, of at',
      'src/b.ts: (anonymous) has 91 lines, o',
      "src/b.ts: 'gone' is listed as long bu",
    ],
  );
  const fields = (count: number): string => Array.from({ length: count }, (_, i) => `#f${i} = 0;`).join(' ');
  const states = new Map([
    ['a.ts', `class Small { ${fields(changingFieldsMax)} } class Counts { ${fields(7)} } class Large { ${fields(7)} }`],
    [
      'b.ts',
      `type State = 'a' | 'b'; class Named { #state: State; ${fields(6)} } class Vague { #state: Mode; ${fields(6)} }`,
    ],
    ['c.ts', `class Inline { #state: 'a' | 'b'; ${fields(6)} } class Fixed { ${fields(6)} readonly #g = 0; }`],
  ]);
  assert.deepEqual(
    stateFaults(states, { 'a.ts Counts': 'counts', 'a.ts Small': 'counts' }).map((fault) => fault.slice(0, 40)),
    [
      'src/a.ts: Large has 7 fields that change',
      'src/b.ts: Vague has 7 fields that change',
      "src/a.ts: 'Small' is listed as without s",
    ],
  );
});

type Sources = ReadonlyMap<string, string>;

function importFaults(files: Sources): string[] {
  const faults: string[] = [];
  for (const [file, text] of files) {
    const from = partOf(file);
    if (arrows[from] === undefined && !compositionRoots.has(from)) {
      faults.push(`src/${file}: no arrows for '${from}'; add the part to docs/architecture.md and to this test`);
    }
    for (const target of importsOf(file, text)) {
      const fault = importFault(file, target);
      if (fault !== undefined) faults.push(`src/${file} imports src/${target}: ${fault}`);
    }
  }
  return faults;
}

/** The rule that an import breaks, in words. */
function importFault(file: string, target: string): string | undefined {
  const from = partOf(file);
  const to = partOf(target);
  if (target === 'store/sqlite/backup.ts' && from !== 'cli') return 'only commands: it opens databases by hand';
  if (compositionRoots.has(from)) return undefined;
  if (from === to) return siblingFault(file, target);
  const allowed = arrows[from] ?? [];
  if (!allowed.some((name) => name === to || (to.startsWith(`${name}/`) && arrows[name] === undefined))) {
    return `${from} may import ${allowed.length === 0 ? 'nothing of ours' : `only ${allowed.join(', ')}`}, not ${to}`;
  }
  const face = narrowArrows[`${from} → ${to}`];
  if (face !== undefined && !face.includes(target)) return `of ${to}, ${from} may import only '${face.join("', '")}'`;
  const isConcrete = to === 'store' ? /^store\/(postgres|sqlite)\//.test(target) : to === 'inference/engines';
  if (isConcrete && folderIn(target) !== undefined) {
    return `concrete engines and stores are named only in ${[...compositionRoots].join(', ')}`;
  }
  return undefined;
}

/** Dialects and engines know their interface, not each other; interfaces know no implementation. */
function siblingFault(file: string, target: string): string | undefined {
  const part = partOf(file);
  if (part !== 'inference/dialects' && part !== 'inference/engines') return undefined;
  const own = folderIn(file);
  const other = folderIn(target);
  if (other === undefined || other === own) return undefined;
  return own === undefined
    ? `what the ${part} share does not import its implementation '${part}/${other}'`
    : `'${part}/${own}' does not import its sibling '${part}/${other}'`;
}

/** Circles of imports between the parts that `nameOf` makes of the files: rooms, or the files themselves. */
function circles(files: Sources, nameOf: (file: string) => string): string[] {
  const graph = new Map<string, Set<string>>();
  for (const [file, text] of files) {
    const from = nameOf(file);
    const targets = graph.get(from) ?? new Set();
    graph.set(from, targets);
    for (const target of importsOf(file, text)) if (nameOf(target) !== from) targets.add(nameOf(target));
  }
  const done = new Set<string>();
  const found: string[] = [];
  const visit = (part: string, path: readonly string[]): void => {
    if (path.includes(part)) {
      found.push(`import circle: ${[...path.slice(path.indexOf(part)), part].join(' → ')}`);
      return;
    }
    if (done.has(part)) return;
    for (const next of graph.get(part) ?? []) visit(next, [...path, part]);
    done.add(part);
  };
  for (const part of graph.keys()) visit(part, []);
  return found;
}

/**
 * Commands, and routes of the account API, are named after what they are about, so they do not count. Dialects, engines and
 * stores are several of one kind: what has the same name in each does the same job.
 */
function nameFaults(files: Sources): string[] {
  const jobs = new Map<string, Set<string>>();
  for (const file of files.keys()) {
    if (file.startsWith('cli/') || file.startsWith('account-api/routes/')) continue;
    const name = posix.basename(file);
    const kind = posix
      .dirname(file)
      .replace(/^(inference\/(?:dialects|engines))\/.*/, '$1/*')
      .replace(/^store\/(postgres|sqlite)$/, 'store/*');
    jobs.set(name, (jobs.get(name) ?? new Set()).add(kind));
  }
  return [...jobs]
    .filter(([, places]) => places.size > 2)
    .map(([name, places]) => `${name} stands for ${places.size} jobs: in ${[...places].join(', ')}`);
}

/** What only a translation says: "so many" without "as", "whoever", "a key of ours", "Of the first byte." */
const translated =
  /\bof ours\b|\bwhoever\b|\bit is none\b|\bis none of\b|\bso (many|much|long)\b(?! (as|that))|\/\*\* Of /i;

/** Words that the code once had for itself, and the field's terms that it has now. */
const replacedWords: Readonly<Record<string, string>> = {
  accuse: 'record',
  acquit: 'clear',
  'any signal': 'combineSignals',
  arbiter: 'limit server',
  beat: 'heartbeat',
  books: 'ledger',
  borrower: 'lease client',
  chore: 'background task',
  condemns: 'isQuarantined',
  desk: 'repositories',
  'give back': 'release, returnUnused',
  greet: 'onConnect',
  house: 'system account',
  knock: 'ping',
  ladder: 'shedding',
  lender: 'lease server',
  lent: 'leased, acquired',
  mailbox: 'channel',
  odds: 'logprobs',
  purse: 'balance',
  reborn: 'expired',
  refit: 'retryWithinContext',
  rung: 'shedLevel',
  seal: 'signature',
  sealed: 'encrypted',
  succession: 'rollout',
  'take back': 'reverse',
  telling: 'notifications',
  told: 'notified, reported',
  trouble: 'incident',
  untold: 'unreported',
  wish: 'input',
};

/** Words of one thing are written `likeThis` or, as names of statements and fields are, `like_this`; names of files count too. */
function vocabularyFaults(files: Sources, folder = 'src'): string[] {
  // Tables and columns keep the names that databases have; so do the ids of the ledger's own accounts.
  const stored = identifiersOf('tables.ts', sources.get('store/schema/tables.ts') ?? '');
  const faults = new Set<string>();
  for (const [file, text] of files) {
    for (const name of [...identifiersOf(file, text), ...file.split(/[/.]/)]) {
      if (stored.has(name) || /^house_[a-z_]+$/.test(name)) continue;
      const words = ` ${name
        .split(/[-_]|(?=[A-Z])/)
        .join(' ')
        .toLowerCase()} `;
      const word = Object.keys(replacedWords).find(
        (each) => words.includes(` ${each} `) || words.includes(` ${each}s `),
      );
      if (word === undefined) continue;
      faults.add(`${folder}/${file}: ${name} has the word '${word}', now called '${replacedWords[word]}'`);
    }
  }
  return [...faults];
}

/** Its names, and what it writes as names in strings. */
function identifiersOf(file: string, text: string): ReadonlySet<string> {
  const names = new Set<string>();
  walk(parse(file, text), (node) => {
    if (ts.isIdentifier(node) || ts.isPrivateIdentifier(node)) names.add(node.text.replace('#', ''));
    else if (ts.isStringLiteral(node) && /^[a-z]+(_[a-z]+)+$/.test(node.text)) names.add(node.text);
  });
  return names;
}

/** What a rule lets pass, as "file name" with the reason: an entry that lets nothing pass is a fault, too. */
class Exemptions {
  readonly #unused: Set<string>;
  readonly #all: ReadonlySet<string>;

  constructor(reasons: Readonly<Record<string, string>>) {
    this.#all = new Set(Object.keys(reasons));
    this.#unused = new Set(this.#all);
  }

  allows(file: string, name: string): boolean {
    this.#unused.delete(`${file} ${name}`);
    return this.#all.has(`${file} ${name}`);
  }

  staleFaults(why: string): readonly string[] {
    return [...this.#unused].map((entry) => `src/${entry.replace(' ', ": '")}' is listed as ${why}`);
  }
}

function lengthFaults(files: Sources, exempt: Readonly<Record<string, string>>): string[] {
  const faults: string[] = [];
  const exemptions = new Exemptions(exempt);
  for (const [file, text] of files) {
    const source = parse(file, text);
    const lineAt = (position: number): number => source.getLineAndCharacterOfPosition(position).line;
    walk(source, (node) => {
      if (!ts.isFunctionLike(node) || !('body' in node) || node.body === undefined) return;
      const lines = lineAt(node.end) - lineAt(node.getStart()) + 1;
      if (lines <= functionLinesMax) return;
      const named = node.name ?? (ts.isVariableDeclaration(node.parent) ? node.parent.name : undefined);
      const name = named?.getText() ?? (ts.isConstructorDeclaration(node) ? 'constructor' : '(anonymous)');
      if (exemptions.allows(file, name)) return;
      faults.push(`src/${file}: ${name} has ${lines} lines, of at most ${functionLinesMax}`);
    });
  }
  return [...faults, ...exemptions.staleFaults('long but is not, or does not exist')];
}

function stateFaults(files: Sources, exempt: Readonly<Record<string, string>>): string[] {
  const faults: string[] = [];
  const exemptions = new Exemptions(exempt);
  for (const [file, text] of files) {
    const source = parse(file, text);
    const unions = new Set(
      source.statements
        .filter((each) => ts.isTypeAliasDeclaration(each) && ts.isUnionTypeNode(each.type))
        .map((each) => (each as ts.TypeAliasDeclaration).name.text),
    );
    walk(source, (node) => {
      if (!ts.isClassLike(node)) return;
      const fields = node.members.filter(
        (member): member is ts.PropertyDeclaration =>
          ts.isPropertyDeclaration(member) &&
          ts.isPrivateIdentifier(member.name) &&
          !member.modifiers?.some(({ kind }) => kind === ts.SyntaxKind.ReadonlyKeyword),
      );
      if (fields.length <= changingFieldsMax) return;
      const type = fields.find(({ name }) => name.getText() === '#state')?.type;
      if (type !== undefined && (ts.isUnionTypeNode(type) || unions.has(type.getText()))) return;
      const name = node.name?.text ?? '(anonymous)';
      if (exemptions.allows(file, name)) return;
      faults.push(`src/${file}: ${name} has ${fields.length} fields that change, and no #state that is a union`);
    });
  }
  return [...faults, ...exemptions.staleFaults('without states but names them, is small, or is gone')];
}

function wordFaults(files: Sources): string[] {
  const faults: string[] = [];
  for (const [file, text] of files) {
    walk(parse(file, text), (node) => {
      if (partOf(file) !== 'config' && readsEnvironment(node)) {
        faults.push(`src/${file} reads the environment: only src/config may`);
      }
      if (!file.startsWith('platform/http/') && makesHttpServers(node)) {
        faults.push(`src/${file} makes an HTTP server: use createListener of src/platform/http, which has the guards`);
      }
      if (file.startsWith('store/sqlite/') && !opensByHand.has(file) && opensFiles(node)) {
        faults.push(`src/${file} opens files by hand: closing one of a database drops SQLite's locks on it`);
      }
      // A field may have this name: the setting that turns the web console on or off.
      const isName = ts.isIdentifier(node) && node.text === 'console' && !isNameOfField(node);
      if (isName) {
        faults.push(`src/${file} writes to the console: use the log, or standard output in src/cli`);
      }
    });
  }
  return faults;
}

const isNameOfField = (node: ts.Identifier): boolean =>
  (ts.isPropertyAccessExpression(node.parent) || ts.isPropertyAssignment(node.parent)) && node.parent.name === node;

/** Imports more than types of servers from `node:http`, `node:https` or `node:http2`. */
function makesHttpServers(node: ts.Node): boolean {
  if (!ts.isImportSpecifier(node) || node.isTypeOnly || node.parent.parent.isTypeOnly) return false;
  const name = (node.propertyName ?? node.name).getText();
  return (
    /^(create(Secure)?Server|Server)$/.test(name) &&
    /node:http/.test(node.parent.parent.parent.moduleSpecifier.getText())
  );
}

/** One makes the database's file before it is open; the other serves commands, whose files nobody in the process has open. */
const opensByHand = new Set(['store/sqlite/connection.ts', 'store/sqlite/backup.ts']);

function opensFiles(node: ts.Node): boolean {
  if (!ts.isImportDeclaration(node) || !/node:fs/.test(node.moduleSpecifier.getText())) return false;
  const names = node.importClause?.namedBindings;
  if (names === undefined || !ts.isNamedImports(names)) return true;
  const byPath = new Set(['existsSync', 'mkdirSync', 'statSync', 'statfsSync']);
  return names.elements.some(({ name, propertyName }) => !byPath.has((propertyName ?? name).getText()));
}

function readsEnvironment(node: ts.Node): boolean {
  const isProcess = (expression: ts.Expression | undefined): boolean =>
    expression !== undefined && /(^|\.)process$/.test(expression.getText());
  if (ts.isPropertyAccessExpression(node)) return node.name.text === 'env' && isProcess(node.expression);
  if (ts.isElementAccessExpression(node)) {
    return (
      ts.isStringLiteralLike(node.argumentExpression) &&
      node.argumentExpression.text === 'env' &&
      isProcess(node.expression)
    );
  }
  if (ts.isVariableDeclaration(node) && ts.isObjectBindingPattern(node.name) && isProcess(node.initializer)) {
    return node.name.elements.some((element) => (element.propertyName ?? element.name).getText() === 'env');
  }
  if (ts.isImportSpecifier(node)) {
    const from = node.parent.parent.parent.moduleSpecifier.getText();
    return /process/.test(from) && (node.propertyName ?? node.name).text === 'env';
  }
  return false;
}

function deadFiles(files: Sources, entries: readonly string[]): string[] {
  const missing = entries
    .filter((entry) => !files.has(entry))
    .map((entry) => `src/${entry} is listed as an entry point but does not exist`);
  const alive = new Set(entries);
  for (const file of alive) {
    for (const target of importsOf(file, files.get(file) ?? '')) alive.add(target);
  }
  const dead = [...files.keys()].filter((file) => !alive.has(file));
  return [...missing, ...dead.map((file) => `src/${file} is dead: no entry point reaches it`)];
}

const imported = new WeakMap<ts.SourceFile, Map<string, readonly string[]>>();

/** Everything of ours that a file imports, as paths below `src/`: static, dynamic, re-exported, or for its types only. */
function importsOf(file: string, text: string): readonly string[] {
  const source = parse(file, text);
  const known = imported.get(source) ?? new Map<string, readonly string[]>();
  imported.set(source, known);
  const before = known.get(file);
  if (before !== undefined) return before;
  const found: string[] = [];
  known.set(file, found);
  const add = (specifier: ts.Node | undefined): void => {
    if (specifier === undefined || !ts.isStringLiteralLike(specifier) || !specifier.text.startsWith('.')) return;
    found.push(posix.relative('/src', posix.resolve('/src', posix.dirname(file), specifier.text)));
  };
  walk(source, (node) => {
    if (ts.isImportDeclaration(node) || ts.isExportDeclaration(node)) add(node.moduleSpecifier);
    else if (ts.isCallExpression(node) && node.expression.kind === ts.SyntaxKind.ImportKeyword) add(node.arguments[0]);
    else if (ts.isImportTypeNode(node) && ts.isLiteralTypeNode(node.argument)) add(node.argument.literal);
  });
  return found;
}

/** By text: each file is parsed once for all rules. */
const parsed = new Map<string, ts.SourceFile>();

function parse(file: string, text: string): ts.SourceFile {
  let source = parsed.get(text);
  if (source === undefined) parsed.set(text, (source = ts.createSourceFile(file, text, ts.ScriptTarget.Latest, true)));
  return source;
}

function walk(node: ts.Node, visit: (node: ts.Node) => void): void {
  visit(node);
  ts.forEachChild(node, (child) => walk(child, visit));
}

/** The deepest room that a file is in: `inference/pipeline/checks/a.ts` → `inference/pipeline`, `main.ts` → `main`. */
function partOf(file: string): string {
  for (let at = file.lastIndexOf('/'); at > 0; at = file.lastIndexOf('/', at - 1)) {
    const folder = file.slice(0, at);
    if (arrows[folder] !== undefined) return folder;
  }
  return (file.split('/')[0] ?? '').replace(/\.ts$/, '');
}

/** The folder inside its room: `inference/engines/llama/engine.ts` → `llama`. */
function folderIn(file: string): string | undefined {
  const [folder, rest] = file.slice(partOf(file).length + 1).split('/');
  return rest === undefined ? undefined : folder;
}

/** This file, which names the words that it forbids, is left out. */
function readSources(folder: string, ending = /\.ts$/): Sources {
  const root = inRepository(folder);
  const names = readdirSync(root, { recursive: true, encoding: 'utf8' }).filter(
    (name) => ending.test(name) && !name.includes('node_modules') && name !== 'architecture.test.ts',
  );
  assert.ok(names.length > 20, 'the sources were not found');
  return new Map(
    names.sort().map((name) => [relative('.', name).split(sep).join('/'), readFileSync(join(root, name), 'utf8')]),
  );
}
