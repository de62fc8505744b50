import { readFileSync } from 'node:fs';
import { ChunkDecoder, type DecoderOptions } from '../../../src/engines/openai/decode.ts';
import { SseReader } from '../../../src/engines/openai/sse.ts';
import { UsageTally } from '../../../src/engines/usage-tally.ts';
import type { GenerationEvent } from '../../../src/generation/event.ts';

export type DecodeSettings = Partial<Omit<DecoderOptions, 'tally'>>;

/** A decoder for a request of one choice, unless told otherwise. */
export function newDecoder(settings: DecodeSettings = {}): ChunkDecoder {
  const { choices = 1, choicesPerPrompt = choices, maxTokens = 1_000 } = settings;
  return new ChunkDecoder({
    requestId: '0198f000000070008000000000000001',
    choices,
    choicesPerPrompt,
    maxTokens,
    wantsLogprobs: false,
    closingUsage: 'total',
    ...settings,
    tally: new UsageTally({ choices, choicesPerPrompt, promptTokensMax: 10_000, completionTokensMax: maxTokens }),
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
  if (failure === undefined) {
    if (!decoder.isFinished) failure = 'unfinished';
    else events.push(...decoder.closing());
  }
  return { events, failure };
}

/** A stream as it was recorded, without the two lines that tell how. */
export function recording(name: string): Buffer {
  const bytes = readFileSync(new URL(`../../../../tests/fixtures/upstream/llama-server/${name}`, import.meta.url));
  let start = 0;
  while (bytes[start] === 0x3a) start = bytes.indexOf(10, start) + 1;
  return bytes.subarray(start);
}

export function recordedJson(name: string): {
  request: unknown;
  status: number;
  headers: Record<string, string>;
  body: unknown;
} {
  const path = new URL(`../../../../tests/fixtures/upstream/llama-server/${name}`, import.meta.url);
  return JSON.parse(readFileSync(path, 'utf8')) as ReturnType<typeof recordedJson>;
}
