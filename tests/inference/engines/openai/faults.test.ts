import assert from 'node:assert/strict';
import { createServer, type AddressInfo } from 'node:net';
import { describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { inspect } from 'node:util';
import { ApiError, type ErrorCode } from '../../../../src/platform/errors.ts';
import type { Engine } from '../../../../src/inference/engines/engine.ts';
import {
  createOpenAiEngine,
  type OpenAiEngineOptions,
} from '../../../../src/inference/engines/openai/openai-engine.ts';
import type { ReportedIncident } from '../../../../src/inference/engines/openai/incidents.ts';
import type { GenerationBatch } from '../../../../src/generation/event.ts';
import type { EngineRequest } from '../../../../src/generation/request.ts';
import { chatChunk, event, eventually, Upstream, usageChunk, type UpstreamHandler } from '../../../support/upstream.ts';
import { all, engineRequest, lastUsage, textOf } from '../contract.ts';
import { recordedJson } from './decoding.ts';
import { pull } from '../pull.ts';

const usage = { prompt_tokens: 7, completion_tokens: 2 };
const secret = 'text-of-the-backend';

describe('an upstream that fails before the first text', { timeout: 60_000 }, () => {
  it('U1: refuses the connection', async () => {
    const port = await closedPort();
    const engine = createOpenAiEngine({ name: 'm', url: `http://127.0.0.1:${port}/v1`, flavor: 'vllm' });
    await rejectsWith(engine, 'backend_connect_error');
    await engine.close();
  });

  it('U1: has no address', async () => {
    const engine = createOpenAiEngine({ name: 'm', url: 'http://nowhere.invalid/v1', flavor: 'vllm' });
    await rejectsWith(engine, 'backend_connect_error');
    await engine.close();
  });

  it('U1: speaks no TLS', async () => {
    await withUpstream(
      () => {},
      async (engine) => rejectsWith(engine, 'backend_connect_error'),
      (upstream) => ({ url: `https://127.0.0.1:${upstream.port}/v1` }),
    );
  });

  it('U1: closes at once', async () => {
    await withUpstream(
      (exchange) => {
        exchange.socket.destroy();
      },
      async (engine, upstream) => {
        await rejectsWith(engine, 'backend_connect_error');
        assert.equal(upstream.exchanges.length, 1, 'a fresh connection is not tried twice');
      },
    );
  });

  it('U2: accepts and is silent', async () => {
    await withUpstream(
      () => {},
      async (engine, upstream) => {
        await rejectsWith(engine, 'backend_timeout');
        await seesClose(upstream, 1_000);
      },
      () => ({ firstTokenTimeoutMs: 150 }),
    );
  });

  it('U2: sends heads and role chunks and comments, but no text', async () => {
    await withUpstream(
      (exchange) => {
        exchange.events();
        const timer = setInterval(
          () => exchange.chunk(`: ping\n\n${chatChunk({ role: 'assistant', content: null })}`),
          10,
        );
        void exchange.closed.then(() => clearInterval(timer));
      },
      async (engine) => rejectsWith(engine, 'backend_timeout'),
      () => ({ firstTokenTimeoutMs: 150 }),
    );
  });

  it('U3: sends informational heads without end', async () => {
    await withUpstream(
      (exchange) => {
        const timer = setInterval(() => exchange.write('HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n'), 10);
        void exchange.closed.then(() => clearInterval(timer));
      },
      async (engine) => rejectsWith(engine, 'backend_timeout'),
      () => ({ firstTokenTimeoutMs: 150 }),
    );
  });

  it('U4: closes a pooled socket in the moment of its use: one more try', async () => {
    await withUpstream(
      (exchange) => {
        // The second request on a socket finds it closed, as when the keep-alive time has just run out.
        if (exchange.onSocket > 1) exchange.socket.destroy();
        else whole(exchange);
      },
      async (engine, upstream) => {
        assert.equal(textOf(await run(engine)), 'Hello');
        assert.equal(textOf(await run(engine)), 'Hello');
        assert.equal(upstream.exchanges.length, 3);
        assert.equal(upstream.connections, 2);
      },
      () => ({ maxConcurrency: 1 }),
    );
  });

  it('U4: closes it after a byte of the answer: no second try', async () => {
    await withUpstream(
      (exchange) => {
        if (exchange.onSocket === 1) return whole(exchange);
        exchange.write('HTTP/1.1 200 X\r\n');
        setTimeout(() => exchange.socket.destroy(), 20);
      },
      async (engine, upstream) => {
        await run(engine);
        await rejectsWith(engine, 'backend_http_error');
        assert.equal(upstream.exchanges.length, 2);
      },
      () => ({ maxConcurrency: 1 }),
    );
  });

  it('U12: answers something that is no answer', async () => {
    const page = `<html>${secret}</html>`;
    const answers: readonly (readonly [string, string, string])[] = [
      ['200 OK', 'text/html', page],
      ['200 OK', 'application/json', JSON.stringify({ error: { message: secret } })],
      ['200 OK', 'application/json', '{"choices":'],
      ['200 OK', 'application/json', JSON.stringify({ choices: [] })],
      ['204 No Content', 'text/plain', ''],
      ['301 Moved', 'text/html\r\nlocation: /v1/elsewhere', page],
      ['400 Bad', 'application/json', JSON.stringify({ error: { message: secret } })],
      ['401 Unauthorized', 'application/json', JSON.stringify(recordedJson('err-no-key.json').body)],
      ['403 Forbidden', 'text/html', page],
      ['404 Not Found', 'application/json', JSON.stringify(recordedJson('err-not-found.json').body)],
      ['500 Broken', 'text/html', page],
      ['599 Odd', 'application/octet-stream', '\x00\xff'],
    ];
    for (const [status, type, body] of answers) {
      await withUpstream(
        (exchange) => {
          exchange.write(
            `HTTP/1.1 ${status}\r\ncontent-type: ${type}\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
          );
        },
        async (engine, upstream) => {
          // A 404 is for the operator to mend: another try finds the same.
          const code = status.startsWith('404') ? 'no_healthy_backends' : 'backend_http_error';
          const error = await rejectsWith(engine, code, status);
          assert.ok(!inspect(error, { depth: 10 }).includes(secret));
          assert.equal(upstream.exchanges.length, 1, 'a redirect is not followed');
        },
      );
    }
  });

  it('U12: answers in another language than HTTP', async () => {
    for (const bytes of [
      `SSH-2.0-${secret}\r\n`,
      `HTTP/1.1 abc ${secret}\r\n\r\n`,
      `HTTP/1.1 200 OK\r\n${secret} x\r\n\r\n`,
    ]) {
      await withUpstream(
        (exchange) => exchange.write(bytes),
        async (engine) => {
          const error = await rejectsWith(engine, 'backend_http_error', bytes);
          assert.ok(!inspect(error, { depth: 10 }).includes(secret));
        },
      );
    }
  });

  it('U12: a compressed answer, which nobody asked for', async () => {
    await withUpstream(
      (exchange) => {
        exchange.events({ 'content-encoding': 'gzip' });
        exchange.chunk(chatChunk({ content: 'x' }, 'stop'));
        exchange.endChunks();
      },
      async (engine) => rejectsWith(engine, 'backend_http_error'),
    );
  });

  it('U13: 429 and 503 with every kind of Retry-After', async () => {
    const inAMinute = new Date(Date.now() + 60_000).toUTCString();
    const cases: readonly (readonly [string, (seconds: number | undefined) => boolean])[] = [
      ['5', (seconds) => seconds === 5],
      ['0', (seconds) => seconds === 1],
      ['999999999', (seconds) => seconds === 3_600],
      ['1.5', (seconds) => seconds === 2],
      ['1e12', (seconds) => seconds === 3_600],
      ['9'.repeat(400), (seconds) => seconds === 3_600],
      ['soon', (seconds) => seconds === 1],
      ['-3', (seconds) => seconds === 1],
      ['Sat, 99 Foo 2026 99:99:99 GMT', (seconds) => seconds === 1],
      [inAMinute, (seconds) => seconds !== undefined && seconds > 50 && seconds <= 61],
      ['Wed, 21 Oct 2015 07:28:00 GMT', (seconds) => seconds === 1],
    ];
    for (const [status, code] of [
      [429, 'backend_overloaded'],
      [503, 'backend_at_capacity'],
    ] as const) {
      for (const [retryAfter, isRight] of cases) {
        await withUpstream(
          (exchange) => exchange.json(status, { error: { message: secret } }, { 'retry-after': retryAfter }),
          async (engine) => {
            const error = await rejectsWith(engine, code, retryAfter);
            assert.ok(isRight(error.retryAfterSeconds), `${retryAfter} → ${error.retryAfterSeconds}`);
          },
        );
      }
    }
  });

  it('U13: a full queue, and a model that is loading', async () => {
    const full = { object: 'error', message: 'The request queue is full.', type: 'ServiceUnavailable', code: 503 };
    await withUpstream(
      (exchange) => exchange.json(503, full),
      async (engine) => {
        await rejectsWith(engine, 'backend_at_capacity');
      },
      () => ({ flavor: 'sglang' }),
    );
    await withUpstream(
      (exchange) => exchange.json(503, recordedJson('loading-chat.json').body),
      async (engine) => {
        await rejectsWith(engine, 'no_healthy_backends');
        assert.equal(engine.status().state, 'starting');
      },
      () => ({ flavor: 'llama-server' }),
    );
  });

  it('tells a prompt that is too long, in the words of every server', async () => {
    const cases: readonly (readonly [OpenAiEngineOptions['flavor'], number, unknown, number, number | undefined])[] = [
      ['llama-server', 400, recordedJson('err-context-overflow-stream.json').body, 512, 910],
      [
        'llama-server',
        500,
        {
          error: {
            code: 500,
            message:
              'input (2049 tokens) is too large to process. increase the physical batch size (current batch size: 512)',
            type: 'server_error',
          },
        },
        512,
        2_049,
      ],
      [
        'vllm',
        400,
        {
          object: 'error',
          code: 400,
          message:
            "This model's maximum context length is 16384 tokens. However, you requested 122946 tokens (112946 in the messages, 10000 in the completion). Please reduce the length of the messages or completion.",
        },
        16_384,
        112_946,
      ],
      [
        'vllm',
        400,
        {
          error: {
            code: 400,
            message:
              "This model's maximum context length is 16384 tokens. However, you requested 8192 output tokens and your prompt contains at least 8193 input tokens, for a total of at least 16385 tokens.",
          },
        },
        16_384,
        undefined,
      ],
      [
        'vllm',
        400,
        {
          error: {
            message:
              "This model's maximum context length is 2048 tokens. However, your prompt contains at least 2049 input tokens, which exceeds this limit even without any output tokens. Please reduce the length of the input prompt. (parameter=input_tokens, value=2049)",
            type: 'BadRequestError',
            param: 'input_tokens',
            code: 400,
          },
        },
        2_048,
        undefined,
      ],
      [
        'vllm',
        400,
        {
          error: {
            code: 400,
            message:
              'The decoder prompt (length 5000) is longer than the maximum model length of 4096. Make sure that `max_model_len` is no smaller.',
          },
        },
        4_096,
        5_000,
      ],
      [
        'sglang',
        400,
        {
          object: 'error',
          code: 400,
          message: "The input (150000 tokens) is longer than the model's context length (128000 tokens).",
        },
        128_000,
        150_000,
      ],
      [
        'sglang',
        400,
        {
          object: 'error',
          code: 400,
          message:
            "Requested token count exceeds the model's maximum context length of 4096 tokens. You requested a total of 5000 tokens",
        },
        4_096,
        undefined,
      ],
      [
        'openai',
        400,
        {
          error: {
            code: 'context_length_exceeded',
            message:
              "This model's maximum context length is 128000 tokens. However, your messages resulted in 150000 tokens.",
          },
        },
        128_000,
        150_000,
      ],
    ];
    for (const [flavor, status, body, limit, prompt] of cases) {
      await withUpstream(
        (exchange) => exchange.json(status, body),
        async (engine) => {
          const { extra } = await rejectsWith(engine, 'context_length_exceeded');
          assert.deepEqual(extra, {
            model: 'm',
            context_length_limit: limit,
            ...(prompt === undefined ? {} : { prompt_tokens: prompt }),
          });
        },
        () => ({ flavor }),
      );
    }
  });

  it('tells it also when it stands in the stream', async () => {
    const message = "The input (150000 tokens) is longer than the model's context length (128000 tokens).";
    await withUpstream(
      (exchange) => {
        exchange.events();
        exchange.chunk(event({ error: { object: 'error', message, code: 400 } }));
        exchange.endChunks();
      },
      async (engine) => {
        const error = await rejectsWith(engine, 'context_length_exceeded');
        assert.equal(error.extra['context_length_limit'], 128_000);
      },
      () => ({ flavor: 'sglang' }),
    );
  });

  it('tells what the client has caused for certain, without the words of llama-server', async () => {
    for (const [name, code] of [
      ['err-image.json', 'unsupported_feature'],
      ['err-bad-grammar.json', 'unsupported_value'],
      ['err-bad-schema-ref.json', 'unsupported_value'],
      ['err-bad-type.json', 'backend_http_error'],
    ] as const) {
      const { status, body } = recordedJson(name);
      await withUpstream(
        (exchange) => exchange.json(status, body),
        async (engine) => {
          const error = await rejectsWith(engine, code, name);
          assert.ok(!error.message.includes((body as { error: { message: string } }).error.message));
        },
        () => ({ flavor: 'llama-server' }),
      );
    }
  });
});

describe('an upstream that fails in its answer', { timeout: 60_000 }, () => {
  it('U5: resets the connection', async () => {
    await withUpstream(
      (exchange) => {
        exchange.events();
        exchange.chunk(chatChunk({ content: 'Hel' }));
      },
      async (engine, upstream) => {
        const iterator = pull(engine, engineRequest('x'), new AbortController().signal);
        const first = await iterator.next();
        assert.equal(textOf([first.value ?? []]), 'Hel');
        upstream.exchanges[0]!.reset();
        await assert.rejects(iterator.next(), { name: 'ApiError', code: 'backend_http_error' });
        assert.equal(upstream.exchanges.length, 1, 'never asked twice after the first text');
      },
    );
  });

  it('U6: ends without a finish, by its last chunk or by closing', async () => {
    const head = 'HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n';
    const handlers: readonly UpstreamHandler[] = [
      (exchange) => {
        exchange.events();
        exchange.chunk(chatChunk({ content: 'Hel' }));
        exchange.endChunks();
      },
      (exchange) => exchange.socket.end(head + chatChunk({ content: 'Hel' })),
      (exchange) => exchange.socket.end(head + chatChunk({ content: 'Hel' }) + event('[DONE]')),
      (exchange) => exchange.socket.end(head + chatChunk({ content: 'Hel' }) + 'data: {"choices":[{"ind'),
    ];
    for (const handler of handlers) {
      await withUpstream(handler, async (engine) => {
        const { batches } = await failsWith(engine, 'backend_http_error');
        assert.equal(textOf(batches), 'Hel');
      });
    }
  });

  it('U6: ends after the finish without [DONE] and usage: an answer, whose tokens are counted', async () => {
    await withUpstream(
      (exchange) => {
        const answer = chatChunk({ content: 'Hel' }) + chatChunk({ content: 'lo' }) + chatChunk({}, 'stop');
        exchange.socket.end(`HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n${answer}`);
      },
      async (engine) => {
        const batches = await run(engine);
        assert.equal(textOf(batches), 'Hello');
        assert.deepEqual(lastUsage(batches), {
          type: 'usage',
          usage: { promptTokens: undefined, cachedTokens: 0, completionTokens: 1, reasoningTokens: 0 },
          counted: true,
        });
      },
    );
  });

  it('U7: falls silent in the middle', async () => {
    await withUpstream(
      (exchange) => {
        exchange.events();
        exchange.chunk(chatChunk({ content: 'Hel' }));
      },
      async (engine, upstream) => {
        const { batches } = await failsWith(engine, 'backend_timeout');
        assert.equal(textOf(batches), 'Hel');
        await seesClose(upstream, 1_000);
      },
      () => ({ idleTimeoutMs: 100 }),
    );
  });

  it('U7: is slower than the idle time in all, but never silent for so long', async () => {
    await withUpstream(
      async (exchange) => {
        exchange.events();
        for (let i = 0; i < 24; i++) {
          exchange.chunk(chatChunk({ content: '.' }));
          await delay(60);
        }
        end(exchange);
      },
      async (engine) => assert.equal(textOf(await run(engine)), '.'.repeat(24)),
      () => ({ idleTimeoutMs: 1_000 }),
    );
  });

  it('U8: events that cannot be read are a failure, after the text that came before', async () => {
    const good = chatChunk({ content: 'Hel' });
    const bad: readonly (string | Buffer)[] = [
      'data: {"choices":[{"index":0,"delta":{"content":"lo"\n\n',
      'data: nonsense\n\n',
      'data: 17\n\n',
      '{"error":{"message":"no event"}}\n\n',
      `event: error\ndata: ${JSON.stringify({ message: secret })}\n\n`,
      event({ error: { message: secret, code: 500 } }),
      event({ object: 'error', message: secret, code: 400 }),
      Buffer.concat([
        Buffer.from('data: {"choices":[{"index":0,"delta":{"content":"'),
        Buffer.from([0xc3, 0x28]),
        Buffer.from('"}}]}\n\n'),
      ]),
      Buffer.from([0xff, 0xfe]),
      event({ choices: [{ index: 0, delta: { content: 17 } }] }),
      event({ choices: [{ index: 0, delta: 'text' }] }),
      event({ choices: [17] }),
      event({ choices: 'none' }),
      event({ choices: [{ index: 0, delta: {}, finish_reason: 'error' }] }),
      event({ choices: [{ index: 0, delta: {}, finish_reason: 17 }] }),
    ];
    for (const bytes of bad) {
      await withUpstream(
        (exchange) => {
          exchange.events();
          exchange.chunk(Buffer.concat([Buffer.from(good), Buffer.from(bytes)]));
          exchange.chunk(chatChunk({}, 'stop'));
          end(exchange);
        },
        async (engine) => {
          const { batches, error } = await failsWith(engine, 'backend_http_error');
          assert.equal(textOf(batches), 'Hel', String(bytes));
          assert.ok(!inspect(error, { depth: 10 }).includes(secret));
        },
      );
    }
  });

  it('U9: an event without an end is refused at 4 MB', async () => {
    await withUpstream(
      (exchange) => {
        exchange.events();
        exchange.chunk(chatChunk({ content: 'Hel' }));
        const piece = 'x'.repeat(64 * 1024);
        exchange.chunk('data: "');
        const timer = setInterval(() => {
          if (exchange.socket.writableLength < 1_000_000) for (let i = 0; i < 8; i++) exchange.chunk(piece);
        }, 1);
        void exchange.closed.then(() => clearInterval(timer));
      },
      async (engine, upstream) => {
        await failsWith(engine, 'backend_http_error');
        await seesClose(upstream, 1_000);
        const bytes = upstream.exchanges[0]!.socket.bytesWritten;
        assert.ok(bytes < 16_000_000, `${bytes} bytes were taken`);
      },
    );
  });

  it('U9: an answer without an end is cut at its length', async () => {
    await withUpstream(
      (exchange) => {
        exchange.events();
        const piece = chatChunk({ content: 'again ' }).repeat(10);
        const timer = setInterval(() => exchange.chunk(piece), 1);
        void exchange.closed.then(() => clearInterval(timer));
      },
      async (engine, upstream) => {
        const batches = await run(engine, { maxTokens: 50 });
        assert.deepEqual(batches.flat().at(-2), {
          type: 'finish',
          choice: 0,
          reason: 'length',
          cause: 'max-tokens',
        });
        assert.equal(lastUsage(batches)?.usage.completionTokens, 50);
        assert.equal(lastUsage(batches)?.counted, true);
        await seesClose(upstream, 1_000);
      },
    );
  });

  it('U11: what comes twice, or too late', async () => {
    const hello = chatChunk({ content: 'Hello' });
    const stop = chatChunk({}, 'stop');
    const done = event('[DONE]');
    for (const stream of [
      hello + stop + stop + usageChunk(usage) + done,
      hello + stop + chatChunk({}, 'length') + usageChunk(usage) + done,
      hello + stop + usageChunk(usage) + done + done,
      hello + stop + done + chatChunk({ content: 'late' }),
      usageChunk(usage) + hello + stop + done,
      hello + chatChunk({}, 'stop', { usage }) + done,
    ]) {
      await withUpstream(raw(stream), async (engine) => {
        const events = (await run(engine)).flat();
        assert.equal(textOf([events]), 'Hello');
        assert.deepEqual(
          events.filter((one) => one.type === 'finish'),
          [{ type: 'finish', choice: 0, reason: 'stop' }],
        );
      });
    }
    await withUpstream(raw(hello + stop + chatChunk({ content: 'late' }) + done), async (engine) => {
      await failsWith(engine, 'backend_http_error');
    });
  });

  it('U11: indexes and names that are out of range', async () => {
    const call = (fields: object): string => chatChunk({ tool_calls: [fields] });
    const fn = { name: 'f', arguments: '{}' };
    for (const stream of [
      call({ index: -1, id: 'a', function: fn }),
      call({ index: 1e9, id: 'a', function: fn }),
      call({ index: 0.5, id: 'a', function: fn }),
      call({ index: '0', id: 'a', function: fn }),
      call({ index: 0, id: 'a', function: { name: 'x'.repeat(1_000_000), arguments: '' } }),
      call({ index: 0, id: 'a', function: { arguments: '{' } }) + chatChunk({}, 'tool_calls'),
      chatChunk({ tool_calls: [17] }),
      event({ choices: [{ index: 1, delta: { content: 'x' } }] }),
      event({ choices: [{ index: -1, delta: { content: 'x' } }] }),
      event({ choices: [{ index: 1e9, delta: { content: 'x' } }] }),
    ]) {
      await withUpstream(raw(stream + chatChunk({}, 'stop') + event('[DONE]')), async (engine) => {
        await failsWith(engine, 'backend_http_error');
      });
    }
  });

  it('U14: a second answer on a pooled socket reaches nobody', async () => {
    await withUpstream(
      (exchange) => {
        whole(exchange, exchange.onSocket === 1 && exchange.body.includes('first') ? 'Hello' : 'Other');
        if (!exchange.body.includes('first')) return;
        const poison = `${chatChunk({ content: 'poison' })}${chatChunk({}, 'stop')}${event('[DONE]')}`;
        exchange.write(
          `HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: ${poison.length}\r\n\r\n${poison}`,
        );
      },
      async (engine) => {
        assert.equal(textOf(await run(engine, {}, 'first')), 'Hello');
        for (let i = 0; i < 5; i++) assert.equal(textOf(await run(engine, {}, 'second')), 'Other');
      },
    );
  });
});

describe('an upstream that behaves, in its own way', { timeout: 60_000 }, () => {
  it('answers whole although it was asked to stream', async () => {
    await withUpstream(
      (exchange) => exchange.json(200, recordedJson('chat-reasoning.json').body),
      async (engine) => {
        const batches = await run(engine);
        assert.equal(textOf(batches), 'Hello from the scripted model.');
        assert.equal(lastUsage(batches)?.usage.completionTokens, 12);
      },
      () => ({ flavor: 'llama-server' }),
    );
  });

  it('gives one batch for one read, however many chunks are in it', async () => {
    const texts = Array.from({ length: 20 }, (_, i) => `${i} `);
    await withUpstream(
      (exchange) => {
        const chunks = texts.map((text) => {
          const chunk = chatChunk({ content: text });
          return `${Buffer.byteLength(chunk).toString(16)}\r\n${chunk}\r\n`;
        });
        exchange.events();
        setTimeout(() => {
          exchange.write(chunks.join(''));
          end(exchange);
        }, 20);
      },
      async (engine) => {
        const batches = await run(engine);
        assert.equal(batches[0]?.filter((one) => one.type === 'text').length, 20);
      },
    );
  });

  it('is not read faster than its reader takes it', async () => {
    const chunk = chatChunk({ content: 'x'.repeat(1_000) });
    await withUpstream(
      (exchange) => {
        exchange.events();
        const timer = setInterval(() => {
          for (let i = 0; i < 50 && exchange.socket.writableLength < 1_000_000; i++) exchange.chunk(chunk);
        }, 1);
        void exchange.closed.then(() => clearInterval(timer));
      },
      async (engine, upstream) => {
        const abort = new AbortController();
        const iterator = pull(engine, engineRequest('x'), abort.signal);
        await iterator.next();
        const { socket } = upstream.exchanges[0]!;
        // What the kernel buffers on both sides is not ours; then the writer stalls.
        await eventually('the upstream stalls', () => socket.writableLength >= 1_000_000);
        const stalledAt = socket.bytesWritten - socket.writableLength;
        await delay(100);
        assert.equal(socket.bytesWritten - socket.writableLength, stalledAt);
        for (let i = 0; i < 200; i++) await iterator.next();
        assert.ok(socket.bytesWritten - socket.writableLength > stalledAt, 'it goes on when it is read');
        abort.abort(new Error('enough'));
        await seesClose(upstream, 1_000);
      },
    );
  });

  it('keeps its connection for the next request', async () => {
    await withUpstream(
      (exchange) => whole(exchange),
      async (engine, upstream) => {
        for (let i = 0; i < 5; i++) await run(engine);
        assert.equal(upstream.connections, 1);
      },
      () => ({ maxConcurrency: 1 }),
    );
  });

  it('is made to close a connection whose body does not end after the answer', async () => {
    await withUpstream(
      (exchange) => {
        exchange.events();
        exchange.chunk(
          `${chatChunk({ content: 'Hello' })}${chatChunk({}, 'stop')}${usageChunk(usage)}${event('[DONE]')}`,
        );
      },
      async (engine, upstream) => {
        assert.equal(textOf(await run(engine)), 'Hello');
        await seesClose(upstream, 2_000);
      },
    );
  });

  it('gets no more requests at once than it may, and none are queued', async () => {
    await withUpstream(
      (exchange) => {
        exchange.events();
        exchange.chunk(chatChunk({ content: 'x' }));
      },
      async (engine, upstream) => {
        const abort = new AbortController();
        const reads = [1, 2].map((i) => pull(engine, engineRequest(`${i}`), abort.signal).next());
        await Promise.all(reads);
        const error = await rejectsWith(engine, 'backend_at_capacity');
        assert.equal(error.retryAfterSeconds, 1);
        assert.equal(upstream.exchanges.length, 2);
        abort.abort(new Error('enough'));
        await eventually('the places are free', () => upstream.exchanges.every(({ socket }) => socket.destroyed));
        const next = new AbortController();
        await pull(engine, engineRequest('3'), next.signal).next();
        next.abort(new Error('enough'));
      },
      () => ({ maxConcurrency: 2 }),
    );
  });

  it('is left alone when it cannot be connected to, until a look of the engine itself finds it again', async () => {
    // On an address of its own, so that nobody else takes the port while it is closed.
    const port = await closedPort('127.0.0.7');
    const incidents: ReportedIncident[] = [];
    const engine = createOpenAiEngine({
      name: 'm',
      url: `http://127.0.0.7:${port}/v1`,
      flavor: 'vllm',
      onIncident: (incident) => incidents.push(incident),
    });
    for (let i = 0; i < 3; i++) await rejectsWith(engine, 'backend_connect_error');
    assert.equal(engine.status().state, 'down');
    const refused = await rejectsWith(engine, 'no_healthy_backends');
    assert.ok((refused.retryAfterSeconds ?? 0) >= 1);
    assert.deepEqual(incidents[0], { incident: 'cannot_connect', status: null, cause: 'ECONNREFUSED', times: 1 });
    const upstream = await Upstream.start(
      (exchange) => {
        if (exchange.method === 'GET') exchange.json(404, {});
        else whole(exchange);
      },
      { host: '127.0.0.7', port },
    );
    await eventually('the engine has looked', () => engine.status().state === 'ready', 30_000);
    assert.deepEqual(
      upstream.exchanges.map(({ method, path }) => `${method} ${path}`),
      ['GET /v1/models'],
      'no request was spent on finding out',
    );
    assert.equal(textOf(await run(engine)), 'Hello');
    await engine.close();
    await upstream.close();
  });
});

describe('an aborted request', { timeout: 60_000 }, () => {
  const phases: Readonly<Record<string, UpstreamHandler>> = {
    'before the head': () => {},
    'after the head': (exchange) => exchange.events(),
    'in the head': (exchange) => exchange.write('HTTP/1.1 200 OK\r\ncontent-'),
    'after the role chunk': (exchange) => {
      exchange.events();
      exchange.chunk(chatChunk({ role: 'assistant', content: null }));
    },
    'in an event': (exchange) => {
      exchange.events();
      exchange.chunk('data: {"choices":[{"ind');
    },
    'in an error body': (exchange) => exchange.write('HTTP/1.1 500 X\r\ncontent-length: 100\r\n\r\n{"err'),
    'in a whole answer': (exchange) =>
      exchange.write('HTTP/1.1 200 X\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{"cho'),
  };
  for (const [phase, handler] of Object.entries(phases)) {
    it(`${phase} is seen by the upstream at once`, async () => {
      await withUpstream(handler, async (engine, upstream) => {
        const abort = new AbortController();
        const read = pull(engine, engineRequest('x'), abort.signal).next();
        read.catch(() => {});
        await eventually('the request has arrived', () => upstream.exchanges.length === 1);
        // Time for the answer to arrive; without it the phase is another one, and the promise the same.
        await delay(20);
        const reason = new Error('left');
        abort.abort(reason);
        await assert.rejects(read, (error) => error === reason);
        await seesClose(upstream, 100);
      });
    });
  }

  it('while it connects is rejected at once, and the connection given up in time', async () => {
    // Accepts, but never answers the TLS greeting: the connection stays half open.
    const server = createServer();
    let open = 0;
    server.on('connection', (socket) => {
      open++;
      socket.on('error', () => {});
      socket.on('close', () => open--);
      socket.resume();
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { port } = server.address() as AddressInfo;
    const engine = createOpenAiEngine({ name: 'm', url: `https://127.0.0.1:${port}/v1`, flavor: 'vllm' });
    const abort = new AbortController();
    const read = pull(engine, engineRequest('x'), abort.signal).next();
    read.catch(() => {});
    await eventually('it connects', () => open === 1);
    const reason = new Error('left');
    abort.abort(reason);
    const rejected = await Promise.race([read.catch((error: unknown) => error), delay(50, 'too late')]);
    assert.equal(rejected, reason);
    await eventually('the connection is given up', () => open === 0);
    await engine.close();
    await new Promise<void>((resolve) => server.close(() => resolve()));
  });

  it('leaves no listener on its signal', async () => {
    await withUpstream(
      (exchange) => whole(exchange),
      async (engine) => {
        const abort = new AbortController();
        let listeners = 0;
        const { signal } = abort;
        const add = signal.addEventListener.bind(signal);
        const remove = signal.removeEventListener.bind(signal);
        signal.addEventListener = (...args: Parameters<typeof add>) => {
          listeners++;
          add(...args);
        };
        signal.removeEventListener = (...args: Parameters<typeof remove>) => {
          listeners--;
          remove(...args);
        };
        await all(engine, engineRequest('x'), signal);
        assert.equal(listeners, 0);
      },
    );
  });
});

/** The connection of the first request ends; undici may open another one after it. */
async function seesClose(upstream: Upstream, withinMs: number): Promise<void> {
  await eventually('the upstream sees the close', () => upstream.exchanges[0]!.socket.destroyed, withinMs);
}

type Exchange = Parameters<UpstreamHandler>[0];

async function withUpstream(
  handler: UpstreamHandler,
  act: (engine: Engine, upstream: Upstream) => unknown,
  options: (upstream: Upstream) => Partial<OpenAiEngineOptions> = () => ({}),
): Promise<void> {
  const upstream = await Upstream.start(handler);
  const engine = createOpenAiEngine({ name: 'm', url: upstream.url, flavor: 'vllm', ...options(upstream) });
  try {
    await act(engine, upstream);
  } finally {
    await engine.close();
    await upstream.close();
  }
}

function run(engine: Engine, more: Partial<EngineRequest> = {}, text = 'hi'): Promise<GenerationBatch[]> {
  return all(engine, engineRequest(text, more), new AbortController().signal);
}

/** Fails before the first batch. */
async function rejectsWith(engine: Engine, code: ErrorCode, what = ''): Promise<ApiError> {
  const { batches, error } = await failsWith(engine, code, what);
  assert.deepEqual(batches, [], what);
  return error;
}

async function failsWith(
  engine: Engine,
  code: ErrorCode,
  what = '',
): Promise<{ batches: GenerationBatch[]; error: ApiError }> {
  const batches: GenerationBatch[] = [];
  try {
    for await (const batch of pull(engine, engineRequest('hi'), new AbortController().signal)) batches.push(batch);
  } catch (error) {
    assert.ok(error instanceof ApiError, String(error));
    assert.equal(error.code, code, what);
    return { batches, error };
  }
  assert.fail(`${what}: not refused with ${code}`);
}

function whole(exchange: Exchange, text = 'Hello'): void {
  exchange.events();
  exchange.chunk(chatChunk({ role: 'assistant', content: '' }));
  exchange.chunk(chatChunk({ content: text }));
  end(exchange);
}

function end(exchange: Exchange): void {
  exchange.chunk(chatChunk({}, 'stop'));
  exchange.chunk(usageChunk(usage));
  exchange.chunk(event('[DONE]'));
  exchange.endChunks();
}

function raw(stream: string): UpstreamHandler {
  return (exchange) => {
    exchange.events();
    exchange.chunk(stream);
    exchange.endChunks();
  };
}

/** A port that nobody listens on. */
async function closedPort(host = '127.0.0.1'): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, host, resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise<void>((resolve) => server.close(() => resolve()));
  return port;
}
