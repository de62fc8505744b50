/** Servers that others use too: what they say of themselves decides where requests go, and is told (docs/decisions/047-what-servers-say.md). */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { InnerService, until } from '../../support/service.ts';
import { chatChunk, event, Upstream, usageChunk, type UpstreamExchange } from '../../support/upstream.ts';

/** What each of them says on `/metrics`, as vLLM does; `undefined`: it has no such page. */
const pages: { shared: string | undefined; own: string | undefined } = { shared: undefined, own: undefined };
const pageOf = (running: number, waiting: number): string =>
  [
    `vllm:num_requests_running{engine="0",model_name="m"} ${running}.0`,
    `vllm:num_requests_waiting{engine="0",model_name="m"} ${waiting}.0`,
    'vllm:cache_config_info{block_size="16",enable_prefix_caching="True",engine="0",num_gpu_blocks="2756"} 1.0',
  ].join('\n');

const serving =
  (name: keyof typeof pages) =>
  (exchange: UpstreamExchange): void => {
    if (exchange.path === '/metrics') {
      const page = pages[name];
      if (page === undefined) return exchange.json(404, {});
      return exchange.write(`HTTP/1.1 200 OK\r\ncontent-length: ${page.length}\r\n\r\n${page}`);
    }
    if (exchange.method === 'GET') return exchange.json(200, { object: 'list', data: [] });
    exchange.events();
    const usage = usageChunk({ prompt_tokens: 3, completion_tokens: 1 });
    exchange.chunk(chatChunk({ content: 'hello' }) + chatChunk({}, 'stop') + usage + event('[DONE]'));
    exchange.endChunks();
  };

let shared: Upstream;
let own: Upstream;
let service: InnerService;

before(async () => {
  shared = await Upstream.start(serving('shared'), { isLookedAt: true });
  own = await Upstream.start(serving('own'), { isLookedAt: true });
  service = await new InnerService({
    config: `models:
  - id: m
    context_length: 4096
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    backends:
      - { engine: openai, name: shared, flavor: vllm, url: "${shared.url}" }
      - { engine: openai, name: own, flavor: vllm, url: "${own.url}" }`,
  }).start();
});
after(async () => {
  await service.verify();
  await service.dispose();
  await Promise.all([shared.close(), own.close()]);
});

let asked = 0;
async function ask(): Promise<void> {
  const response = await service.chat({ model: 'm', messages: [{ role: 'user', content: `hi ${++asked}` }] });
  const text = await response.text();
  assert.equal(response.status, 200, text);
}
const generations = ({ exchanges }: Upstream): number => exchanges.filter(({ method }) => method === 'POST').length;
const questions = ({ exchanges }: Upstream): number => exchanges.filter(({ path }) => path === '/metrics').length;

/** What our own page says of a backend; `undefined`: nothing. */
async function figure(name: string, backend: string): Promise<number | undefined> {
  const text = await (await fetch(`${service.accountUrl}/metrics`)).text();
  const found = new RegExp(`^tokenhouse_backend_${name}\\{.*backend="${backend}".*\\} (\\S+)$`, 'm').exec(text);
  return found === null ? undefined : Number(found[1]);
}

test('a server without such a page is used as before, and not asked again soon', async () => {
  await until(async () => {
    await ask();
    return questions(shared) > 0 && questions(own) > 0;
  });
  for (let count = 0; count < 10; count++) await ask();
  assert.ok(generations(shared) > 0 && generations(own) > 0);
  assert.equal(await figure('foreign_running', 'shared'), undefined);
  assert.deepEqual([questions(shared), questions(own)], [1, 1]);
});

test('requests keep away from a server that others fill, and come back when they have gone', async () => {
  await service.stop();
  pages.shared = pageOf(12, 30);
  pages.own = pageOf(0, 0);
  await service.start();
  await until(async () => {
    await ask();
    // Of the 42 there one may be ours.
    const [there, here] = [await figure('foreign_running', 'shared'), await figure('foreign_running', 'own')];
    return there !== undefined && there >= 41 && here === 0;
  });
  assert.equal(await figure('cache_tokens', 'shared'), 44_096);
  const met = generations(shared);
  for (let count = 0; count < 40; count++) await ask();
  // None, unless the whole process stands still for longer than a report counts.
  const reached = generations(shared) - met;
  assert.ok(reached <= 10, `${reached} of 40 where more waits than in any of these prompts`);
  pages.shared = pageOf(0, 0);
  await until(async () => {
    await ask();
    return generations(shared) > met + 10 && (await figure('foreign_running', 'shared')) === 0;
  });
});
