/** A model server whose requests say how long they take, and which remembers when each of them had a slot. */
import { setTimeout as delay } from 'node:timers/promises';

import { chatChunk, Upstream, usageChunk } from './upstream.ts';

/** What a request takes. */
export interface Work {
  readonly firstMs: number;
  readonly words: number;
}

/** A request while the server has it. */
export interface Run {
  /** Of whom or what it is, as its prompt says. */
  readonly of: string;
  readonly begunMs: number;
  /** Infinity while it runs. */
  endedMs: number;
  /** Not broken off by the service. */
  isWhole: boolean;
}

/** What `Run.of` says is a word. */
export const promptOf = (of: string, { firstMs, words }: Work): string =>
  `${of} takes ${Math.round(firstMs)} ms and ${words} words`;

export const promptTokens = 5;

export class PacedServer {
  readonly #upstream: Upstream;
  /** In the order in which they began. */
  readonly runs: Run[];

  private constructor(upstream: Upstream, runs: Run[]) {
    this.#upstream = upstream;
    this.runs = runs;
  }

  static async start(wordMs: number): Promise<PacedServer> {
    const runs: Run[] = [];
    const upstream = await Upstream.start(async (exchange) => {
      if (exchange.path.endsWith('/tokenize'))
        return exchange.json(200, { count: promptTokens, max_model_len: 8_192, tokens: [] });
      const [, of = '', firstMs, words] = /(\w+) takes (\d+) ms and (\d+) words/.exec(exchange.body) ?? [];
      const run: Run = { of, begunMs: performance.now(), endedMs: Infinity, isWhole: false };
      runs.push(run);
      void exchange.closed.then(() => (run.endedMs = Math.min(run.endedMs, performance.now())));
      await delay(Number(firstMs));
      exchange.events();
      // By when each is due: timers of a busy process are late.
      const dueMs = run.begunMs + Number(firstMs);
      for (let word = 0; word < Number(words) && !exchange.socket.destroyed; word++) {
        exchange.chunk(chatChunk({ content: 'one ' }));
        await delay(Math.max(0, dueMs + (word + 1) * wordMs - performance.now()));
      }
      if (exchange.socket.destroyed) return;
      exchange.chunk(chatChunk({}, 'stop'));
      const usage = { prompt_tokens: promptTokens, completion_tokens: Number(words) };
      exchange.chunk(`${usageChunk(usage)}data: [DONE]\n\n`);
      exchange.endChunks();
      run.isWhole = run.endedMs === Infinity;
      run.endedMs = Math.min(run.endedMs, performance.now());
    });
    return new PacedServer(upstream, runs);
  }

  /** Of a service: one model on this server. */
  models(slots: number, queue: number): string {
    return `models:
- id: demo
  context_length: 8192
  pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
  backends: [ { engine: openai, flavor: vllm, url: "${this.#upstream.url}", max_concurrency: ${slots}, queue: ${queue} } ]
`;
  }

  /** Slot time between two moments, of the runs that are chosen. */
  slotMs(fromMs: number, toMs: number, isChosen: (run: Run) => boolean): number {
    return this.runs
      .filter(isChosen)
      .reduce((sum, { begunMs, endedMs }) => sum + Math.max(0, Math.min(endedMs, toMs) - Math.max(begunMs, fromMs)), 0);
  }

  close(): Promise<void> {
    return this.#upstream.close();
  }
}

/** A streamed answer of `PacedServer` by way of the service. */
export interface Streamed {
  readonly requestId: string;
  /** From the request to the first word. */
  readonly firstTokenMs: number;
}

export async function streamed(
  service: { chat(body: Readonly<Record<string, unknown>>, init?: ChatInit): Promise<Response> },
  prompt: string,
  init: ChatInit = {},
): Promise<Streamed> {
  const begunMs = performance.now();
  const body = { model: 'demo', stream: true, messages: [{ role: 'user', content: prompt }] };
  const response = await service.chat(body, init);
  // The database did not answer in time, as the error says: machines may be that busy.
  if (response.status === 500) {
    await response.arrayBuffer();
    return await streamed(service, prompt, init);
  }
  if (!response.ok) throw new Error(await response.text());
  let firstTokenMs: number | undefined;
  let text = '';
  const decoder = new TextDecoder();
  for await (const bytes of response.body!) {
    text += decoder.decode(bytes as Uint8Array, { stream: true });
    if (firstTokenMs === undefined && text.includes('"content":"one')) firstTokenMs = performance.now() - begunMs;
  }
  if (firstTokenMs === undefined || !text.endsWith('data: [DONE]\n\n'))
    throw new Error(`a stream ended early: ${text}`);
  return { requestId: response.headers.get('x-request-id')!, firstTokenMs };
}

interface ChatInit {
  readonly key?: string;
  readonly signal?: AbortSignal;
}

/** A request that comes at a moment of a play. */
export interface Arrival extends Work {
  readonly atMs: number;
}

export interface Played {
  /** In the order of the arrivals. */
  readonly answers: readonly Streamed[];
  /** How long it took until the last arrival. */
  readonly lastMs: number;
  /** Slot time until then: what interactive requests left of all slots, and what lines of batches had of that. */
  readonly idleMs: number;
  readonly soldMs: number;
  /** The part of it in lines that gave way. */
  readonly thrownAwayMs: number;
  readonly linesBegun: number;
  readonly linesStopped: number;
}

/** Sends requests to replicas in turn, beside whatever else runs there. What is not of `interactive` counts as a line. */
export async function playArrivals(
  server: PacedServer,
  replicas: readonly Parameters<typeof streamed>[0][],
  arrivals: readonly Arrival[],
  slots: number,
): Promise<Played> {
  const fromMs = performance.now();
  const asked = arrivals.map(async (arrival, index) => {
    await delay(Math.max(0, fromMs + arrival.atMs - performance.now()));
    return await streamed(replicas[index % replicas.length]!, promptOf('interactive', arrival));
  });
  const answers = await Promise.all(asked);
  // What comes after the last arrival does not count: there are only lines then.
  const toMs = fromMs + arrivals.at(-1)!.atMs;
  const isLine = ({ of }: Run): boolean => of !== 'interactive';
  const isStopped = (run: Run): boolean => isLine(run) && !run.isWhole && run.endedMs <= toMs;
  const lines = server.runs.filter((run) => isLine(run) && run.begunMs < toMs && run.endedMs > fromMs);
  return {
    answers,
    lastMs: toMs - fromMs,
    idleMs: (toMs - fromMs) * slots - server.slotMs(fromMs, toMs, (run) => !isLine(run)),
    soldMs: server.slotMs(fromMs, toMs, isLine),
    thrownAwayMs: server.slotMs(fromMs, toMs, isStopped),
    linesBegun: lines.filter(({ begunMs }) => begunMs >= fromMs).length,
    linesStopped: lines.filter(isStopped).length,
  };
}

/** Of first tokens, in whole milliseconds. */
export function quantile(times: readonly number[], part: number): number {
  const sorted = times.toSorted((a, b) => a - b);
  return Math.round(sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))]!);
}
