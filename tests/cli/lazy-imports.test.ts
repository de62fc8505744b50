import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { test } from 'node:test';

import ts from 'typescript';
import { inRepository } from '../support/repository.ts';

/**
 * Help and completion must not wait for a database and a validator, nor a start for what prints, mails, pays or signs in:
 * what is imported before is counted instead of timed.
 */
const sources = inRepository('src');

/** Files and packages that are loaded before the first command: static imports only, without those for types. */
function loadedBy(entry: string): { readonly files: readonly string[]; readonly packages: readonly string[] } {
  const files = new Set([entry]);
  const packages = new Set<string>();
  for (const file of files) {
    const tree = ts.createSourceFile(file, readFileSync(file, 'utf8'), ts.ScriptTarget.Latest);
    for (const node of tree.statements) {
      const isType = ts.isImportDeclaration(node) && node.importClause?.phaseModifier === ts.SyntaxKind.TypeKeyword;
      if (!ts.isImportDeclaration(node) || isType || !ts.isStringLiteral(node.moduleSpecifier)) continue;
      const { text } = node.moduleSpecifier;
      if (text.startsWith('.')) files.add(join(dirname(file), text));
      else packages.add(text);
    }
  }
  return { files: [...files].map((file) => relative(sources, file)).toSorted(), packages: [...packages].toSorted() };
}

test('before a command runs, only its declaration is loaded', () => {
  const { files, packages } = loadedBy(join(sources, 'main.ts'));
  assert.deepEqual(files, [
    '../package.json',
    'billing/payments/demo-outcomes.ts',
    'cli/allow.ts',
    'cli/billing.ts',
    'cli/budgets.ts',
    'cli/command-line.ts',
    'cli/command-row.ts',
    'cli/nouns/accounts.ts',
    'cli/nouns/batches.ts',
    'cli/nouns/credits.ts',
    'cli/nouns/keys.ts',
    'cli/nouns/papers.ts',
    'cli/nouns/people.ts',
    'cli/nouns/prices.ts',
    'cli/nouns/records.ts',
    'cli/nouns/traffic.ts',
    'cli/option.ts',
    'cli/output.ts',
    'cli/rate-options.ts',
    'cli/surroundings.ts',
    'cli/version.ts',
    'generation/flavor-names.ts',
    'main.ts',
    'platform/dollars.ts',
    'platform/stack-traces.ts',
    'prove/check-names.ts',
  ]);
  assert.deepEqual(packages, ['commander', 'node:crypto', 'node:fs', 'node:module', 'node:url']);
});

test('completion loads no database before it needs an id', () => {
  const { files } = loadedBy(join(sources, 'cli/completion.ts'));
  assert.ok(files.includes('platform/errors.ts'));
  assert.deepEqual(
    files.filter((file) => /^(app|store|accounts)\//.test(file)),
    [],
  );
});

for (const entry of ['cli/serve.ts', 'cli/serve-worker.ts', 'app/start.ts', 'app/workers/parent.ts', 'cli/papers.ts'])
  test(`${entry} loads what prints, mails, pays and signs in only when it is needed`, () => {
    const { files, packages } = loadedBy(join(sources, entry));
    assert.ok(files.length > 5);
    assert.deepEqual(
      packages.filter((name) => /^(pdfkit|nodemailer|stripe|better-auth|@better-auth)(\/|$)/.test(name)),
      [],
    );
  });

// Queries run in a thread of their own, which loads them; a fact about rows stands apart from the queries (store/row-facts.ts).
for (const entry of ['cli/serve.ts', 'app/start.ts', 'store/sqlite/store.ts'])
  test(`${entry} loads no query on SQLite`, () => {
    const { packages } = loadedBy(join(sources, entry));
    assert.ok(!packages.includes('kysely'), packages.join(' '));
  });
