/**
 * Adapters that servers load on demand: from one folder, not more than there is room for, and no request notices who was loaded, unloaded or
 * lost in the meantime. Each server is the wire of vLLM's runtime loading (vllm/entrypoints/openai/models/serving.py, 0.32).
 */
import assert from 'node:assert/strict';
import { setTimeout as delay } from 'node:timers/promises';
import { after, before, beforeEach, test } from 'node:test';
import { mulberry32 } from '../support/random.ts';
import { InnerService, until } from '../support/service.ts';
import { TestLedger } from '../support/test-ledger.ts';
import { chatChunk, event, Upstream, usageChunk, type UpstreamExchange } from '../support/upstream.ts';

const inFolder = ['a', 'b', 'c', 'd'];

class LoadingServer {
  /** By name, the path that each was loaded from. */
  readonly loaded = new Map<string, string>();
  /** What was asked of it: `+a` for a load, `-a` for an unload, `a` for an answer. */
  asked: string[] = [];
  counted: string[] = [];
  mostLoaded = 0;
  mayLoad = true;
  upstream!: Upstream;

  async start(): Promise<this> {
    this.upstream = await Upstream.start((exchange) => this.#answer(exchange), { isLookedAt: true });
    return this;
  }

  get url(): string {
    return this.upstream.url;
  }

  async #answer(exchange: UpstreamExchange): Promise<void> {
    const { path, method } = exchange;
    if (path === '/v1/models')
      return exchange.json(200, {
        data: [
          { id: 'base', root: '/models/base', owned_by: 'vllm', max_model_len: 4096 },
          ...[...this.loaded].map(([id, root]) => ({ id, root, parent: 'base', owned_by: 'vllm' })),
        ],
      });
    if (method === 'GET') return exchange.json(404, { detail: 'Not Found' });
    const body = JSON.parse(exchange.body) as { model: string; lora_name: string; lora_path: string };
    if (path === '/v1/load_lora_adapter' && this.mayLoad) return this.#load(exchange, body.lora_name, body.lora_path);
    if (path === '/v1/unload_lora_adapter' && this.mayLoad) {
      this.asked.push(`-${body.lora_name}`);
      if (!this.loaded.delete(body.lora_name))
        return exchange.json(404, { error: { type: 'NotFoundError', code: 404 } });
      return exchange.json(200, `Success: LoRA adapter '${body.lora_name}' removed successfully.`);
    }
    if (path === '/tokenize') {
      this.counted.push(body.model);
      return body.model === 'base' || this.loaded.has(body.model)
        ? exchange.json(200, { count: 7, max_model_len: 4096, tokens: [] })
        : exchange.json(404, { error: { message: 'The model does not exist.', code: 404 } });
    }
    if (path !== '/v1/chat/completions') return exchange.json(404, { detail: 'Not Found' });
    if (body.model !== 'base' && !this.loaded.has(body.model))
      return exchange.json(404, { error: { message: `The model \`${body.model}\` does not exist.`, code: 404 } });
    this.asked.push(body.model);
    exchange.events();
    exchange.chunk(chatChunk({ role: 'assistant', content: `by ${body.model}` }));
    // What has begun with an adapter ends with it, whatever is unloaded meanwhile.
    await delay(5);
    exchange.chunk(chatChunk({}, 'stop') + usageChunk({ prompt_tokens: 3, completion_tokens: 1 }) + event('[DONE]'));
    exchange.endChunks();
  }

  async #load(exchange: UpstreamExchange, name: string, path: string): Promise<void> {
    this.asked.push(`+${name}`);
    await delay(10);
    if (!inFolder.some((each) => path === `/adapters/${each}`))
      return exchange.json(404, {
        error: { message: `No adapter found for ${path}`, type: 'NotFoundError', code: 404 },
      });
    if (this.loaded.has(name)) return exchange.json(400, { error: { message: 'already been loaded', code: 400 } });
    this.loaded.set(name, path);
    this.mostLoaded = Math.max(
      this.mostLoaded,
      [...this.loaded.values()].filter((at) => /^\/adapters/.test(at)).length,
    );
    return exchange.json(200, `Success: LoRA adapter '${name}' added successfully.`);
  }
}

const [one, two, third] = [new LoadingServer(), new LoadingServer(), new LoadingServer()];
const all = [one, two, third];
let service: InnerService;

/** Those of the model `two` have both servers. The third one belongs to a model with one adapter that is not there. */
before(async () => {
  await Promise.all(all.map((server) => server.start()));
  const model = (id: string, servers: readonly LoadingServer[], adapters: readonly string[]): string => `
  - id: ${id}
    context_length: 4096
    pricing: { input_cents_per_million: 100, output_cents_per_million: 100 }
    adapters:
${adapters.map((name, index) => `      - { id: ${id}-${name}, adapter: ${name}, price_multiple: ${index + 2} }`).join('\n')}
    backends:
${servers.map(({ url }, index) => `      - { engine: openai, name: s${index}, flavor: vllm, url: "${url}", model: base, load_adapters: { folder: /adapters/, loaded_max: 2 } }`).join('\n')}`;
  service = await new InnerService({
    config: `models:${model('one', [one], [...inFolder, 'absent'])}${model('two', [one, two], inFolder)}${model('third', [third], inFolder)}`,
  }).start();
});
after(async () => {
  await service.verify();
  await service.dispose();
  await Promise.all(all.map(({ upstream }) => upstream.close()));
});
beforeEach(() => {
  for (const server of all) {
    server.asked = [];
    server.mostLoaded = 0;
  }
});

async function ask(model: string): Promise<{ readonly status: number; readonly text: string }> {
  const response = await service.chat({ model, messages: [{ role: 'user', content: 'hi' }] });
  return { status: response.status, text: await response.text() };
}

async function isAnswered(model: string): Promise<void> {
  const { status, text } = await ask(model);
  assert.equal(status, 200, text);
  assert.match(text, new RegExp(`"by ${model.split('-')[1]}"`));
}

test('the first requests have it loaded from the folder, once; a base loads nothing', async () => {
  assert.match((await ask('one')).text, /by base/);
  assert.deepEqual(one.asked, ['base']);
  await Promise.all(Array.from({ length: 10 }, () => isAnswered('one-a')));
  assert.deepEqual(one.asked, ['base', '+a', ...Array.from({ length: 10 }, () => 'a')]);
  assert.equal(one.loaded.get('a'), '/adapters/a');
});

test('the one that was not used for longest makes room', async () => {
  for (const name of ['a', 'b', 'a', 'c']) await isAnswered(`one-${name}`);
  assert.deepEqual(one.asked, ['a', '+b', 'b', 'a', '-b', '+c', 'c']);
});

test('a prompt is counted as at the base, and nothing is loaded for that', async () => {
  one.loaded.clear();
  const response = await fetch(`${service.url}/v1/messages/count_tokens`, {
    method: 'POST',
    headers: { authorization: `Bearer ${service.key}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'one-d', messages: [{ role: 'user', content: 'hi' }] }),
  });
  assert.deepEqual(await response.json(), { input_tokens: 7 });
  assert.deepEqual(one.asked, []);
  assert.deepEqual(new Set(one.counted), new Set(['base']));
});

test('a server that was started again, or of which another one has unloaded it, loads it once more for the same request', async () => {
  await isAnswered('one-a');
  one.loaded.clear();
  one.asked = [];
  await isAnswered('one-a');
  assert.deepEqual(one.asked, ['+a', 'a']);
});

test('what the server was started with from elsewhere is used, and never unloaded', async () => {
  one.loaded.clear();
  one.loaded.set('d', '/elsewhere/d');
  for (const name of ['a', 'd', 'b', 'c', 'd']) await isAnswered(`one-${name}`);
  assert.equal(one.loaded.get('d'), '/elsewhere/d');
  assert.deepEqual(
    one.asked.filter((what) => what.endsWith('d')),
    ['d', 'd'],
  );
  one.loaded.delete('d');
});

test('more adapters than there is room for, all asked for at once: nobody fails, and each pays its own price', async () => {
  const random = mulberry32(7);
  const names = Array.from({ length: 150 }, () => inFolder[Math.floor(4 * random())]!);
  await Promise.all(
    names.map(async (name) => {
      await delay(2_500 * random());
      await isAnswered(`one-${name}`);
    }),
  );
  assert.equal(one.mostLoaded, 2);
  assert.ok(one.asked.filter((what) => /^[+]/.test(what)).length >= 4, one.asked.join(' '));
  const rows = await new TestLedger(service).newest(150);
  const times = { a: 2n, b: 3n, c: 4n, d: 5n } as Record<string, bigint>;
  for (const { modelId, promptTokens, completionTokens, costMicrocents } of rows)
    assert.equal(
      costMicrocents,
      BigInt(promptTokens + completionTokens) * 100n * times[modelId.split('-')[1]!]!,
      modelId,
    );
  assert.deepEqual(rows.map(({ modelId }) => modelId).toSorted(), names.map((name) => `one-${name}`).toSorted());
});

test('of two servers the one that has it is asked, and the other one loads nothing', async () => {
  for (const server of [one, two]) server.loaded.clear();
  await until(async () => (await ask('two-a')).status === 200);
  for (const server of [one, two]) server.asked = [];
  const [has, lacks] = one.loaded.has('a') ? [one, two] : [two, one];
  for (let turn = 0; turn < 10; turn++) await Promise.all([isAnswered('two-a'), isAnswered('two-a')]);
  assert.deepEqual([has.asked.length, lacks.asked], [20, []]);
});

const reasons = {
  'the folder does not have it': { model: 'one-absent', server: one },
  'the server loads no adapters while it runs: start it with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True': {
    model: 'third-a',
    server: third,
  },
} as const;
for (const [reason, { model, server }] of Object.entries(reasons))
  test(`${reason}: refused without a charge, and the log says it once`, async () => {
    if (server === third) third.mayLoad = false;
    const { status, text } = await ask(model);
    assert.equal(status, 503, text);
    assert.match(text, /no_healthy_backends/);
    assert.equal((await ask(model)).status, 503);
    assert.equal(server.asked.filter((what) => what.endsWith(model.split('-')[1]!) && !/^[+-]/.test(what)).length, 0);
    const said = service.log.filter((line) => JSON.stringify(line).includes('adapter_not_loaded'));
    assert.deepEqual(
      said.map((line) => line['reason']).filter((each) => each === reason),
      [reason],
    );
  });

test('a server that may load again is used again', async () => {
  third.mayLoad = true;
  await until(async () => (await ask('third-a')).status === 200);
});
