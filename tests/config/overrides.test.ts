import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';

import { readEnvironment } from '../../src/config/environment.ts';
import { ConfigError } from '../../src/config/problem.ts';
import { readSettings } from '../../src/config/read.ts';
import { configSchema } from '../../src/config/schema.ts';
import { settingsOf } from '../../src/config/settings.ts';
import type { Override } from '../../src/config/overrides.ts';

/** Every setting of the file has a variable; what it gives goes through the same checks, and is named in every message. */
const folder = mkdtempSync(join(tmpdir(), 'tokenhouse-overrides-'));
after(() => rmSync(folder, { recursive: true }));

type Variables = Readonly<Record<string, string>>;
const read = (text: string, variables: Variables, overrides: readonly Override[] = []) =>
  readSettings(text, { directory: '/srv', environment: readEnvironment({ HOME: '/h', ...variables }), overrides });

function problemsOf(text: string, variables: Variables): string[] {
  try {
    read(text, variables);
    return [];
  } catch (error) {
    assert.ok(error instanceof ConfigError, String(error));
    return error.problems.map(({ where, what }) => `${where}: ${what}`);
  }
}

/** The value and the source that `config show` prints. */
function shown(text: string, variables: Variables, overrides: readonly Override[] = []) {
  const environment = readEnvironment({ HOME: '/h', ...variables });
  const settings = settingsOf(read(text, variables, overrides), 'tokenhouse.yaml', configSchema(), environment);
  return (key: string): unknown => {
    const found = settings.find((setting) => setting.key === key);
    return found && [found.value, found.source];
  };
}

const model: Variables = {
  TOKENHOUSE_MODELS__0__ID: 'a',
  TOKENHOUSE_MODELS__0__CONTEXT_LENGTH: '4096',
  TOKENHOUSE_MODELS__0__PRICING__INPUT_DOLLARS_PER_MILLION: '0.10',
  TOKENHOUSE_MODELS__0__PRICING__OUTPUT_DOLLARS_PER_MILLION: '0.20',
  TOKENHOUSE_MODELS__0__BACKENDS__0__ENGINE: 'openai',
  TOKENHOUSE_MODELS__0__BACKENDS__0__FLAVOR: 'vllm',
  TOKENHOUSE_MODELS__0__BACKENDS__0__URL: 'http://10.0.0.5:8000/v1',
};

describe('settings of the environment', () => {
  test('of every kind are read as the schema says', () => {
    const { config } = read('', {
      ...model,
      TOKENHOUSE_SERVER__INFERENCE__HOST: '0.0.0.0',
      TOKENHOUSE_SERVER__INFERENCE__PORT: '9000',
      TOKENHOUSE_SERVER__WORKERS: '2',
      TOKENHOUSE_STORAGE: 'postgres://db/x',
      TOKENHOUSE_SERVER__TRUSTED_PROXIES: '127.0.0.1, 10.0.0.0/24',
      TOKENHOUSE_SERVER__INFERENCE__ALLOW_ORIGINS: '[https://a.example.org]',
      TOKENHOUSE_SERVER__LIMITS__SHED_NEW_WORK_LAG_SECONDS: '0.5',
      TOKENHOUSE_IMAGES__FETCH: 'false',
      TOKENHOUSE_MODELS__0__MAX_OUTPUT_TOKENS: 'null',
      TOKENHOUSE_PLANS: '[{ name: small, requests_per_minute: 5 }]',
    });
    assert.deepEqual(
      [config.server.inference.host, config.server.inference.port, config.server.workers],
      ['0.0.0.0', 9000, 2],
    );
    assert.deepEqual(config.server.trustedProxies, ['127.0.0.1', '10.0.0.0/24']);
    assert.deepEqual(config.server.allowOrigins, ['https://a.example.org']);
    assert.equal(config.server.limits.shedding.newWorkLagMs, 500);
    assert.equal(config.images.fetches, false);
    assert.equal(config.plans[0]?.requestsPerMinute, 5);
    const [first] = config.models;
    assert.deepEqual([first?.id, first?.contextLength], ['a', 4096]);
    const auto = { ...model, TOKENHOUSE_SERVER__WORKERS: 'auto' };
    assert.equal(read('', auto).config.server.workers, 1, 'one process owns a SQLite file');
    const onPostgres = read('server: { workers: 1 }', { ...auto, TOKENHOUSE_STORAGE: 'postgres://db/x' });
    assert.equal(onPostgres.config.server.workers, Math.min(64, availableParallelism()));
  });

  test('are in force above the file, and options above both; each is shown with its source', () => {
    const file = 'server:\n  inference: { port: 9001 }\n  account: { port: 9002 }\n';
    const variables = { TOKENHOUSE_SERVER__INFERENCE__PORT: '9003', TOKENHOUSE_STORAGE: 'postgres://u:canary@db/x' };
    const port = ['server', 'inference', 'port'];
    const option = { path: port, name: '--port', source: 'option --port', text: '9004' };
    assert.deepEqual(shown(file, {})('server.inference.port'), [9001, 'tokenhouse.yaml:2']);
    const ofVariables = shown(file, variables);
    assert.deepEqual(ofVariables('server.inference.port'), [9003, 'environment TOKENHOUSE_SERVER__INFERENCE__PORT']);
    assert.deepEqual(ofVariables('server.account.port'), [9002, 'tokenhouse.yaml:3']);
    assert.deepEqual(ofVariables('storage'), ['postgres://db/x', 'environment TOKENHOUSE_STORAGE']);
    assert.deepEqual(shown(file, variables, [option])('server.inference.port'), [9004, 'option --port']);
  });

  test('change members of a list of the file, and add to it', () => {
    const file = `models:
  - id: a
    context_length: 100
    pricing: { input_cents_per_million: 5, output_cents_per_million: 1 }
    backends: [ { engine: openai, flavor: vllm, url: "http://a/v1" } ]
`;
    const { config } = read(file, {
      TOKENHOUSE_MODELS__0__CONTEXT_LENGTH: '200',
      TOKENHOUSE_MODELS__0__BACKENDS__1: '{ engine: openai, flavor: vllm, url: "http://b/v1" }',
    });
    assert.equal(config.models[0]?.contextLength, 200);
    assert.equal(config.models[0]?.backends.length, 2);
  });

  test('that are secret may be in a file', () => {
    const file = join(folder, 'storage');
    writeFileSync(file, 'postgres://u:canary@db/x\n');
    const of = shown('', { TOKENHOUSE_STORAGE_FILE: file });
    assert.deepEqual(of('storage'), ['postgres://db/x', 'environment TOKENHOUSE_STORAGE_FILE']);
    assert.match(problemsOf('', { TOKENHOUSE_STORAGE_FILE: `${file}x` })[0]!, /^TOKENHOUSE_STORAGE_FILE: .*ENOENT/);
    const [refused] = problemsOf('', { TOKENHOUSE_SERVER__INFERENCE__HOST_FILE: file });
    assert.match(refused!, /did you mean TOKENHOUSE_SERVER__INFERENCE__HOST\?/);
  });

  test('may stand in any order, and what is missing is told by the variables that are there', () => {
    const second = Object.fromEntries(
      Object.entries(model).map(([name, text]) => [name.replace('__0__', '__1__'), text === 'a' ? 'b' : text]),
    );
    assert.deepEqual(
      read('', { ...second, ...model }).config.models.map(({ id }) => id),
      ['a', 'b'],
    );
    const { TOKENHOUSE_MODELS__0__ID: _, ...others } = model;
    const [missing] = problemsOf('', others);
    assert.match(missing!, /^TOKENHOUSE_MODELS__0__\w+: "id" is missing in models\[0\]/);
  });

  const wrong: readonly (readonly [Variables, RegExp])[] = [
    [{ TOKENHOUSE_SERVER__INFERENCE_HOST: 'x' }, /did you mean TOKENHOUSE_SERVER__INFERENCE__HOST\?$/],
    [{ TOKENHOUSE_MODEL_DRI: 'x' }, /^TOKENHOUSE_MODEL_DRI: there is no .*did you mean TOKENHOUSE_MODEL_DIR\?$/],
    [{ TOKENHOUSE_FROBNICATE_ALL_OF_IT: 'x' }, /there is no setting or variable .*docs\/configuration\.md/],
    [
      { TOKENHOUSE_SERVER__INFERENCE__PORT: 'many' },
      /^TOKENHOUSE_SERVER__INFERENCE__PORT: server\.inference\.port is "many", but must be a whole number from 0 to 65535/,
    ],
    [
      { TOKENHOUSE_SERVER: '{ inference: { prot: 1 } }' },
      /^TOKENHOUSE_SERVER: unknown key "prot".*did you mean "port"\?/,
    ],
    [{ TOKENHOUSE_SERVER: '{ inference' }, /^TOKENHOUSE_SERVER: not valid YAML/],
    [
      { TOKENHOUSE_SERVER__ACCOUNT__PORT: '8080' },
      /^TOKENHOUSE_SERVER__ACCOUNT__PORT: both hosts are set to port 8080/,
    ],
    [{ TOKENHOUSE_MODELS__1__ID: 'x' }, /^TOKENHOUSE_MODELS__1__ID: the entries of a list are counted from 0/],
    [{ TOKENHOUSE_STORAGE: 'mysql:canary' }, /^TOKENHOUSE_STORAGE: storage is not usable/],
    [{ TOKENHOUSE_SERVER__CONSTRUCTOR: 'x' }, /^TOKENHOUSE_SERVER__CONSTRUCTOR: there is no setting/],
  ];
  for (const [variables, message] of wrong)
    test(`${Object.keys(variables)[0]} = ${Object.values(variables)[0]} is refused`, () => {
      const problems = problemsOf('', variables);
      assert.equal(problems.length, 1, problems.join('\n'));
      assert.match(problems[0]!, message);
      assert.doesNotMatch(problems[0]!, /canary/);
    });

  test('what Kubernetes puts beside a Service called tokenhouse is none', () => {
    const links = {
      TOKENHOUSE_PORT: 'tcp://10.0.0.1:8080',
      TOKENHOUSE_PORT_8080_TCP: 'tcp://10.0.0.1:8080',
      TOKENHOUSE_PORT_8080_TCP_ADDR: '10.0.0.1',
      TOKENHOUSE_SERVICE_HOST: '10.0.0.1',
      TOKENHOUSE_SERVICE_PORT: '8080',
      TOKENHOUSE_ACCOUNT_SERVICE_PORT_HTTP: '8081',
    };
    assert.deepEqual(problemsOf('', links), []);
    assert.match(problemsOf('', { TOKENHOUSE_PORT: '9000' })[0]!, /^TOKENHOUSE_PORT: there is no setting/);
  });
});
