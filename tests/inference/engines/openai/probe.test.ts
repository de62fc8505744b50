import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { probeBackend, type ProbeOptions, type ProbeResult } from '../../../../src/inference/engines/openai/probe.ts';
import { eventually, Upstream, type UpstreamHandler } from '../../../support/upstream.ts';

const secret = 'words-of-the-backend';
const listOf = (ids: readonly string[], owner = 'someone'): object => ({
  object: 'list',
  data: ids.map((id) => ({ id, object: 'model', owned_by: owner })),
});

/** Answers these paths, and 404 to every other. */
const serving =
  (answers: Readonly<Record<string, object>>, headers: Readonly<Record<string, string>> = {}): UpstreamHandler =>
  (exchange) => {
    const body = answers[exchange.path];
    if (body === undefined) exchange.json(404, { error: { message: secret } });
    else exchange.json(200, body, headers);
  };

interface Case {
  readonly name: string;
  readonly handler: UpstreamHandler;
  readonly options?: Partial<ProbeOptions>;
  readonly url?: (upstream: Upstream) => string;
  readonly expected: Partial<ProbeResult>;
  readonly problem: RegExp | undefined;
}

const cases: readonly Case[] = [
  {
    name: 'vLLM with the model',
    handler: serving({ '/v1/models': listOf(['m', 'lora'], 'vllm') }),
    expected: { reachable: true, models: ['m', 'lora'], looksLike: 'vllm' },
    problem: undefined,
  },
  ...(
    [
      ['vllm', ['m', 'tuned'], { lora_path: 'tuned' }, undefined],
      ['sglang', ['m', 'tuned'], { lora_path: 'tuned' }, undefined],
      ['sglang', ['m', 'other'], { lora_path: 'tuned' }, /no adapter 'tuned'. It has: other. Load it there/],
      // Versions that list no adapters.
      ['sglang', ['m'], { lora_path: 'tuned' }, undefined],
      ['llama-server', ['m'], { lora: [{ id: 1, scale: 0.5 }] }, undefined],
      ['llama-server', ['m'], { lora: [{ id: 7, scale: 0 }] }, undefined],
      ['llama-server', ['m'], { lora: [{ id: 2, scale: 1 }] }, /lora_id of 'tuned'. It has: 0: a, 1: b. Start it/],
    ] as const
  ).map(([flavor, ids, fields, problem]) => ({
    name: `${flavor} with ${ids.join(', ')}, of which ${JSON.stringify(fields)} is used`,
    handler: serving({
      '/v1/models': {
        data: ids.map((id) => ({
          id,
          owned_by: flavor.replace('-server', 'cpp'),
          ...(id === 'm' ? {} : { parent: 'm' }),
        })),
      },
      '/lora-adapters': [
        { id: 0, path: '/x/a.gguf' },
        { id: 1, path: 'b.gguf' },
      ] as object,
    }),
    options: { flavor, model: 'm', adapter: { name: 'tuned', fields } },
    expected: { isUsable: true, lacksModel: problem !== undefined },
    problem,
  })),
  ...[8_192, 2_048, 512].map((contextLength) => ({
    name: `vLLM with a window of 2,048, of which the card promises ${contextLength}`,
    handler: serving({ '/v1/models': { data: [{ id: 'm', owned_by: 'vllm', max_model_len: 2_048 }] } }),
    options: { contextLength },
    expected: { isUsable: true },
    problem:
      contextLength > 2_048 ? /window is 2048 tokens, but context_length is 8192.*Set context_length: 2048/ : undefined,
  })),
  {
    name: 'a server of which nothing is known yet',
    handler: serving({ '/v1/models': { data: [{ id: 'q', owned_by: 'vllm', max_model_len: 2_048 }, { id: 'r' }] } }),
    options: { flavor: undefined, model: undefined },
    expected: { looksLike: 'vllm', models: ['q', 'r'], windows: new Map([['q', 2_048]]) },
    problem: undefined,
  },
  {
    name: 'llama-server of which nothing is known yet: the window of a slot',
    handler: serving({
      '/v1/models': listOf(['demo'], 'llamacpp'),
      '/props': { default_generation_settings: { n_ctx: 1_024 } },
    }),
    options: { flavor: undefined, model: undefined },
    expected: { looksLike: 'llama-server', models: ['demo'], windows: new Map([['demo', 1_024]]) },
    problem: undefined,
  },
  {
    name: 'vLLM, known by its version only',
    handler: serving({ '/v1/models': listOf(['m']), '/version': { version: '0.33.0' } }),
    expected: { looksLike: 'vllm' },
    problem: undefined,
  },
  {
    name: 'Ollama of which nothing is known yet: the windows of loaded models',
    handler: serving({
      '/v1/models': listOf(['qwen3:8b', 'llama3:latest', 'odd'], 'library'),
      '/api/ps': {
        models: [
          { name: 'qwen3:8b', model: 'qwen3:8b', context_length: 4_096 },
          { model: 'odd', context_length: -1 },
          null,
          { model: 7, context_length: 9 },
        ],
      },
    }),
    options: { flavor: undefined, model: undefined },
    expected: {
      looksLike: 'ollama',
      models: ['qwen3:8b', 'llama3:latest', 'odd'],
      windows: new Map([['qwen3:8b', 4_096]]),
    },
    problem: undefined,
  },
  {
    name: 'Ollama that would cut what the card promises',
    handler: serving({
      '/v1/models': listOf(['m'], 'library'),
      '/api/ps': { models: [{ model: 'm', context_length: 4_096 }] },
    }),
    options: { flavor: 'ollama', contextLength: 8_192 },
    expected: { looksLike: 'ollama' },
    problem: /window is 4096 tokens, but context_length is 8192/,
  },
  {
    name: 'Ollama, by the name without its tag',
    handler: serving({
      '/v1/models': listOf(['smol:latest', 'smol:big'], 'library'),
      '/api/ps': { models: [{ model: 'smol:latest', context_length: 4_096 }] },
    }),
    options: { flavor: 'ollama', model: 'smol', contextLength: 8_192 },
    expected: { looksLike: 'ollama', lacksModel: false },
    problem: /window is 4096 tokens, but context_length is 8192/,
  },
  {
    name: 'Ollama that is called openai',
    handler: serving({ '/v1/models': listOf(['m'], 'library'), '/api/ps': { models: [] } }),
    options: { flavor: 'openai' },
    expected: { looksLike: 'ollama' },
    problem: /looks like ollama.*Set flavor: ollama/,
  },
  ...[
    {
      lists: {
        '/api/v0/models': {
          data: [
            { id: 'a', state: 'loaded', max_context_length: 131_072, loaded_context_length: 4_096 },
            { id: 'b', state: 'not-loaded', max_context_length: 32_768 },
          ],
        },
      },
      by: 'the list of its first API',
    },
    {
      lists: {
        '/api/v1/models': {
          models: [
            {
              key: 'a',
              max_context_length: 131_072,
              loaded_instances: [{ id: 'a', config: { context_length: 4_096 } }],
            },
            { key: 'b', max_context_length: 32_768, loaded_instances: [] },
            { key: 'c', loaded_instances: [null, { id: 7, config: { context_length: 9 } }, { id: 'c', config: 3 }] },
          ],
        },
      },
      by: 'the list of its second API',
    },
  ].map(({ lists, by }): Case => {
    const answers = serving({ '/v1/models': listOf(['a', 'b'], 'organization_owner'), ...lists });
    return {
      name: `LM Studio, by ${by}: the windows of loaded models, whatever it answers to other paths`,
      handler: (exchange) =>
        exchange.path in lists || exchange.path === '/v1/models'
          ? answers(exchange)
          : exchange.json(200, { error: `Unexpected endpoint or method. (GET ${exchange.path})` }),
      options: { flavor: undefined, model: undefined },
      expected: { looksLike: 'lm-studio', models: ['a', 'b'], windows: new Map([['a', 4_096]]) },
      problem: undefined,
    };
  }),
  {
    name: 'TGI: the window that it says',
    handler: serving({
      '/v1/models': listOf(['org/model'], 'org/model'),
      '/info': {
        model_id: 'org/model',
        max_input_tokens: 2_047,
        max_total_tokens: 2_048,
        router: 'text-generation-router',
      },
    }),
    options: { flavor: undefined, model: undefined },
    expected: { looksLike: 'tgi', models: ['org/model'], windows: new Map([['org/model', 2_048]]) },
    problem: undefined,
  },
  {
    name: 'TGI that is called openai, with a smaller window than promised',
    handler: serving({ '/v1/models': listOf(['m'], 'm'), '/info': { model_id: 'm', max_total_tokens: 2_048 } }),
    options: { flavor: 'openai', contextLength: 8_192 },
    expected: { looksLike: 'tgi' },
    problem: /looks like tgi.*Set flavor: tgi/,
  },
  {
    name: 'TEI, which has no list of models (1.9.3): what it says of the one that it serves',
    handler: serving({ '/info': { model_id: 'org/bert', model_type: { embedding: {} }, max_input_length: 512 } }),
    options: { flavor: undefined, model: undefined },
    expected: { looksLike: 'tei', models: ['org/bert'], windows: new Map([['org/bert', 512]]) },
    problem: undefined,
  },
  {
    name: 'TEI by another name, with a smaller window than promised',
    handler: serving({ '/info': { model_id: 'org/bert', model_type: { reranker: {} }, max_input_length: 512 } }),
    options: { flavor: 'tei', model: 'mine', contextLength: 8_192 },
    expected: { looksLike: 'tei', lacksModel: false },
    problem: /window is 512 tokens, but context_length is 8192/,
  },
  {
    name: 'SGLang that is called vLLM',
    handler: serving({ '/v1/models': listOf(['m']), '/model_info': { is_generation: true } }),
    expected: { looksLike: 'sglang' },
    problem: /looks like sglang.*Set flavor: sglang/,
  },
  {
    name: 'llama-server, which has one model under every name',
    handler: serving({ '/v1/models': listOf(['other.gguf'], 'llamacpp') }, { server: 'llama.cpp' }),
    options: { flavor: 'llama-server' },
    expected: { models: ['other.gguf'], looksLike: 'llama-server' },
    problem: undefined,
  },
  {
    name: 'llama-server, known by its properties',
    handler: serving({ '/v1/models': listOf(['m']), '/props': { default_generation_settings: {} } }),
    options: { flavor: 'llama-server' },
    expected: { looksLike: 'llama-server' },
    problem: undefined,
  },
  {
    name: 'a server of no known kind',
    handler: serving({ '/v1/models': listOf(['m']) }),
    options: { flavor: 'openai' },
    expected: { reachable: true, looksLike: undefined },
    problem: undefined,
  },
  {
    name: 'another model',
    handler: serving({ '/v1/models': listOf(['a', 'b'], 'vllm') }),
    expected: { models: ['a', 'b'] },
    problem: /no model 'm'. It has: a, b. Set the backend's model/,
  },
  {
    name: 'a url without the version path',
    handler: serving({ '/v1/models': listOf(['m']) }),
    url: (upstream) => `http://127.0.0.1:${upstream.port}`,
    expected: { reachable: true, models: [] },
    problem: /no \/models \(status 404\).*\/v1\?/,
  },
  {
    name: 'a key is wanted',
    handler: (exchange) => exchange.json(401, { error: { message: secret }, ...listOf(['m']) }),
    expected: { reachable: true, models: [] },
    problem: /requires a key \(status 401\). Set api_key_env/,
  },
  {
    name: 'the key is wrong',
    handler: (exchange) => exchange.json(403, { error: { message: secret } }),
    options: { apiKey: 'sk-wrong' },
    expected: { reachable: true },
    problem: /does not accept the key \(status 403\)/,
  },
  {
    name: 'still loading',
    handler: (exchange) => exchange.json(503, { error: { message: 'Loading model' } }),
    expected: { reachable: true },
    problem: /not ready \(status 503\)/,
  },
  {
    name: 'a redirect',
    handler: (exchange) => exchange.json(301, {}, { location: '/elsewhere' }),
    expected: { reachable: true },
    problem: /redirects \(status 301\)/,
  },
  {
    name: 'broken',
    handler: (exchange) => exchange.json(500, { error: secret }),
    expected: { reachable: true },
    problem: /status 500. See the server's log/,
  },
  {
    name: 'a page',
    handler: (exchange) => exchange.write(`HTTP/1.1 200 OK\r\ncontent-length: ${secret.length}\r\n\r\n${secret}`),
    expected: { reachable: true, models: [] },
    problem: /does not speak the OpenAI API/,
  },
  {
    name: 'model ids that are none',
    handler: serving({ '/v1/models': { data: [{ id: 'm' }, { id: 7 }, { id: 'x\u001b[2J' }, null, { id: '' }] } }),
    options: { flavor: 'openai' },
    expected: { models: ['m'] },
    problem: undefined,
  },
  {
    name: 'silence',
    handler: () => {},
    options: { timeoutMs: 100 },
    expected: { reachable: false, latencyMs: undefined, models: [] },
    problem: /does not answer in time/,
  },
  {
    name: 'another language',
    handler: (exchange) => exchange.write(`SSH-2.0-${secret}\r\n`),
    expected: { reachable: false },
    problem: /Check that it speaks HTTP there/,
  },
  {
    name: 'no TLS',
    handler: (exchange) => exchange.json(200, {}),
    url: (upstream) => `https://127.0.0.1:${upstream.port}/v1`,
    options: { timeoutMs: 1_000 },
    expected: { reachable: false },
    problem: /(No TLS connection|does not answer in time|closed the connection)/,
  },
  {
    name: 'nobody there',
    handler: () => {},
    url: () => 'http://127.0.0.1:1/v1',
    expected: { reachable: false },
    problem: /Nothing listens at http:\/\/127\.0\.0\.1:1 /,
  },
  {
    name: 'no such name',
    handler: () => {},
    url: () => 'http://nowhere.invalid/v1',
    expected: { reachable: false },
    problem: /cannot be resolved/,
  },
];

describe('a look at a backend', { timeout: 60_000 }, () => {
  for (const { name, handler, options, url, expected, problem } of cases) {
    it(name, async () => {
      const upstream = await Upstream.start(handler, { isLookedAt: true });
      try {
        const result = await probeBackend({
          url: url?.(upstream) ?? upstream.url,
          apiKey: undefined,
          flavor: 'vllm',
          model: 'm',
          signal: new AbortController().signal,
          ...options,
        });
        for (const [field, value] of Object.entries(expected)) {
          assert.deepEqual(result[field as keyof ProbeResult], value, field);
        }
        if (result.reachable) assert.ok((result.latencyMs ?? -1) >= 0);
        if (problem === undefined) assert.equal(result.problem, undefined);
        else assert.match(result.problem ?? '', problem);
        assert.ok(!JSON.stringify(result).includes(secret));
        if (options?.apiKey !== undefined) {
          assert.equal(upstream.exchanges[0]?.headers.get('authorization'), `Bearer ${options.apiKey}`);
          assert.ok(!JSON.stringify(result).includes(options.apiKey));
        }
        for (const { method, headers } of upstream.exchanges) {
          assert.deepEqual([method, headers.get('accept-encoding')], ['GET', 'identity']);
        }
        await eventually('the connection is closed', () => upstream.open === 0, 10_000);
      } finally {
        await upstream.close();
      }
    });
  }

  it('ends with the signal', async () => {
    const upstream = await Upstream.start(() => {}, { isLookedAt: true });
    const abort = new AbortController();
    const reason = new Error('enough');
    const probe = probeBackend({
      url: upstream.url,
      apiKey: undefined,
      flavor: 'vllm',
      model: 'm',
      signal: abort.signal,
    });
    abort.abort(reason);
    await assert.rejects(probe, (error) => error === reason);
    await upstream.close();
  });
});
