import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { InnerService } from '../support/service.ts';
import { chatChunk, event, Upstream, usageChunk, type UpstreamExchange } from '../support/upstream.ts';
import { CommandFolder, jsonOf } from './command.ts';

/** `backends add` at servers that answer as vLLM does; `npm run suite vllm` and `suite llama-server` have the real ones. */
const state = { models: [] as object[], key: '', tools: true, thinks: false, broken: false, only: '' };
let server: Upstream;
before(async () => {
  server = await Upstream.start((exchange) => answer(exchange), { isLookedAt: true });
});
after(() => server.close());

function answer(exchange: UpstreamExchange): void {
  const { path, body, headers } = exchange;
  if (state.key !== '' && headers.get('authorization') !== `Bearer ${state.key}`) return exchange.json(401, {});
  if (path === '/v1/models') return exchange.json(200, { object: 'list', data: state.models });
  if (path === '/v1/chat/completions' && state.only === '') {
    const { tools } = JSON.parse(body) as { tools?: readonly unknown[] };
    if (state.broken) return exchange.json(500, {});
    if (tools !== undefined && !state.tools)
      return exchange.json(400, { message: '"auto" tool choice requires --enable-auto-tool-choice', code: 400 });
    exchange.events();
    exchange.chunk(
      (state.thinks ? chatChunk({ reasoning_content: 'They greet.' }) : '') +
        chatChunk({ content: 'Hello there' }) +
        chatChunk({}, 'stop') +
        usageChunk({ prompt_tokens: 3, completion_tokens: 2 }) +
        event('[DONE]'),
    );
    return exchange.endChunks();
  }
  if (path === '/v1/embeddings' && state.only === 'embeddings') {
    const { input } = JSON.parse(body) as { input: readonly string[] };
    const data = input.map((_, index) => ({ index, embedding: [1, index, 2] }));
    return exchange.json(200, { object: 'list', data, usage: { prompt_tokens: 40, total_tokens: 40 } });
  }
  if (path === '/v1/rerank' && state.only === 'rerank') {
    const { documents } = JSON.parse(body) as { documents: readonly string[] };
    const results = documents.map((_, index) => ({ index, relevance_score: 0.5 }));
    return exchange.json(200, { results, usage: { prompt_tokens: 40, total_tokens: 40 } });
  }
  return exchange.json(404, {});
}

const vllm = (id: string, window = 8_192): object => ({ id, owned_by: 'vllm', max_model_len: window });
const written = `# my models
models:
  - id: first # the one that is there
    context_length: 4096
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    backends: [ { engine: scripted, scripts: [ { say: [ { text: hi } ] } ] } ]
`;
function folderOf(environment: Readonly<Record<string, string>> = {}): CommandFolder {
  Object.assign(state, {
    ...{ models: [vllm('Qwen/Qwen3-8B')], key: '', only: '' },
    ...{ tools: true, thinks: false, broken: false },
  });
  const folder = new CommandFolder(written, environment);
  after(() => folder.dispose());
  return folder;
}
const configOf = (folder: CommandFolder): string => readFileSync(join(folder.path, 'tokenhouse.yaml'), 'utf8');

test('an address without scheme and version path becomes a model, after it has answered', async () => {
  const folder = folderOf();
  const { code, stdout, stderr } = await folder.run('backends', 'add', `127.0.0.1:${server.port}`);
  assert.equal(code, 0, stderr);
  assert.match(stdout, /^Qwen\/Qwen3-8B · vllm · http:\/\/127\.0\.0\.1:\d+\/v1\n/);
  assert.match(stdout, /window {3}8192 tokens\ncan {6}chat, tools, no reasoning\nsays {5}"Hello there"/);
  const text = configOf(folder);
  assert.ok(text.startsWith('# my models\n') && text.includes('# the one that is there'), text);
  assert.match((await folder.run('models', 'list')).stdout, /^Qwen\/Qwen3-8B /m);
});

/** What is written where the database has these accounts, by the options. */
const terms: readonly (readonly [accounts: number, options: readonly string[], expected: RegExp])[] = [
  // Before the first start nobody is there who could buy it.
  [0, [], /free, for every account/],
  [1, [], /a draft: only acct_\w+ may use it, at price 0; to sell it: tokenhouse models sell q --price/],
  // Without an operator one of several accounts could be anybody's.
  [2, [], /free, for every account/],
  [1, ['--free'], /free, for every account/],
  [1, ['--price', '0.1/$0.40'], /\$0\.10 \/ \$0\.40 per million tokens, for every account/],
];
for (const [accounts, options, expected] of terms)
  test(`a new model is on sale only where that was said: ${accounts} accounts, ${options.join(' ') || 'no option'}`, async () => {
    const folder = folderOf();
    for (let at = 0; at < accounts; at++)
      assert.equal((await folder.run('accounts', 'create', '--name', `a${at}`)).code, 0);
    const { code, stdout, stderr } = await folder.run('backends', 'add', server.url, '--id', 'q', ...options);
    assert.equal(code, 0, stderr);
    assert.match(stdout, expected);
    const isDraft = expected.source.startsWith('a draft');
    assert.equal(configOf(folder).includes('dedicated_to'), isDraft);
    if (!isDraft) return;
    const sold = await folder.run('models', 'sell', 'Q', '--price', '0.10/0.40');
    assert.match(sold.stdout, /^q: \$0\.10 \/ \$0\.40 per million tokens, for every account/);
    assert.ok(!configOf(folder).includes('dedicated_to'));
    assert.match((await folder.run('models', 'sell', 'q')).stderr, /Name its price/);
    assert.match((await folder.run('models', 'sell', 'q', '--price', '1')).stderr, /0\.10\/0\.40/);
  });

test('the same model at a second address is one more backend, which shares the load', async () => {
  const folder = folderOf();
  const second = await Upstream.start((exchange) => answer(exchange), { isLookedAt: true });
  after(() => second.close());
  for (const [{ port }, id] of [
    [server, 'q'],
    [second, 'Q'],
  ] as const)
    assert.equal((await folder.run('backends', 'add', `http://127.0.0.1:${port}/v1`, '--id', id)).code, 0);
  const list = jsonOf(await folder.run('models', 'list', '--json')) as readonly {
    readonly id: string;
    readonly backends: readonly { readonly name: string }[];
  }[];
  assert.deepEqual(
    list.map(({ id, backends }) => [id, backends.length]),
    [
      ['first', 1],
      ['q', 2],
    ],
  );
});

test('what the server refuses and shows is on the card; its key stays in a variable', async () => {
  const folder = folderOf({ GPU_KEY: 'sk-gpu' });
  Object.assign(state, { key: 'sk-gpu', tools: false, thinks: true });
  assert.match((await folder.run('backends', 'add', server.url)).stderr, /requires a key/);
  const {
    tools,
    reasoning,
    flavor,
    context_length: window,
  } = jsonOf(await folder.run('backends', 'add', server.url, '--api-key-env', 'GPU_KEY', '--json')) as Readonly<
    Record<string, unknown>
  >;
  assert.deepEqual([tools, reasoning, flavor, window], [false, true, 'vllm', 8_192]);
  const text = configOf(folder);
  assert.ok(text.includes('api_key_env: GPU_KEY') && !text.includes('sk-gpu'), text);
  assert.match(text, /capabilities:\s+tools: false\s+reasoning: true/);
});

for (const [flag, made] of [
  ['embeddings', 'vectors of 3 numbers'],
  ['rerank', 'a score for each document'],
] as const)
  test(`a server that has no chat but ${flag}: its card says so`, async () => {
    const folder = folderOf();
    state.only = flag;
    const { code, stdout, stderr } = await folder.run('backends', 'add', server.url);
    assert.equal(code, 0, stderr);
    assert.match(
      stdout,
      new RegExp(`^can {6}${flag}: /v1/${flag}\\nmakes {4}${made}, from [\\d.]+ tokens a second$`, 'm'),
    );
    assert.match(configOf(folder), new RegExp(`capabilities:\\s+${flag}:\\s+supported: true`));
    // A model that writes has no such server beside its own.
    const written = configOf(folder);
    const beside = await folder.run('backends', 'add', server.url, '--id', 'first');
    assert.match(beside.stderr, new RegExp(`The server has ${flag}, which is not what first has\\.`));
    assert.equal(configOf(folder), written);
  });

const withAdapters = (): object[] => [
  vllm('base'),
  ...['legal', 'sql'].map((id) => ({ id, owned_by: 'vllm', root: `/adapters/${id}`, parent: 'base' })),
];

test('adapters that a server has are said, not sold, and `doctor` says which the file does not have', async () => {
  const folder = folderOf();
  state.models = withAdapters();
  const { code, stdout, stderr } = await folder.run('backends', 'add', server.url, '--json');
  assert.equal(code, 0, stderr);
  const { id, adapters } = jsonOf({ code, stdout, stderr }) as { id: string; adapters: unknown };
  assert.deepEqual([id, adapters], ['base', [{ adapter: 'legal' }, { adapter: 'sql' }]]);
  assert.doesNotMatch(configOf(folder), /legal/);
  const found = async (): Promise<string> => (await folder.run('doctor')).stdout;
  assert.match(await found(), /has adapters that the file does not sell: legal, sql/);
  const text = configOf(folder);
  const sold = text.replace(
    '- id: base\n',
    '- id: base\n    adapters: [ { id: base-legal, adapter: legal }, { id: lost } ]\n',
  );
  assert.notEqual(sold, text);
  writeFileSync(join(folder.path, 'tokenhouse.yaml'), sold);
  const after = await found();
  assert.match(after, /has adapters that the file does not sell: sql/);
  assert.match(after, /has no model 'lost'\. It has: base, legal, sql/);
});

const refusals: readonly {
  readonly name: string;
  readonly before?: () => void;
  readonly args?: readonly string[];
  readonly said: RegExp;
}[] = [
  {
    name: 'several models',
    before: () => (state.models = [vllm('a'), vllm('b')]),
    said: /several models: name one with --model\. It has: a, b/,
  },
  {
    name: 'an adapter instead of its model',
    before: () => (state.models = withAdapters()),
    args: ['--model', 'sql'],
    said: /sql is an adapter of base: add that model/,
  },
  { name: 'no model', before: () => (state.models = []), said: /does not list its models/ },
  { name: 'another model', args: ['--model', 'z'], said: /no model z\. It has: Qwen\/Qwen3-8B/ },
  {
    name: 'no window',
    before: () => (state.models = [{ id: 'a', owned_by: 'someone' }]),
    said: /does not say how long the window of a is.*--context-length/,
  },
  { name: 'one that does not answer', before: () => (state.broken = true), said: /does not answer a chat/ },
  { name: 'a variable that is not set', args: ['--api-key-env', 'NOTHING'], said: /NOTHING is not set/ },
];
for (const { name, before: prepare, args = [], said } of refusals)
  test(`${name}: refused, and nothing is written`, async () => {
    const folder = folderOf();
    prepare?.();
    const { code, stderr } = await folder.run('backends', 'add', server.url, ...args);
    assert.notEqual(code, 0);
    assert.match(stderr, said);
    assert.equal(configOf(folder), written);
  });

test('an address where nothing listens, and no address', async () => {
  const folder = folderOf();
  assert.match((await folder.run('backends', 'add', 'http://127.0.0.1:9/v1')).stderr, /Nothing listens at/);
  assert.match((await folder.run('backends', 'add', 'ftp://gpu')).stderr, /is not the address of a server/);
});

test('a running service takes it over without a restart', async () => {
  Object.assign(state, { models: [vllm('m2')], key: '', tools: true, thinks: false, broken: false });
  const service = await new InnerService({ config: written }).start();
  after(() => service.dispose());
  const added = await service.command('backends', 'add', server.url);
  assert.match(added.stdout, /The running service has taken it over/, added.stderr);
  const answered = await service.chat({ model: 'm2', messages: [{ role: 'user', content: 'hi' }] });
  assert.equal(answered.status, 200);
  assert.match(await answered.text(), /Hello there/);
});
