/** The programs in Python that the documentation shows run as they stand, and print what stands behind their arrows. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFileSync, readdirSync } from 'node:fs';
import { after, before, test } from 'node:test';

import { examplesOf } from '../../examples/extract.ts';
import { inRepository } from '../../support/repository.ts';
import { InnerService } from '../../support/service.ts';

const python = process.env['PYTHON_OF_CLIENTS'];
assert.ok(python, 'PYTHON_OF_CLIENTS is not set: run npm run suite python');

/** Those of docs/clients.md play the script that stands there; the quickstarts name the default model. */
const [clients] = examplesOf(readFileSync(inRepository('docs/clients.md'), 'utf8'), 'clients').filter(
  ({ kind }) => kind === 'config',
);
assert.ok(clients);
const service = new InnerService({
  config: `${clients.text}  - id: smollm2-135m-instruct
    context_length: 8192
    pricing: { input_dollars_per_million: 0.05, output_dollars_per_million: 0.20 }
    backends: [ { engine: scripted, scripts: [ { say: [ { text: "The capital of France is Paris." } ] } ] } ]
`,
});
before(() => service.start());
after(async () => {
  await service.verify();
  await service.dispose();
});

const programs = readdirSync(inRepository('docs'))
  .filter((name) => name.endsWith('.md'))
  .flatMap((name) => examplesOf(readFileSync(inRepository(`docs/${name}`), 'utf8'), `docs/${name}`))
  .filter(({ kind }) => kind === 'python');

test('there are programs, also in the first quickstart', () => {
  assert.ok(programs.some(({ where }) => where.startsWith('docs/quickstart-program.md')));
  assert.ok(programs.some(({ where }) => where.startsWith('docs/clients.md')));
});

for (const { where, text } of programs)
  test(where, async () => {
    const program = text.replaceAll('http://localhost:8080', service.url).replaceAll('tkh_…', service.key);
    const printed = await run(program);
    const expected = [...text.matchAll(/# → (.*)$/gm)].map(([, line]) => line);
    if (expected.length > 0) assert.deepEqual(printed.trimEnd().split('\n'), expected);
    else assert.match(printed, /Paris/);
  });

function run(program: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const env = { ...process.env, TOKENHOUSE_KEY: service.key };
    execFile(python ?? '', ['-c', program], { env, timeout: 120_000 }, (error, stdout, stderr) => {
      if (error === null) resolve(stdout);
      else reject(new Error(stderr === '' ? error.message : stderr));
    });
  });
}
