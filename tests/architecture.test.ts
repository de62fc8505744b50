import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join, posix, relative, sep } from 'node:path';
import { test } from 'node:test';

import ts from 'typescript';
import { inRepository } from './support/repository.ts';

/**
 * Holds the arrows of docs/architecture.md, "What may import what": the folder of a file tells what it may know. A name is
 * a folder of `src/`, or a file beside them without its ending.
 */
const arrows: Readonly<Record<string, readonly string[]>> = {
  generation: [],
  // What has nothing to do with inference or money: where threads and children are, stacks.
  platform: [],
  errors: [],
  store: ['ids', 'platform', 'tax'],
  // Countries, rates, and who is taxed how.
  tax: [],
  // One of each code, for its page and for the API description.
  'error-examples': ['errors'],
  log: [],
  // Texts in pages.
  html: [],
  // What Node 20 gets wrong about signals.
  'any-signal': [],
  // Counting, and the text that scrapers read.
  metrics: [],
  // What is done again and again beside the requests.
  jobs: ['log'],
  // Request ids: how they are made, printed and echoed.
  ids: [],
  // What both hosts do below the level of routes.
  edge: ['errors', 'ids', 'ip', 'platform'],
  // IP addresses and ranges of them.
  ip: [],
  constraints: ['errors'],
  dialects: ['generation', 'errors'],
  reply: ['generation', 'errors'],
  engines: ['any-signal', 'generation', 'errors', 'constraints', 'platform', 'reply'],
  'model-files': ['any-signal', 'errors'],
  config: ['model-files', 'catalog', 'ip', 'tax'],
  catalog: ['generation', 'errors', 'store'],
  accounts: ['generation', 'errors', 'ip', 'store', 'tax'],
  // Not catalog: prices arrive as a function.
  billing: ['generation', 'errors', 'store'],
  images: ['generation', 'errors'],
  files: ['generation', 'errors', 'platform', 'store'],
  limits: ['generation', 'errors', 'store'],
  pipeline: [
    'any-signal',
    'generation',
    'errors',
    'store',
    'constraints',
    'dialects',
    'engines',
    'catalog',
    'accounts',
    'billing',
    'limits',
    'images',
    'files',
    'ip',
    'platform',
  ],
  // What the inference host says of itself; it reads the schemas of the dialects and serves nothing.
  openapi: ['dialects', 'catalog', 'errors', 'error-examples'],
  http: [
    'openapi',
    'pipeline',
    'images',
    'files',
    'dialects',
    'catalog',
    'accounts',
    'billing',
    'limits',
    'errors',
    'generation',
    'html',
    'log',
    'ids',
    'edge',
    'metrics',
  ],
  'account-api': [
    'any-signal',
    'html',
    'error-examples',
    'pipeline',
    'dialects',
    'catalog',
    'accounts',
    'billing',
    'limits',
    'errors',
    'generation',
    'log',
    'ids',
    'ip',
    'edge',
    'http',
    'openapi',
    'store',
    'config',
    'invoices',
    'alerts',
    'webhooks',
    'mail',
    'payments',
    'people',
    'tax',
  ],
  // Who signs in, and how; one file of it loads better-auth.
  people: ['accounts', 'store', 'config', 'mail', 'errors', 'log'],
  // Mail that waits to be sent, and is sent by SMTP.
  mail: ['store', 'config', 'log'],
  // Who takes payments, and what their messages mean for the books.
  payments: ['accounts', 'store', 'ids', 'mail', 'config', 'jobs', 'log'],
  // Days and months of time zones.
  calendar: ['store'],
  // Monthly statements.
  invoices: ['accounts', 'billing', 'calendar', 'html', 'ids', 'store', 'tax'],
  alerts: ['calendar', 'ids', 'store'],
  // Sent to addresses that customers name, through the gates of images.
  webhooks: ['any-signal', 'errors', 'ids', 'images', 'log', 'store'],
  // What has happened, told by mail and to webhooks.
  notices: ['billing', 'invoices', 'log', 'mail', 'store', 'webhooks'],
  // The socket through which the command line reaches a running service.
  control: ['accounts', 'config', 'tax'],
};

/** The only places where concrete engines and stores are named; they may import everything. */
const compositionRoots: ReadonlySet<string> = new Set(['main', 'service', 'cli']);

/** Arrows that end at one file: the interface of a part with several implementations, or the one pure thing in it. */
const narrowArrows: Readonly<Record<string, string>> = {
  'pipeline → dialects': 'dialects/dialect.ts',
  'pipeline → engines': 'engines/engine.ts',
  'config → model-files': 'model-files/source.ts',
  'config → catalog': 'catalog/model.ts',
  'control → config': 'config/reload-outcome.ts',
};

/** Where execution starts; the second half are threads and child processes, which nothing imports. */
const entryPoints = [
  'main.ts',
  'cli/serve-worker.ts',
  'store/sqlite/ledger-worker.ts',
  'store/sqlite/desk-worker.ts',
  'engines/llama/llama-child.ts',
  'edge/json/json-thread.ts',
  'files/pdf-child.ts',
];

const sources = readSources();

test('every import follows the arrows of the architecture', () => {
  assert.deepEqual(importFaults(sources), []);
});

test('folders do not import each other in circles', () => {
  assert.deepEqual(folderCycles(sources), []);
});

test('the environment is read in src/config only, HTTP servers are made in src/edge only, nothing writes to the console', () => {
  assert.deepEqual(wordFaults(sources), []);
});

test('nothing in src is dead', () => {
  assert.deepEqual(deadFiles(sources, entryPoints), []);
});

test('each rule finds what it is for', () => {
  const faultsOf = (files: Record<string, string>): string[] => {
    const tree = new Map(Object.entries(files));
    return [...importFaults(tree), ...folderCycles(tree), ...wordFaults(tree)];
  };
  const rules: readonly (readonly [Record<string, string>, RegExp | null])[] = [
    [
      { 'generation/a.ts': "import { b } from '../errors.ts';", 'errors.ts': '' },
      /generation may import nothing of ours.*errors/,
    ],
    [{ 'dialects/a/a.ts': "import type { b } from '../../engines/engine.ts';" }, /src\/dialects\/a\/a\.ts.*engines/],
    [{ 'billing/a.ts': "export { b } from '../catalog/pricing.ts';" }, /src\/billing\/a\.ts.*catalog/],
    [{ 'engines/a/a.ts': "const b = await import('../../pipeline/run.ts');" }, /engines.*pipeline/],
    [{ 'engines/a.ts': "type B = import('../pipeline/run.ts').B;" }, /engines.*pipeline/],
    [{ 'log.ts': "import '../src/errors.ts';" }, /log may import nothing of ours/],
    [{ 'novel/a.ts': '' }, /no arrows for 'novel'/],
    [{ 'pipeline/a.ts': "import { b } from '../engines/usage.ts';" }, /only 'engines\/engine\.ts'/],
    [{ 'config/a.ts': "import { b } from '../model-files/download.ts';" }, /only 'model-files\/source\.ts'/],
    [{ 'http/a.ts': "import { b } from '../store/ledger.ts';" }, /http may import/],
    [{ 'accounts/a.ts': "import { b } from '../store/sqlite/store.ts';" }, /concrete/],
    [{ 'dialects/a/a.ts': "import { b } from '../b/b.ts';" }, /does not import its sibling 'dialects\/b'/],
    [{ 'engines/engine.ts': "import { b } from './b/b.ts';" }, /does not import its implementation/],
    [
      {
        'service/start.ts': "import { b } from '../engines/llama/engine.ts';",
        'cli/a.ts': "import '../service/start.ts';",
      },
      null,
    ],
    [
      { 'cli/a.ts': "import '../service/a.ts';", 'service/a.ts': "import '../cli/a.ts';" },
      /circle: cli → service → cli/,
    ],
    [{ 'store/a.ts': 'const { env } = process;' }, /src\/store\/a\.ts.*environment/],
    [{ 'store/a.ts': "import { env } from 'node:process';" }, /environment/],
    [{ 'store/a.ts': "globalThis.process['env'].HOME" }, /environment/],
    [{ 'config/a.ts': 'process.env.HOME' }, null],
    [{ 'store/a.ts': '// process.env and console.log\nconst a = "console.log(process.env)";' }, null],
    [{ 'store/a.ts': 'console.error(1)' }, /src\/store\/a\.ts.*console/],
    [{ 'http/a.ts': "import { createServer as a } from 'node:http';" }, /src\/http\/a\.ts makes an HTTP server/],
    [
      {
        'http/a.ts': "import type { Server } from 'node:http';",
        'edge/a.ts': "import { createServer } from 'node:http';",
      },
      null,
    ],
    [{ 'http/a.ts': "import { createServer } from 'node:net';" }, null],
  ];
  for (const [files, expected] of rules) {
    const told = faultsOf(files).join('\n');
    if (expected === null) assert.equal(told, '', JSON.stringify(files));
    else assert.match(told, expected, JSON.stringify(files));
  }
  const tree = new Map([
    ['main.ts', "import './service/start.ts';"],
    ['service/start.ts', ''],
    ['store/lonely.ts', "import '../main.ts';"],
  ]);
  assert.deepEqual(deadFiles(tree, ['main.ts']), ['src/store/lonely.ts is dead: no entry point reaches it']);
  assert.match(deadFiles(tree, ['main.ts', 'gone.ts']).join(), /src\/gone\.ts is listed as an entry point/);
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
  if (compositionRoots.has(from)) return undefined;
  if (from === to) return siblingFault(file, target);
  const allowed = arrows[from] ?? [];
  if (!allowed.includes(to)) {
    return `${from} may import ${allowed.length === 0 ? 'nothing of ours' : `only ${allowed.join(', ')}`}, not ${to}`;
  }
  const face = narrowArrows[`${from} → ${to}`];
  if (face !== undefined && target !== face) return `of ${to}, ${from} may import only '${face}'`;
  if ((to === 'engines' || to === 'store') && folderIn(target) !== undefined) {
    return `concrete engines and stores are named only in ${[...compositionRoots].join(', ')}`;
  }
  return undefined;
}

/** Dialects and engines know their interface, not each other; interfaces know no implementation. */
function siblingFault(file: string, target: string): string | undefined {
  const part = partOf(file);
  if (part !== 'dialects' && part !== 'engines') return undefined;
  const own = folderIn(file);
  const other = folderIn(target);
  if (other === undefined || other === own) return undefined;
  return own === undefined
    ? `what the ${part} share does not import its implementation '${part}/${other}'`
    : `'${part}/${own}' does not import its sibling '${part}/${other}'`;
}

function folderCycles(files: Sources): string[] {
  const graph = new Map<string, Set<string>>();
  for (const [file, text] of files) {
    const from = partOf(file);
    const targets = graph.get(from) ?? new Set();
    graph.set(from, targets);
    for (const target of importsOf(file, text)) if (partOf(target) !== from) targets.add(partOf(target));
  }
  const done = new Set<string>();
  const cycles: string[] = [];
  const visit = (part: string, path: readonly string[]): void => {
    if (path.includes(part)) {
      cycles.push(`import circle: ${[...path.slice(path.indexOf(part)), part].join(' → ')}`);
      return;
    }
    if (done.has(part)) return;
    for (const next of graph.get(part) ?? []) visit(next, [...path, part]);
    done.add(part);
  };
  for (const part of graph.keys()) visit(part, []);
  return cycles;
}

function wordFaults(files: Sources): string[] {
  const faults: string[] = [];
  for (const [file, text] of files) {
    walk(parse(file, text), (node) => {
      if (partOf(file) !== 'config' && readsEnvironment(node)) {
        faults.push(`src/${file} reads the environment: only src/config may`);
      }
      if (partOf(file) !== 'edge' && makesHttpServers(node)) {
        faults.push(`src/${file} makes an HTTP server: use createEdge of src/edge, which has the guards`);
      }
      const isName = ts.isIdentifier(node) && node.text === 'console';
      if (isName && !(ts.isPropertyAccessExpression(node.parent) && node.parent.name === node)) {
        faults.push(`src/${file} writes to the console: use the log, or standard output in src/cli`);
      }
    });
  }
  return faults;
}

/** Imports more than types of servers from `node:http`, `node:https` or `node:http2`. */
function makesHttpServers(node: ts.Node): boolean {
  if (!ts.isImportSpecifier(node) || node.isTypeOnly || node.parent.parent.isTypeOnly) return false;
  const name = (node.propertyName ?? node.name).getText();
  return (
    /^(create(Secure)?Server|Server)$/.test(name) &&
    /node:http/.test(node.parent.parent.parent.moduleSpecifier.getText())
  );
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

/** Everything of ours that a file imports, as paths below `src/`: static, dynamic, re-exported, or for its types only. */
function importsOf(file: string, text: string): readonly string[] {
  const found: string[] = [];
  const add = (specifier: ts.Node | undefined): void => {
    if (specifier === undefined || !ts.isStringLiteralLike(specifier) || !specifier.text.startsWith('.')) return;
    found.push(posix.relative('/src', posix.resolve('/src', posix.dirname(file), specifier.text)));
  };
  walk(parse(file, text), (node) => {
    if (ts.isImportDeclaration(node) || ts.isExportDeclaration(node)) add(node.moduleSpecifier);
    else if (ts.isCallExpression(node) && node.expression.kind === ts.SyntaxKind.ImportKeyword) add(node.arguments[0]);
    else if (ts.isImportTypeNode(node) && ts.isLiteralTypeNode(node.argument)) add(node.argument.literal);
  });
  return found;
}

const parse = (file: string, text: string): ts.SourceFile =>
  ts.createSourceFile(file, text, ts.ScriptTarget.Latest, true);

function walk(node: ts.Node, visit: (node: ts.Node) => void): void {
  visit(node);
  ts.forEachChild(node, (child) => walk(child, visit));
}

/** `pipeline/run.ts` → `pipeline`, `errors.ts` → `errors`. */
const partOf = (file: string): string => (file.split('/')[0] ?? '').replace(/\.ts$/, '');

/** `engines/llama/engine.ts` → `llama`. */
function folderIn(file: string): string | undefined {
  const [, folder, rest] = file.split('/');
  return rest === undefined ? undefined : folder;
}

function readSources(): Sources {
  const root = inRepository('src');
  const names = readdirSync(root, { recursive: true, encoding: 'utf8' }).filter((name) => name.endsWith('.ts'));
  assert.ok(names.length > 20, 'the sources were not found');
  return new Map(
    names.sort().map((name) => [relative('.', name).split(sep).join('/'), readFileSync(join(root, name), 'utf8')]),
  );
}
