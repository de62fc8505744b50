/** A real llama-server behind the whole service: what clients see, what they pay, and how every ending leaves the server. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';

import { askRunningService } from '../../../src/app/control/control-client.ts';
import { controlSocketPath } from '../../../src/app/control/socket-path.ts';
import { BatchClient, chatLine, isOver, type LineUsage } from '../../support/batch-client.ts';
import { assertEachLineOnce } from '../../support/batch-money.ts';
import { TestLedger } from '../../support/test-ledger.ts';
import { RawClient, chatBytes, newRequestId } from '../../support/raw-client.ts';
import { TestService, until } from '../../support/service.ts';
import {
  LlamaServer,
  TinyModels,
  briefText,
  defaultModelFile,
  scriptedTiny,
  stopServer,
  type LlamaServerOptions,
} from './llama-server.ts';

/** Microcents of a token: cents for a million tokens. A cached token costs half. */
const price = { input: 5_000n, cached: 2_500n, output: 20_000n };
const slots = 2;
const models = new TinyModels();
after(() => models.dispose());

interface Stack {
  readonly server: LlamaServer;
  readonly service: TestService;
  readonly ledger: TestLedger;
}

interface StackOptions {
  readonly server?: Partial<LlamaServerOptions>;
  readonly contextLength?: number;
  readonly backend?: string;
  readonly limits?: string;
}

async function startStack(modelFile: string, options: StackOptions = {}): Promise<Stack> {
  const server = await LlamaServer.start({ modelFile, slots, ...options.server });
  const service = await serviceOn(server, options).start();
  return { server, service, ledger: new TestLedger(service) };
}

function serviceOn(server: LlamaServer, { contextLength = 2048, backend = '', limits }: StackOptions): TestService {
  return new TestService({
    ...(limits === undefined ? {} : { limits }),
    config: `models:
  - id: real
    context_length: ${contextLength}
    pricing: { input_cents_per_million: ${price.input}, output_cents_per_million: ${price.output}, cache_read_cents_per_million: ${price.cached} }
    backends: [ { engine: openai, flavor: llama-server, url: "${server.url}"${backend} } ]`,
  });
}

async function stopStack(stack: Stack | undefined): Promise<void> {
  if (stack === undefined) return;
  try {
    await stack.ledger.verify({ owned: true });
    await stack.service.verify();
  } finally {
    await stack.service.dispose();
    await stopServer(stack.server);
  }
}

interface ShownUsage extends LineUsage {
  readonly total_tokens: number;
}

const ask = (text: string, more: Readonly<Record<string, unknown>> = {}): Record<string, unknown> => ({
  model: 'real',
  messages: [{ role: 'user', content: text }],
  temperature: 0,
  ...more,
});

/** For the default model: the system text that its template adds by itself makes its answers worse. */
const askPolitely = (text: string, more: Readonly<Record<string, unknown>> = {}): Record<string, unknown> => {
  const system = { role: 'system', content: 'You are a helpful assistant.' };
  return ask('', { messages: [system, { role: 'user', content: text }], ...more });
};

/** A funded account beside the first one; answers its key. */
async function secondAccount(service: TestService): Promise<string> {
  const path = controlSocketPath(join(service.folder, 'data'));
  const account = await askRunningService(path, { kind: 'create_account', name: 'other' });
  assert.ok(account !== undefined);
  const { accountId } = account;
  const key = await askRunningService(path, { kind: 'create_key', accountId, name: 'other', expiresAt: undefined });
  assert.ok(key !== undefined);
  const { code, stderr } = await service.command('credits', 'grant', '--cents', '100', '--account', accountId);
  assert.equal(code, 0, stderr);
  return key.key;
}

/** The envelope's inner object. */
const errorOf = (json: string): Readonly<Record<string, unknown>> =>
  (JSON.parse(json) as { error: Readonly<Record<string, unknown>> }).error;

const costOf = (usage: LineUsage): bigint => {
  const cached = BigInt(usage.prompt_tokens_details?.cached_tokens ?? 0);
  return (
    (BigInt(usage.prompt_tokens) - cached) * price.input +
    cached * price.cached +
    BigInt(usage.completion_tokens) * price.output
  );
};

interface Chunk {
  readonly choices: readonly { readonly delta: { readonly content?: string }; readonly finish_reason: string | null }[];
  readonly usage?: ShownUsage | null;
}

/** One answer, streamed or whole, in the same shape. */
async function exchange(stack: Stack, body: Record<string, unknown>, stream: boolean, key = stack.service.key) {
  const id = newRequestId();
  const init = { key, headers: { 'x-request-id': id } };
  const more = stream ? { stream, stream_options: { include_usage: true } } : {};
  const response = await stack.service.chat({ ...body, ...more }, init);
  const received = await response.text();
  assert.equal(response.status, 200, received);
  if (!stream) {
    const whole = JSON.parse(received) as {
      choices: { message: { content: string }; finish_reason: string }[];
      usage: ShownUsage;
    };
    return { id, text: whole.choices[0]?.message.content, finish: whole.choices[0]?.finish_reason, usage: whole.usage };
  }
  const events = [...received.matchAll(/^data: (.*)$/gm)].map(([, data = '']) => data);
  assert.equal(events.at(-1), '[DONE]');
  const chunks = events.slice(0, -1).map((data) => JSON.parse(data) as Chunk);
  const choices = chunks.flatMap((chunk) => chunk.choices);
  const usage = chunks.find((chunk) => chunk.usage)?.usage;
  assert.ok(usage, received);
  return {
    id,
    text: choices.map(({ delta }) => delta.content ?? '').join(''),
    finish: choices.findLast((choice) => choice.finish_reason !== null)?.finish_reason,
    usage,
  };
}

describe('on the default model', () => {
  let stack: Stack;
  before(async () => {
    stack = await startStack(defaultModelFile());
  });
  after(() => stopStack(stack));

  for (const stream of [false, true]) {
    test(`${stream ? 'a streamed' : 'a whole'} answer: text, usage, price, one row (I4, I5)`, async () => {
      const balance = await stack.ledger.balance();
      const answer = await exchange(stack, askPolitely('What is the capital of France?', { max_tokens: 24 }), stream);
      assert.match(answer.text ?? '', /Paris/);
      assert.equal(answer.finish, 'stop');
      const row = await stack.ledger.row(answer.id);
      const { usage } = answer;
      assert.equal(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens);
      assert.deepEqual(
        [row.promptTokens, row.cachedTokens, row.completionTokens, row.ending, row.counted],
        [
          usage.prompt_tokens,
          usage.prompt_tokens_details?.cached_tokens ?? 0,
          usage.completion_tokens,
          'finished',
          false,
        ],
      );
      assert.equal(row.costMicrocents, costOf(usage));
      assert.equal(await stack.ledger.balance(), balance - row.costMicrocents);
    });
  }

  test('streamed and whole say the same with the same usage', async () => {
    const body = askPolitely('Name three colours.', { max_tokens: 32, seed: 1 });
    const [whole, streamed] = [await exchange(stack, body, false), await exchange(stack, body, true)];
    assert.deepEqual([streamed.text, streamed.finish], [whole.text, whole.finish]);
    assert.equal(streamed.usage.completion_tokens, whole.usage.completion_tokens);
    assert.equal(streamed.usage.prompt_tokens, whole.usage.prompt_tokens);
  });

  test('length and stop strings', async () => {
    const cut = await exchange(stack, askPolitely('Tell me a long story.', { max_tokens: 5 }), false);
    assert.deepEqual([cut.finish, cut.usage.completion_tokens], ['length', 5]);
    const stopped = await exchange(stack, askPolitely('What is the capital of France?', { stop: ['Paris'] }), true);
    assert.equal(stopped.finish, 'stop');
    assert.ok(!stopped.text?.includes('Paris'));
  });

  test('a prompt beyond the window is counted by the server and refused before it costs anything', async () => {
    const balance = await stack.ledger.balance();
    const response = await stack.service.chat(askPolitely('word '.repeat(3000)));
    assert.equal(response.status, 400);
    const error = errorOf(await response.text());
    assert.equal(error['code'], 'context_length_exceeded');
    assert.equal(error['context_length_limit'], 2048);
    assert.ok(Array.isArray(error['suggested_models']));
    assert.equal(await stack.ledger.balance(), balance);
  });

  test('one account meets its own cached prompt', async () => {
    const long = `Remember these words: ${'one two three four five six seven eight nine ten '.repeat(10)}`;
    const first = await exchange(stack, askPolitely(long, { max_tokens: 2 }), false);
    const again = await exchange(stack, askPolitely(long, { max_tokens: 2 }), true);
    const cached = again.usage.prompt_tokens_details?.cached_tokens ?? 0;
    assert.ok(cached > first.usage.prompt_tokens / 2, JSON.stringify(again.usage));
    assert.equal((await stack.ledger.row(again.id)).costMicrocents, costOf(again.usage));
  });

  test('and no other account does, from then on nobody (reliability §3.5)', async () => {
    const secret = `The password of the day is long: ${'alpha beta gamma delta epsilon zeta eta theta '.repeat(10)}`;
    await exchange(stack, askPolitely(secret, { max_tokens: 2 }), false);
    const key = await secondAccount(stack.service);
    const other = await exchange(stack, askPolitely(secret, { max_tokens: 2 }), true, key);
    assert.equal(other.usage.prompt_tokens_details?.cached_tokens ?? 0, 0);
    const own = await exchange(stack, askPolitely(secret, { max_tokens: 2 }), false);
    assert.equal(own.usage.prompt_tokens_details?.cached_tokens ?? 0, 0);
  });
});

describe('a server that runs on while the service is started again (reliability §3.5)', () => {
  const long = `The password of the day is long: ${'alpha beta gamma delta epsilon zeta eta theta '.repeat(10)}`;
  const modelFile = models.write('again', scriptedTiny);
  const cachedOf = async (stack: Stack, key?: string): Promise<number> => {
    const { usage } = await exchange(stack, ask(long, { max_tokens: 2 }), true, key);
    return usage.prompt_tokens_details?.cached_tokens ?? 0;
  };

  test('no account meets what is left in the slots, not even its own', async () => {
    const stack = await startStack(modelFile);
    try {
      const key = await secondAccount(stack.service);
      assert.equal(await cachedOf(stack), 0);
      assert.ok((await cachedOf(stack)) > 0, 'on a fresh server an account meets its own prompt');
      assert.equal(await stack.service.stop(), 0);
      await stack.service.start();
      for (const each of [key, stack.service.key, key]) assert.equal(await cachedOf(stack, each), 0);
    } finally {
      await stopStack(stack);
    }
  });

  test('one that was started again with it caches again', async () => {
    const first = await startStack(modelFile);
    let server: LlamaServer | undefined;
    try {
      assert.equal(await cachedOf(first), 0);
      assert.equal(await first.service.stop(), 0);
      const port = Number(new URL(first.server.origin).port);
      await stopServer(first.server);
      server = await LlamaServer.start({ modelFile, slots, port });
      await first.service.start();
      assert.equal(await cachedOf(first), 0);
      assert.ok((await cachedOf(first)) > 0);
    } finally {
      await stopStack(first);
      await stopServer(server);
    }
  });

  test('one without /slots is never let cache', async () => {
    const stack = await startStack(modelFile, { server: { arguments: ['--no-slots'] } });
    try {
      for (let i = 0; i < 2; i++) assert.equal(await cachedOf(stack), 0);
    } finally {
      await stopStack(stack);
    }
  });
});

test('a batch, and three kills of the service while the server works on it: each line is there and charged once', async (t) => {
  const stack = await startStack(defaultModelFile(), { backend: ', max_concurrency: 2' });
  t.after(() => stopStack(stack));
  const { service, ledger, server } = stack;
  const credit = await ledger.balance();
  const client = new BatchClient(service);
  const customIds = Array.from({ length: 12 }, (_, index) => `line-${index}`);
  const lines = customIds.map((id, index) =>
    chatLine(id, `Count from ${index} on, in words.`, { model: 'real', temperature: 0, max_tokens: 8 }),
  );
  const { id } = await client.of(lines);
  for (let done = 0; done < 9; done += 3) {
    await client.when(id, ({ request_counts: counts }) => counts.completed >= done);
    await until(async () => (await server.working()) > 0);
    await service.stop('SIGKILL');
    await service.start();
    await ledger.verify({ owned: true });
  }
  const batch = await client.when(id, isOver, 60_000);
  await assertEachLineOnce(batch, customIds, { client, ledger, credit, costOf: (usage) => costOf(usage) / 2n });
});

describe('on a tiny model that does not end', () => {
  let stack: Stack;
  before(async () => {
    const server = { contextLength: 65_536 };
    stack = await startStack(models.write('endings', scriptedTiny), { server, contextLength: 65_536 });
  });
  after(() => stopStack(stack));

  /** Ten times what is promised (I7), and room for a machine that does other things as well. */
  const freeWithinMs = 5_000;

  for (const stream of [true, false]) {
    for (const by of ['FIN', 'RST'] as const) {
      test(`a client leaves ${stream ? 'a stream' : 'a whole answer'} by ${by}: the slot is free and what was made is paid`, async () => {
        const id = newRequestId();
        const client = await RawClient.connect(stack.service.url);
        client.send(chatBytes(stack.service.key, id, ask('<endless>', { stream, max_tokens: 60_000 })));
        await until(async () => (await stack.server.working()) === 1, 30_000);
        if (stream) await until(() => client.text.includes(' further'), 30_000);
        if (by === 'FIN') client.close();
        else client.reset();
        // A whole answer that nobody waits for would otherwise be written to its end: llama-server does not notice.
        await until(async () => (await stack.server.working()) === 0, freeWithinMs);
        const row = await stack.ledger.row(id, 30_000);
        assert.equal(row.ending, 'client_left');
        assert.equal(
          row.costMicrocents,
          BigInt(row.promptTokens) * price.input + BigInt(row.completionTokens) * price.output,
        );
        assert.ok(!stream || row.completionTokens > 0);
      });
    }
  }

  test('more requests than slots: the others wait there, and all are answered', async () => {
    const texts = await Promise.all(
      Array.from({ length: 4 * slots }, async (_, i) => (await exchange(stack, ask('<brief>'), i % 2 === 0)).text),
    );
    assert.deepEqual(texts, Array<string>(4 * slots).fill(briefText));
    await until(async () => (await stack.server.working()) === 0, freeWithinMs);
  });
});

describe('a server that is given no more than it has slots for', () => {
  let stack: Stack;
  before(async () => {
    stack = await startStack(models.write('bounded', scriptedTiny), {
      server: { contextLength: 65_536 },
      contextLength: 65_536,
      backend: `, max_concurrency: ${slots}, queue: 0`,
    });
  });
  after(() => stopStack(stack));

  test('is never asked for more at once; the rest is 429 at once and costs nothing', async () => {
    const running: RawClient[] = [];
    for (let i = 0; i < slots; i++) {
      const client = await RawClient.connect(stack.service.url);
      running.push(client);
      const body = ask('<endless>', { stream: true, max_tokens: 60_000 });
      client.send(chatBytes(stack.service.key, newRequestId(), body));
      await until(() => client.text.includes(' further'), 30_000);
    }
    assert.equal(await stack.server.working(), slots);
    for (let i = 0; i < 3; i++) {
      const id = newRequestId();
      const refused = await stack.service.chat(ask('<brief>'), { headers: { 'x-request-id': id } });
      assert.equal(refused.status, 429);
      assert.equal(errorOf(await refused.text())['code'], 'backend_at_capacity');
      assert.ok(Number(refused.headers.get('retry-after')) >= 1);
      assert.equal((await stack.ledger.row(id)).costMicrocents, 0n);
    }
    for (const client of running) client.reset();
    await until(async () => (await stack.server.working()) === 0, 5_000);
    assert.equal((await exchange(stack, ask('<brief>'), true)).text, briefText);
  });
});

describe('a server with a smaller window than the configuration says', () => {
  let stack: Stack;
  before(async () => {
    stack = await startStack(models.write('window', scriptedTiny), {
      contextLength: 8192,
      server: { contextLength: 512 },
    });
  });
  after(() => stopStack(stack));

  test('refuses by itself: context_length_exceeded with its own figures, and nothing is charged', async () => {
    const balance = await stack.ledger.balance();
    for (const stream of [false, true]) {
      const response = await stack.service.chat(ask('word '.repeat(700), { stream, max_tokens: 5 }));
      assert.equal(response.status, 400);
      const error = errorOf(await response.text());
      assert.equal(error['code'], 'context_length_exceeded');
      assert.ok(Number(error['context_length_limit']) > 0, JSON.stringify(error));
      assert.ok(Array.isArray(error['suggested_models']), JSON.stringify(error));
    }
    assert.equal(await stack.ledger.balance(), balance);
  });
});

describe('a server that is killed', () => {
  for (const stream of [true, false]) {
    test(`in the middle of ${stream ? 'a stream: an error event' : 'a whole answer: 502'}, and no charge (reliability U5)`, async () => {
      const stack = await startStack(models.write('killed', scriptedTiny), {
        server: { contextLength: 65_536 },
        contextLength: 65_536,
      });
      try {
        const balance = await stack.ledger.balance();
        const id = newRequestId();
        const client = await RawClient.connect(stack.service.url);
        client.send(chatBytes(stack.service.key, id, ask('<endless>', { stream, max_tokens: 60_000 })));
        // The head and the beginning of the answer have long been read: the end comes in its middle.
        await until(async () => (await stack.server.written()) > 200, 30_000);
        if (stream) await until(() => client.text.includes(' further'), 30_000);
        await stack.server.stop('SIGKILL');
        const row = await stack.ledger.row(id, 30_000);
        assert.equal(row.costMicrocents, 0n);
        assert.equal(await stack.ledger.balance(), balance);
        if (stream) {
          await until(() => client.text.includes('[DONE]'), 30_000);
          assert.match(client.text, /data: \{"error":.*"backend_http_error"/);
          assert.doesNotMatch(client.text, /"usage":\{/);
        } else {
          await until(() => client.text.includes('"error"'), 30_000);
          assert.match(client.text, /^HTTP\/1\.1 502 /);
          assert.match(client.text, /"backend_(http|connect)_error"/);
        }
        client.reset();
        // And while it is away (reliability U1).
        const away = await stack.service.chat(ask('<brief>'));
        assert.ok([502, 503].includes(away.status), `${away.status}`);
        assert.match(String(errorOf(await away.text())['code']), /^(backend_connect_error|no_healthy_backends)$/);
        assert.equal(await stack.ledger.balance(), balance);
      } finally {
        await stopStack(stack);
      }
    });
  }
});
