import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';

import Value from 'typebox/value';
import { parse } from 'yaml';

import { defaultModels } from '../../src/config/defaults.ts';
import { readEnvironment } from '../../src/config/environment.ts';
import { readConfig } from '../../src/config/read.ts';
import { configSchema } from '../../src/config/schema.ts';
import { scriptSchema } from '../../src/inference/engines/scripted/script-schema.ts';
import { CommandFolder, jsonOf } from './command.ts';

/** `init` writes what the defaults are, in a form to be changed; `config` says what is in force and why. */
const folder = new CommandFolder();
after(() => folder.dispose());
const file = join(folder.path, 'tokenhouse.yaml');
const options = { directory: folder.path, environment: readEnvironment({ HOME: '/h' }), scriptSchema };

describe('init', () => {
  test('writes a file that the boot code takes, and that says exactly the defaults', async () => {
    const { code, stdout, stderr } = await folder.run('init');
    assert.equal(code, 0, stderr);
    assert.deepEqual(stdout.trimEnd().split('\n'), [file, join(folder.path, 'tokenhouse.schema.json')]);
    const text = readFileSync(file, 'utf8');
    assert.deepEqual(readConfig(text, options), readConfig('', options));
    assert.match(text, /^# yaml-language-server: \$schema=\.\/tokenhouse\.schema\.json\n/);
    assert.equal((await folder.run('config', 'check')).code, 0);
  });

  test('with a description for every setting, also for those that are only examples', () => {
    const text = readFileSync(file, 'utf8');
    const described = new Set<string>();
    collect(configSchema() as unknown as SchemaNode, described);
    for (const key of ['public_url', 'flavor', 'api_key_env', 'zdr', 'slots', 'threads'])
      assert.match(text, new RegExp(`^ *#.*\\b${key}: `, 'm'), key);
    for (const words of described) assert.ok(text.includes(words) || isOnlyOfBackends(words), words);
  });

  test('the commented lines are right too', () => {
    const text = readFileSync(file, 'utf8')
      .split('\n')
      .map((line) => line.replace(/^( *)# ((?:public_url|slots|threads|name): )/, '$1$2'))
      .join('\n');
    const config = readConfig(text, options);
    assert.equal(config.server.inference.publicUrl, 'https://tokens.example.org');
    const [backend] = config.models[0]!.backends;
    assert.ok(backend?.engine === 'llama' && backend.slots === 4);
  });

  test('the schema beside it is the one that is printed, takes the file, and refuses what the boot code refuses', async () => {
    const written = JSON.parse(readFileSync(join(folder.path, 'tokenhouse.schema.json'), 'utf8')) as object;
    const printed = jsonOf(await folder.run('config', 'schema')) as object;
    assert.deepEqual(written, printed);
    assert.deepEqual(printed, JSON.parse(JSON.stringify(configSchema(scriptSchema))));
    assert.ok(Value.Check(written as never, parse(readFileSync(file, 'utf8'))));
    assert.ok(Value.Check(written as never, { models: defaultModels }));
    assert.ok(!Value.Check(written as never, { servr: {} }));
  });

  test('never overwrites, unless forced to', async () => {
    writeFileSync(file, '# the work of a day\n');
    const refused = await folder.run('init');
    assert.equal(refused.code, 1);
    assert.match(
      refused.stderr,
      /exists already; nothing was written[\s\S]* {2}repair {2}tokenhouse init tokenhouse\.new\.yaml/,
    );
    assert.equal(readFileSync(file, 'utf8'), '# the work of a day\n');
    assert.equal((await folder.run('init', '--force')).code, 0);
    assert.match(readFileSync(file, 'utf8'), /yaml-language-server/);
  });
});

describe('config show', () => {
  interface Shown {
    readonly file: string | null;
    readonly settings: readonly { readonly key: string; readonly value: unknown; readonly source: string }[];
  }

  test('tells where each setting comes from, and masks secrets', async () => {
    const own = new CommandFolder(
      `server:
  inference:
    port: 9009
models:
  - id: a
    context_length: 100
    pricing: { input_cents_per_million: 5, output_cents_per_million: 0.10, cache_read_cents_per_million: 2.5 }
    backends:
      - { engine: openai, flavor: vllm, url: "http://a/v1", api_key: canary-one }
      - { engine: openai, flavor: vllm, url: "http://b/v1", api_key_env: UPSTREAM_KEY }
`,
      { UPSTREAM_KEY: 'canary-two', TOKENHOUSE_SECRET: `canary-${'x'.repeat(40)}`, HF_TOKEN: 'canary-three' },
    );
    const result = await own.run('config', 'show', '--json');
    assert.doesNotMatch(result.stdout, /canary/);
    const { settings } = jsonOf(result) as Shown;
    const of = (key: string) => {
      const found = settings.find((setting) => setting.key === key);
      return found === undefined ? undefined : [found.value, found.source];
    };
    assert.deepEqual(of('server.inference.port'), [9009, 'tokenhouse.yaml:3']);
    assert.deepEqual(of('server.account.port'), [8081, 'default']);
    assert.deepEqual(of('storage'), [`sqlite:${join(own.path, 'data/tokenhouse.db')}`, 'default']);
    assert.deepEqual(of('models[0].pricing.output_cents_per_million'), [0.1, 'tokenhouse.yaml:7']);
    assert.deepEqual(of('models[0].pricing.output_dollars_per_million'), [0.001, 'tokenhouse.yaml:7']);
    assert.deepEqual(of('models[0].pricing.cache_read_dollars_per_million'), [0.025, 'tokenhouse.yaml:7']);
    assert.deepEqual(of('models[0].backends[0].api_key'), ['(secret)', 'tokenhouse.yaml:9']);
    assert.deepEqual(of('models[0].backends[1].api_key'), [
      '(secret)',
      'environment UPSTREAM_KEY (tokenhouse.yaml:10)',
    ]);
    assert.deepEqual(of('TOKENHOUSE_SECRET'), ['(secret)', 'environment TOKENHOUSE_SECRET']);
    const table = await own.run('config', 'show');
    assert.match(table.stdout, /^setting +value +from\n/);
    assert.doesNotMatch(table.stdout, /canary/);
    own.dispose();
  });

  test('has every key of the schema', async () => {
    const own = new CommandFolder(
      `plans: [ { name: a, requests_per_minute: 1 } ]
invoices: { tax: { name: VAT, rate_per_mille: 190, countries: [ { country: FR, rate_per_mille: 200 } ] } }
sign_in: { oidc: [ { id: a, issuer: "https://a.example.org", client_id: b, domains: [ example.org ] } ] }
models:
  - id: a
    context_length: 100
    pricing: { input_cents_per_million: 5, output_cents_per_million: 1 }
    backends:
      - { engine: openai, flavor: vllm, url: "http://a/v1" }
      - engine: llama
        sources: [ a.gguf ]
        sha256: ${'ab'.repeat(32)}
        parts: [ { sources: [ b.gguf ], sha256: ${'cd'.repeat(32)} } ]
      - { engine: scripted, scripts: [ { say: [ { text: hi } ] } ] }
      - { engine: openai, name: d, flavor: vllm, url: "http://d/v1", discover: { by: srv } }
      - { engine: openai, name: e, flavor: vllm, url: "http://e/v1", discover: { by: kubernetes, service: vllm } }
      - { engine: openai, name: f, flavor: vllm, discover: { by: file, path: servers.yaml } }
      - { engine: openai, name: g, flavor: vllm, managed: { command: [vllm, --port, "{port}"], group: gpu-0 } }
  - id: sold
    aliases: [ { name: old } ]
    adapters:
      - { id: tuned, pricing: { input_cents_per_million: 5, output_cents_per_million: 1 } }
    context_length: 100
    pricing: { input_cents_per_million: 5, output_cents_per_million: 1 }
    tiers:
      priority: { price_multiple: 2, reserved_slots: 1 }
      flex: { price_multiple: 0.5 }
      batch: { price_multiple: 0.5 }
    backends: [ { engine: openai, flavor: vllm, url: "http://a/v1" } ]
`,
    );
    const { settings } = jsonOf(await own.run('config', 'show', '--json')) as Shown;
    const shown = new Set(settings.map(({ key }) => key.replaceAll(/\[\d+\]/g, '')));
    const other = ['models.pricing.cache_read_cents_per_million', 'models.backends.api_key_env'];
    for (const key of keysOf(configSchema() as unknown as SchemaNode, ''))
      if (!other.includes(key)) assert.ok(shown.has(key), key);
    own.dispose();
  });
});

interface SchemaNode {
  readonly description?: string;
  readonly properties?: Readonly<Record<string, SchemaNode>>;
  readonly items?: SchemaNode;
  readonly anyOf?: readonly SchemaNode[];
}

function keysOf({ properties, items, anyOf }: SchemaNode, path: string): readonly string[] {
  if (properties !== undefined)
    return Object.entries(properties).flatMap(([key, node]) => keysOf(node, path === '' ? key : `${path}.${key}`));
  const groups = anyOf ?? items?.anyOf ?? (items?.properties === undefined ? [] : [items]);
  if (groups.some((choice) => choice.properties !== undefined)) return groups.flatMap((choice) => keysOf(choice, path));
  return [path];
}

function collect(node: SchemaNode, into: Set<string>): void {
  for (const child of Object.values(node.properties ?? {})) {
    if (child.description !== undefined) into.add(child.description);
    collect(child, into);
  }
  if (node.items !== undefined) collect(node.items, into);
}

/** The file has examples of the other engines without their descriptions; editors show those. */
const isOnlyOfBackends = (words: string): boolean => /^one of the two|^the engine;/.test(words);
