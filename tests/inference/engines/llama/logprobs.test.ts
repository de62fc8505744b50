import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { TokenLogprob } from '../../../../src/generation/event.ts';
import type { EngineRequest } from '../../../../src/generation/request.ts';
import { chat, collect, never, openSampling, says, startEngine, tinyModel, type Answer } from './support.ts';

// Logprobs are the model's own (vLLM's and llama-server's default): before temperature, penalties, biases and constraints.

const logprobsOf = (answer: Answer): readonly TokenLogprob[] =>
  answer.events.flatMap((event) => (event.type === 'text' ? (event.logprobs ?? []) : []));
const textOf = (logprobs: readonly TokenLogprob[]): string =>
  Buffer.from(logprobs.flatMap(({ bytes }) => bytes ?? [])).toString();
const prompt = { type: 'token-ids', prompts: [[40, 41, 42]] } as const;
const random = (more: Partial<EngineRequest>) => chat('', { prompt, maxTokens: 8, retain: false, ...more });
const sampling = (field: Partial<EngineRequest['sampling']>) => ({ sampling: { ...openSampling, seed: 3, ...field } });

test('every token of the answer has one, and their bytes are the text', async (context) => {
  const { engine } = await startEngine(context, tinyModel(context, { script: says('Hé', 'é😀', '漢', 'x') }));
  const answer = await collect(engine, chat('Hi', { logprobs: 2 }), never);
  const logprobs = logprobsOf(answer);
  assert.equal(logprobs.length, answer.usage?.completionTokens);
  assert.equal(textOf(logprobs), answer.text);
  for (const { logprob, top, token, tokenId } of logprobs) {
    assert.equal(top.length, 2);
    // The script is what the model finds likeliest, by far.
    assert.ok(logprob > -0.1 && logprob <= 0);
    assert.deepEqual([top[0]?.token, top[0]?.tokenId, top[0]?.logprob], [token, tokenId, logprob]);
    assert.ok((top[1]?.logprob ?? 0) < logprob);
  }
});

test('characters cut between tokens have bytes, and all of them', async (context) => {
  const { engine } = await startEngine(context, tinyModel(context));
  // Random weights forced to single bytes: 0xC3 and 0xA9 are é.
  const ids = { '195': 0, '169': 0 };
  const gbnf = 'root ::= "éééé"';
  const request = random({
    logprobs: 0,
    logitBias: ids,
    constraint: { source: { type: 'grammar', text: gbnf }, gbnf },
  });
  const answer = await collect(engine, { ...request, maxTokens: 32 }, never);
  const logprobs = logprobsOf(answer);
  assert.equal(answer.text, 'éééé');
  assert.equal(textOf(logprobs), 'éééé');
  assert.equal(logprobs.length, answer.usage?.completionTokens);
  assert.ok(logprobs.every(({ top }) => top.length === 0));
});

test('they do not depend on temperature, filters, penalties, biases or a constraint', async (context) => {
  const { engine } = await startEngine(context, tinyModel(context), { slots: 2 });
  const first = async (more: Partial<EngineRequest>) =>
    logprobsOf(await collect(engine, random({ logprobs: 20, maxTokens: 1, ...more }), never))[0];
  const plain = await first(sampling({ temperature: 0 }));
  assert.ok(plain !== undefined);
  const inPlain = new Map(plain.top.map(({ tokenId, logprob }) => [tokenId, logprob]));
  const gbnf = 'root ::= [a-z] [a-z]';
  const others: readonly Partial<EngineRequest>[] = [
    sampling({ temperature: 2, topP: 0.4, topK: 3 }),
    sampling({ repetitionPenalty: 5, presencePenalty: 2, minP: 0.5 }),
    { ...sampling({}), logitBias: { '50': 100 } },
    { ...sampling({}), constraint: { source: { type: 'grammar', text: gbnf }, gbnf } },
  ];
  for (const more of others) {
    const made = await first(more);
    assert.deepEqual(
      made?.top.map(({ tokenId }) => tokenId),
      plain.top.map(({ tokenId }) => tokenId),
    );
    for (const [index, { logprob }] of (made?.top ?? []).entries())
      assert.ok(Math.abs(logprob - (plain.top[index]?.logprob ?? 0)) < 1e-3);
    const known = inPlain.get(made?.tokenId);
    if (known !== undefined) assert.ok(Math.abs((made?.logprob ?? 0) - known) < 1e-3);
    else assert.ok((made?.logprob ?? 0) <= (plain.top.at(-1)?.logprob ?? 0) + 1e-3, 'less likely than the likeliest');
  }
});

test('a stop sequence takes its tokens with it', async (context) => {
  const { engine } = await startEngine(
    context,
    tinyModel(context, { script: says('one', ' S', 'T', 'ART', ' ST', 'OP', 'x') }),
  );
  const answer = await collect(engine, chat('Hi', { logprobs: 0, stop: ['STOP'] }), never);
  assert.equal(answer.text, 'one START ');
  // ` ST` begins in the text, `OP` does not.
  assert.deepEqual(
    logprobsOf(answer).map(({ token }) => token),
    ['one', ' S', 'T', 'ART', ' ST'],
  );
});

test('reasoning has none, and the answer behind it all of its own', async (context) => {
  const { engine } = await startEngine(
    context,
    tinyModel(context, { script: says('<think>', 'Hm', '</think>', '\n\n', 'Four', '.') }),
  );
  const answer = await collect(engine, chat('Hi', { logprobs: 1, effort: 'max' }), never);
  assert.equal(answer.text, 'Four.');
  assert.deepEqual(
    logprobsOf(answer).map(({ token }) => token),
    ['Four', '.'],
  );
});

test('without a request for them there are none', async (context) => {
  const { engine } = await startEngine(context, tinyModel(context, { script: says('a', 'b') }));
  const answer = await collect(engine, chat('Hi'), never);
  assert.ok(answer.events.every((event) => event.type !== 'text' || event.logprobs === undefined));
});

test('a seed repeats text and logprobs, and each of several choices has its own', async (context) => {
  const { engine } = await startEngine(context, tinyModel(context), { slots: 1 });
  const ask = (more: Partial<EngineRequest>) =>
    collect(engine, random({ logprobs: 2, ...sampling({ seed: 11 }), ...more }), never);
  const [once, again] = [await ask({}), await ask({})];
  assert.equal(once.text, again.text);
  assert.deepEqual(logprobsOf(once), logprobsOf(again));
  const three = await ask({ choices: 3 });
  assert.equal(three.texts[0], once.text);
  for (const choice of [0, 1, 2]) {
    const own = three.events.flatMap((event) =>
      event.type === 'text' && event.choice === choice ? (event.logprobs ?? []) : [],
    );
    assert.equal(textOf(own), three.texts[choice]);
  }
});

test('SentencePiece tokens have the bytes of their blanks', async (context) => {
  const { engine } = await startEngine(context, tinyModel(context, { tokenizer: 'spm' }));
  const answer = await collect(engine, random({ logprobs: 1, ...sampling({ seed: 5 }) }), never);
  const text = textOf(logprobsOf(answer));
  // The first blank of a text is the tokenizer's own.
  assert.equal(text.replace(/^ /, ''), answer.text.replace(/^ /, ''));
});
