/** `/v1/embeddings` and `/v1/rerank` as their clients see them, on a scripted model and on servers that others wrote. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import { InnerService } from '../support/service.ts';
import { TestLedger } from '../support/test-ledger.ts';
import { Upstream } from '../support/upstream.ts';

type Json = Record<string, any>; // oxlint-disable-line typescript/no-explicit-any

const inputPrice = 5;
const cost = (promptTokens: number): bigint => BigInt(promptTokens * inputPrice);

const floats = (values: readonly number[]): string => {
  const bytes = Buffer.alloc(values.length * 4);
  values.forEach((value, index) => bytes.writeFloatLE(value, index * 4));
  return bytes.toString('base64');
};

/** What each kind of server was asked, and how it answers: in the forms of its source. */
const asked: { readonly path: string; readonly body: Json }[] = [];
let answer: (path: string, body: Json) => unknown = () => ({});
let heads: Readonly<Record<string, string>> = {};
let upstream: Upstream;
let service: InnerService;

const model = (id: string, capabilities: string, backend: string): string => `  - id: ${id}
    context_length: 64
    pricing: { input_cents_per_million: ${inputPrice}, output_cents_per_million: 20 }
    capabilities: ${capabilities}
    backends: [ { ${backend} } ]
`;

before(async () => {
  upstream = await Upstream.start(
    ({ path, body, json }) => {
      if (path === '/v1/models') return json(404, {});
      const read = JSON.parse(body === '' ? '{}' : body) as Json;
      asked.push({ path, body: read });
      const said = answer(path, read) as Json;
      if (typeof said['fails'] === 'number') json(said['fails'], said['body']);
      else json(200, said, heads);
    },
    { isLookedAt: true },
  );
  const scripted = 'engine: scripted, scripts: [ { say: [] } ]';
  const server = (flavor: string): string => `engine: openai, flavor: ${flavor}, url: "${upstream.url}"`;
  const flavors = ['vllm', 'sglang', 'llama-server', 'tei'];
  service = new InnerService({
    config: `models:
${model('embeds', '{ embeddings: { supported: true, dimensions: true } }', scripted)}${model('plain', '{ embeddings: { supported: true } }', scripted)}${model('ranks', '{ rerank: { supported: true } }', scripted)}${model('writes', '{}', scripted)}${flavors
      .map((flavor) =>
        model(flavor, '{ embeddings: { supported: true }, rerank: { supported: true } }', server(flavor)),
      )
      .join('')}`,
  });
  await service.start();
});
after(async () => {
  try {
    await service.verify();
  } finally {
    await service.dispose();
    await upstream.close();
  }
});

async function ask(path: string, body: object): Promise<{ readonly status: number; readonly json: Json }> {
  const response = await fetch(service.url + path, {
    method: 'POST',
    headers: { authorization: `Bearer ${service.key}`, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
  return { status: response.status, json: (await response.json()) as Json };
}
const embed = (body: object) => ask('/v1/embeddings', { model: 'embeds', ...body });
const rank = (body: object) => ask('/v1/rerank', { model: 'ranks', ...body });

describe('embeddings', () => {
  test('every form of input has its vectors in order, each of length 1', async () => {
    for (const [input, count] of [
      ['one text', 1],
      [['one', 'two', 'three'], 3],
      [[1, 2, 3], 1],
      [[[1, 2], [3]], 2],
    ] as const) {
      const { status, json } = await embed({ input });
      assert.equal(status, 200, JSON.stringify(json));
      assert.deepEqual([json['object'], json['model'], json['data'].length], ['list', 'embeds', count]);
      json['data'].forEach(({ object, index, embedding }: Json, at: number) => {
        assert.deepEqual([object, index, embedding.length], ['embedding', at, 16]);
        assert.ok(Math.abs(Math.hypot(...embedding) - 1) < 1e-6);
      });
    }
  });

  test('base64 has the same numbers', async () => {
    const [numbers, text] = await Promise.all([
      embed({ input: 'the same' }),
      embed({ input: 'the same', encoding_format: 'base64' }),
    ]);
    const bytes = Buffer.from(text.json['data'][0].embedding, 'base64');
    assert.deepEqual(
      Array.from({ length: 16 }, (_, index) => bytes.readFloatLE(index * 4)),
      numbers.json['data'][0].embedding,
    );
  });

  test('fewer dimensions: the beginning of the vector, of length 1 again', async () => {
    const whole = (await embed({ input: 'some text' })).json['data'][0].embedding as number[];
    const cut = (await embed({ input: 'some text', dimensions: 4 })).json['data'][0].embedding as number[];
    const length = Math.hypot(...whole.slice(0, 4));
    cut.forEach((value, index) => assert.ok(Math.abs(value - whole[index]! / length) < 1e-6));
    assert.equal(cut.length, 4);
  });

  for (const [name, body, status, code, param] of [
    ['no input', {}, 400, 'invalid_json_request', 'input'],
    ['an empty text', { input: '' }, 422, 'schema_validation_failed', 'input'],
    ['an empty text among others', { input: ['a', ''] }, 422, 'schema_validation_failed', 'input[1]'],
    ['no inputs', { input: [] }, 422, 'schema_validation_failed', 'input'],
    ['2,049 inputs', { input: Array(2_049).fill('a') }, 422, 'schema_validation_failed', 'input'],
    ['an input that is too long', { input: ['a', 'b'.repeat(300)] }, 400, 'context_length_exceeded', 'input[1]'],
    ['ids that are too many', { input: Array(65).fill(1) }, 400, 'context_length_exceeded', 'input'],
    ['an id that is none', { input: [[1], [2, -1]] }, 400, 'unsupported_value', 'input[1][1]'],
    ['an id outside of the vocabulary', { input: [99_999_999] }, 400, 'unsupported_value', 'input[0]'],
    ['an unknown encoding', { input: 'a', encoding_format: 'hex' }, 422, 'schema_validation_failed', 'encoding_format'],
    ['more dimensions than there are', { input: 'a', dimensions: 17 }, 400, 'unsupported_value', 'dimensions'],
    [
      'dimensions of another model',
      { input: 'a', dimensions: 4, model: 'plain' },
      400,
      'unsupported_parameter',
      'dimensions',
    ],
    ['a model that writes', { input: 'a', model: 'writes' }, 400, 'unsupported_feature', 'model'],
    ['a model that ranks', { input: 'a', model: 'ranks' }, 400, 'unsupported_feature', 'model'],
  ] as const) {
    test(name, async () => {
      const { status: got, json } = await embed(body);
      assert.deepEqual([got, json['error']?.code, json['error']?.param], [status, code, param]);
    });
  }

  test('a model that embeds refuses to write, in every family', async () => {
    const messages = [{ role: 'user', content: 'a' }];
    for (const [path, body] of [
      ['/v1/chat/completions', { messages }],
      ['/v1/completions', { prompt: 'a' }],
      ['/v1/messages', { messages, max_tokens: 5 }],
      ['/v1/responses', { input: 'a' }],
      ['/v1/rerank', { query: 'a', documents: ['a'] }],
    ] as const) {
      const { status, json } = await ask(path, { model: 'embeds', ...body });
      assert.equal(status, 400, path);
      assert.equal(json['error'].code ?? json['error'].error_code, 'unsupported_feature', JSON.stringify(json));
    }
  });

  test('the card says so', async () => {
    const list = (await (await fetch(`${service.url}/v1/models`)).json()) as Json;
    const flagsOf = (id: string): Json =>
      (list['data'] as Json[]).find((card) => card['id'] === id)!['service'].capabilities;
    assert.deepEqual(flagsOf('embeds')['embeddings'], { supported: true, dimensions: true });
    assert.deepEqual(flagsOf('embeds')['rerank'], { supported: false });
    assert.equal(flagsOf('embeds')['chat_completions'].supported, false);
    assert.equal(flagsOf('embeds')['tools'], false);
    assert.deepEqual(flagsOf('writes')['embeddings'], { supported: false, dimensions: false });
    assert.equal(flagsOf('writes')['chat_completions'].supported, true);
  });
});

describe('rerank', () => {
  const documents = ['grass is green', { text: 'the sky is blue' }, 'why is the sky blue'];

  test('the most relevant documents first, with their numbers', async () => {
    const { status, json } = await rank({ query: 'why is the sky blue', documents });
    assert.equal(status, 200, JSON.stringify(json));
    assert.deepEqual(
      json['results'].map(({ index, relevance_score }: Json) => [index, relevance_score]),
      [
        [2, 1],
        [1, 0.8],
        [0, 0.2],
      ],
    );
  });

  test('top_n and return_documents', async () => {
    const { json } = await rank({ query: 'sky', documents, top_n: 1, return_documents: true });
    assert.deepEqual(json['results'], [{ index: 1, relevance_score: 1, document: { text: 'the sky is blue' } }]);
  });

  test('a document that is too long is named', async () => {
    const { status, json } = await rank({ query: 'sky', documents: ['a', 'b'.repeat(300)] });
    assert.deepEqual(
      [status, json['error'].code, json['error'].param],
      [400, 'context_length_exceeded', 'documents[1]'],
    );
  });
});

describe('servers', () => {
  const data = [
    { index: 1, embedding: floats([0, 2]) },
    { index: 0, embedding: [3, 4] },
  ];

  /** What keeps the caches of accounts apart, where the server knows that. */
  const saltIn = (flavor: string): object => {
    const salt: unknown = asked[0]?.body['cache_salt'];
    assert.equal(typeof salt === 'string' && /^[\w-]{43}$/.test(salt), flavor === 'vllm' || flavor === 'sglang');
    return salt === undefined ? {} : { cache_salt: salt };
  };

  for (const flavor of ['vllm', 'sglang', 'llama-server', 'tei']) {
    test(`${flavor} embeds; its figures are charged`, async () => {
      asked.length = 0;
      answer = () => ({ object: 'list', data, usage: { prompt_tokens: 5, total_tokens: 5 } });
      const { status, json } = await embed({ model: flavor, input: ['a', 'b'] });
      assert.equal(status, 200, JSON.stringify(json));
      const salt = saltIn(flavor);
      assert.deepEqual(asked, [
        { path: '/v1/embeddings', body: { model: flavor, input: ['a', 'b'], encoding_format: 'base64', ...salt } },
      ]);
      assert.deepEqual(json['usage'], { prompt_tokens: 5, total_tokens: 5 });
      assert.deepEqual(
        json['data'].map(({ embedding }: Json) => embedding.map((value: number) => Math.fround(value))),
        [
          [Math.fround(0.6), Math.fround(0.8)],
          [0, 1],
        ],
      );
    });
  }

  for (const [flavor, path, field, said, relevance] of [
    [
      'vllm',
      '/v1/rerank',
      'documents',
      { results: [{ index: 0, relevance_score: 0.25 }], usage: { total_tokens: 4 } },
      0.25,
    ],
    ['llama-server', '/v1/rerank', 'documents', { results: [{ index: 0, relevance_score: 0 }] }, 0.5],
    ['sglang', '/v1/rerank', 'documents', [{ index: 0, score: 0 }], 0.5],
    ['tei', '/rerank', 'texts', [{ index: 0, score: 0.75 }], 0.75],
  ] as const) {
    test(`${flavor} ranks`, async () => {
      asked.length = 0;
      answer = () => said;
      const { status, json } = await rank({ model: flavor, query: 'q', documents: ['d'] });
      assert.equal(status, 200, JSON.stringify(json));
      const more = flavor === 'tei' ? { truncate: false } : saltIn(flavor);
      assert.deepEqual(asked, [{ path, body: { model: flavor, query: 'q', [field]: ['d'], ...more } }]);
      assert.deepEqual(json['results'], [{ index: 0, relevance_score: relevance }]);
    });
  }

  for (const [input, param] of [
    [[1, 99_999], 'input[1]'],
    [[[1], [2, 99_999]], 'input[1][1]'],
  ] as const)
    test(`a token that the server does not have is named: ${param}`, async () => {
      answer = () => ({ fails: 400, body: { error: { message: 'Token id 99999 is out of vocabulary', code: 400 } } });
      const { status, json } = await embed({ model: 'vllm', input });
      assert.deepEqual(
        [status, json['error'].code, json['error'].param],
        [400, 'unsupported_value', param],
        JSON.stringify(json),
      );
    });

  test('vLLM scores by the cosine where the model embeds: never below 0 nor, by rounding, above 1', async () => {
    const scores = [1.000000238418579, 0.25, -0.5];
    answer = () => ({ results: scores.map((relevance_score, index) => ({ index, relevance_score })) });
    const { status, json } = await rank({ model: 'vllm', query: 'q', documents: ['d', 'e', 'f'] });
    assert.equal(status, 200, JSON.stringify(json));
    assert.deepEqual(
      json['results'].map(({ relevance_score }: Json) => relevance_score),
      [1, 0.25, 0],
    );
  });

  test('TEI gets no more than 32 texts at once', async () => {
    asked.length = 0;
    answer = (_path, { input }) => ({
      data: (input as string[]).map((_text, index) => ({ index, embedding: [1, index] })),
      usage: { prompt_tokens: (input as string[]).length },
    });
    const { json } = await embed({ model: 'tei', input: Array(70).fill('a') });
    assert.deepEqual(
      asked.map(({ body }) => body['input'].length),
      [32, 32, 6],
    );
    assert.deepEqual([json['data'].length, json['usage'].prompt_tokens], [70, 70]);
    assert.equal(json['data'][69].index, 69);
  });

  for (const [what, usage, tokens] of [
    ['a total alone', { total_tokens: 4 }, 4],
    ['the names of responses', { input_tokens: 4 }, 4],
    ['zeros', { prompt_tokens: 0, total_tokens: 0 }, undefined],
    ['zero beside a total', { prompt_tokens: 0, total_tokens: 4 }, 4],
    ['fewer tokens than there are texts', { prompt_tokens: 1, total_tokens: 1 }, undefined],
    ['negative figures', { prompt_tokens: -4, total_tokens: -4 }, undefined],
    ['no number', { prompt_tokens: '4', total_tokens: NaN }, undefined],
    ['nothing', undefined, undefined],
  ] as const) {
    test(`embeddings with ${what} in their usage cost what was read, or the estimate`, async () => {
      const input = ['some words', 'and some more'];
      answer = () => ({ data, usage });
      const { json } = await embed({ model: 'vllm', input });
      const counted: number = json['usage'].prompt_tokens;
      if (tokens !== undefined) assert.equal(counted, tokens);
      else assert.ok(counted >= 4 && counted <= Buffer.byteLength(input.join('')), `${counted}`);
    });
  }

  test('vectors without any index are in the order of the texts; with some it is a fault', async () => {
    const bare = [{ embedding: [3, 4] }, { embedding: [0, 2] }];
    answer = () => ({ data: bare, usage: { prompt_tokens: 2 } });
    const { json } = await embed({ model: 'vllm', input: ['a', 'b'] });
    assert.deepEqual(
      json['data'].map(({ embedding }: Json) => embedding.map((value: number) => Math.fround(value))),
      [
        [Math.fround(0.6), Math.fround(0.8)],
        [0, 1],
      ],
    );
    answer = () => ({ data: [bare[0], { ...bare[1], index: 1 }], usage: { prompt_tokens: 2 } });
    assert.equal((await embed({ model: 'vllm', input: ['a', 'b'] })).status, 502);
    // A ranking is sorted by its scores.
    answer = () => ({ results: [{ relevance_score: 0.9 }, { relevance_score: 0.1 }] });
    assert.equal((await rank({ model: 'vllm', query: 'q', documents: ['a', 'b'] })).status, 502);
  });

  test('TEI says in the head of a rank how many tokens it has read, which are charged', async () => {
    for (const [said, tokens] of [
      ['5', 5],
      ['7', 7],
    ] as const) {
      answer = () => [{ index: 0, score: 0.75 }];
      heads = { 'x-compute-tokens': said };
      const { json } = await rank({ model: 'tei', query: 'q', documents: ['d'] }).finally(() => (heads = {}));
      assert.equal(json['usage'].total_tokens, tokens);
    }
  });

  for (const input of [
    [1, 2],
    [[1, 2], [3]],
  ])
    test(`TEI, which would make another text of them, gets no token ids: ${JSON.stringify(input)}`, async () => {
      asked.length = 0;
      const { status, json } = await embed({ model: 'tei', input });
      assert.deepEqual(
        [status, json['error'].code, json['error'].param, asked],
        [400, 'unsupported_feature', 'input', []],
      );
    });

  const of = (first: object, ...others: readonly object[]): object => ({ data: [first, data[0]!, ...others] });
  const text = (...values: readonly number[]): object => of({ index: 0, embedding: floats(values) });
  const tooMuch = {
    'ten million numbers': () => ({ data: [0, 1].map((index) => ({ index, embedding: Array(5_000_000).fill(1) })) }),
    '64 MB': () => ({ ...of(data[1]!), padding: ' '.repeat(64 * 1024 * 1024) }),
  } as const;
  for (const [name, said, status, code] of [
    ['too few vectors', { data: [data[0]] }, 502, 'backend_http_error'],
    ['too many vectors', of(data[1]!, data[1]!), 502, 'backend_http_error'],
    ['a third vector', of(data[1]!, { index: 2, embedding: [1, 2] }), 502, 'backend_http_error'],
    ['the same vector twice', of(data[0]!), 502, 'backend_http_error'],
    ['a vector without its number', of({ embedding: [3, 4] }), 502, 'backend_http_error'],
    ['a number that is a text', of({ index: '0', embedding: [3, 4] }), 502, 'backend_http_error'],
    ['no list', { data: { 0: data[1], 1: data[0], length: 2 } }, 502, 'backend_http_error'],
    ['entries that are none', { data: [null, 'x'] }, 502, 'backend_http_error'],
    ['nothing', {}, 502, 'backend_http_error'],
    ['a list of nothing', [], 502, 'backend_http_error'],
    ['an error and status 200', { error: { message: 'no', code: 500 } }, 502, 'backend_http_error'],
    ['a vector of another length', of({ index: 0, embedding: [3, 4, 5] }), 502, 'backend_http_error'],
    ['a vector of no numbers', of({ index: 0, embedding: [] }), 502, 'backend_http_error'],
    ['texts for numbers', of({ index: 0, embedding: ['3', '4'] }), 502, 'backend_http_error'],
    ['null among numbers', of({ index: 0, embedding: [3, null] }), 502, 'backend_http_error'],
    ['what is no base64', of({ index: 0, embedding: 'AAAA*AAA' }), 502, 'backend_http_error'],
    ['half a number in base64', of({ index: 0, embedding: 'AAAAAAA=' }), 502, 'backend_http_error'],
    ['NaN', text(Number.NaN, 1), 502, 'backend_http_error'],
    ['an infinite number', text(1, Number.POSITIVE_INFINITY), 502, 'backend_http_error'],
    ['numbers whose squares are infinite', of({ index: 0, embedding: [1e200, 1] }), 502, 'backend_http_error'],
    ['zeros', of({ index: 0, embedding: [0, 0] }), 502, 'backend_http_error'],
    ['more numbers than a request may have', 'ten million numbers', 502, 'backend_http_error'],
    ['more bytes than a request may have', '64 MB', 502, 'backend_http_error'],
    ['an error', { fails: 500, body: {} }, 502, 'backend_http_error'],
    ['no place', { fails: 429, body: {} }, 429, 'backend_overloaded'],
    [
      'an input that is too long for it',
      { fails: 413, body: { error: 'Input validation error: `inputs` must have less than 32 tokens. Given: 40' } },
      400,
      'context_length_exceeded',
    ],
  ] as const) {
    test(`a server that answers with ${name}: not charged`, async () => {
      const ledger = new TestLedger(service);
      const balance = await ledger.balance();
      answer = () => (typeof said === 'string' ? tooMuch[said]() : said);
      const { status: got, json } = await embed({ model: 'vllm', input: ['a', 'longer'] });
      assert.deepEqual([got, json['error']?.code], [status, code], JSON.stringify(json).slice(0, 500));
      if (code === 'context_length_exceeded') assert.equal(json['error'].param, 'input[1]');
      assert.equal(await ledger.balance(), balance);
    });
  }

  for (const [name, said] of [
    ['no list', { results: 'x' }],
    ['too few', { results: [] }],
    ['another document', { results: [{ index: 1, relevance_score: 0.5 }] }],
    ['half a document', { results: [{ index: 0.5, relevance_score: 0.5 }] }],
    ['no score', { results: [{ index: 0 }] }],
    ['a text for a score', { results: [{ index: 0, relevance_score: '0.5' }] }],
    ['a score above 1', { results: [{ index: 0, relevance_score: 1.5 }] }],
    ['a score below -1', { results: [{ index: 0, relevance_score: -1.5 }] }],
  ] as const) {
    test(`a server that ranks with ${name}: not charged`, async () => {
      const ledger = new TestLedger(service);
      const balance = await ledger.balance();
      answer = () => said;
      const { status, json } = await rank({ model: 'vllm', query: 'q', documents: ['d'] });
      assert.deepEqual([status, json['error']?.code], [502, 'backend_http_error'], JSON.stringify(json));
      assert.equal(await ledger.balance(), balance);
    });
  }

  // "a" and "longer" have 7 bytes, and up to 4 tokens are put around each; of ordinary text a token is 4 bytes.
  for (const [said, charged] of [
    [15, 15],
    [16, 15],
    [Number.MAX_SAFE_INTEGER, 15],
    [1e300, 4],
    [-5, 4],
    [2.5, 4],
    ['5', 4],
    [null, 4],
  ] as const) {
    test(`a server that reports ${said} prompt tokens: no more is charged than is possible`, async () => {
      answer = () => ({ data, usage: { prompt_tokens: said } });
      const ledger = new TestLedger(service);
      const balance = await ledger.balance();
      const { status, json } = await embed({ model: 'vllm', input: ['a', 'longer'] });
      assert.equal(status, 200, JSON.stringify(json));
      assert.equal(json['usage'].prompt_tokens, charged);
      assert.equal(await ledger.balance(), balance - cost(charged));
    });
  }
});
