/**
 * Two equal servers, of which one has not loaded an adapter: it gets no requests for that until it has it, and nobody is answered by the
 * base instead. vLLM refuses the name; llama-server answers any number, and SGLang may answer with the base.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { InnerService, until } from '../support/service.ts';
import { chatChunk, event, Upstream, usageChunk, type UpstreamExchange } from '../support/upstream.ts';

const kinds = ['vllm', 'sglang', 'llama-server', 'old-sglang'] as const;
type Kind = (typeof kinds)[number];

/** A server of all three kinds, below a path for each. */
class Member {
  readonly loaded = new Set<string>();
  upstream!: Upstream;
  asked = 0;

  async start(...loaded: readonly string[]): Promise<this> {
    for (const name of loaded) this.loaded.add(name);
    this.upstream = await Upstream.start((exchange) => this.#answer(exchange), { isLookedAt: true });
    return this;
  }

  #answer(exchange: UpstreamExchange): void {
    const [, kind = '', ...rest] = exchange.path.split('/');
    const at = rest.join('/');
    if (at === 'v1/models' && kind === 'old-sglang') return exchange.json(200, { data: [{ id: 'base' }] });
    if (at === 'v1/models')
      return exchange.json(200, {
        data: [
          { id: 'base' },
          ...['other', ...this.loaded].map((id) => ({ id, root: `/adapters/${id}`, parent: 'base' })),
        ],
      });
    if (at === 'lora-adapters')
      return exchange.json(
        200,
        ['other', ...this.loaded].map((name, id) => ({ id, path: `/adapters/${name}.gguf`, scale: 1 })),
      );
    if (exchange.method === 'GET') return exchange.json(404, {});
    this.asked++;
    const { model, lora_path: path } = JSON.parse(exchange.body) as { model: string; lora_path?: string };
    if (kind === 'vllm' && model === 'tuned' && !this.loaded.has('tuned'))
      return exchange.json(404, { error: { message: 'The model `tuned` does not exist.', code: 404 } });
    if (kind === 'old-sglang' && path === 'tuned' && !this.loaded.has('tuned'))
      return exchange.json(400, {
        object: 'error',
        message: "The following requested LoRA adapters are not loaded: tuned\nLoaded adapters: dict_keys(['other']).",
        code: 400,
      });
    exchange.events();
    exchange.chunk(chatChunk({ role: 'assistant', content: this.loaded.has('tuned') ? 'tuned' : 'base' }));
    exchange.chunk(chatChunk({}, 'stop') + usageChunk({ prompt_tokens: 3, completion_tokens: 1 }) + event('[DONE]'));
    exchange.endChunks();
  }
}

const [sound, lacking] = [new Member(), new Member()];
let service: InnerService;

before(async () => {
  await sound.start('tuned');
  await lacking.start();
  const model = (kind: Kind): string => `  - id: base-${kind}
    context_length: 4096
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    adapters: [ { id: ${kind}, adapter: tuned, lora_id: 1 } ]
    backends:
${[lacking, sound]
  .map(
    ({ upstream: { port } }, index) =>
      `      - { engine: openai, name: s${index}, flavor: ${kind.replace('old-', '')}, url: "http://127.0.0.1:${port}/${kind}/v1", model: base }`,
  )
  .join('\n')}`;
  service = await new InnerService({ config: ['models:', ...kinds.map(model)].join('\n') }).start();
});
after(async () => {
  await service.verify();
  await service.dispose();
  await Promise.all([sound.upstream.close(), lacking.upstream.close()]);
});

async function said(model: string): Promise<string> {
  const response = await service.chat({ model, messages: [{ role: 'user', content: 'hi' }] });
  const text = await response.text();
  assert.equal(response.status, 200, text);
  return (JSON.parse(text) as { choices: { message: { content: string } }[] }).choices[0]!.message.content;
}

for (const kind of kinds)
  test(`${kind}: all are answered by the server that has the adapter`, async () => {
    const before = lacking.asked;
    // Those that say what they have have been asked for it at the start; nothing is sent anywhere before they have answered.
    await until(async () => {
      const response = await service.chat({ model: kind, messages: [{ role: 'user', content: 'hi' }] });
      await response.text();
      return response.status === 200;
    });
    const answers = [];
    for (let turn = 0; turn < 10; turn++) answers.push(...(await Promise.all([said(kind), said(kind)])));
    assert.deepEqual(new Set(answers), new Set(['tuned']));
    const refused = lacking.asked - before;
    if (kind === 'llama-server' || kind === 'sglang') assert.equal(refused, 0);
    // Beside the first, those that were under way at that time.
    if (kind === 'vllm') assert.ok(refused <= 4, `${refused} requests went to the server without the adapter`);
    // The base goes to both.
    for (let turn = 0; turn < 4; turn++) await Promise.all([said(`base-${kind}`), said(`base-${kind}`)]);
  });

test('the log says it once, and the server is used as soon as it has the adapter', async () => {
  const missed = service.log.filter((line) => JSON.stringify(line).includes('"adapter_missing"'));
  assert.deepEqual(missed.map((line) => line['model']).toSorted(), ['llama-server', 'sglang', 'vllm']);
  lacking.loaded.add('tuned');
  for (const kind of ['vllm', 'llama-server']) {
    const before = lacking.asked;
    await until(async () => {
      await Promise.all([said(kind), said(kind)]);
      return lacking.asked > before;
    });
  }
});
