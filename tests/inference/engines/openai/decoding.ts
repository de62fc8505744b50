import { readFileSync, readdirSync } from 'node:fs';
import { pathToFileURL } from 'node:url';
import { ChunkDecoder } from '../../../../src/inference/engines/openai/decode/decoder.ts';
import type { DecoderOptions } from '../../../../src/inference/engines/openai/decode/options.ts';
import type { FlavorName } from '../../../../src/generation/flavor-names.ts';
import { flavors } from '../../../../src/inference/engines/openai/flavors/flavors.ts';
import { SseReader } from '../../../../src/inference/engines/openai/sse.ts';
import { UsageTally, type UsageBounds } from '../../../../src/inference/engines/usage-tally.ts';
import type { GenerationEvent } from '../../../../src/generation/event.ts';
import { inRepository } from '../../../support/repository.ts';

export type DecodeSettings = Partial<Omit<DecoderOptions, 'tally'>> & Pick<UsageBounds, 'reasons' | 'hasTokenPerDelta'>;

/** A decoder for a request of one choice, unless told otherwise. */
export function newDecoder(settings: DecodeSettings = {}): ChunkDecoder {
  const { choices = 1, choicesPerPrompt = choices, maxTokens = 1_000, reasons, hasTokenPerDelta, ...rest } = settings;
  return new ChunkDecoder({
    requestId: '0198f000000070008000000000000001',
    choices,
    choicesPerPrompt,
    maxTokens,
    logprobs: undefined,
    reasoningForm: 'separate',
    splitsThinking: false,
    takesOneCall: false,
    closingUsage: 'total',
    ...rest,
    tally: new UsageTally({
      choices,
      choicesPerPrompt,
      promptTokensMax: 10_000,
      completionTokensMax: maxTokens,
      ...(reasons === undefined ? {} : { reasons }),
      ...(hasTokenPerDelta === undefined ? {} : { hasTokenPerDelta }),
    }),
  });
}

/** What the decoder makes of a stream that arrives in these pieces, up to where it fails. */
export function decode(
  pieces: readonly Buffer[],
  settings: DecodeSettings = {},
): { events: GenerationEvent[]; failure: string | undefined } {
  const decoder = newDecoder(settings);
  const sse = new SseReader((data, name) => decoder.event(data, name));
  const events: GenerationEvent[] = [];
  let failure: string | undefined;
  try {
    for (const piece of pieces) {
      sse.push(piece);
      events.push(...decoder.drain());
    }
    sse.end();
  } catch (error) {
    failure = (error as Error).name;
  }
  events.push(...decoder.drain());
  if (failure === undefined && !decoder.isFinished) failure = 'unfinished';
  return { events, failure };
}

/** Folders of `tests/fixtures/upstream`, and the flavor whose decoder reads them. */
export const recordedServers = {
  'llama-server': 'llama-server',
  vllm: 'vllm',
  'vllm-0.11': 'vllm',
  'vllm-0.32': 'vllm',
  sglang: 'sglang',
  openai: 'openai',
} as const satisfies Record<string, FlavorName>;
export type RecordedServer = keyof typeof recordedServers;

/** Names of the recorded streams of a server, without `.sse`. */
export function recordedStreams(server: RecordedServer): readonly string[] {
  return readdirSync(folderOf(server))
    .filter((name) => name.endsWith('.sse'))
    .map((name) => name.slice(0, -'.sse'.length))
    .sort();
}

/** A stream as it was recorded, without the two lines that tell how. */
export function recording(name: string, server: RecordedServer = 'llama-server'): Buffer {
  const bytes = readFileSync(new URL(`${name}`, folderOf(server)));
  let start = 0;
  while (bytes[start] === 0x3a) start = bytes.indexOf(10, start) + 1;
  return bytes.subarray(start);
}

/** How the engine would read the answer to the request that the recording tells. */
export function recordedSettings(name: string, server: RecordedServer): DecodeSettings {
  const [first = ''] = readFileSync(new URL(`${name}.sse`, folderOf(server)), 'utf8').split('\n', 1);
  const request = JSON.parse(first.slice(first.indexOf('{'))) as RecordedRequest;
  return {
    choices: request.n ?? 1,
    maxTokens: request.max_tokens ?? 1_000,
    logprobs: request.logprobs === true ? 20 : undefined,
    closingUsage: flavors[recordedServers[server]].closingUsage,
  };
}

interface RecordedRequest {
  readonly n?: number;
  readonly max_tokens?: number;
  readonly logprobs?: boolean;
}

export function recordedJson(
  name: string,
  server: RecordedServer = 'llama-server',
): {
  request: { body: RecordedRequest };
  status: number;
  headers: Record<string, string>;
  body: unknown;
} {
  return JSON.parse(readFileSync(new URL(name, folderOf(server)), 'utf8')) as ReturnType<typeof recordedJson>;
}

/** Names of the recorded whole answers of a server that are answers. */
export function recordedAnswers(server: RecordedServer): readonly string[] {
  return readdirSync(folderOf(server)).filter(
    (name) => name.endsWith('.json') && recordedJson(name, server).status === 200,
  );
}

/** One event a line, and a last line for what the stream fails with. */
export function eventLines(events: readonly GenerationEvent[], failure?: string): string {
  const lines: readonly unknown[] = failure === undefined ? events : [...events, { failure }];
  return lines.map((line) => `${JSON.stringify(line)}\n`).join('');
}

export function folderOf(server: RecordedServer): URL {
  return pathToFileURL(inRepository(`tests/fixtures/upstream/${server}/`));
}
