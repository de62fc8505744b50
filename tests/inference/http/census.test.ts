import assert from 'node:assert/strict';
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test, { type TestContext } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';

import { built } from '../../support/built.ts';
import { unhooked, type Census } from '../../support/census-probe.ts';
import { OtlpCollector } from '../../support/otlp-collector.ts';
import { TestService, until } from '../../support/service.ts';
import { chatChunk, Upstream, usageChunk, type UpstreamExchange } from '../../support/upstream.ts';

const requests = 100;
const usage = usageChunk({ prompt_tokens: 9, completion_tokens: 3, total_tokens: 12 });
const chunks = [chatChunk({ content: 'a' }), chatChunk({ content: 'b' }), chatChunk({}, 'stop'), usage];

/**
 * What one request may make on the main thread. Our own code makes less than half of it; `node:http` and the sockets the rest.
 * Two promises are of the call that carries a batch of charges to the ledger's thread; here each request is a batch of its own.
 * A request that begins to make more shows here, whatever else the machine does. A figure that has become smaller is a reason to lower its bound.
 */
const most: Readonly<Record<'whole' | 'streamed', Omit<Census, 'bytes' | 'heldBytes'>>> = {
  whole: { promises: 19, timers: 2, abortControllers: 0, abortListeners: 0, messagesToThreads: 1 },
  streamed: { promises: 21, timers: 2, abortControllers: 0, abortListeners: 0, messagesToThreads: 1 },
};

/** What one request may allocate on the main thread, in bytes, once its code is warm. */
const bytesMax = { whole: 78_000, streamed: 78_000 };
/** Before its code is optimized, a request allocates more: what optimized code never needs to put into the heap. */
const requestsBeforeBytes = 400;

/**
 * Reads and writes of all threads for one request, as the kernel counts them. Here each request is a batch of the ledger by itself. Reads:
 * the request, the answer of the backend, and a wake of the ledger's thread and one back. Writes: the request to the backend, the answer,
 * a line of the log, both wakes, and in SQLite two for each page of the log: the row, its index and the account. A stream ends with two more.
 */
const readsAndWritesMax = 24;

/**
 * What a running stream may keep in memory beyond the text of its prompt, which it keeps once: 20,000 bytes alone, and 25,000 where other
 * tests keep the machine busy.
 */
const heldBytesMax = 30_000;
const heldStreams = 50;
const heldPrompt = 'held '.repeat(1_000);

/** A request that is traced makes nothing of these by itself; what a post to the collector makes is for all requests of a second. */
const ofPostMax = 40;

for (const isTraced of [false, true])
  test(
    `a request that is ${isTraced ? '' : 'not '}traced makes no more promises, timers, abort signals and messages than it needs`,
    { timeout: 120_000 },
    (context) => census(isTraced, context),
  );

async function census(isTraced: boolean, context: TestContext): Promise<void> {
  const held: UpstreamExchange[] = [];
  const upstream = await Upstream.start((exchange) => {
    exchange.events();
    if (exchange.body.includes(heldPrompt)) {
      exchange.chunk(chunks[0]!);
      held.push(exchange);
      return;
    }
    exchange.chunk([...chunks, 'data: [DONE]\n\n'].join(''));
    exchange.endChunks();
  });
  const collector = await OtlpCollector.start();
  const file = 'census.json';
  const service = new TestService({
    config: `${isTraced ? `telemetry: { endpoint: "${collector.url}" }\n` : ''}models:
  - id: m
    context_length: 8192
    max_output_tokens: 512
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    backends: [{ engine: openai, flavor: vllm, url: "${upstream.url}" }]`,
    environment: {
      NODE_OPTIONS: `--import=${pathToFileURL(built('tests/support/census-probe.ts')).href}`,
      TOKENHOUSE_CENSUS: file,
    },
  });
  try {
    await service.start();
    const path = join(service.folder, file);
    const countsNow = async (): Promise<Census> => {
      rmSync(path, { force: true });
      process.kill(service.pid, 'SIGUSR2');
      await until(() => existsSync(path));
      return JSON.parse(readFileSync(path, 'utf8')) as Census;
    };
    const ask = async (stream: boolean): Promise<void> => {
      const answer = await service.chat({ model: 'm', stream, messages: [{ role: 'user', content: 'Hi' }] });
      assert.match(await answer.text(), stream ? /\[DONE\]/ : /"ab"/);
    };
    const each: Record<string, Readonly<Record<string, number>>> = {};
    const postsEach: Record<string, number> = {};
    for (const [name, stream] of [['whole', false] as const, ['streamed', true] as const]) {
      for (let warmUp = 0; warmUp < 20; warmUp++) await ask(stream);
      const before = await countsNow();
      const posts = collector.begun;
      for (let request = 0; request < requests; request++) await ask(stream);
      const after = await countsNow();
      postsEach[name] = (collector.begun - posts + 1) / requests;
      const counted = Object.entries(most[name]).map(([what]) => what as keyof Census);
      each[name] = Object.fromEntries(counted.map((what) => [what, (after[what] - before[what]) / requests]));
    }
    context.diagnostic(JSON.stringify(each));
    if (isTraced) await until(() => collector.spans.length >= 4 * 2 * requests);
    else assert.equal(collector.begun, 0);
    for (const [name, bounds] of Object.entries(most))
      for (const [what, bound] of Object.entries(bounds))
        // Below one: what the service makes every second or so, whatever it is asked, on a machine that is slow.
        assert.ok(
          each[name]![what]! < bound + 1 + (isTraced ? ofPostMax * postsEach[name]! : 0),
          `${name}: ${each[name]![what]} ${what} a request, at most ${bound}`,
        );
    if (isTraced) return;
    writeFileSync(path + unhooked, '');
    for (const [name, stream] of [['whole', false] as const, ['streamed', true] as const]) {
      for (let warmUp = 0; warmUp < requestsBeforeBytes; warmUp++) await ask(stream);
      const sofar = async (): Promise<Used> => {
        const { bytes } = await countsNow();
        return { bytes, calls: readsAndWrites(service.pid), ms: performance.now() };
      };
      const beforeIdle = await sofar();
      await sleep(1_000);
      // When the log of SQLite has a thousand pages, they are merged into the file: as many calls as a hundred requests make, in one round.
      let [bytes, calls] = [Infinity, Infinity];
      let before = await sofar();
      const idle = { from: beforeIdle, to: before };
      for (let round = 0; round < 3; round++) {
        for (let request = 0; request < requests; request++) await ask(stream);
        const after = await sofar();
        const each = eachOf(requests, idle, before, after);
        [bytes, calls] = [Math.min(bytes, each.bytes), Math.min(calls, each.calls)];
        before = after;
      }
      context.diagnostic(`${name}: ${bytes.toFixed(0)} bytes, ${calls.toFixed(1)} reads and writes`);
      assert.ok(bytes < bytesMax[name], `${name}: ${bytes} bytes a request, at most ${bytesMax[name]}`);
      assert.ok(calls < readsAndWritesMax, `${name}: ${calls} reads and writes, at most ${readsAndWritesMax}`);
    }
    const heldEach = await heldByEach(service, held, async () => (await countsNow()).heldBytes);
    context.diagnostic(`a running stream keeps ${heldEach.toFixed(0)} bytes and its prompt`);
    assert.ok(
      heldEach < heldBytesMax,
      `a running stream keeps ${heldEach} bytes and its prompt, at most ${heldBytesMax}`,
    );
  } finally {
    await service.dispose();
    await Promise.all([upstream.close(), collector.close()]);
  }
}

/** Bytes that the main thread keeps for each of many running streams, without their prompts. */
async function heldByEach(
  service: TestService,
  held: UpstreamExchange[],
  heldBytes: () => Promise<number>,
): Promise<number> {
  const streams = async (count: number): Promise<Response[]> => {
    const body = { model: 'm', stream: true, messages: [{ role: 'user', content: heldPrompt }] };
    return await Promise.all(Array.from({ length: count }, () => service.chat(body)));
  };
  const end = async (answers: readonly Response[]): Promise<void> => {
    for (const exchange of held.splice(0)) {
      exchange.chunk([...chunks.slice(1), 'data: [DONE]\n\n'].join(''));
      exchange.endChunks();
    }
    for (const answer of answers) assert.match(await answer.text(), /\[DONE\]/);
  };
  // What is made for the first of many, such as connections that are kept, is not of a stream.
  await end(await streams(heldStreams));
  let least = Infinity;
  // On a busy machine kept connections are closed between two rounds, and new ones count for their streams.
  for (let round = 0; round < 3; round++) {
    const before = await heldBytes();
    const answers = await streams(heldStreams);
    least = Math.min(least, ((await heldBytes()) - before) / heldStreams - heldPrompt.length);
    await end(answers);
  }
  return least;
}

/** Of all threads so far; 0 on systems that do not say. */
function readsAndWrites(pid: number): number {
  if (process.platform !== 'linux') return 0;
  const counts = [...readFileSync(`/proc/${pid}/io`, 'utf8').matchAll(/^sysc[rw]: (\d+)$/gm)];
  return counts.reduce((sum, [, count]) => sum + Number(count), 0);
}

interface Used {
  readonly bytes: number;
  readonly calls: number;
  readonly ms: number;
}

/** What one request used, without what the process uses by itself, such as for judging its own load. */
function eachOf(
  count: number,
  idle: { readonly from: Used; readonly to: Used },
  before: Used,
  after: Used,
): Pick<Used, 'bytes' | 'calls'> {
  const times = (after.ms - before.ms) / (idle.to.ms - idle.from.ms);
  const each = (of: 'bytes' | 'calls'): number =>
    (after[of] - before[of] - times * (idle.to[of] - idle.from[of])) / count;
  return { bytes: each('bytes'), calls: each('calls') };
}
