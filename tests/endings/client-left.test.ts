/** A client that leaves, in every phase of a request, by FIN and by RST, streamed and whole (reliability C4, I7). */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { slowness } from '../support/busy.ts';
import { TestLedger } from '../support/test-ledger.ts';
import { RawClient, chatBytes, newRequestId } from '../support/raw-client.ts';
import { until } from '../support/service.ts';
import { Upstream, chatChunk } from '../support/upstream.ts';
import type { UpstreamExchange } from '../support/upstream.ts';
import {
  ask,
  assertNothingLeft,
  cost,
  endingsService,
  inputPrice,
  outputPrice,
  promptTokensOf,
  send,
  verifyAndDispose,
} from './endings-service.ts';

/** What the test's backend does with the next request, after it has arrived. */
let play: (exchange: UpstreamExchange) => void = () => {};
const upstream = await Upstream.start((exchange) => {
  if (exchange.path.endsWith('/tokenize')) exchange.json(200, { count: 11, max_model_len: 16_384, tokens: [] });
  else play(exchange);
});
const service = endingsService({
  models: `
- id: remote
  context_length: 16384
  pricing: { input_cents_per_million: ${inputPrice}, output_cents_per_million: ${outputPrice} }
  backends: [ { engine: openai, flavor: vllm, url: "${upstream.url}" } ]
- id: bundling
  context_length: 16384
  pricing: { input_cents_per_million: ${inputPrice}, output_cents_per_million: ${outputPrice} }
  backends: [ { engine: openai, flavor: openai, url: "${upstream.url}" } ]
`,
});
before(() => service.start());
after(() => verifyAndDispose(service).finally(() => upstream.close()));

const leave = {
  FIN: (client: RawClient) => client.close(),
  RST: (client: RawClient) => client.reset(),
} as const;

/** Ten times what is promised (reliability I7), because these tests share their machine. */
const abortWithinMs = 1_000;

for (const by of ['FIN', 'RST'] as const) {
  for (const [phase, part] of [
    ['in the headers', (bytes: string) => bytes.slice(0, 60)],
    ['between headers and body', (bytes: string) => bytes.slice(0, bytes.indexOf('\r\n\r\n') + 4)],
    ['in the body', (bytes: string) => bytes.slice(0, -10)],
  ] as const) {
    test(`left ${phase} by ${by}: no row, nothing charged`, async () => {
      const ledger = new TestLedger(service);
      const balance = await ledger.balance();
      const id = newRequestId();
      const client = await RawClient.connect(service.url);
      client.send(part(chatBytes(service.key, id, ask('three words'))));
      leave[by](client);
      await client.closed;
      // Whatever came before on this service has been worked off when this answer is there.
      await assertNothingLeftButProofs(ledger, balance);
      assert.deepEqual(await ledger.rows(id), []);
    });
  }

  for (const stream of [false, true]) {
    const how = `${stream ? 'streamed' : 'whole'}, by ${by}`;

    test(`left before the prompt's length was known, ${how}: pays the counted input, and the backend is let go`, async () => {
      const ledger = new TestLedger(service);
      const balance = await ledger.balance();
      let seen: UpstreamExchange | undefined;
      play = (exchange) => (seen = exchange);
      const { client, id } = await send(service, ask('three words', { model: 'remote', stream }));
      await until(() => seen !== undefined);
      leave[by](client);
      await within(abortWithinMs, seen!.closed);
      const row = await ledger.row(id);
      assert.deepEqual(
        [row.ending, row.errorCode, row.promptTokens, row.completionTokens, row.counted, row.costMicrocents],
        ['client_left', null, 11, 0, true, cost(11, 0)],
      );
      assert.equal(await ledger.balance(), balance - row.costMicrocents);
      await assertNothingLeft(service);
    });

    test(`left in mid-answer, ${how}: pays the input and what was produced, and the backend is let go`, async () => {
      const ledger = new TestLedger(service);
      const balance = await ledger.balance();
      let seen: UpstreamExchange | undefined;
      play = (exchange) => {
        exchange.events();
        exchange.chunk(
          chatChunk({ role: 'assistant', content: '' }, null, {
            usage: { prompt_tokens: 7, completion_tokens: 0, total_tokens: 7 },
          }),
        );
        for (let token = 1; token <= 5; token++) {
          exchange.chunk(
            chatChunk({ content: 'word ' }, null, {
              usage: { prompt_tokens: 7, completion_tokens: token, total_tokens: 7 + token },
            }),
          );
        }
        seen = exchange;
      };
      const { client, id } = await send(service, ask('three words', { model: 'remote', stream }));
      await until(() => seen !== undefined);
      await untilRead();
      if (stream) await until(() => client.events.length >= 6);
      leave[by](client);
      await within(abortWithinMs, seen!.closed);
      const row = await ledger.row(id);
      assert.deepEqual(
        [row.ending, row.promptTokens, row.completionTokens, row.costMicrocents],
        ['client_left', 7, 5, cost(7, 5)],
      );
      assert.equal(await ledger.balance(), balance - row.costMicrocents);
      await assertNothingLeft(service);
    });

    test(`left before a backend that bundles tokens reports them, ${how}: pays by the length of what was written`, async () => {
      const ledger = new TestLedger(service);
      const balance = await ledger.balance();
      let seen: UpstreamExchange | undefined;
      play = (exchange) => {
        exchange.events();
        exchange.chunk(chatChunk({ role: 'assistant', content: '' }));
        for (let chunk = 0; chunk < 10; chunk++) exchange.chunk(chatChunk({ content: 'word '.repeat(20) }));
        exchange.chunk(chatChunk({ reasoning_content: 'hm '.repeat(20) }));
        seen = exchange;
      };
      const { client, id } = await send(service, ask('three words', { model: 'bundling', stream }));
      await until(() => seen !== undefined);
      await untilRead();
      if (stream) await until(() => client.events.length >= 12);
      leave[by](client);
      await within(abortWithinMs, seen!.closed);
      const row = await ledger.row(id);
      assert.deepEqual([row.ending, row.completionTokens, row.counted], ['client_left', 220, true]);
      assert.equal(await ledger.balance(), balance - cost(row.promptTokens, 220));
      await assertNothingLeft(service);
    });

    test(`left while the backend keeps writing, ${how}: it is cut off`, async () => {
      const ledger = new TestLedger(service);
      let seen: UpstreamExchange | undefined;
      play = (exchange) => {
        exchange.events();
        exchange.chunk(chatChunk({ role: 'assistant', content: '' }));
        // Goes on writing whatever happens to the connection.
        const writing = setInterval(() => exchange.chunk(chatChunk({ content: 'word ' })), 2);
        void exchange.closed.then(() => clearInterval(writing));
        seen = exchange;
      };
      const { client, id } = await send(service, ask('three words', { model: 'remote', stream }));
      await until(() => seen !== undefined);
      await untilRead();
      leave[by](client);
      await within(abortWithinMs, seen!.closed);
      assert.equal((await ledger.row(id)).ending, 'client_left');
      await assertNothingLeft(service);
    });

    test(`left before the first token of a scripted model, ${how}: pays the counted input`, async () => {
      const ledger = new TestLedger(service);
      const { client, id } = await send(service, ask('silence', { stream }));
      // The request runs for as long as it stands in the list of what a crash would leave.
      await until(async () => (await ledger.openRequests()) === 1);
      leave[by](client);
      const row = await ledger.row(id);
      assert.deepEqual(
        [row.ending, row.promptTokens, row.completionTokens, row.counted],
        ['client_left', promptTokensOf('silence'), 0, true],
      );
      assert.equal(row.costMicrocents, cost(promptTokensOf('silence'), 0));
      await assertNothingLeft(service);
    });

    test(`left with the answer complete, ${how}: pays what was shown`, async () => {
      const ledger = new TestLedger(service);
      const { client, id } = await send(service, ask('three words', { stream }));
      await until(() => (stream ? client.events.at(-1) === '[DONE]' : client.text.endsWith('}')));
      leave[by](client);
      const row = await ledger.row(id);
      assert.deepEqual(
        [row.ending, row.completionTokens, row.costMicrocents],
        ['finished', 3, cost(promptTokensOf('three words'), 3)],
      );
      await assertNothingLeft(service);
    });
  }

  test(`left around the last bytes, by ${by}: finished, or left, and never more than the price, once`, async () => {
    const ledger = new TestLedger(service);
    const price = cost(promptTokensOf('three words'), 3);
    // The kernel decides how far each of them gets: before the settlement, in it, between the usage and [DONE], after it.
    const marks = ['', 'HTTP/1.1 200', '"finish_reason":"stop"', '"usage":{'];
    for (let round = 0; round < 40; round++) {
      const balance = await ledger.balance();
      const mark = marks[round % marks.length]!;
      const { client, id } = await send(service, ask('three words', { stream: round % 8 < 4 }));
      await until(() => client.text.includes(mark));
      leave[by](client);
      const row = await ledger.row(id);
      // What comes with or after the finish is only sent once the charge is on disk.
      if (mark.startsWith('"')) assert.equal(row.ending, 'finished');
      if (row.ending === 'finished') assert.equal(row.costMicrocents, price);
      else assert.equal(row.ending, 'client_left');
      assert.ok(row.costMicrocents <= price);
      assert.equal(await ledger.balance(), balance - row.costMicrocents);
    }
    await assertNothingLeft(service);
  });
}

/**
 * The service has read everything that its backends had written before this call: its event loop sees older bytes no later
 * than the newer ones of these two requests.
 */
async function untilRead(): Promise<void> {
  for (let round = 0; round < 2; round++) await (await fetch(`${service.url}/healthz`)).text();
}

async function within(limitMs: number, promise: Promise<unknown>): Promise<void> {
  const from = performance.now();
  await promise;
  const tookMs = performance.now() - from;
  assert.ok(tookMs < limitMs * slowness, `took ${Math.round(tookMs)} ms`);
}

async function assertNothingLeftButProofs(ledger: TestLedger, balance: bigint): Promise<void> {
  assert.equal(await ledger.balance(), balance);
  await assertNothingLeft(service);
}
