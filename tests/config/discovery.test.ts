/** Where backends come from, as `tokenhouse.yaml` says it. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { withDiscovered, type backendOf } from '../../src/config/discovered.ts';
import { readEnvironment } from '../../src/config/environment.ts';
import { ConfigError } from '../../src/config/problem.ts';
import { readConfig } from '../../src/config/read.ts';
import { scriptSchema } from '../../src/inference/engines/scripted/script-schema.ts';

const environment = readEnvironment({
  HOME: '/home/somebody',
  ...{ KUBERNETES_SERVICE_HOST: '10.96.0.1', KUBERNETES_SERVICE_PORT: '443', KEY: 'sk-1' },
});
const read = (...backends: readonly string[]) =>
  readConfig(
    `models:
  - id: m
    context_length: 4096
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    backends:
${backends.map((backend) => `      - { engine: openai, flavor: vllm, ${backend} }`).join('\n')}`,
    { directory: '/srv', file: '/srv/tokenhouse.yaml', environment, scriptSchema },
  );

test('the backends of a source stand where its entry does, and have what the entry says', () => {
  const config = read(
    'name: first, url: http://10.0.0.1/v1',
    'name: gpu, api_key_env: KEY, weight: 2, rank: 3, discover: { by: file, path: list.yaml }',
    'name: last, url: http://10.0.0.9/v1',
  );
  const [model] = config.models;
  assert.deepEqual(
    model!.backends.map(({ name }) => name),
    ['first', 'last'],
  );
  const [source] = model!.sources;
  assert.deepEqual(source!.discover, { by: 'file', maxBackends: 256, warmUp: true, path: '/srv/list.yaml' });
  const expanded = withDiscovered(config, () => [
    { url: 'http://10.0.0.5:8000/v1' },
    { url: 'https://10.0.0.6/other', serverName: 'gpu.test', rank: 1, weight: 0.5 },
  ]);
  const found = expanded.models[0]!.backends.map((backend) => {
    assert.equal(backend.engine, 'openai');
    const { name, url, rank, weight, serverName, apiKey } = backend as ReturnType<typeof backendOf>;
    return [name, url, rank, weight, serverName, apiKey?.reveal()];
  });
  assert.deepEqual(found, [
    ['first', 'http://10.0.0.1/v1', undefined, 1, undefined, undefined],
    ['gpu 10.0.0.5:8000', 'http://10.0.0.5:8000/v1', 3, 2, undefined, 'sk-1'],
    ['gpu 10.0.0.6/other', 'https://10.0.0.6/other', 1, 0.5, 'gpu.test', 'sk-1'],
    ['last', 'http://10.0.0.9/v1', undefined, 1, undefined, undefined],
  ]);
});

test('in a pod the address of the Kubernetes API is known', () => {
  const { discover } = read('url: http://vllm/v1, discover: { by: kubernetes, service: vllm }').models[0]!.sources[0]!;
  assert.ok(discover.by === 'kubernetes');
  assert.deepEqual(
    [discover.apiUrl, discover.credentialsDirectory],
    ['https://10.96.0.1:443', '/var/run/secrets/kubernetes.io/serviceaccount'],
  );
});

for (const [backend, words] of [
  ['name: gpu', /"url" is missing; write the base URL/],
  ['discover: { by: dns }', /"url" is missing/],
  ['url: http://10.0.0.1/v1, discover: { by: dns }', /an address cannot be looked up/],
  ['url: "http://[::1]/v1", discover: { by: srv }', /an address cannot be looked up/],
  ['url: http://a.test/v1, discover: { by: file, path: x }', /each server has a URL of its own; remove this line/],
  ['discover: { by: file }', /"path" is missing/],
  ['discover: { by: dsn }', /did you mean "dns"/],
  ['url: http://a.test/v1, discover: { by: dns, ttl_min_seconds: 60 }', /above ttl_max_seconds/],
  ['url: http://a.test/v1, discover: { by: dns, dns_servers: [nobody] }', /not an address of a name server/],
  ['url: http://a.test/v1, discover: { by: kubernetes, service: "-x" }', /service/],
  ['url: http://a.test/v1, discover: { by: dns, path: x }', /path/],
  ['discover: { by: api, max_backends: 0 }', /max_backends/],
] as const)
  test(`a mistake is named: ${backend}`, () => {
    assert.throws(
      () => read(backend),
      (error: unknown) =>
        error instanceof ConfigError && words.test(JSON.stringify(error.problems).replaceAll('\\"', '"')),
    );
  });
