import { readFileSync } from 'node:fs';
import { mulberry32 } from '../../tests/support/random.ts';
import { Problem } from '../problem.ts';

/** Tokens of a block; two prompts share a beginning when they have the same blocks there. */
export const blockTokens = 512;

/** A request of a trace. */
export interface TracedRequest {
  readonly atMs: number;
  readonly promptTokens: number;
  readonly answerTokens: number;
  /** Of each block of the prompt, with everything before it. */
  readonly blocks: readonly number[];
  /** What the server that served it reported as cached, in traces of our own. */
  readonly cachedTokens?: number;
}

/**
 * Reads a trace in the form that Mooncake published (FAST'25): a JSON object on each line, with `timestamp` in milliseconds,
 * `input_length`, `output_length` and `hash_ids`. `tokenhouse traffic export` writes such traces, with a `cached_length` more.
 */
export function readTrace(path: string): readonly TracedRequest[] {
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch (error) {
    throw new Problem(`The trace ${path} cannot be read: ${(error as Error).message}`, 'Check the path after --trace.');
  }
  const requests = text.split('\n').flatMap((line, index) => (line.trim() === '' ? [] : [tracedOf(line, index)]));
  if (requests.length === 0) throw new Problem(`The trace ${path} has no requests.`, 'Check the path after --trace.');
  return requests.toSorted((a, b) => a.atMs - b.atMs);
}

function tracedOf(line: string, index: number): TracedRequest {
  try {
    const { timestamp, input_length, output_length, hash_ids, cached_length } = JSON.parse(line) as Record<
      string,
      unknown
    >;
    const figures = [timestamp, input_length, output_length, ...(hash_ids as unknown[])];
    if (!figures.every((figure) => Number.isFinite(figure))) throw new TypeError('a figure is missing');
    const [atMs, promptTokens, answerTokens, ...blocks] = figures as [number, number, number, ...number[]];
    const served = typeof cached_length === 'number' ? { cachedTokens: cached_length } : {};
    return { atMs, promptTokens, answerTokens, blocks, ...served };
  } catch (error) {
    throw new Problem(
      `Line ${index + 1} of the trace is not a request: ${(error as Error).message}`,
      'Each line is {"timestamp": ms, "input_length": tokens, "output_length": tokens, "hash_ids": [one for each 512 tokens]}.',
    );
  }
}

export interface TraceShape {
  readonly seconds: number;
  /** Conversations that begin in a second, outside bursts. */
  readonly conversationsPerSecond: number;
  /** Applications, each with a system prompt of its own; a few have most of the traffic. */
  readonly applications: number;
  readonly seed: number;
}

/**
 * A trace like that of a chat service: applications with long common beginnings, conversations that come back with everything
 * said before, and every few minutes ten seconds with four times the traffic.
 */
export function generateTrace({ seconds, conversationsPerSecond, applications, seed }: TraceShape): TracedRequest[] {
  const random = mulberry32(seed);
  const exponential = (mean: number): number => -mean * Math.log(1 - random());
  const systemBlocks = Array.from({ length: applications }, () => Math.floor(random() * 8));
  const requests: TracedRequest[] = [];
  let nextBlock = applications * 8;
  for (let atMs = 0; atMs < seconds * 1_000;) {
    const isBurst = atMs % 180_000 < 10_000;
    atMs += exponential(1_000 / (conversationsPerSecond * (isBurst ? 4 : 1)));
    // Zipf: the application of rank k has 1/k of the first one's traffic, about.
    const application = Math.floor(applications ** random()) - 1;
    const blocks = Array.from({ length: systemBlocks[application]! }, (_, index) => application * 8 + index);
    let tokens = blocks.length * blockTokens;
    for (let turnAtMs = atMs; turnAtMs < seconds * 1_000; turnAtMs += exponential(40_000)) {
      tokens += 50 + exponential(1_200);
      const answerTokens = Math.ceil(10 + exponential(300));
      while (blocks.length * blockTokens < tokens) blocks.push(nextBlock++);
      const promptTokens = Math.ceil(tokens);
      requests.push({ atMs: turnAtMs, promptTokens, answerTokens, blocks: [...blocks] });
      tokens += answerTokens;
      if (random() < 0.35 || tokens > 60_000) break;
    }
  }
  return requests.sort((a, b) => a.atMs - b.atMs);
}

/** The same requests in a part of the time. */
export const faster = (trace: readonly TracedRequest[], times: number): readonly TracedRequest[] =>
  trace.map((request) => ({ ...request, atMs: request.atMs / times }));
