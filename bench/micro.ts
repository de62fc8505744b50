import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Directory } from '../src/accounts/directory.ts';
import { createFirstAccount } from '../src/accounts/first-account.ts';
import { openSecret } from '../src/accounts/secret.ts';
import { Billing } from '../src/billing/billing.ts';
import { chat } from '../src/inference/dialects/chat/chat.ts';
import { completions } from '../src/inference/dialects/completions/completions.ts';
import type { Dialect, ResponseHead } from '../src/inference/dialects/dialect.ts';
import { messages } from '../src/inference/dialects/messages/messages.ts';
import { responses } from '../src/inference/dialects/responses/responses.ts';
import { ChunkDecoder } from '../src/inference/engines/openai/decode/decoder.ts';
import { SseReader } from '../src/inference/engines/openai/sse.ts';
import { UsageTally } from '../src/inference/engines/usage-tally.ts';
import type { GenerationBatch } from '../src/generation/event.ts';
import { Fold } from '../src/generation/fold.ts';
import { openSqliteStore } from '../src/store/sqlite/store.ts';
import { publicIdOf, uuidMaker } from '../src/platform/ids/uuid.ts';
import { families } from './family.ts';
import { requestBytes, scenarios } from './scenarios.ts';
import { median } from './table.ts';

/** The functions that run for every request or every chunk, by themselves and warm: what a change to one of them costs. */
export async function micro(): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), 'tokenhouse-bench-'));
  const money = await openMoney(folder);
  try {
    const rows = [
      measure('authenticate: one key among 1', money.authenticate),
      measure('read one upstream chunk: SSE, JSON, event', decodeChunks, chunks),
      ...families.flatMap(({ name }, index) => {
        const { read, printChunks, printWhole } = work[index]!;
        return [
          measure(`${name}: JSON.parse and decodeRequest, 1.6 kB`, read),
          measure(`${name}: print one chunk of a stream`, printChunks, chunks),
          measure(`${name}: fold and print a whole answer of 8 events`, printWhole),
        ];
      }),
      await measureAsync('hold and settle in SQLite, 64 at once', money.holdAndSettle, settledAtOnce),
    ];
    return ['| | median µs | range |', '|-|-:|-:|', ...rows].join('\n');
  } finally {
    await money.close();
    rmSync(folder, { recursive: true, force: true });
  }
}

const sampleCount = 30;
const sampleMs = 10;

/** `operations`: how many of the things in the name one call does. */
function measure(name: string, run: () => unknown, operations = 1): string {
  let calls = 1;
  const sampleUs = (): number => {
    const startedAtMs = performance.now();
    for (let call = 0; call < calls; call++) run();
    return ((performance.now() - startedAtMs) * 1000) / (calls * operations);
  };
  // The first samples warm it up and find out how many calls fill one.
  for (let step = 0; step < 20; step++) calls = Math.max(1, Math.round((sampleMs * 1000) / (sampleUs() * operations)));
  return row(name, Array.from({ length: sampleCount }, sampleUs));
}

async function measureAsync(name: string, run: () => Promise<unknown>, operations: number): Promise<string> {
  const samples: number[] = [];
  for (let sample = -sampleCount; sample < sampleCount; sample++) {
    const startedAtMs = performance.now();
    await run();
    if (sample >= 0) samples.push(((performance.now() - startedAtMs) * 1000) / operations);
  }
  return row(name, samples);
}

function row(name: string, samplesUs: readonly number[]): string {
  const sorted = samplesUs.toSorted((a, b) => a - b);
  return `| ${name} | ${median(sorted).toFixed(2)} | ${sorted[0]!.toFixed(2)}–${sorted.at(-1)!.toFixed(2)} |`;
}

const chunks = 64;
const upstreamChunk = (index: number): Buffer =>
  Buffer.from(
    `data: {"id":"chatcmpl-6f2a1c0e9b7d4e3f8a5b2c1d0e9f8a7b","object":"chat.completion.chunk","created":1763687000,"model":"meta-llama/Llama-3.1-8B-Instruct",` +
      `"choices":[{"index":0,"delta":{"content":" t${index}"},"logprobs":null,"finish_reason":null}],"usage":{"prompt_tokens":312,"total_tokens":${313 + index},"completion_tokens":${index + 1}}}\n\n`,
  );
const upstreamChunks = Array.from({ length: chunks }, (_, index) => upstreamChunk(index));

/** As an exchange does it: one read, one batch. */
function decodeChunks(): void {
  const tally = new UsageTally({
    choices: 1,
    choicesPerPrompt: 1,
    promptTokensMax: 10_000,
    completionTokensMax: 4_096,
  });
  const decoder = new ChunkDecoder({
    requestId: '0'.repeat(32),
    choices: 1,
    choicesPerPrompt: 1,
    maxTokens: 4_096,
    logprobs: undefined,
    reasoningForm: 'separate',
    splitsThinking: false,
    takesOneCall: false,
    closingUsage: 'total',
    tally,
  });
  const reader = new SseReader((data, name) => decoder.event(data, name));
  for (const chunk of upstreamChunks) {
    reader.push(chunk);
    decoder.drain();
  }
}

const head: ResponseHead = {
  requestId: 'req_0123456789ab',
  id: '0'.repeat(32),
  created: 1_763_687_000,
  model: 'bench',
  signer: { sign: (text) => text, encrypt: (text) => text },
};
const textBatch = (index: number): GenerationBatch => [{ type: 'text', choice: 0, text: ` t${index}` }];
const textBatches = Array.from({ length: chunks }, (_, index) => textBatch(index));

const usage = { promptTokens: 312, cachedTokens: 0, completionTokens: 8, reasoningTokens: 0 };

const dialects: Readonly<Record<string, Dialect>> = { chat, completions, messages, responses };

/** What a dialect does for a request, a chunk and an answer. */
const work = families.map((family) => {
  const dialect = dialects[family.name]!;
  const context = { headers: {}, items: undefined };
  const body = requestBytes({ ...scenarios[0]!, family }, { key: 'none', model: 'bench' }).split('\r\n\r\n')[1]!;
  const read = () => dialect.decodeRequest(JSON.parse(body), context);
  const { format } = read();
  return {
    read,
    /** Counting the bytes makes the text flat, as writing it to a socket does. */
    printChunks: (): number => {
      const encoder = format.openStream(head);
      let length = 0;
      for (const batch of textBatches) length += Buffer.byteLength(encoder.batch(batch));
      return length;
    },
    printWhole: (): string => {
      const fold = new Fold();
      fold.read([{ type: 'start', promptTokens: usage.promptTokens }]);
      for (let index = 0; index < 8; index++) fold.read(textBatches[index]!);
      fold.read([
        { type: 'finish', choice: 0, reason: 'stop' },
        { type: 'usage', usage },
      ]);
      return format.encodeResponse(fold.generation(), head);
    },
  };
});

const settledAtOnce = 64;
const prices = { input: 5_000_000n, output: 20_000_000n, cacheRead: 2_500_000n };

/** A database of its own, with one account that has plenty. */
async function openMoney(folder: string) {
  const newId = uuidMaker();
  const secret = openSecret({ fromEnvironment: undefined, dataFolder: folder, warn: () => {} });
  const directory = new Directory(secret);
  const fail = (error: Error): never => {
    throw error;
  };
  const { ledger, repositories, close } = await openSqliteStore({ file: join(folder, 'micro.db'), onFatal: fail });
  const account = await createFirstAccount({ ledger, repositories, secret, newId, now: Date.now }, 10n ** 15n);
  if (account === undefined) throw new Error('a new database has no account');
  directory.load(await repositories.loadKeys({}), new Map());
  const { accountId, key } = account;
  const keyId = (await repositories.listKeys({ limit: 1 }))[0]!.id;
  const billing = new Billing({ ledger, newId, topupUrl: () => 'http://127.0.0.1/topup', log: () => {} });

  const one = async (): Promise<void> => {
    const requestId = newId();
    const startedAt = Date.now();
    const hold = await billing.hold({
      id: requestId,
      account: { id: accountId },
      key: { id: keyId },
      model: { id: 'bench' },
      startedAt,
      plan: null,
      prices,
      promptTokensMax: 1_800,
      completionTokensMax: 256,
    });
    await hold.settle({
      ...{ requestId, accountId, keyId, modelId: 'bench', startedAt },
      ...usage,
      publicId: publicIdOf(requestId),
      clientId: null,
      api: 'chat',
      streamed: true,
      endedAt: startedAt,
      ending: 'finished',
      finish: 'stop',
      errorCode: null,
      counted: false,
      inputPrice: prices.input,
      outputPrice: prices.output,
      cacheReadPrice: prices.cacheRead,
      backend: 'bench',
      firstTokenMs: 1,
      totalMs: 2,
      tags: null,
      plan: null,
      keyBudget: null,
      accountBudget: null,
      costMicrocents: 0n,
      unchargedMicrocents: 0n,
      holdMicrocents: 0n,
    });
  };
  return {
    authenticate: () => directory.find(key),
    holdAndSettle: () => Promise.all(Array.from({ length: settledAtOnce }, one)),
    close,
  };
}
