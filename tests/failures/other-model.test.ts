/**
 * A server that answers 200 with another model than it is used for: whoever started another one there, of two equal backends. What clients see:
 * an answer, always; one of another model only until it is noticed, which is after the first (docs/decisions/031-failing-backends.md).
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { mulberry32 } from '../support/random.ts';
import { InnerService, until } from '../support/service.ts';
import { chatChunk, event, Upstream, usageChunk, type UpstreamExchange } from '../support/upstream.ts';

const requests = 40;
/** Of its answers, how many are of another model; its list says so while there are any. */
let share = 0;
/** The list has ours too, as of a server with several names for one model. */
let isAlias = false;
let random = mulberry32(1);

const list = (exchange: UpstreamExchange, ...models: readonly string[]): void =>
  exchange.json(200, { object: 'list', data: models.map((id) => ({ id, object: 'model' })) });

function say(exchange: UpstreamExchange, model: string): void {
  exchange.events();
  const named = (chunk: string): string => chunk.replaceAll(/"model":"[^"]*"/g, `"model":"${model}"`);
  const usage = usageChunk({ prompt_tokens: 3, completion_tokens: 1 });
  exchange.chunk(named(chatChunk({ role: 'assistant' }) + chatChunk({ content: model }) + chatChunk({}, 'stop')));
  exchange.chunk(named(usage) + event('[DONE]'));
  exchange.endChunks();
}

let changed: Upstream;
let sound: Upstream;
let service: InnerService;

before(async () => {
  changed = await Upstream.start(
    (exchange) => {
      if (exchange.method === 'GET') return list(exchange, ...(share === 0 || isAlias ? ['ours'] : []), 'other');
      say(exchange, random() < share ? 'other' : 'ours');
    },
    { isLookedAt: true },
  );
  sound = await Upstream.start(
    (exchange) => (exchange.method === 'GET' ? list(exchange, 'ours') : say(exchange, 'ours')),
    {
      isLookedAt: true,
    },
  );
  const backend = (name: string, url: string): string =>
    `{ engine: openai, name: ${name}, flavor: openai, url: "${url}", model: ours }`;
  const model = (id: string, ...backends: readonly string[]): string => `  - id: ${id}
    context_length: 4096
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    backends: [${backends.join(', ')}]`;
  const pair = [backend('changed', changed.url), backend('sound', sound.url)];
  service = await new InnerService({
    config: [
      'models:',
      ...['m-1', 'm-10', 'm-100', 'alias'].map((id) => model(id, ...pair)),
      model('sole', pair[0]!),
    ].join('\n'),
  }).start();
});
after(async () => {
  await service.verify();
  await service.dispose();
  await Promise.all([changed.close(), sound.close()]);
});

let asked = 0;
async function ask(model: string): Promise<string> {
  const response = await service.chat({ model, messages: [{ role: 'user', content: `hi ${++asked}` }] });
  const text = await response.text();
  assert.equal(response.status, 200, text);
  return (JSON.parse(text) as { choices: { message: { content: string } }[] }).choices[0]!.message.content;
}
const generations = (): number => changed.exchanges.filter(({ method }) => method === 'POST').length;
const lists = (): number => changed.exchanges.filter(({ method }) => method === 'GET').length;
const noticed = (model: string): number =>
  service.log.filter((line) => {
    const text = JSON.stringify(line);
    return text.includes('"other_model"') && text.includes(`"model":"${model}"`);
  }).length;

/** Until the server's own list was read once while it had our model. */
async function learn(model: string): Promise<void> {
  share = 0;
  const before = lists();
  await until(async () => {
    assert.equal(await ask(model), 'ours');
    return lists() > before;
  });
  // The answer to the list is being read.
  const used = generations();
  await until(async () => {
    assert.equal(await ask(model), 'ours');
    return generations() > used + 2;
  });
}

for (const percent of [1, 10, 100])
  test(`in ${percent} % of its answers: once it is noticed it gets no request, until its list has our model again`, async (t) => {
    const model = `m-${percent}`;
    isAlias = false;
    await learn(model);
    random = mulberry32(percent);
    share = percent / 100;
    const met = generations();
    let wrong = 0;
    let count = 0;
    // One in a hundred is not met by forty requests each time.
    for (; count < requests || (percent > 1 && noticed(model) === 0 && count < 50 * requests); count++)
      wrong += Number((await ask(model)) === 'other');
    t.diagnostic(`${generations() - met} of ${count} there, ${wrong} answers of another model`);
    if (wrong > 0) {
      await until(() => noticed(model) === 1);
      const reached = generations();
      for (let more = 0; more < requests; more++) assert.equal(await ask(model), 'ours');
      assert.equal(generations(), reached);
    }
    share = 0;
    const reached = generations();
    await until(async () => {
      assert.equal(await ask(model), 'ours');
      return generations() > reached;
    });
  });

test('another name for the same model changes nothing, as long as the list has ours', async () => {
  await learn('alias');
  isAlias = true;
  share = 1;
  const before = lists();
  const met = generations();
  await until(async () => {
    await ask('alias');
    return lists() > before;
  });
  await until(async () => {
    await ask('alias');
    return generations() > met + 5;
  });
  assert.equal(noticed('alias'), 0);
  isAlias = false;
});

test('where it is the only one, the model is not there: nobody pays for another', async () => {
  await learn('sole');
  share = 1;
  await ask('sole');
  await until(() => noticed('sole') === 1);
  const response = await service.chat({ model: 'sole', messages: [{ role: 'user', content: 'hi' }] });
  assert.equal(response.status, 503, await response.text());
  share = 0;
  await until(
    async () => (await service.chat({ model: 'sole', messages: [{ role: 'user', content: 'hi' }] })).status === 200,
  );
});
