import assert from 'node:assert/strict';
import { inspect } from 'node:util';
import { describe, it } from 'node:test';
import { deserialize, serialize } from 'node:v8';
import Type from 'typebox';
import { readEnvironment } from '../../src/config/environment.ts';
import { ConfigError } from '../../src/config/problem.ts';
import { identityOf } from '../../src/config/identity.ts';
import { configOf, portableConfig } from '../../src/config/portable.ts';
import type { PortableConfig } from '../../src/config/portable.ts';
import { publicUrl } from '../../src/config/public-url.ts';
import { readConfig } from '../../src/config/read.ts';
import { configSchema } from '../../src/config/schema.ts';
import { shareOf } from '../../src/app/workers/share.ts';
import { goodFile } from './good-file.ts';

const environment = readEnvironment({ HOME: '/home/somebody', UPSTREAM_KEY: 'canary-of-a-key' });
const options = { directory: '/srv/tokens', file: '/srv/tokens/tokenhouse.yaml', environment };

describe('a good file', () => {
  const config = readConfig(goodFile, options);

  it('is read whole', () => {
    assert.deepEqual(config.server.inference, {
      host: '0.0.0.0',
      port: 9080,
      publicUrl: 'https://tokens.example.org/api',
    });
    assert.deepEqual(config.server.trustedProxies, ['127.0.0.1', '2001:db8::/64']);
    assert.equal(config.server.limits.drainTimeoutMs, 2500);
    assert.equal(config.server.limits.firstTokenTimeoutMs, 120_000);
    assert.deepEqual(config.storage, { type: 'sqlite', path: '/srv/tokens/data/my.db', directory: '/srv/tokens/data' });
    assert.equal(config.accounts.firstCreditMicrocents, 500_500_000n);
    assert.deepEqual(config.images, {
      fetches: true,
      allowedHosts: ['files.lan', '10.0.0.7:8443'],
      dnsServers: ['127.0.0.1:5353'],
    });
    const [small, large, scripted] = config.models;
    assert.equal(small?.id, 'smollm2-135m-instruct');
    assert.equal(small?.maxOutputTokens, 4096);
    assert.equal(small?.template.defaultSystem, 'none');
    assert.deepEqual(small?.pricing, {
      input: 5_000_000n,
      output: 100_000n,
      cacheRead: 2_500_000n,
    });
    const [llama] = small.backends;
    assert.ok(llama?.engine === 'llama');
    assert.deepEqual(
      llama.sources.map(({ type }) => type),
      ['path', 'hub-file', 'package'],
    );
    assert.equal(llama.sources[0]?.type === 'path' && llama.sources[0].path, '/srv/tokens/models/small.gguf');
    assert.equal(llama.sha256, 'ab'.repeat(32));
    assert.equal(large?.maxOutputTokens, null);
    assert.equal(large.displayName, 'qwen3-32b');
    assert.equal(large.pricing.cacheRead, 30_000_000n, 'the input price where none is named');
    const [vllm, second] = large.backends;
    assert.ok(vllm?.engine === 'openai' && second?.engine === 'openai');
    assert.deepEqual(
      [vllm.name, vllm.flavor, vllm.url, vllm.zdr, vllm.concurrencyMax],
      ['gpu', 'vllm', 'http://10.0.0.5:8000/v1', true, 64],
    );
    assert.equal(second.name, 'openai-2');
    assert.equal(second.apiKey?.reveal(), 'canary-of-a-key');
    assert.equal(scripted?.backends[0]?.engine, 'scripted');
  });

  it('goes to another process as it is', () => {
    const arrived = configOf(deserialize(serialize(portableConfig(config))) as PortableConfig);
    assert.deepEqual(
      { ...arrived, models: arrived.models.slice(0, 2) },
      { ...config, models: config.models.slice(0, 2) },
    );
    assert.equal(identityOf(arrived), identityOf(config), 'secrets included');
    assert.ok(Object.isFrozen(arrived.models[0]?.pricing));
  });

  it('is divided among workers, and the shares are the whole', () => {
    const shares = [0, 1, 2].map((index) => shareOf(config, index, 3).models[1]!.backends[0]!);
    assert.deepEqual(
      shares.map((backend) => backend.engine === 'openai' && [backend.concurrencyMax, backend.queueMax]),
      [
        [22, 22],
        [21, 21],
        [21, 21],
      ],
    );
    assert.deepEqual(shareOf(config, 0, 1).models[1]!.backends[0], config.models[1]!.backends[0]);
  });

  it('shows no secret by accident', () => {
    const shown = [
      inspect(config, { depth: 20 }),
      JSON.stringify(config, (_, value: unknown) => (typeof value === 'bigint' ? String(value) : value)),
    ];
    for (const text of shown) assert.doesNotMatch(text, /canary/);
  });

  it('cannot be changed afterwards', () => {
    const members: unknown[] = [config];
    for (const member of members) {
      if (typeof member !== 'object' || member === null) continue;
      assert.ok(Object.isFrozen(member));
      members.push(...Object.values(member));
    }
    assert.ok(members.length > 100);
  });
});

describe('an empty file', () => {
  for (const text of ['', '# nothing\n', '{}', '---\n']) {
    it(`has every default: ${JSON.stringify(text)}`, () => {
      const config = readConfig(text, options);
      assert.deepEqual([config.server.inference.port, config.server.account.port], [8080, 8081]);
      assert.deepEqual(config.server.limits, {
        bodyBytesMax: 52_428_800,
        bodiesInFlightBytesMax: undefined,
        firstTokenTimeoutMs: 120_000,
        streamIdleTimeoutMs: 60_000,
        requestTimeoutMs: 1_800_000,
        primeTimeoutMs: 15_000,
        drainDelayMs: 0,
        drainTimeoutMs: 30_000,
        readerStallTimeoutMs: 60_000,
        concurrencyPerAccountMax: 64,
        cacheBytesMax: undefined,
        embeddedMemoryBytesMax: undefined,
        connectionsMax: 10_000,
        requestsPerConnectionMax: 1000,
        headersTimeoutMs: 10_000,
        bodyTimeoutMs: 300_000,
        bodyBytesPerSecondMin: 8192,
        keepAliveTimeoutMs: 65_000,
        keysInMemoryMax: 100_000,
        requestsRunningMax: 1024,
        memoryBytesMax: undefined,
        shedding: {
          largeBodiesLagMs: 50,
          newWorkLagMs: 100,
          newWorkMemoryShare: 0.85,
          idleConnectionsMemoryShare: 0.95,
        },
      });
      assert.equal(config.models[0]?.id, 'smollm2-135m-instruct');
      assert.equal(config.accounts.firstCreditMicrocents, 500_000_000n);
      assert.equal(publicUrl(config.server.account), 'http://localhost:8081');
      assert.equal(publicUrl(config.server.account, 40123), 'http://localhost:40123');
    });
  }
});

/** A model that is right, to put faults into. */
const model = (lines: string, backend = '{ engine: scripted, scripts: [{}] }') =>
  `models:\n  - id: a\n    context_length: 100\n    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }\n${lines}    backends: [${backend}]\n`;
const adapted = (adapters: string, server = 'flavor: vllm, url: "http://a/v1"') =>
  model(`    adapters: ${adapters}\n`, `{ engine: openai, ${server} }`);
const priced = (pricing: string) =>
  `models:\n  - id: a\n    context_length: 100\n    pricing: ${pricing}\n    backends: [{ engine: scripted, scripts: [{}] }]\n`;
const llama = (rest: string) => `{ engine: llama, ${rest} }`;
const hash = 'ab'.repeat(32);

/** The text of a file with a mark (‸) at each place that must be named, then words of each problem. */
const bad: readonly (readonly [string, ...RegExp[]])[] = [
  // An embedded model has no places to sell.
  [
    'models: [{ id: m, context_length: 64, pricing: { input_cents_per_million: 1, output_cents_per_million: 1 }, tiers: { priority: ‸{ price_multiple: 2, reserved_slots: 1 } }, backends: [{ engine: llama, sources: [./m.gguf], sha256: "' +
      'a'.repeat(64) +
      '", bytes: 1 }] }]\n',
    /no place priority to sell; remove this/,
  ],
  // A downgrade would be dearer than what was asked for.
  [model('    tiers: { priority: { price_multiple: ‸0.9 } }\n'), /from 1 to 100/],
  [
    model('    tiers: { flex: { price_multiple: ‸1.1 }, batch: { price_multiple: ‸2 } }\n'),
    /from 0 to 1/,
    /from 0 to 1/,
  ],
  // The YAML itself.
  ['server:\n‸\thost: x\n', /tab is used for indentation.*use spaces/],
  ['server: {}\nstorage: sqlite:a\n‸server: {}\n', /occurs twice.*remove one/],
  ['server: [\n‸', /not valid YAML.*check indentation/],
  ['a: ‸b: c\n', /not valid YAML: Nested mappings/],
  ['server: {}\n‸---\nserver: {}\n', /second YAML document begins here/],
  ['storage: ‸!secret x\n', /tags such as `!name`/],
  ['‸- a\n- b\n', /the file is a list, but must be a group of settings/],
  ['‸just words\n', /the file is "just words"/],
  // Keys.
  ['‸sever: {}\n', /unknown key "sever" in the file.*did you mean "server"\?/],
  ['server:\n  inference: { ‸prot: 1 }\n', /unknown key "prot" in server\.inference.*did you mean "port"\?/],
  ['server:\n  limits:\n    ‸drain_timeout: 3\n', /did you mean "drain_timeout_seconds"\?/],
  ['server: { workers: ‸0 }\n', /must be a whole number from 1 to 64 or auto/],
  ['server: { workers: ‸many }\n', /is "many", but must be a whole number from 1 to 64 or auto/],
  [
    'server: { workers: ‸2 }\n',
    /workers is 2, and the storage is SQLite, which one process owns; write workers: 1, .*`tokenhouse db copy`.*one-machine-to-many\.md/,
  ],
  [
    'storage: postgres://db/x\nserver: { workers: ‸2 }\n',
    /smollm2-135m-instruct runs embedded.*write workers: 1, or run the model in a llama-server/,
  ],
  [
    `server: { workers: 4 }
storage: postgres://db/x
models:
  - id: a
    context_length: 100
    pricing: { input_cents_per_million: 0, output_cents_per_million: 0 }
    backends: [{ engine: openai, flavor: vllm, url: "http://a/v1", max_concurrency: ‸3 }]
`,
    /max_concurrency is 3 and workers is 4.*raise it to 4, or lower workers/,
  ],
  ['invoices: { seller: { name: a, country: ‸XX } }\n', /XX is no country of ISO 3166-1/],
  [
    'invoices: { tax: { name: VAT, rate_per_mille: 1, countries: [{ country: ‸UK, rate_per_mille: 2 }] } }\n',
    /UK is no country.*United Kingdom GB/,
  ],
  [
    'invoices:\n  tax:\n    name: VAT\n    rate_per_mille: 1\n    countries:\n      - { country: FR, rate_per_mille: 2 }\n      - { country: ‸FR, rate_per_mille: 3 }\n',
    /FR has a rate above already/,
  ],
  ['payments: { currency: ‸eur }\n', /prices, credit and invoices are in US dollars.*set it to usd/],
  ['server: { ‸telemetry: true }\n', /known here: inference, account, workers, trusted_proxies, limits/],
  [model('    ‸maxOutputTokens: 5\n'), /did you mean "max_output_tokens"\?/],
  ['‸__proto__: { polluted: 1 }\n', /unknown key "__proto__"/],
  ['‸constructor: 1\n', /unknown key "constructor"/],
  ['‸1: x\n', /unknown key "1"/],
  // Types and ranges.
  ['server: ‸5\n', /server is 5, but must be a group of settings/],
  ['server:‸\n', /server is empty, but must be a group/],
  [
    'server: { inference: { port: ‸http } }\n',
    /port is "http", but must be a whole number from 0 to 65535 .*for example port: 8080/,
  ],
  ['server: { inference: { port: ‸65536 } }\n', /from 0 to 65535/],
  ['server: { inference: { port: ‸80.5 } }\n', /is 80.5/],
  ['server: { inference: { host: ‸"a b" } }\n', /host is "a b"/],
  ['server: { account: { public_url: ‸"tokens.example.org" } }\n', /for example public_url: https:/],
  ['server: { limits: { drain_timeout_seconds: ‸0 } }\n', /a number above 0, at most 86400/],
  ['server: { limits: { body_bytes_max: ‸2e9 } }\n', /body_bytes_max is 2000000000/],
  [
    'server: { limits: { body_bytes_max: 5000, bodies_in_flight_bytes_max: ‸4000 } }\n',
    /largest allowed body would never be accepted/,
  ],
  ['server: { limits: { body_timeout_seconds: ‸5 } }\n', /body_timeout_seconds.*is below headers_timeout_seconds/],
  ['server: { limits: { headers_timeout_seconds: ‸301 } }\n', /body_timeout_seconds.*is below headers_timeout/],
  ['server:\n  inference: { port: ‸8081 }\n', /both hosts are set to port 8081/],
  ['server:\n  account: { port: ‸8080 }\n', /both hosts are set to port 8080/],
  ['server: { trusted_proxies: ‸127.0.0.1 }\n', /trusted_proxies/],
  ['server: { trusted_proxies: [10.0.0.1, ‸proxy.lan] }\n', /neither an IP address nor a range/],
  ['server: { trusted_proxies: [‸10.0.0.0/33] }\n', /neither an IP address nor a range/],
  ['server: { trusted_proxies: [‸"10.0.0.1:80"] }\n', /neither an IP address nor a range/],
  ['server: { trusted_proxies: [‸"fe80::1%eth0"] }\n', /neither an IP address nor a range/],
  ['server: { trusted_proxies: [‸0.0.0.0/0] }\n', /covers every address/],
  ['server: { trusted_proxies: [‸"::/0"] }\n', /covers every address/],
  ['server: { trusted_proxies: [‸"::ffff:0:0/96"] }\n', /covers every address/],
  // Images.
  ['images: { fetch: ‸5 }\n', /fetch is 5/],
  ['images: { allow_hosts: [a.lan, ‸"https://a.lan"] }\n', /not a host/],
  ['images: { allow_hosts: [‸"a b"] }\n', /not a host/],
  ['images: { allow_hosts: [‸"user@a.lan"] }\n', /not a host/],
  ['images: { dns_servers: [‸dns.lan] }\n', /not an address of a name server/],
  // Storage and accounts.
  ['storage: ‸mysql://root:canary@db/x\n', /must be a text of the expected form.*for example storage: sqlite:/],
  ['storage: ‸postgres://root:canary@db/x\n', /a password here.*TOKENHOUSE_POSTGRES_PASSWORD.*storage: env:/],
  ['storage: ‸postgres://db\n', /not the address of a PostgreSQL database; write postgres:/],
  ['storage: ‸env:NOT_SET\n', /the environment variable NOT_SET is not set/],
  ['accounts: { first_credit_cents: ‸-1 }\n', /from 0 to/],
  ['accounts: { first_credit_cents: ‸0.0000001 }\n', /cannot be represented exactly.*six decimal places/],
  // Models.
  ['models: ‸[]\n', /models has 0 entries, but needs at least 1/],
  [
    'models:\n  - ‸‸‸‸{}\n',
    /"id" is missing in models\[0\]/,
    /"context_length" is missing/,
    /"pricing" is missing/,
    /"backends" is missing/,
  ],
  [model('').replace('id: a', 'id: ‸"a b"'), /models\[0\]\.id is "a b"/],
  [
    `${model('')}${model('').slice('models:\n'.length).replace('id: a', 'id: ‸A')}`,
    /id "A" is the same as "a".*case is ignored/,
  ],
  [model('').replace('context_length: 100', 'context_length: ‸0'), /context_length is 0/],
  [model('    max_output_tokens: ‸101\n'), /above context_length \(100\)/],
  [model('    max_output_tokens: ‸none\n'), /a whole number from 1 to 100000000 or null/],
  [model('    sampling: ‸honour\n'), /must be honor, ignore or fixed; did you mean "honor"\?/],
  [model('    capabilities: { vision: ‸yes }\n'), /vision is "yes", but must be true or false/],
  // The pattern takes it for a day.
  [model('    deprecation_date: ‸2026-02-30\n'), /the day 2026-02-30 does not exist.*write a date such as/],
  [
    model('    deprecation_date: ‸31.12.2026\n'),
    /deprecation_date is "31.12.2026".*for example deprecation_date: 2027/,
  ],
  [model('    successor: ‸A\n'), /there is no other model "A"/],
  [model('    leads_to_successor: ‸true\n'), /leads nowhere without a successor and a deprecation_date/],
  [model('    aliases: [ { name: ‸A } ]\n'), /"A" names "a" already/],
  [model('    aliases: [ { name: x }, { name: ‸X } ]\n'), /"X" names "a" already/],
  // Adapters.
  [adapted('[ { id: ‸A } ]'), /id "A" is the same as "a".*case is ignored/],
  [adapted('[ { id: b }, { id: ‸B } ]'), /id "B" is the same as "b"/],
  [adapted('[ { id: b } ]\n    aliases: [ { name: ‸B } ]'), /"B" names "b" already/],
  [
    model('', '{ engine: openai, flavor: ollama, url: "http://a/v1", priority_scheduling: ‸true }'),
    /only vLLM and SGLang order their queue by priority/,
  ],
  [adapted('[ { id: b, ‸backends: [] } ]'), /unknown key "backends" in models\[0\]\.adapters\[0\]/],
  [adapted('[ { id: b, price_multiple: ‸1.00001 } ]'), /more than four decimals/],
  [
    adapted('[ { id: b, price_multiple: ‸2, pricing: { input_cents_per_million: 5, output_cents_per_million: 1 } } ]'),
    /the price is given twice/,
  ],
  [
    adapted('[ { id: b, pricing: ‸{ input_cents_per_million: 5 } } ]'),
    /"output_cents_per_million" is missing in models\[0\]\.adapters\[0\]\.pricing/,
  ],
  [model('    adapters: ‸[ { id: b } ]\n'), /the backend "scripted" \(scripted\) cannot apply an adapter/],
  [adapted('‸[ { id: b } ]', 'flavor: lm-studio, url: "http://a/v1"'), /"openai" \(lm-studio\) cannot apply/],
  [
    model('', '{ engine: openai, flavor: vllm, managed: { command: ‸[ vllm, --port, "8000" ] } }'),
    /the command does not say which port the server listens at/,
  ],
  [
    adapted('[ { id: b } ]', 'flavor: sglang, url: "http://a/v1", load_adapters: ‸{ folder: /a }'),
    /only vLLM is told to load adapters/,
  ],
  [adapted('[ { id: b } ]', 'flavor: vllm, url: "http://a/v1", load_adapters: { folder: ‸a }'), /folder is "a"/],
  ...['..', '../b', '/b', 'b//c', 'b/./c'].map((name): readonly [string, RegExp] => [
    adapted(`[ ‸{ id: b, adapter: ${name} } ]`, 'flavor: vllm, url: "http://a/v1", load_adapters: { folder: /a }'),
    /is no folder below the `folder` of load_adapters/,
  ]),
  [
    adapted('[ ‸{ id: b } ]', 'flavor: llama-server, url: "http://a/v1"'),
    /"lora_id" is missing, without which llama-server/,
  ],
  [model('    hedge: { after: ‸p99 }\n'), /after is "p99"/],
  [model('    hedge: { after: ‸0 }\n'), /after is 0/],
  [model('    fallback: [ ‸A ]\n'), /"A" is the model itself/],
  [model('    fallback: [ ‸b ]\n'), /there is no model "b"/],
  [
    `${model('    fallback: [ B, ‸b ]\n')}${model('').slice('models:\n'.length).replace('id: a', 'id: b')}`,
    /"b" is listed twice/,
  ],
  [
    `${model('    fallback: [ ‸b ]\n')}${model('    capabilities: { embeddings: { supported: true } }\n').slice('models:\n'.length).replace('id: a', 'id: b')}`,
    /"b" generates no text/,
  ],
  [
    `${model('    fallback: ‸[ b ]\n    capabilities: { embeddings: { supported: true } }\n')}${model('').slice('models:\n'.length).replace('id: a', 'id: b')}`,
    /no substitute/,
  ],
  [model(`    fallback: ‸[ ${Array.from({ length: 9 }, (_, index) => `m${index}`).join(', ')} ]\n`), /at most 8/],
  [model('    display_name: ‸5\n'), /put it in quotes/],
  [model('    template: { default_system: ‸no }\n'), /must be none or template/],
  // Prices.
  [priced('‸{ input_cents_per_million: 5 }'), /"output_cents_per_million" is missing/],
  [priced('{ input_cents_per_million: ‸-5, output_cents_per_million: 1 }'), /from 0 to/],
  [priced('{ input_cents_per_million: ‸"5", output_cents_per_million: 1 }'), /is "5", but must be a number/],
  [
    priced('{ input_cents_per_million: ‸1e1, output_cents_per_million: 1 }'),
    /is 1e1, which cannot be represented exactly/,
  ],
  [priced('{ input_cents_per_million: ‸0x10, output_cents_per_million: 1 }'), /is 0x10/],
  [priced('{ input_cents_per_million: ‸1.0000001, output_cents_per_million: 1 }'), /six decimal places/],
  [priced('{ input_cents_per_million: ‸9999999999, output_cents_per_million: 1 }'), /above the largest amount/],
  [priced('{ input_cents_per_million: ‸.inf, output_cents_per_million: 1 }'), /is Infinity/],
  [
    priced('{ input_cents_per_million: 1, output_cents_per_million: 1, cache_read_microcents_per_million: ‸0.5 }'),
    /a whole number of microcents/,
  ],
  [
    priced('{ input_cents_per_million: 1, output_cents_per_million: 1, cache_read_cents_per_million: ‸1.000001 }'),
    /cached tokens would cost more/,
  ],
  [
    priced(
      '{ input_cents_per_million: 1, output_cents_per_million: 1, cache_read_cents_per_million: 1, cache_read_microcents_per_million: ‸1 }',
    ),
    /(is given|is listed) twice/,
  ],
  [priced('‸{ input_dollars_per_million: 5 }'), /"output_dollars_per_million" is missing in models\[0\]\.pricing/],
  [
    priced('{ input_dollars_per_million: ‸0.000000001, output_dollars_per_million: 1 }'),
    /dollars with at most eight decimal places/,
  ],
  [priced('{ input_dollars_per_million: ‸99999999, output_dollars_per_million: 1 }'), /above the largest amount/],
  [
    priced('{ input_dollars_per_million: 1, input_cents_per_million: ‸100, output_dollars_per_million: 1 }'),
    /is given twice, as input_dollars_per_million too; keep one/,
  ],
  [
    priced('{ input_dollars_per_million: 1, output_dollars_per_million: 1, output_cents_per_million: ‸1 }'),
    /is given twice, as output_dollars_per_million too/,
  ],
  [
    priced('{ input_cents_per_million: 1, output_cents_per_million: 1, cache_read_dollars_per_million: ‸0.02 }'),
    /cached tokens would cost more/,
  ],
  // Backends.
  [model('', '{ engine: ‸lama }'), /"engine" is "lama", but must be llama, openai or scripted; did you mean "llama"\?/],
  [model('', '{ ‸engin: llama }'), /did you mean "engine"\?/],
  [model('', '‸{ url: "http://x" }'), /"engine" is missing.*add engine: llama or openai or scripted/],
  [model('', '‸7'), /is 7, but must be a group of settings with engine/],
  [model('', llama('sources: [x.gguf]')).replace('{ engine', '‸{ engine'), /"sha256" is missing/],
  [model('', llama(`sources: [x.gguf], sha256: ‸abc`)), /sha256 is "abc"/],
  [model('', llama(`sources: ‸[], sha256: ${hash}`)), /sources has 0 entries/],
  [model('', llama(`sources: [‸"hf:owner"], sha256: ${hash}`)), /write hf:owner\/repository\/file\.gguf@revision/],
  [model('', llama(`sources: [x.gguf, ‸"pypi:pkg"], sha256: ${hash}`)), /write pypi:package==1\.2\.3/],
  [model('', llama(`sources: [‸"s3://bucket/x.gguf"], sha256: ${hash}`)), /"s3:" is not a known kind of source/],
  [model('', llama(`sources: [x.gguf], sha256: ${hash}, ‸url: x`)), /unknown key "url" in models\[0\]\.backends\[0\]/],
  [model('', '{ engine: openai, flavor: ‸vlm, url: "http://x/v1" }'), /did you mean "vllm"\?/],
  [model('', '{ engine: openai, flavor: vllm, url: ‸"x:8000" }'), /for example url: http:/],
  [model('', '{ engine: openai, flavor: vllm, url: ‸"http://u:canary@x/v1" }'), /ends up in logs; use api_key_env/],
  [model('', '{ engine: openai, flavor: vllm, url: "http://x/v1", api_key: ‸[canary] }'), /api_key is not usable/],
  [model('', '{ engine: openai, flavor: vllm, url: "http://x/v1", api_key_env: ‸NOT_SET }'), /NOT_SET is not set/],
  [
    model('', '{ engine: openai, flavor: vllm, url: "http://x/v1", api_key: ‸canary, api_key_env: UPSTREAM_KEY }'),
    /(is given|is listed) twice/,
  ],
  [
    model('', '{ engine: scripted, name: x, scripts: [{}] }, ‸{ engine: scripted, name: x, scripts: [{}] }'),
    /another backend of this model has the name "x"/,
  ],
  [
    model('', '{ engine: scripted, scripts: [{ ‸txt: hello }] }'),
    /unknown key "txt" in models\[0\]\.backends\[0\]\.scripts\[0\].*did you mean "text"\?/,
  ],
  // Aliases: what is wrong is reported where the alias is used.
  [`‸x-price: &p { input_cents_per_million: 5 }\n`, /unknown key "x-price"/],
  [
    priced('&p { input_cents_per_million: 5, output_cents_per_million: 1 }').concat(
      '  - id: b\n    context_length: ‸x\n    pricing: *p\n    backends: [{ engine: scripted, scripts: [{}] }]\n',
    ),
    /context_length is "x"/,
  ],
  [bomb(), /each use of an alias counts/],
];

/** Nine levels of nine aliases each: 387 million values. */
function bomb(): string {
  const levels = ['‸a: &a [x,x,x,x,x,x,x,x,x]'];
  for (const [before, name] of ['ab', 'bc', 'cd', 'de', 'ef', 'fg', 'gh', 'hi'])
    levels.push(`${name}: &${name} [${Array(9).fill(`*${before}`).join(',')}]`);
  return levels.join('\n');
}

describe('a bad file', () => {
  const scriptSchema = Type.Object({ text: Type.Optional(Type.String()) }, { additionalProperties: false });
  for (const [marked, ...expected] of bad) {
    const text = marked.replaceAll('‸', '');
    it(`is refused with the place and the remedy: ${JSON.stringify(text.length > 90 ? `…${text.slice(-80)}` : text)}`, () => {
      assert.ok(expected.length > 0);
      const problems = problemsOf(() => readConfig(text, { ...options, scriptSchema }));
      assert.deepEqual(
        problems.map(({ where }) => where),
        marksIn(marked),
        problems.map(({ what }) => what).join('\n'),
      );
      for (const [index, words] of expected.entries()) assert.match(problems[index]!.what, words);
      for (const { what } of problems) {
        assert.doesNotMatch(what, /canary|\n/);
        assert.ok(what.length < 900, what);
      }
    });
  }

  it('gets every fault at once, in the order of the file', () => {
    const problems = problemsOf(() =>
      readConfig('server: { inference: { prt: 1 }, account: { port: x } }\nstorage: 5\nmodels: 7\n', options),
    );
    assert.deepEqual(
      problems.map(({ where }) => where),
      ['tokenhouse.yaml:1:24', 'tokenhouse.yaml:1:51', 'tokenhouse.yaml:2:10', 'tokenhouse.yaml:3:9'],
    );
  });

  it('leaves nothing on the prototype of objects', () => {
    problemsOf(() => readConfig('__proto__: { polluted: 1 }\n', options));
    assert.equal(({} as { polluted?: unknown }).polluted, undefined);
  });
});

it('the schema is plain JSON for editors, with a description for every setting', () => {
  const schema = JSON.parse(JSON.stringify(configSchema())) as Record<string, unknown>;
  const lacking: string[] = [];
  walk(schema, '');
  assert.deepEqual(lacking, []);
  function walk(node: unknown, path: string): void {
    if (typeof node !== 'object' || node === null) return;
    const { properties, items, anyOf } = node as {
      properties?: Record<string, object>;
      items?: unknown;
      anyOf?: unknown[];
    };
    for (const [key, property] of Object.entries(properties ?? {})) {
      if (!('description' in property) && !('const' in property)) lacking.push(`${path}/${key}`);
      walk(property, `${path}/${key}`);
    }
    walk(items, path);
    for (const alternative of anyOf ?? []) walk(alternative, path);
  }
});

function problemsOf(action: () => unknown) {
  try {
    action();
  } catch (error) {
    assert.ok(error instanceof ConfigError, String(error));
    return error.problems;
  }
  assert.fail('nothing was refused');
}

/** Where the marks stand, as a message names a place. */
function marksIn(marked: string): string[] {
  const pieces = marked.split('‸').slice(0, -1);
  return pieces.map((_, index) => {
    const lines = pieces
      .slice(0, index + 1)
      .join('')
      .split('\n');
    return `tokenhouse.yaml:${lines.length}:${lines.at(-1)!.length + 1}`;
  });
}
