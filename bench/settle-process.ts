/**
 * One process that settles as fast as it can: what `settle.ts` starts. Reads a `SettleJob` from its first message, says
 * `ready`, settles from the second message on, answers with a `SettleReading`, and ends when its parent does.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { Billing } from '../src/billing/billing.ts';
import { publicIdOf, uuidMaker } from '../src/platform/ids/uuid.ts';
import type { UsageRow } from '../src/store/ledger.ts';
import { openPostgresStore } from '../src/store/postgres/store.ts';
import { openSqliteStore } from '../src/store/sqlite/store.ts';

export interface SettleJob {
  /** A file, or the address of a server. */
  readonly place: { readonly file: string } | { readonly url: string };
  readonly accountId: string;
  /** Settlements that wait at the same time. */
  readonly inFlight: number;
  readonly seconds: number;
}

export interface SettleReading {
  readonly settlements: number;
  readonly seconds: number;
  /** From the call to its answer, in milliseconds, in no order. */
  readonly latenciesMs: Float64Array;
  /** Settlements by the length of the transaction that they were in, on average. */
  readonly batches: number;
  readonly mainCpuUs: number;
  /** The busiest thread that the store has started; 0 where it has none. */
  readonly ledgerCpuUs: number;
  /** Garbage collection, the compiler, the thread pool. */
  readonly otherCpuUs: number;
}

const warmUpSeconds = 1;
const holdMicrocents = 40_000n;
const costMicrocents = 20_760n;
const latenciesMax = 2 ** 22;

const [job] = await messages(1);
const { place, accountId, inFlight, seconds } = job as SettleJob;
const threadsBefore = new Set(threadCpuUs().keys());
const { billing, ledger, newId, close, batches } = await open();
process.send!('ready');
const go = messages(1);

// The hot account's lease and everybody's code are warm when it counts.
await settleFor(warmUpSeconds, () => {});
await go;
const latenciesMs = new Float64Array(latenciesMax);
let count = 0;
const before = { cpu: threadCpuUs(), batches: batches(), atMs: performance.now() };
await settleFor(seconds, (latencyMs) => {
  latenciesMs[count % latenciesMax] = latencyMs;
  count++;
});
const elapsed = (performance.now() - before.atMs) / 1_000;
const used = [...threadCpuUs()].map(([id, us]) => [id, us - (before.cpu.get(id) ?? 0)] as const);
const main = used.find(([id]) => id === String(process.pid))?.[1] ?? 0;
const own = used.filter(([id]) => !threadsBefore.has(id)).map(([, us]) => us);
const ledgerThread = 'file' in place ? Math.max(0, ...own) : 0;
process.send!({
  settlements: count,
  seconds: elapsed,
  latenciesMs: latenciesMs.subarray(0, Math.min(count, latenciesMax)),
  batches: batches() - before.batches,
  mainCpuUs: main,
  ledgerCpuUs: ledgerThread,
  otherCpuUs: used.reduce((sum, [, us]) => sum + us, 0) - main - ledgerThread,
} satisfies SettleReading);
await close();
process.disconnect();

async function open() {
  const newId = uuidMaker();
  let batches = 0;
  const options = {
    free: {
      credit: (id: string, microcents: bigint) => billing.credit(id, microcents),
      reserve: (id: string, microcents: bigint) => billing.reserve(id, microcents),
      freeMicrocents: (id: string) => billing.freeMicrocents(id) ?? 0n,
      drop: (id: string) => billing.drop(id),
      forget: () => billing.forget(),
    },
    onBatch: () => void batches++,
    onFatal: (error: Error): never => {
      throw error;
    },
  };
  const store =
    'file' in place
      ? await openSqliteStore({ file: place.file, ...options })
      : await openPostgresStore({ address: { url: place.url }, shown: 'the benchmark', ...options });
  const { ledger } = store;
  const billing: Billing = new Billing({ ledger, newId, topupUrl: () => '', log: () => {} });
  return { billing, ledger, newId, close: () => store.close(), batches: () => batches };
}

/** Keeps `inFlight` going at a time, each begun as soon as the one before it is durable. */
async function settleFor(forSeconds: number, settled: (latencyMs: number) => void): Promise<void> {
  const endMs = performance.now() + forSeconds * 1_000;
  await Promise.all(
    Array.from({ length: inFlight }, async () => {
      while (performance.now() < endMs) {
        const taken = billing.take(accountId, holdMicrocents);
        if ((typeof taken === 'bigint' ? taken : await taken) !== holdMicrocents) throw new Error('no credit is left');
        const row = usageRow();
        const sentMs = performance.now();
        if ((await ledger.settle(row)) !== 'billed') throw new Error('a settlement was lost');
        settled(performance.now() - sentMs);
        billing.credit(accountId, holdMicrocents - costMicrocents);
      }
    }),
  );
}

function usageRow(): UsageRow {
  const requestId = newId();
  const endedAt = Date.now();
  return {
    requestId,
    publicId: publicIdOf(requestId),
    clientId: null,
    accountId,
    keyId: 'key_benchmark000',
    modelId: 'benchmark-model',
    api: 'chat',
    streamed: true,
    startedAt: endedAt - 900,
    endedAt,
    promptTokens: 812,
    cachedTokens: 0,
    completionTokens: 143,
    reasoningTokens: 0,
    costMicrocents,
    unchargedMicrocents: 0n,
    holdMicrocents,
    ending: 'finished',
    finish: 'stop',
    errorCode: null,
    counted: false,
    inputPrice: 15_000_000n,
    outputPrice: 60_000_000n,
    cacheReadPrice: 7_500_000n,
    backend: 'vllm',
    firstTokenMs: 120,
    totalMs: 900,
    tags: '["team-search","answer"]',
    plan: null,
    keyBudget: null,
    accountBudget: null,
  };
}

/** Processor time of each thread of this process, by its id. */
function threadCpuUs(): ReadonlyMap<string, number> {
  return new Map(
    readdirSync('/proc/self/task').map((id) => {
      try {
        return [id, Number(readFileSync(`/proc/self/task/${id}/schedstat`, 'utf8').split(' ')[0]) / 1_000];
      } catch {
        return [id, 0]; // it has just ended
      }
    }),
  );
}

function messages(number: number): Promise<readonly unknown[]> {
  return new Promise((resolve) => {
    const all: unknown[] = [];
    const take = (message: unknown): void => {
      all.push(message);
      if (all.length < number) return;
      process.off('message', take);
      resolve(all);
    };
    process.on('message', take);
  });
}
