import assert from 'node:assert/strict';
import { describe, test } from 'node:test';

import { readEnvironment } from '../../src/config/environment.ts';
import { ConfigError } from '../../src/config/problem.ts';
import { readConfig } from '../../src/config/read.ts';
import { configSchema } from '../../src/config/schema.ts';
import type { SchemaNode } from '../../src/platform/schema-node.ts';

/** What a running service keeps until it is restarted (reliability S8): a file that changes it is refused, with the key. */
const environment = readEnvironment({
  HOME: '/home/somebody',
  AWS_ACCESS_KEY_ID: 'a',
  AWS_SECRET_ACCESS_KEY: 'b',
  TOKENHOUSE_STRIPE_SECRET_KEY: 'sk_a',
  TOKENHOUSE_STRIPE_WEBHOOK_SECRET: 'whsec_a',
});
const options = { directory: '/srv', file: '/srv/tokenhouse.yaml', environment };

const models = `models:
  - id: a
    context_length: 100
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    backends: [{ engine: scripted, scripts: [{}] }]
`;

/** The keys that a service with the first settings refuses in a file with the second ones. */
function refusedKeys(before: string, after: string): string[] {
  const running = readConfig(`${before}\n${models}`, options);
  try {
    readConfig(`${after}\n${models}`, { ...options, running });
    return [];
  } catch (error) {
    assert.ok(error instanceof ConfigError, String(error));
    return error.problems.map(({ what }) => /^(\S+) cannot change while the service runs/.exec(what)?.[1] ?? what);
  }
}

const limits = (text: string): string => `server: { limits: { ${text} } }`;
const bucket = (text: string): string => `files: { bucket: one, ${text} }`;
const collector = (text: string): string => `telemetry: { endpoint: "http://a.example.org:4318", ${text} }`;
const stripe = (text: string): string => `payments: { provider: stripe, ${text} }`;

/** Another value for each of them. */
const changes: Readonly<Record<string, readonly [before: string, after: string]>> = {
  'server.inference.host': ['', 'server: { inference: { host: 127.0.0.2 } }'],
  'server.inference.port': ['', 'server: { inference: { port: 9000 } }'],
  'server.inference.public_url': ['', 'server: { inference: { public_url: "https://a.example.org" } }'],
  'server.account.host': ['', 'server: { account: { host: 127.0.0.2 } }'],
  'server.account.port': ['server: { account: { port: 9000 } }', ''],
  'server.account.public_url': ['', 'server: { account: { public_url: "https://a.example.org" } }'],
  'server.workers': ['storage: postgres://db/x', 'server: { workers: 2 }\nstorage: postgres://db/x'],
  'server.limits.cache_bytes_max': ['', limits('cache_bytes_max: 5000')],
  'server.limits.embedded_memory_bytes_max': ['', limits('embedded_memory_bytes_max: 5000')],
  'server.limits.connections_max': ['', limits('connections_max: 5')],
  'server.limits.requests_per_connection_max': ['', limits('requests_per_connection_max: 5')],
  'server.limits.keys_in_memory_max': ['', limits('keys_in_memory_max: 5')],
  'server.limits.headers_timeout_seconds': ['', limits('headers_timeout_seconds: 5')],
  'server.limits.body_timeout_seconds': ['', limits('body_timeout_seconds: 50')],
  'server.limits.body_bytes_per_second_min': ['', limits('body_bytes_per_second_min: 5')],
  'server.limits.keep_alive_timeout_seconds': [limits('keep_alive_timeout_seconds: 5'), ''],
  'server.limits.memory_bytes_max': ['', limits('memory_bytes_max: 5000')],
  'server.limits.shed_large_bodies_lag_seconds': ['', limits('shed_large_bodies_lag_seconds: 5')],
  'server.limits.shed_new_work_lag_seconds': ['', limits('shed_new_work_lag_seconds: 5')],
  'server.limits.shed_new_work_memory_percent': ['', limits('shed_new_work_memory_percent: 5')],
  'server.limits.shed_idle_connections_memory_percent': ['', limits('shed_idle_connections_memory_percent: 5')],
  storage: ['', 'storage: sqlite:other.db'],
  'files.bucket': ['', 'files: { bucket: one }'],
  'files.endpoint': [bucket('path_style: true'), bucket('path_style: true, endpoint: "https://a.example.org"')],
  'files.region': [bucket('region: a'), bucket('region: b')],
  'files.prefix': [bucket('prefix: a'), bucket('prefix: b')],
  'files.path_style': [bucket('path_style: true'), bucket('path_style: false')],
  'payments.provider': ['', 'payments: { provider: none }'],
  'payments.stripe_api_url': [stripe(''), stripe('stripe_api_url: "http://127.0.0.1:12111"')],
  'payments.stripe_automatic_tax': [stripe(''), stripe('stripe_automatic_tax: true')],
  'telemetry.endpoint': ['', collector('')],
  'telemetry.headers': [collector('headers: "a=b"'), collector('headers: "a=c"')],
  'telemetry.traces': [collector(''), collector('traces: false')],
  'telemetry.sampling_ratio': [collector(''), collector('sampling_ratio: 0.5')],
  'telemetry.metrics': [collector(''), collector('metrics: false')],
  'telemetry.metrics_interval_seconds': [collector(''), collector('metrics_interval_seconds: 5')],
  'telemetry.service_name': [collector(''), collector('service_name: other')],
  'telemetry.resource_attributes': [collector(''), collector('resource_attributes: "a=b"')],
};

describe('a file for a running service', () => {
  for (const [key, [before, after]] of Object.entries(changes)) {
    test(`cannot change ${key}`, () => {
      // A bucket and its place are one thing, and so is what a collector is sent.
      const whole = { files: 'files.bucket', telemetry: 'telemetry' }[key.split('.')[0]!];
      assert.deepEqual(refusedKeys(before, after), [whole ?? key]);
    });
  }

  test('is held against every key that is marked so', () => {
    // There is only one currency.
    const marked = markedKeys(configSchema(), '').filter((key) => key !== 'payments.currency');
    assert.deepEqual(Object.keys(changes).sort(), marked.sort());
  });

  test('may write what was in force before without being written', () => {
    const unwritten: readonly (readonly [string, string])[] = [
      ['', 'payments: { provider: demo }'],
      ['', 'storage: "sqlite:/srv/data/tokenhouse.db"'],
      ['', 'server: { inference: { port: 8080 } }'],
      [bucket('prefix: a'), bucket('prefix: a/')],
      [collector(''), collector('service_name: tokenhouse, traces: true')],
      ['', 'telemetry: { service_name: other }'],
      [bucket('endpoint: "https://a.example.org"'), bucket('endpoint: "https://a.example.org/", path_style: true')],
    ];
    for (const [before, after] of unwritten) {
      assert.deepEqual(refusedKeys(before, after), [], after);
      assert.deepEqual(refusedKeys(after, before), [], before);
    }
  });

  test('may change what is in use nowhere: the place of a bucket that is not there, the address of a provider that is not asked', () => {
    assert.deepEqual(refusedKeys('', 'files: { region: a, prefix: b, endpoint: "https://a.example.org" }'), []);
    assert.deepEqual(
      refusedKeys('', 'payments: { stripe_api_url: "http://127.0.0.1:1", stripe_automatic_tax: true }'),
      [],
    );
  });

  test('that moves a host does not name the payment provider that follows from it', () => {
    assert.deepEqual(refusedKeys('', 'server: { account: { host: 0.0.0.0 } }'), ['server.account.host']);
  });

  test('may change everything else', () => {
    const other = `${limits('body_bytes_max: 5000, drain_timeout_seconds: 5')}
accounts: { first_credit_cents: 1 }
payments: { topup_cents_min: 5 }
files: { files_per_account_max: 5 }
items: { keep_days: 1 }`;
    assert.deepEqual(refusedKeys('', other), []);
  });
});

function markedKeys(node: SchemaNode, at: string): string[] {
  const own = node['x-restart'] === true ? [at] : [];
  return [
    ...own,
    ...Object.entries(node.properties ?? {}).flatMap(([key, member]) =>
      markedKeys(member, at === '' ? key : `${at}.${key}`),
    ),
  ];
}
