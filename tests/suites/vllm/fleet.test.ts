/**
 * Two real vLLMs behind one model: how they share the load, what of their prompt caches is used, and what clients notice of one that is
 * frozen or killed (docs/decisions/030-least-expected-first-token.md, 031-failing-backends.md). Figures are vLLM's own counters.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { slowness } from '../../support/busy.ts';
import {
  ask,
  comebackOf,
  converse,
  inParallel,
  askOften,
  median,
  patienceMs,
  words,
} from '../../support/fleet-load.ts';
import type { Seen } from '../../support/fleet-load.ts';
import { mulberry32 } from '../../support/random.ts';
import { TestService, until } from '../../support/service.ts';
import { TestLedger } from '../../support/test-ledger.ts';
import { contextLength, VllmServer } from './vllm-server.ts';

const servers: VllmServer[] = [];
let service: TestService | undefined;
before(async () => {
  // One after the other: each imports for a minute on all processors.
  for (let count = 0; count < 2; count++) servers.push(await VllmServer.start('model'));
  const model = (id: string, backends: readonly string[]): string => `  - id: ${id}
    context_length: ${contextLength}
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    backends:
${backends.map((backend) => `      - ${backend}`).join('\n')}`;
  const named = servers.map((server, index) => server.backendNamed(`server-${index + 1}`));
  service = new TestService({
    // A prompt of 500 tokens among three takes seconds on a processor that four servers and clients share.
    limits: `  first_token_timeout_seconds: ${Math.ceil(20 * slowness)}`,
    config: `models:\n${model('real', named)}\n${model('alone', named.slice(0, 1))}`,
  });
  await service.start();
});
after(async () => {
  try {
    await service?.verify();
  } finally {
    await service?.dispose();
    await Promise.all(servers.map((server) => server.stop()));
  }
});

const question = (text: string): object => ({ role: 'user', content: text });
const asked = (prompt: string): Promise<Seen> => ask(service!, [question(prompt)]);
const metrics = (name: string): Promise<readonly number[]> => Promise.all(servers.map((server) => server.metric(name)));
/** What each of them has counted since. */
const since = async (name: string, before: readonly number[]): Promise<readonly number[]> =>
  (await metrics(name)).map((value, index) => value - before[index]!);
const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0);

test('requests that have nothing in common are shared within a tenth', async (t) => {
  const random = mulberry32(1);
  const before = await metrics('vllm:prompt_tokens_total');
  // Rounds, each of which finds both idle: whoever asks again at once gives more to the server that has the processor more often.
  for (let round = 0; round < 12; round++) {
    const prompts = Array.from({ length: 6 }, () => words(random, 600 + 400 * random()));
    for (const { isWhole, text } of await Promise.all(prompts.map(asked))) assert.ok(isWhole, text);
  }
  const read = await since('vllm:prompt_tokens_total', before);
  t.diagnostic(`prompt tokens of each: ${read.join(', ')}`);
  for (const tokens of read) assert.ok(Math.abs(tokens - sum(read) / 2) <= sum(read) / 20, read.join(', '));
});

test('nine tenths of the prompts that one server would have in its cache are found in the caches of two', async (t) => {
  /** The part of all prompt tokens that was cached. */
  const reuse = async (model: string, seed: number): Promise<number> => {
    const [queries, hits] = [
      await metrics('vllm:prefix_cache_queries_total'),
      await metrics('vllm:prefix_cache_hits_total'),
    ];
    const shape = { conversations: 6, turns: 6, beginCharacters: 1_200, turnCharacters: 100, question };
    const promptTokens = await converse(mulberry32(seed), shape, async (messages) => {
      const seen = await ask(service!, messages, model);
      assert.ok(seen.isWhole, seen.text);
      return seen;
    });
    const looked = await since('vllm:prefix_cache_queries_total', queries);
    assert.equal(sum(looked), promptTokens, 'it looks for every token that clients were told of');
    if (model === 'real') assert.ok(Math.min(...looked) > promptTokens / 4, `both have work: ${looked.join(', ')}`);
    return sum(await since('vllm:prefix_cache_hits_total', hits)) / promptTokens;
  };
  const one = await reuse('alone', 2);
  const two = await reuse('real', 3);
  t.diagnostic(`reused: ${(100 * one).toFixed(1)} % by one server, ${(100 * two).toFixed(1)} % by two`);
  assert.ok(one > 0.5, `${one}: one server reuses prompts`);
  assert.ok(two >= 0.9 * one, `${two} of ${one}`);
});

interface Outage {
  readonly gone: (server: VllmServer) => Promise<void> | void;
  /** Whether it has lasted for long enough. */
  readonly isNoticed: () => boolean;
  /** Resolves when a server answers again at that address: the same or a new one. */
  readonly back: (server: VllmServer) => Promise<VllmServer>;
}

/** What the log says last about the first server: that it is left out, or taken back. */
const latestOfFirst = (): unknown =>
  service!.log.findLast(
    (line) => /^backend_(ejected|returned)$/.test(String(line['event'])) && /server-1/.test(JSON.stringify(line)),
  )?.['event'];

const outages: Readonly<Record<string, Outage>> = {
  frozen: {
    gone: (server) => server.signal('SIGSTOP'),
    isNoticed: () => latestOfFirst() === 'backend_ejected',
    back: async (server) => {
      server.signal('SIGCONT');
      await server.answers();
      return server;
    },
  },
  // A new process, whose first answer takes seconds more than all others.
  killed: {
    gone: (server) => server.kill(),
    isNoticed: () => true,
    back: (server) => VllmServer.start('model', [], server.port),
  },
};

const clients = 4;
for (const [name, { gone, isNoticed, back }] of Object.entries(outages))
  test(`one of two that is ${name} under load fails no answer that has not begun, and gets its share again when it is back`, async (t) => {
    const [victim] = servers as [VllmServer];
    const random = mulberry32(4);
    const seen: Seen[] = [];
    let isOver = false;
    let backAt = 0;
    const comeback = () => comebackOf(new TestLedger(service!), 'server-1', backAt, 1_000 * slowness);
    const load = inParallel(clients, () =>
      isOver ? undefined : asked(words(random, 600)).then((one) => seen.push(one)),
    );
    try {
      const answered = (more: number): Promise<void> => {
        const before = seen.length;
        return until(() => seen.length >= before + more, patienceMs);
      };
      await answered(10);
      await until(async () => (await victim.metric('vllm:num_requests_running')) > 0, patienceMs);
      await gone(victim);
      await answered(20);
      await until(isNoticed, patienceMs);
      const usualMs = median(seen.slice(-20).map(({ elapsedMs }) => elapsedMs));
      const server = await back(victim);
      servers[0] = server;
      backAt = Date.now();
      seen.push(...(await askOften(() => asked(words(random, 20)))));
      await until(async () => (await comeback()).answeredMs < Infinity, patienceMs);
      const finished = await server.metric('vllm:request_success_total');
      await answered(30);
      const share = (await server.metric('vllm:request_success_total')) - finished;
      t.diagnostic(`an answer took ${Math.round(usualMs)} ms meanwhile; ${share} of 30 after its first were its own`);
      assert.ok(share >= 5, `${share} of 30 are its`);
    } finally {
      isOver = true;
      await load;
    }
    const { chosenMs, answeredMs, passedOver } = await comeback();
    t.diagnostic(`it was chosen ${chosenMs} ms after it was back, and had answered ${answeredMs} ms after it`);
    assert.equal(passedOver, 0, 'of the requests from a second after its return until it was used');
    const failed = seen.filter(({ isWhole }) => !isWhole);
    t.diagnostic(`${seen.length} answers, ${failed.length} of them cut after their first text`);
    for (const { hasBegun, text } of failed) assert.ok(hasBegun, text);
    assert.ok(failed.length <= clients, 'no more than it was answering');
  });
