import assert from 'node:assert/strict';
import { test } from 'node:test';
import { readEnvironment } from '../../src/config/environment.ts';
import { ConfigError } from '../../src/config/problem.ts';
import { readConfig } from '../../src/config/read.ts';

const environment = readEnvironment({ HOME: '/home/somebody' });

function gpuOf(written: string): unknown {
  const text = `models:
  - id: demo
    context_length: 4096
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    backends: [ { engine: llama, sources: [ "file:./model.gguf" ], sha256: ${'ab'.repeat(32)}${written} } ]
`;
  const config = readConfig(text, { directory: '/srv', file: '/srv/tokenhouse.yaml', environment });
  const [backend] = config.models[0]!.backends;
  assert.ok(backend?.engine === 'llama');
  return backend.gpu;
}

test('what of a model a GPU computes', () => {
  for (const [written, gpu] of [
    ['', 'auto'],
    [', gpu: auto', 'auto'],
    [', gpu: off', 'off'],
    [', gpu: "off"', 'off'],
    [', gpu: 1', 1],
    [', gpu: 99', 99],
  ] as const)
    assert.equal(gpuOf(written), gpu, written);
});

test('and what no GPU can be told', () => {
  for (const written of ['gpu: cuda', 'gpu: 0', 'gpu: -1', 'gpu: 1.5', 'gpu: true', 'gpu: [ 1, 2 ]', 'gpu: null'])
    assert.throws(
      () => gpuOf(`, ${written}`),
      (error: unknown) => {
        assert.ok(error instanceof ConfigError);
        const [problem] = error.problems;
        assert.match(problem!.where, /tokenhouse\.yaml:5:/);
        assert.match(problem!.what, /gpu/);
        return true;
      },
      written,
    );
});
