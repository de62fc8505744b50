/** A cache without salts is used only on a server that is known to have held nothing before us (reliability §3.5). */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { areUnused } from '../../../../src/inference/engines/openai/freshness.ts';
import {
  createOpenAiEngine,
  type OpenAiEngineOptions,
} from '../../../../src/inference/engines/openai/openai-engine.ts';
import type { Engine } from '../../../../src/inference/engines/engine.ts';
import type { EngineRequest } from '../../../../src/generation/request.ts';
import {
  chatChunk,
  event,
  eventually,
  Upstream,
  usageChunk,
  type UpstreamExchange,
} from '../../../support/upstream.ts';
import { all, engineRequest } from '../contract.ts';
import { recordedJson } from './decoding.ts';

type Answer = (exchange: UpstreamExchange) => void;

/** As llama-server of the autumn of 2026 tells them. */
const idle = (id: number): object => ({ id, n_ctx: 1024, speculative: false, is_processing: false });
const used = (id: number): object => ({
  ...idle(id),
  ...{ id_task: 6, n_prompt_tokens: 33, n_prompt_tokens_processed: 0, n_prompt_tokens_cache: 0, params: { seed: 1 } },
  next_token: [{ has_next_token: false, has_new_line: false, n_remain: -1, n_decoded: 0 }],
});
/** As older ones do. */
const oldSlot = (task: number, prompt: string): object => ({
  ...{ id: 0, id_task: task, n_ctx: 512, speculative: false, is_processing: false, non_causal: false, params: {} },
  ...{ prompt, next_token: { has_next_token: true, has_new_line: false, n_remain: -1, n_decoded: 0 } },
});
const fresh: Answer = (exchange) => exchange.json(200, [idle(0), idle(1)]);
const loading: Answer = (exchange) => exchange.json(503, recordedJson('loading-chat.json').body);

describe('slots that have never been used', () => {
  const cases: readonly (readonly [string, unknown, boolean])[] = [
    ['never used', [idle(0), idle(1)], true],
    ['an older server, never used', [oldSlot(-1, '')], true],
    ['one was used', [idle(0), used(1)], false],
    ['one is at work', [idle(0), { ...idle(1), is_processing: true }], false],
    ['the first task has the number 0', [{ ...idle(0), id_task: 0 }], false],
    ['no task is shown, but what it left', [{ ...idle(0), next_token: [] }], false],
    ['an older server, used', [oldSlot(12, 'a prompt')], false],
    ['an older server with a prompt of no task', [oldSlot(-1, 'a prompt')], false],
    ['the oldest form', [{ id: 0, task_id: -1, state: 0, prompt: '' }], false],
    ['no slots', [], false],
    ['no list', { slots: [idle(0)] }, false],
    ['no slot', [null], false],
    ['nothing', undefined, false],
  ];
  for (const [name, slots, expected] of cases) it(name, () => assert.equal(areUnused(slots), expected));
});

describe('the prompt cache of a server without salts', { timeout: 120_000 }, () => {
  it('is used on a fresh one, which is asked once, beside the versioned path and with the key', async () => {
    await withServer(
      fresh,
      async ({ engine, server }) => {
        for (const cacheScope of ['a', 'a', 'b', 'a']) await run(engine, { cacheScope });
        assert.deepEqual(server.cached, [true, true, false, false]);
        const [first, ...others] = server.upstream.exchanges;
        assert.deepEqual([first?.method, first?.path], ['GET', '/slots']);
        assert.equal(first?.headers.get('authorization'), 'Bearer sk-1');
        assert.ok(others.every(({ path }) => path !== '/slots'));
      },
      { apiKey: 'sk-1' },
    );
  });

  const strange: readonly (readonly [string, Answer])[] = [
    ['has been used', (exchange) => exchange.json(200, [idle(0), used(1)])],
    ['has the endpoint off', (exchange) => exchange.json(501, { error: { code: 501, message: '--slots' } })],
    ['has no such endpoint', (exchange) => exchange.json(404, {})],
    ['wants another key for it', (exchange) => exchange.json(401, {})],
    ['says it in an error', (exchange) => exchange.json(500, [idle(0)])],
    ['is unavailable for another reason', (exchange) => exchange.json(503, { error: { message: 'no slot' } })],
    ['answers something else', (exchange) => exchange.write('HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n<html')],
    ['breaks off', (exchange) => exchange.reset()],
    ['never answers', () => {}],
    [
      'never ends its answer',
      (exchange) => {
        exchange.events();
        exchange.chunk('[');
      },
    ],
    [
      'has no end of slots',
      (exchange) => {
        exchange.events();
        for (let i = 0; i < 5; i++) exchange.chunk(' '.repeat(1024 * 1024));
      },
    ],
  ];
  for (const [name, answer] of strange) {
    it(`is never used on one that ${name}`, async () => {
      await withServer(answer, async ({ engine, server }) => {
        for (let i = 0; i < 3; i++) {
          await run(engine);
          server.answerSlots = fresh;
        }
        assert.deepEqual(server.cached, [false, false, false]);
        assert.equal(server.asked, 1);
      });
    });
  }

  it('waits for a server that is loading: it is asked again with the next request', async () => {
    await withServer(loading, async ({ engine, server }) => {
      await run(engine);
      await run(engine);
      server.answerSlots = fresh;
      for (let i = 0; i < 2; i++) await run(engine);
      assert.deepEqual(server.cached, [false, false, true, true]);
      assert.equal(server.asked, 3);
    });
  });

  it('waits for a server that is not there yet', async () => {
    const gone = await Upstream.start(() => {});
    const { port, url } = gone;
    await gone.close();
    const engine = createOpenAiEngine({ name: 'm', url, flavor: 'llama-server' });
    await assert.rejects(run(engine), { code: 'backend_connect_error' });
    const server = await ScriptedServer.start(fresh, port);
    await run(engine);
    assert.deepEqual(server.cached, [true]);
    await engine.close();
    await server.upstream.close();
  });

  it('goes on when the server is started again while we run: what it holds came from us', async () => {
    const before = await ScriptedServer.start(fresh);
    const engine = createOpenAiEngine({ name: 'm', url: before.upstream.url, flavor: 'llama-server' });
    await run(engine);
    const { port } = before.upstream;
    await before.upstream.close();
    const after = await ScriptedServer.start((exchange) => exchange.json(200, [used(0)]), port);
    await run(engine);
    await run(engine, { cacheScope: 'other' });
    assert.deepEqual([before.cached, after.cached, after.asked], [[true], [true, false], 0]);
    await engine.close();
    await after.upstream.close();
  });

  it('is asked about once for all first requests; who leaves leaves at once and ends nothing for the others', async () => {
    const waiting: UpstreamExchange[] = [];
    await withServer(
      (exchange) => waiting.push(exchange),
      async ({ engine, server }) => {
        const abort = new AbortController();
        const aborted = all(engine, request(), abort.signal);
        const others = [run(engine), run(engine)];
        await eventually('it is asked', () => waiting.length === 1, 30_000);

        const reason = new Error('enough');
        abort.abort(reason);
        await assert.rejects(aborted, (error) => error === reason);
        assert.deepEqual([server.cached, waiting.length], [[], 1]);

        fresh(waiting[0]!);
        await Promise.all(others);
        assert.deepEqual([server.cached, waiting.length], [[true, true], 1]);
      },
    );
  });

  it('is switched off by a second account that waits for the same answer', async () => {
    const waiting: UpstreamExchange[] = [];
    await withServer(
      (exchange) => waiting.push(exchange),
      async ({ engine, server }) => {
        const both = [run(engine, { cacheScope: 'a' }), run(engine, { cacheScope: 'b' })];
        await eventually('it is asked', () => waiting.length === 1, 30_000);
        fresh(waiting[0]!);
        await Promise.all(both);
        assert.equal(server.cached.filter((may) => may).length, 1);
        await run(engine, { cacheScope: 'a' });
        assert.equal(server.cached.at(-1), false);
      },
    );
  });

  it('is not asked about when it may not be used, or when a request is refused here', async () => {
    await withServer(fresh, async ({ engine, server }) => {
      await run(engine, { retain: false });
      await run(engine);
      assert.deepEqual([server.cached, server.asked], [[false, false], 0]);
    });
    for (const flavor of ['vllm', 'sglang', 'openai'] as const) {
      await withServer(
        fresh,
        async ({ engine, server }) => {
          await run(engine);
          assert.deepEqual([server.cached, server.asked], [[undefined], 0]);
        },
        { flavor },
      );
    }
    await withServer(fresh, async ({ engine, server }) => {
      await engine.close();
      await assert.rejects(run(engine), { code: 'no_healthy_backends' });
      assert.equal(server.asked, 0);
    });
  });

  it('does not outlive a close', async () => {
    await withServer(
      () => {},
      async ({ engine, server }) => {
        const running = run(engine);
        const refused = assert.rejects(running, { code: 'no_healthy_backends' });
        await eventually('it is asked', () => server.asked === 1, 30_000);
        await engine.close();
        await refused;
        assert.deepEqual(server.cached, []);
      },
    );
  });
});

class ScriptedServer {
  /** `cache_prompt` of each generation. */
  readonly cached: unknown[] = [];
  asked = 0;
  answerSlots: Answer;
  #upstream: Upstream | undefined;

  private constructor(answerSlots: Answer) {
    this.answerSlots = answerSlots;
  }

  static async start(answerSlots: Answer, port = 0): Promise<ScriptedServer> {
    const server = new ScriptedServer(answerSlots);
    server.#upstream = await Upstream.start((exchange) => server.#answer(exchange), { port });
    return server;
  }

  get upstream(): Upstream {
    assert.ok(this.#upstream);
    return this.#upstream;
  }

  #answer(exchange: UpstreamExchange): void {
    if (exchange.path === '/slots') {
      this.asked++;
      return this.answerSlots(exchange);
    }
    this.cached.push((JSON.parse(exchange.body) as Record<string, unknown>)['cache_prompt']);
    exchange.events();
    const usage = usageChunk({ prompt_tokens: 1, completion_tokens: 1 });
    exchange.chunk(chatChunk({ content: 'x' }, 'stop') + usage + event('[DONE]'));
    exchange.endChunks();
  }
}

async function withServer(
  answerSlots: Answer,
  act: (stack: { readonly engine: Engine; readonly server: ScriptedServer }) => Promise<void>,
  options: Partial<OpenAiEngineOptions> = {},
): Promise<void> {
  const server = await ScriptedServer.start(answerSlots);
  const engine = createOpenAiEngine({ name: 'm', url: server.upstream.url, flavor: 'llama-server', ...options });
  try {
    await act({ engine, server });
  } finally {
    await engine.close();
    await server.upstream.close();
  }
}

function request(more: Partial<EngineRequest> = {}): EngineRequest {
  return engineRequest('x', more);
}

function run(engine: Engine, more: Partial<EngineRequest> = {}): Promise<unknown> {
  return all(engine, request(more), new AbortController().signal);
}
