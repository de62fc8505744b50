/** The chart as Helm renders it, held to what is committed, to Kubernetes' own schemas, and to its own schema of values. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

import { temporaryFolder } from '../../store/fixture.ts';
import { inRepository } from '../../support/repository.ts';

const chart = inRepository('deploy', 'helm', 'tokenhouse');
const golden = join(chart, 'golden');
const version = process.env['KUBERNETES_VERSION']!;
const names = readdirSync(golden).flatMap((file) => /^(.*)\.values\.yaml$/.exec(file)?.[1] ?? []);

function run(
  program: string,
  args: readonly string[],
  input?: string,
): { code: number | null; said: string; out: string } {
  const { status, stdout, stderr } = spawnSync(process.env[program]!, args, {
    encoding: 'utf8',
    input,
    timeout: 120_000,
  });
  return { code: status, said: stdout + stderr, out: stdout };
}
const valuesOf = (name: string): string => join(golden, `${name}.values.yaml`);
const render = (values: string) =>
  run('HELM', ['template', 'release', chart, '--namespace', 'gateway', '--kube-version', version, '-f', values]);

const conform = (manifests: string) => {
  const kinds = ['-strict', '-summary', '-skip', 'ServiceMonitor,ScaledObject'];
  const place = join(process.env['KUBERNETES_SCHEMAS']!, '{{ .ResourceKind }}{{ .KindSuffix }}.json');
  return run('KUBECONFORM', [...kinds, '-schema-location', place, '-'], manifests);
};

for (const name of names) {
  test(`${name}: helm lint finds nothing`, () => {
    const { code, said } = run('HELM', ['lint', '--strict', '--kube-version', version, chart, '-f', valuesOf(name)]);
    assert.equal(code, 0, said);
    assert.doesNotMatch(said, /\[(WARNING|ERROR)\]/);
  });

  test(`${name}: is rendered as it is committed`, () => {
    const { code, said, out } = render(valuesOf(name));
    assert.equal(code, 0, said);
    const file = join(golden, `${name}.yaml`);
    if (process.env['TOKENHOUSE_TEST_GOLDEN'] === 'write') writeFileSync(file, out);
    assert.equal(out, readFileSync(file, 'utf8'), 'TOKENHOUSE_TEST_GOLDEN=write npm run suite helm writes it anew');
  });

  test(`${name}: is what Kubernetes ${version} takes`, () => {
    const { code, said } = conform(readFileSync(join(golden, `${name}.yaml`), 'utf8'));
    assert.equal(code, 0, said);
    const kinds = readFileSync(join(golden, `${name}.yaml`), 'utf8').match(/^kind: .*$/gm)!;
    const others = kinds.filter((kind) => /ServiceMonitor|ScaledObject/.test(kind)).length;
    assert.match(said, new RegExp(`Valid: ${kinds.length - others}, Invalid: 0, Errors: 0, Skipped: ${others}\\b`));
  });
}

test('a field that Kubernetes does not have is found', () => {
  const { code, said } = conform(
    readFileSync(join(golden, 'plain.yaml'), 'utf8').replace('automountServiceAccountToken', 'automountToken'),
  );
  assert.notEqual(code, 0);
  assert.match(said, /automountToken/);
});

test('values that mean nothing, or that would keep the data elsewhere, are refused', (t) => {
  const values = join(temporaryFolder(t), 'values.yaml');
  for (const [text, message] of [
    ['replica: 3\n', /replica/],
    ['replicas: 0\n', /replicas/],
    ['config: { storage: "sqlite:data/x.db" }\n', /config/],
    ['database: { url: "postgres://tokenhouse:password@db/tokenhouse" }\n', /url/],
    ['existingSecret: ""\n', /existingSecret/],
  ] as const) {
    writeFileSync(values, text);
    const { code, said } = render(values);
    assert.notEqual(code, 0, text);
    assert.match(said, message);
  }
});
