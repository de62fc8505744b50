/** Where telemetry goes, by the file and by the variables that OpenTelemetry has for every program. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';

import { readEnvironment } from '../../src/config/environment.ts';
import { ConfigError } from '../../src/config/problem.ts';
import { readConfig } from '../../src/config/read.ts';

const read = (text: string, variables: Readonly<Record<string, string>> = {}) =>
  readConfig(text, { directory: '/srv', environment: readEnvironment({ HOME: '/home/somebody', ...variables }) })
    .telemetry;

const endpoint = { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://collector:4318/' };

test('nothing is sent unless an address is given', () => {
  assert.equal(read(''), undefined);
  assert.equal(read('telemetry: { service_name: a, sampling_ratio: 0.5 }'), undefined);
  assert.equal(read('', { OTEL_SERVICE_NAME: 'a', OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc' }), undefined);
  assert.equal(read('', { ...endpoint, OTEL_SDK_DISABLED: 'TRUE' }), undefined);
});

test('the defaults, of the program and of the variables', () => {
  assert.deepEqual(read('', endpoint), {
    endpoint: 'http://collector:4318',
    headers: undefined,
    traces: { samplingRatio: 1 },
    metrics: { everyMs: 60_000 },
    serviceName: 'tokenhouse',
    resource: [],
  });
  const all = read('', {
    ...endpoint,
    OTEL_EXPORTER_OTLP_PROTOCOL: 'http/protobuf',
    OTEL_EXPORTER_OTLP_HEADERS: 'authorization=Bearer%20secret, x-a = b',
    OTEL_RESOURCE_ATTRIBUTES: 'service.name=named,region=eu%2Cwest',
  });
  assert.equal(all?.headers?.reveal(), 'authorization=Bearer%20secret, x-a = b');
  assert.equal(String(all?.headers), '(secret)');
  assert.equal(all?.serviceName, 'named');
  assert.deepEqual(all?.resource, [
    ['service.name', 'named'],
    ['region', 'eu,west'],
  ]);
});

test('the file comes before the variables, which are not read where it names an address', () => {
  const telemetry = read(
    'telemetry: { endpoint: "https://otlp.example.org/x/", headers: "a=b", service_name: mine, traces: false, metrics: false }',
    { ...endpoint, OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc', OTEL_SDK_DISABLED: 'true', OTEL_SERVICE_NAME: 'theirs' },
  );
  assert.deepEqual(
    { ...telemetry, headers: telemetry?.headers?.reveal() },
    {
      endpoint: 'https://otlp.example.org/x',
      headers: 'a=b',
      traces: undefined,
      metrics: undefined,
      serviceName: 'mine',
      resource: [],
    },
  );
});

describe('what is wrong is said, and secrets are not', () => {
  for (const [name, text, variables, problem] of [
    [
      'another protocol',
      '',
      { ...endpoint, OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc' },
      /grpc, .*4318, or set OTEL_SDK_DISABLED=true/,
    ],
    ['no URL', '', { OTEL_EXPORTER_OTLP_ENDPOINT: 'collector:4318' }, /OTEL_EXPORTER_OTLP_ENDPOINT is not a URL/],
    [
      'a password in it',
      'telemetry: { endpoint: "http://me:hush@collector" }',
      {},
      /ends up in logs; use telemetry.headers/,
    ],
    ['no header', 'telemetry: { headers: "no header=hush" }', endpoint, /not a list of headers/],
    [
      'a header of ours',
      'telemetry: { headers: "Content-Length=9" }',
      endpoint,
      /the header Content-Length cannot be set/,
    ],
    ['a line break', '', { ...endpoint, OTEL_EXPORTER_OTLP_HEADERS: 'a=hush%0d%0ab: c' }, /not a list of headers/],
    ['a ratio', 'telemetry: { sampling_ratio: 1.5 }', endpoint, /1/],
  ] as const)
    test(name, () => {
      const problems = (): string => {
        try {
          read(text, variables);
        } catch (error) {
          if (error instanceof ConfigError) return error.problems.map(({ what }) => what).join('\n');
        }
        return '';
      };
      assert.match(problems(), problem);
      assert.doesNotMatch(problems(), /hush/);
    });
});
