/**
 * Whatever way a server says an answer, every family gives the same texts, calls, finish and counts, streamed and whole; and what is
 * none fails. `TOKENHOUSE_TEST_ODD_SEEDS=100000 npm test -- odd-servers` tries as many servers; a failure prints its seed, and the fewest
 * habits with which it fails.
 */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { GenerationBatch } from '../../src/generation/event.ts';
import { ChunkShapes } from '../../src/inference/engines/openai/chunk-template.ts';
import { SseReader } from '../../src/inference/engines/openai/sse.ts';
import { newDecoder, type DecodeSettings } from '../inference/engines/openai/decoding.ts';
import { maxTokens } from '../support/odd-servers/count.ts';
import { habitNames, oddOnes, type HabitName } from '../support/odd-servers/habits.ts';
import { oddAnswer, type OddAnswer } from '../support/odd-servers/odd-answer.ts';
import { oddTools } from '../support/odd-calls.ts';
import { chatFamilies, completionFamily } from './answer-families.ts';
import { checkGiven } from './odd-given.ts';
import { generationOf, head, metered, streamOf } from './whole-and-streamed.ts';

const seeds = Number(process.env['TOKENHOUSE_TEST_ODD_SEEDS'] ?? 600);

describe('answers of odd servers', () => {
  test('the same ones every time', () => checkSeeds(0, seeds));
  test('others every time', () => checkSeeds(Math.floor(Math.random() * 2 ** 31), 100));
});

function checkSeeds(from: number, count: number): void {
  const failures: string[] = [];
  for (let seed = from; seed < from + count && failures.length < 5; seed++) {
    const failure = failureOf(seed);
    if (failure !== undefined) failures.push(failure);
  }
  assert.equal(failures.length, 0, failures.join('\n\n'));
}

/** What is wrong with the answer of a seed, and the habits without which it is right. */
function failureOf(seed: number): string | undefined {
  if (wrong(oddAnswer(seed)) === undefined) return undefined;
  const without = new Set<HabitName>();
  for (const name of habitNames) {
    without.add(name);
    if (wrong(oddAnswer(seed, { without })) === undefined) without.delete(name);
  }
  const odd = oddAnswer(seed, { without });
  const { server, api, fault, meanings } = odd;
  const left = { ...oddOnes(odd.habits), ...(fault === undefined ? {} : { fault }) };
  return `seed ${seed}, ${server.name}, ${api}: ${JSON.stringify(left)}\n${JSON.stringify(meanings.map((meaning) => ({ ...meaning, oddly: meaning.oddly?.oddities })))}\n${wrong(odd)}`;
}

function wrong(odd: OddAnswer): string | undefined {
  try {
    check(odd);
    return undefined;
  } catch (error) {
    return (error as Error).message;
  }
}

function check(odd: OddAnswer): void {
  const { batches, failure } = read(odd);
  if (odd.fault !== undefined) return assert.notEqual(failure, undefined, 'it is no answer');
  if (failure !== undefined) throw failure;
  const passed = metered({ choices: odd.meanings.length, batches, usage: undefined as never });
  const usage = passed.at(-1)!.at(-1)!;
  assert.ok(usage.type === 'usage');
  assert.equal(usage.counted, odd.counted.isMarked, `marked: ${usage.counted}`);
  const families = odd.api === 'completions' ? { completions: completionFamily } : chatFamilies;
  for (const [name, { format, streamed, whole }] of Object.entries(families)) {
    if (odd.meanings.length > 1 && name !== 'chat' && name !== 'completions') continue;
    checkGiven(odd, streamed(streamOf(format, passed)), `${name}, streamed`, 0);
    checkGiven(odd, whole(format.encodeResponse(generationOf(passed), head)), `${name}, whole`, 0);
  }
}

/** As the engine reads it: a batch for each read of the socket. */
function read({ server, api, meanings, bytes }: OddAnswer): { batches: readonly GenerationBatch[]; failure: unknown } {
  const decoder = newDecoder({
    choices: meanings.length,
    maxTokens,
    splitsThinking: server.reasons,
    reasons: server.reasons,
    closingUsage: server.closingUsage,
    endsCallsWithoutReason: server.endsCallsWithoutReason,
    toolNames: oddTools,
    shapes: new ChunkShapes(),
    ...(api === 'completions' ? { completion } : {}),
  });
  const batches: GenerationBatch[] = [];
  const drain = (): void => {
    const batch = decoder.drain();
    if (batch.length > 0) batches.push(batch);
  };
  try {
    if (Buffer.isBuffer(bytes)) decoder.whole(bytes.toString());
    else {
      const sse = new SseReader((data, name) => decoder.event(data, name));
      for (const piece of bytes) {
        sse.push(piece);
        drain();
      }
      sse.end();
    }
    drain();
    if (!decoder.isFinished) throw new Error('the answer has no end');
    return { batches, failure: undefined };
  } catch (failure) {
    return { batches, failure };
  }
}

const completion: NonNullable<DecodeSettings['completion']> = {
  prompts: ['x'],
  isEchoed: false,
  ownEcho: () => undefined,
  returnsIds: false,
  hasLogprobs: false,
};
