import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ApiError } from '../../../../src/platform/errors.ts';
import type { LlamaEngine } from '../../../../src/inference/engines/llama/engine.ts';
import { chat, collect, never, startEngine, tinyModel, until, type Answer } from './support.ts';

const slowModel = { dimensions: 512, layers: 6, contextLength: 2048 };
const oneSlot = { slots: 1, contextLength: 2048 };
/** Of about four tokens a word. */
const prompt = (words: number, first: string): string =>
  [first, ...Array.from({ length: words }, (_, index) => `${index % 10}bc`)].join(' ');

async function outcome(asked: Promise<Answer>): Promise<Answer | ApiError> {
  try {
    return await asked;
  } catch (error) {
    assert.ok(error instanceof ApiError, String(error));
    return error;
  }
}

const tokensOf = (engine: LlamaEngine, text: string) => engine.countTokens(chat(text), never);

test('a prompt that takes longer to read than a first token may take is answered, because it is being read', async (context) => {
  const model = tinyModel(context, slowModel);
  const ask = async (engine: LlamaEngine, words: number) => {
    const begunMs = performance.now();
    const answer = await outcome(collect(engine, chat(prompt(words, 'it'), { maxTokens: 1 }), never));
    return { answer, elapsedMs: performance.now() - begunMs };
  };
  const patient = await startEngine(context, model, oneSlot);
  const quarter = await ask(patient.engine, 110);
  const total = (await tokensOf(patient.engine, prompt(450, 'it'))) ?? 0;
  assert.ok(total > 1500 && total < 2040, `${total} tokens`);
  await patient.engine.close();
  // A step that nobody else waits for takes up to half a second.
  const firstTokenTimeoutMs = Math.max(700, quarter.elapsedMs);
  const { engine } = await startEngine(context, model, { ...oneSlot, firstTokenTimeoutMs });
  const tries: Awaited<ReturnType<typeof ask>>[] = [];
  // Where the machine has become much slower meanwhile, as a client asks again.
  do tries.push(await ask(engine, 450));
  while (tries.at(-1)?.answer instanceof ApiError && tries.length < 5);
  const last = tries.at(-1)?.answer;
  assert.ok(last !== undefined && !(last instanceof ApiError), String(last));
  assert.equal(last.usage?.promptTokens, total);
  const longestMs = Math.max(...tries.map(({ elapsedMs }) => elapsedMs));
  assert.ok(longestMs > firstTokenTimeoutMs, `${longestMs} ms, of which ${firstTokenTimeoutMs} may be silent`);
});

test('a prompt that cannot be read in time is refused with how much can be', async (context) => {
  const options = { ...oneSlot, firstTokenTimeoutMs: 10 };
  const { engine } = await startEngine(context, tinyModel(context, slowModel), options);
  let refusal: ApiError | undefined;
  // The first finds out how long reading takes here, while its time is soon over.
  await until(async () => {
    const answer = await outcome(collect(engine, chat(prompt(450, 'it'), { maxTokens: 1, retain: false }), never));
    if (answer instanceof ApiError && answer.code !== 'backend_timeout') refusal = answer;
    return refusal !== undefined;
  }, 'the prompt is refused');
  assert.equal(refusal?.code, 'context_length_exceeded');
  const { prompt_tokens: asked, context_length_limit: readable, reading_seconds: seconds } = refusal?.extra ?? {};
  assert.equal(asked, await tokensOf(engine, prompt(450, 'it')));
  assert.ok(typeof readable === 'number' && readable < Number(asked), `${String(readable)} tokens`);
  assert.equal(seconds, 0);
});
