import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';

import { examplesOf } from '../examples/extract.ts';
import type { Example } from '../examples/extract.ts';
import { InnerService } from '../support/service.ts';
import { runFolder } from '../support/built.ts';
import { inRepository } from '../support/repository.ts';
import { runProgram } from './run-program.ts';

/**
 * The programs of docs/clients.md and of the first quickstart run as they stand, against the configuration that stands there, and
 * print what is written behind the arrows of their comments. The addresses of the default ports mean the service of the test.
 */
const document = 'docs/clients.md';
const examples = [document, 'docs/quickstart-program.md'].flatMap((file) =>
  examplesOf(readFileSync(inRepository(file), 'utf8'), file),
);
const programs = examples.filter(({ kind }) => kind === 'program');
const [config] = examples.filter(({ kind }) => kind === 'config');
assert.ok(config);

const service = new InnerService({
  config: `${config.text}  - id: smollm2-135m-instruct
    context_length: 8192
    pricing: { input_dollars_per_million: 0.05, output_dollars_per_million: 0.20 }
    backends: [ { engine: scripted, scripts: [ { say: [ { text: "The capital of France is Paris." } ] } ] } ]
`,
});
/** Where the client libraries are found. */
const folder = mkdtempSync(join(runFolder, 'example-'));
before(() => service.start());
after(async () => {
  rmSync(folder, { recursive: true, force: true });
  await service.verify();
  await service.dispose();
});

describe('the documentation', () => {
  test('has programs for a shell and for Node', () => {
    assert.deepEqual([...new Set(programs.map(({ language }) => language))].toSorted(), ['js', 'sh']);
  });

  for (const program of programs) {
    test(program.where, async () => {
      const expected = [...program.text.matchAll(/(?:\/\/|#) → (.*)$/gm)].map(([, text = '']) => text);
      assert.ok(expected.length > 0, 'it says what it prints');
      const { code, stdout, stderr } = await run(program);
      assert.equal(code, 0, stderr + stdout);
      assert.deepEqual(stdout.trimEnd().split('\n'), expected);
    });
  }

  test('a program that prints something else is found', async () => {
    const { stdout, code } = await run({ where: 'here', kind: 'program', language: 'js', text: 'throw new Error();' });
    assert.notEqual(code, 0);
    assert.equal(stdout, '');
  });
});

const run = ({ text, language, where }: Example) =>
  runProgram(
    {
      language,
      where,
      text: text.replaceAll('http://localhost:8080', service.url).replaceAll('tkh_…', service.key),
    },
    folder,
    service.key,
  );
