/** The workflows of GitHub, which run only there: actionlint knows their schema, expressions, events, permissions and the inputs of actions. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync, readdirSync } from 'node:fs';
import { test } from 'node:test';

import { inRepository } from '../../support/repository.ts';

const folder = inRepository('.github', 'workflows');
const files = readdirSync(folder).filter((name) => /\.ya?ml$/.test(name));

/** Without the linters of shells and Python that a machine may have or not. */
function lint(text: string, name: string): { readonly code: number | null; readonly said: string } {
  const { status, stdout, stderr } = spawnSync(
    process.env['ACTIONLINT']!,
    ['-no-color', '-shellcheck=', '-pyflakes=', '-stdin-filename', name, '-'],
    { input: text, encoding: 'utf8', timeout: 120_000 },
  );
  return { code: status, said: stdout + stderr };
}

/** Actions are pinned by commit; actionlint knows their inputs by the major version, which the comment beside the commit says. */
const textOf = (name: string): string =>
  readFileSync(inRepository('.github', 'workflows', name), 'utf8').replaceAll(
    /(uses: \S+@)[0-9a-f]{40} # (v\d+)\.\d+\.\d+$/gm,
    '$1$2',
  );

for (const name of files)
  test(`${name}: actionlint finds nothing`, () => {
    const { code, said } = lint(textOf(name), name);
    assert.equal(code, 0, said);
  });

test('what is wrong is found: in an expression, an event, a permission, an input, a machine, a key', () => {
  assert.ok(files.length > 0);
  const right = textOf('publish.yml');
  for (const [from, to, found] of [
    ['github.event.release.tag_name', 'github.event.release.tag_nam(', /parser did not reach end of input/],
    ['types: [published]', 'types: [publishd]', /invalid activity type "publishd"/],
    ['contents: write', 'content: write', /unknown permission scope "content"/],
    ['node-version: 24', 'node-versio: 24', /input "node-versio" is not defined in action "actions\/setup-node@v5"/],
    ['runs-on: ubuntu-24.04', 'runs-on: ubuntu-24.40', /label "ubuntu-24\.40" is unknown/],
    ['timeout-minutes: 30', 'timeout: 30', /unexpected key "timeout"/],
  ] as const) {
    assert.ok(right.includes(from), from);
    const { code, said } = lint(right.replace(from, to), 'publish.yml');
    assert.equal(code, 1, `${to}: ${said}`);
    assert.match(said, found);
  }
});
