/** Upstreams whose answers are odd, but answers: how they are cut, too long, and counted (reliability U8, U9, U10, U11). */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, test } from 'node:test';

import { verifyAndDispose, inputPrice, outputPrice } from '../endings/endings-service.ts';
import { chatChunk, event, usageChunk } from '../support/upstream.ts';
import type { UpstreamExchange, UpstreamHandler } from '../support/upstream.ts';
import {
  askFor,
  assertAnswered,
  assertFailed,
  assertReported,
  promptTokens,
  remote,
  serviceBefore,
  settled,
  upstreamThat,
} from './upstream-service.ts';

let play: UpstreamHandler = () => {};
const upstream = await upstreamThat((exchange) => play(exchange));
const service = serviceBefore([remote('odd', [upstream.url])]);
before(() => service.start());
after(() => verifyAndDispose(service).finally(() => upstream.close()));

const usage = { prompt_tokens: promptTokens, completion_tokens: 2 };
const hello = chatChunk({ content: 'Hel' }) + chatChunk({ content: 'lo' });
const end = chatChunk({}, 'stop') + usageChunk(usage) + event('[DONE]');

const sending =
  (...pieces: readonly (string | Buffer)[]): UpstreamHandler =>
  (exchange) => {
    exchange.events();
    for (const piece of pieces) exchange.chunk(piece);
    exchange.endChunks();
  };

const lines = hello + end;
const formats: readonly (readonly [string, string])[] = [
  ['CR alone', lines.replaceAll('\n', '\r')],
  ['CR LF', lines.replaceAll('\n', '\r\n')],
  ['a byte order mark', `\ufeff${lines}`],
  ['no blank after the colon', lines.replaceAll('data: ', 'data:')],
  ['comments and empty events', `: hello\n\ndata:\n\n${lines.replaceAll('\n\n', '\n\n: ping\n\n')}`],
  ['events over several lines', lines.replaceAll('"choices":', '\ndata: "choices":').replaceAll(',\n', ',\n')],
  ['ids, names and times', lines.replaceAll('data: ', 'id: 7\nretry: 10\nevent: message\ndata: ')],
  ['no empty line at the end', lines.trimEnd()],
];

for (const [name, text] of formats) {
  test(`U8: ${name}: the same text`, async () => {
    play = sending(text);
    await settled(service, async (ledger) => {
      for (const stream of [true, false]) {
        await assertAnswered(ledger, await askFor(service, 'odd', stream), { text: 'Hello', stream });
      }
    });
  });
}

test('U8: cut at any byte, into two reads: the same text', async () => {
  const bytes = Buffer.from(`data: {"choices":[{"index":0,"delta":{"content":"é🙂"}}]}\n\n${end}`);
  await settled(service, async (ledger) => {
    let cut = 0;
    play = async (exchange) => {
      const at = cut;
      exchange.events();
      exchange.chunk(bytes.subarray(0, at === 0 ? 1 : at));
      // The first part has been handed to the system before the second is.
      await new Promise((resolve) => setImmediate(resolve));
      exchange.chunk(bytes.subarray(at === 0 ? 1 : at));
      exchange.endChunks();
    };
    for (cut = 1; cut < bytes.length; cut++) {
      const stream = cut % 2 === 0;
      await assertAnswered(ledger, await askFor(service, 'odd', stream), { text: 'é🙂', stream });
    }
  });
});

/** Writes as fast as it is read, up to this many bytes. */
function flood(exchange: UpstreamExchange, piece: string, bytesMax: number): void {
  const timer = setInterval(() => {
    for (let i = 0; i < 16 && exchange.socket.writableLength < 1_000_000; i++) exchange.chunk(piece);
    if (exchange.socket.bytesWritten > bytesMax) clearInterval(timer);
  }, 1);
  void exchange.closed.then(() => clearInterval(timer));
}

/** Linux says it in the process's own files. */
const residentBytes = (): number =>
  1024 * Number(/^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${service.pid}/status`, 'utf8'))?.[1]);

for (const stream of [true, false]) {
  const how = stream ? 'streamed' : 'whole';

  test(`U9: one event of 100 MB, ${how}: refused at 4 MB`, async () => {
    play = (exchange) => {
      exchange.events();
      exchange.chunk(chatChunk({ content: 'Hel' }));
      exchange.chunk('data: {"choices":[{"index":0,"delta":{"content":"');
      flood(exchange, 'x'.repeat(64 * 1024), 100_000_000);
    };
    await settled(service, async (ledger) => {
      const before = residentBytes();
      const answer = await askFor(service, 'odd', stream);
      await assertFailed(ledger, answer, { code: 'backend_http_error', status: 502, stream, delivered: 1 });
      const { socket, closed } = upstream.exchanges.at(-1)!;
      await closed;
      assert.ok(socket.bytesWritten < 32_000_000, `${socket.bytesWritten} bytes were taken`);
      assert.ok(residentBytes() - before < 100e6, `grew by ${residentBytes() - before} bytes`);
      await assertReported(service, 'odd-0', 'unreadable_answer', 200);
    });
  });

  test(`U9: an answer without an end, ${how}: cut as length, and charged what was asked for`, async () => {
    play = (exchange) => {
      exchange.events();
      flood(exchange, chatChunk({ content: 'again ' }).repeat(10), Infinity);
    };
    await settled(service, async (ledger) => {
      const answer = await askFor(service, 'odd', stream, { max_tokens: 50 });
      assert.equal(answer.status, 200);
      assert.match(answer.body, /"finish_reason":"length"/);
      const [row] = await ledger.rows(answer.id);
      assert.deepEqual(
        [row?.ending, row?.finish, row?.completionTokens, row?.counted],
        ['finished', 'length', 50, true],
      );
      assert.ok(row!.costMicrocents <= BigInt(row!.promptTokens) * inputPrice + 50n * outputPrice);
      // 2 × 50 + 64 deltas, and what was in the last read.
      assert.ok([...answer.body.matchAll(/again /g)].length < 5_000);
      await upstream.exchanges.at(-1)!.closed;
    });
  });
}

/** Wrong figures by the field that they stand in. A prompt cannot be longer than its bytes and the template's. */
const wrong: readonly unknown[] = [-1, -1e15, 0.5, 1e15, 1e308, '7', '', true, [7], {}];
/** In place of a prompt's length that was not reported: the estimate of the service for `hi`, whatever it is. */
const estimate = 'estimate';
/** Tokens of `Hello` by its length, in however many deltas it comes. */
const estimated = 1;
/** What can be made of `hi`: 2 bytes, 16 tokens around each message and 128 around all (`inference/pipeline/fit.ts`). */
const possible = 146;
interface Reported {
  readonly name: string;
  readonly usage: Readonly<Record<string, unknown>>;
  /** Prompt, cached, completion, reasoning: as recorded. */
  readonly row: readonly [number | typeof estimate, number, number, number];
}
const reports: readonly Reported[] = [
  ...wrong.map((value): Reported => ({
    name: `prompt ${JSON.stringify(value)}`,
    usage: { ...usage, prompt_tokens: value },
    row: [estimate, 0, 2, 0],
  })),
  ...wrong.map((value): Reported => ({
    name: `completion ${JSON.stringify(value)}`,
    usage: { ...usage, completion_tokens: value },
    row: [promptTokens, 0, estimated, 0],
  })),
  ...wrong.map((value): Reported => ({
    name: `cached ${JSON.stringify(value)}`,
    usage: { ...usage, prompt_tokens_details: { cached_tokens: value } },
    row: [promptTokens, 0, 2, 0],
  })),
  ...wrong.map((value): Reported => ({
    name: `reasoning ${JSON.stringify(value)}`,
    usage: { ...usage, completion_tokens_details: { reasoning_tokens: value } },
    row: [promptTokens, 0, 2, 0],
  })),
  {
    name: 'a prompt that is longer than its bytes and any template',
    usage: { ...usage, prompt_tokens: 3_000, prompt_tokens_details: { cached_tokens: 2_999 } },
    row: [possible, possible, 2, 0],
  },
  {
    name: 'cached beyond the prompt',
    usage: { ...usage, prompt_tokens_details: { cached_tokens: promptTokens + 1 } },
    row: [promptTokens, 0, 2, 0],
  },
  {
    name: 'reasoning beyond the completion',
    usage: { ...usage, completion_tokens_details: { reasoning_tokens: 3 } },
    row: [promptTokens, 0, 2, 0],
  },
  {
    name: 'completion a little beyond max_tokens',
    usage: { ...usage, completion_tokens: 101 },
    row: [promptTokens, 0, 100, 0],
  },
  {
    name: 'completion far beyond max_tokens',
    usage: { ...usage, completion_tokens: 100_000 },
    row: [promptTokens, 0, estimated, 0],
  },
  { name: 'nothing', usage: {}, row: [estimate, 0, estimated, 0] },
  {
    name: 'nulls',
    usage: { prompt_tokens: null, completion_tokens: null },
    row: [estimate, 0, estimated, 0],
  },
];

test(`U10: ${reports.length} kinds of wrong usage, streamed and whole: possible figures, flagged, within the hold`, async () => {
  await settled(service, async (ledger) => {
    for (const report of reports) {
      play = sending(hello + chatChunk({}, 'stop') + usageChunk(report.usage) + event('[DONE]'));
      for (const stream of [true, false]) {
        const answer = await askFor(service, 'odd', stream);
        const row = await assertAnswered(ledger, answer, { text: 'Hello', stream });
        const [prompt, ...rest] = report.row;
        assert.deepEqual([row.cachedTokens, row.completionTokens, row.reasoningTokens], rest, report.name);
        if (prompt === estimate) assert.ok(row.promptTokens > 0 && row.promptTokens <= 100, report.name);
        else assert.equal(row.promptTokens, prompt, report.name);
        const isReported = report.name === 'completion a little beyond max_tokens';
        assert.equal(row.counted, !isReported, `${report.name}: whether the row says that figures are our own`);
        assert.ok(row.costMicrocents <= row.holdMicrocents, report.name);
      }
    }
  });
  await assertReported(service, 'odd-0', 'implausible_usage', 200);
  const reported = service.log.filter((line) => JSON.stringify(line).includes('implausible_usage'));
  assert.ok(reported.length < reports.length, `logged ${reported.length} times, not for every request`);
});

test('U10: usage that shrinks and grows between chunks: the largest counts, flagged', async () => {
  const chunk = (text: string, tokens: unknown): string =>
    chatChunk({ content: text }, null, { usage: { prompt_tokens: promptTokens, completion_tokens: tokens } });
  play = sending(
    chunk('Hel', 9),
    chunk('lo', 2),
    chatChunk({}, 'stop'),
    usageChunk({ ...usage, completion_tokens: 3 }),
    event('[DONE]'),
  );
  await settled(service, async (ledger) => {
    for (const stream of [true, false]) {
      const row = await assertAnswered(ledger, await askFor(service, 'odd', stream), { text: 'Hello', stream });
      assert.deepEqual([row.completionTokens, row.counted], [9, true]);
    }
  });
});

const stop = chatChunk({}, 'stop');
const done = event('[DONE]');
const twice: readonly (readonly [string, string])[] = [
  ['two finishes', hello + stop + stop + usageChunk(usage) + done],
  ['two different finishes', hello + stop + chatChunk({}, 'length') + usageChunk(usage) + done],
  ['two [DONE]', hello + stop + usageChunk(usage) + done + done],
  ['text after [DONE]', hello + stop + usageChunk(usage) + done + chatChunk({ content: 'late' })],
  ['usage before the text', usageChunk(usage) + hello + stop + done],
  ['usage beside the finish', hello + chatChunk({}, 'stop', { usage }) + done],
  ['usage twice', hello + stop + usageChunk(usage) + usageChunk(usage) + done],
];
for (const [name, text] of twice) {
  test(`U11: ${name}: one legal answer, charged once`, async () => {
    play = sending(text);
    await settled(service, async (ledger) => {
      for (const stream of [true, false]) {
        const answer = await askFor(service, 'odd', stream);
        const row = await assertAnswered(ledger, answer, { text: 'Hello', stream });
        // What follows a report is added to it.
        assert.equal(row.completionTokens, name === 'usage before the text' ? 2 + estimated : 2);
        assert.equal([...answer.body.matchAll(/"finish_reason":"/g)].length, 1);
      }
    });
  });
}
