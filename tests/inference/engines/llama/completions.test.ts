import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { GenerationEvent, PromptToken, TokenLogprob } from '../../../../src/generation/event.ts';
import type { EngineRequest, TokenControls } from '../../../../src/generation/request.ts';
import { ApiError } from '../../../../src/platform/errors.ts';
import { plainTokens } from '../../../support/token-controls.ts';
import { chat, collect, never, openSampling, startEngine, tinyModel, type Answer } from './support.ts';

/** What text completions have beyond chat, on the embedded engine (contracts §1.1). */

const script = [['user', ' one', ' two', ' thr', 'ee', ' four', '<|im_end|>']] as const;

const texts = (prompt: string, tokens: Partial<TokenControls> = {}, more: Partial<EngineRequest> = {}): EngineRequest =>
  chat('', { prompt: { type: 'texts', prompts: [prompt] }, tokens: { ...plainTokens, ...tokens }, ...more });
const ids = (prompt: readonly number[], tokens: Partial<TokenControls> = {}, more: Partial<EngineRequest> = {}) =>
  chat('', { prompt: { type: 'token-ids', prompts: [prompt] }, tokens: { ...plainTokens, ...tokens }, ...more });

type PromptEvent = Extract<GenerationEvent, { type: 'prompt' }>;
const promptsOf = ({ events }: Answer): readonly PromptEvent[] =>
  events.filter((event): event is PromptEvent => event.type === 'prompt');
const idsOf = ({ events }: Answer): readonly number[] =>
  events.flatMap((event) => (event.type === 'text' ? (event.tokenIds ?? []) : []));
const logprobsOf = ({ events }: Answer): readonly TokenLogprob[] =>
  events.flatMap((event) => (event.type === 'text' ? (event.logprobs ?? []) : []));
const near = (a: number | undefined, b: number | undefined): boolean => Math.abs((a ?? NaN) - (b ?? NaN)) < 2e-2;

test('a text goes on, and its ids are those of its tokens', async (context) => {
  const { engine } = await startEngine(context, tinyModel(context, { script }));
  const answer = await collect(engine, texts('user', { returnsIds: true }), never);
  assert.equal(answer.text, ' one two three four');
  assert.deepEqual(answer.finish, { type: 'finish', choice: 0, reason: 'stop' });
  const reported = idsOf(answer);
  assert.equal(reported.length, answer.usage?.completionTokens);
  const [prompt] = promptsOf(answer);
  assert.equal(prompt?.text, '');
  assert.equal(prompt.tokenIds?.length, answer.usage?.promptTokens);
  // The ids of prompt and answer are a prompt themselves, whose continuation is nothing.
  const again = await collect(
    engine,
    ids([...(prompt.tokenIds ?? []), ...reported.slice(0, 2)], { returnsIds: true }),
    never,
  );
  assert.equal(again.text, ' three four');
  assert.deepEqual(idsOf(again), reported.slice(2));
  assert.ok(engine.vocabularySize !== undefined && reported.every((id) => id < engine.vocabularySize!));
});

test('echo tells the prompt before the answer, as text and by its ids', async (context) => {
  const { engine } = await startEngine(context, tinyModel(context, { script }));
  for (const prompt of ['user', 'A quick user', 'déjà 漢😀 user']) {
    const answer = await collect(engine, texts(prompt, { echo: true, returnsIds: true }), never);
    const [reported] = promptsOf(answer);
    assert.equal(reported?.text, prompt);
    assert.equal(answer.text, ' one two three four');
    const byIds = await collect(engine, ids(reported.tokenIds ?? [], { echo: true }), never);
    assert.equal(promptsOf(byIds)[0]?.text, prompt);
    assert.equal(byIds.text, answer.text);
    assert.deepEqual(
      answer.events
        .map(({ type }) => type)
        .filter((type) => type !== 'usage')
        .slice(0, 3),
      ['start', 'prompt', 'text'],
    );
  }
});

test('echo with logprobs: the model finds the prompt as likely as when it had written it', async (context) => {
  const { engine } = await startEngine(context, tinyModel(context), { slots: 2 });
  const prompt = Array.from({ length: 45 }, (_, index) => 40 + ((index * 7) % 150));
  const greedy = { sampling: { ...openSampling, temperature: 0 } };
  const scored = await collect(engine, ids(prompt, { echo: true }, { logprobs: 3, maxTokens: 3 }), never);
  const [reported] = promptsOf(scored);
  assert.equal(reported?.tokens?.length, prompt.length);
  assert.equal(reported.tokens[0]?.logprob, undefined);
  assert.deepEqual(reported.tokens[0]?.top, []);
  for (const at of [1, 2, 15, 16, 17, 31, 44]) {
    // The same position, as the first token of an answer: the likeliest there, and the token itself when it is one of them.
    const written = await collect(
      engine,
      ids(prompt.slice(0, at), {}, { logprobs: 20, maxTokens: 1, ...greedy }),
      never,
    );
    const first = logprobsOf(written)[0]!;
    const token: PromptToken = reported.tokens[at]!;
    assert.equal(token.tokenId, prompt[at]);
    assert.deepEqual(
      token.top.map(({ tokenId }) => tokenId),
      first.top.slice(0, 3).map(({ tokenId }) => tokenId),
      `at ${at}`,
    );
    for (const [index, { logprob }] of token.top.entries()) assert.ok(near(logprob, first.top[index]?.logprob));
    const same = first.top.find(({ tokenId }) => tokenId === prompt[at]);
    if (same === undefined) assert.ok((token.logprob ?? 0) <= (first.top.at(-1)?.logprob ?? 0) + 2e-2);
    else assert.ok(near(token.logprob, same.logprob));
  }
  assertStarts(reported.text, reported.tokens);
  assertStarts(scored.text, logprobsOf(scored));
});

test('max_tokens 0 with echo scores a prompt and writes nothing', async (context) => {
  const { engine } = await startEngine(context, tinyModel(context));
  const prompt = [60, 61, 62, 63];
  for (const logprobs of [undefined, 1]) {
    const answer = await collect(engine, ids(prompt, { echo: true }, { maxTokens: 0, logprobs }), never);
    assert.equal(answer.text, '');
    assert.equal(answer.usage?.completionTokens, 0);
    assert.equal(answer.usage.promptTokens, 4);
    assert.equal(answer.finish?.reason, 'length');
    assert.equal(promptsOf(answer)[0]?.tokens?.length, logprobs === undefined ? undefined : 4);
  }
  const whole = await collect(engine, ids(prompt, { echo: true }, { maxTokens: 2, logprobs: 1 }), never);
  const scored = await collect(engine, ids(prompt, { echo: true }, { maxTokens: 0, logprobs: 1 }), never);
  for (const [index, token] of (promptsOf(whole)[0]?.tokens ?? []).slice(1).entries())
    assert.ok(near(token.logprob, promptsOf(scored)[0]?.tokens?.[index + 1]?.logprob));
});

test('a token that is named as a stop ends the answer, and is a part of it only when that is asked for', async (context) => {
  const { engine } = await startEngine(context, tinyModel(context, { script }));
  const reported = idsOf(await collect(engine, texts('user', { returnsIds: true }), never));
  const stop = reported[2]!;
  const before = await collect(engine, texts('user', { stopIds: [stop], returnsIds: true }), never);
  assert.deepEqual(
    [before.text, before.finish],
    [' one two', { type: 'finish', choice: 0, reason: 'stop', stopTokenId: stop }],
  );
  assert.deepEqual(idsOf(before), reported.slice(0, 2));
  const within = await collect(engine, texts('user', { stopIds: [stop], includesStop: true, returnsIds: true }), never);
  assert.deepEqual([within.text, within.finish?.stopTokenId], [' one two thr', stop]);
  assert.deepEqual(idsOf(within), reported.slice(0, 3));
  const late = await collect(engine, texts('user', { stopIds: [stop], tokensMin: 3 }), never);
  assert.ok((late.usage?.completionTokens ?? 0) >= 3);
});

test('a stop sequence is a part of the answer when that is asked for, and does not end it too early', async (context) => {
  const { engine } = await startEngine(context, tinyModel(context, { script }));
  const stop = ['thre'];
  const cut = await collect(engine, texts('user', {}, { stop }), never);
  assert.deepEqual([cut.text, cut.finish?.stopSequence], [' one two ', 'thre']);
  const whole = await collect(engine, texts('user', { includesStop: true }, { stop, logprobs: 0 }), never);
  assert.deepEqual([whole.text, whole.finish?.stopSequence], [' one two thre', 'thre']);
  assert.deepEqual(
    logprobsOf(whole).map(({ token }) => token),
    [' one', ' two', ' thr', 'ee'],
  );
  const later = await collect(engine, texts('user', { tokensMin: 4 }, { stop }), never);
  assert.equal(later.text, ' one two three four');
});

test('ignore_eos and min_tokens keep the end from coming', async (context) => {
  const { engine } = await startEngine(context, tinyModel(context, { script }));
  const plain = await collect(engine, texts('user', {}, { maxTokens: 12 }), never);
  assert.deepEqual([plain.usage?.completionTokens, plain.finish?.reason], [5, 'stop']);
  const on = await collect(engine, texts('user', { ignoresEnd: true, returnsIds: true }, { maxTokens: 12 }), never);
  assert.deepEqual([on.usage?.completionTokens, on.finish?.reason], [12, 'length']);
  assert.ok(on.text.startsWith(' one two three four'));
  assert.equal(idsOf(on).length, 12);
  const least = await collect(engine, texts('user', { tokensMin: 8 }, { maxTokens: 12 }), never);
  assert.ok((least.usage?.completionTokens ?? 0) >= 8);
});

test('a constraint that is complete ends the answer, whatever is to be ignored', async (context) => {
  const { engine } = await startEngine(context, tinyModel(context));
  const gbnf = 'root ::= "ab" | "cd"';
  const constraint = { source: { type: 'grammar', text: gbnf }, gbnf } as const;
  // The control tokens stand last in the vocabulary, the ends of a generation among them.
  const last = [1, 2, 3].map((index) => [String(engine.vocabularySize! - index), -100] as const);
  const requests: readonly (readonly [Partial<TokenControls>, Partial<EngineRequest>])[] = [
    [{}, {}],
    [{ ignoresEnd: true }, {}],
    [{ tokensMin: 6 }, {}],
    [{}, { logitBias: Object.fromEntries(last) }],
  ];
  for (const [tokens, more] of requests) {
    const answer = await collect(engine, ids([60, 61], tokens, { constraint, maxTokens: 16, ...more }), never);
    assert.match(answer.text, /^(ab|cd)$/);
    assert.equal(answer.finish?.reason, 'stop');
  }
  const open = 'root ::= [a-z]*';
  const endless = { source: { type: 'grammar', text: open }, gbnf: open } as const;
  const answer = await collect(
    engine,
    ids([60, 61], { ignoresEnd: true }, { constraint: endless, maxTokens: 16 }),
    never,
  );
  assert.deepEqual([answer.usage?.completionTokens, answer.finish?.reason], [16, 'length']);
});

test('special tokens have a text when that is asked for', async (context) => {
  const special = [['user', ' one', '<|im_start|>', ' two', '<|im_end|>']];
  const { engine } = await startEngine(context, tinyModel(context, { script: special }));
  assert.equal((await collect(engine, texts('user'), never)).text, ' one two');
  const shown = await collect(engine, texts('user', { skipsSpecial: false, returnsIds: true }), never);
  assert.equal(shown.text, ' one<|im_start|> two');
  const start = idsOf(shown)[1]!;
  const echoed = await collect(engine, ids([start], { echo: true, skipsSpecial: false }, { maxTokens: 1 }), never);
  assert.equal(promptsOf(echoed)[0]?.text, '<|im_start|>');
});

test('the token that a vocabulary begins a text with is left out when that is asked for', async (context) => {
  const { engine } = await startEngine(context, tinyModel(context, { tokenizer: 'spm' }));
  const [withIt, without] = await Promise.all(
    [true, false].map((addsSpecial) =>
      collect(engine, texts('the one', { returnsIds: true, addsSpecial }, { maxTokens: 1 }), never),
    ),
  );
  const [first, ...rest] = promptsOf(withIt!)[0]?.tokenIds ?? [];
  assert.equal(first, 1);
  assert.deepEqual(promptsOf(without!)[0]?.tokenIds, rest);
});

test('the first blank of an answer is a part of the text that goes on, also in SentencePiece', async (context) => {
  const { engine } = await startEngine(context, tinyModel(context, { tokenizer: 'spm' }));
  const answer = await collect(
    engine,
    ids([5], {}, { maxTokens: 1, logprobs: 0, logitBias: { [String(spmBlankThe)]: 100 } }),
    never,
  );
  assert.equal(answer.text, logprobsOf(answer)[0]?.token);
  assert.match(answer.text, /^ /);
});

test('an invalid token is refused by its position', async (context) => {
  const { engine } = await startEngine(context, tinyModel(context));
  const size = engine.vocabularySize!;
  const refused = async (request: EngineRequest): Promise<string | undefined> => {
    try {
      await collect(engine, request, never);
      return undefined;
    } catch (error) {
      assert.ok(error instanceof ApiError);
      assert.equal(error.code, 'unsupported_value');
      return error.param;
    }
  };
  assert.equal(await refused(ids([1, 2, size])), 'prompt[2]');
  assert.equal(await refused(ids([1, 2, size - 1])), undefined);
  const two = { type: 'token-ids', prompts: [[1], [2, -1]] } as const;
  assert.equal(await refused({ ...ids([1]), prompt: two }), 'prompt[1][1]');
  assert.equal(await refused(ids([1], { stopIds: [size] })), 'stop_token_ids');
});

test('each choice of each prompt has its own prompt', async (context) => {
  const { engine } = await startEngine(context, tinyModel(context, { script }), { slots: 2 });
  const prompt = { type: 'texts', prompts: ['a user', 'b user'] } as const;
  const answer = await collect(
    engine,
    { ...texts(''), prompt, choices: 2, tokens: { ...plainTokens, echo: true } },
    never,
  );
  const reported = promptsOf(answer).toSorted((a, b) => a.choice - b.choice);
  assert.deepEqual(
    reported.map(({ choice, text }) => [choice, text]),
    [
      [0, 'a user'],
      [1, 'a user'],
      [2, 'b user'],
      [3, 'b user'],
    ],
  );
  assert.deepEqual(answer.texts, new Array(4).fill(' one two three four'));
});

/** In the vocabulary of the tiny SentencePiece model: after three control tokens, 256 bytes and `<s`, `▁`, `▁t`. */
const spmBlankThe = 3 + 256 + 3;

/** Each token begins where the ones before it end. */
function assertStarts(text: string, tokens: readonly PromptToken[]): void {
  let bytes: number[] = [];
  for (const { start, bytes: own = [] } of tokens) {
    assert.ok(start !== undefined && start <= text.length);
    const before = Buffer.from(bytes).toString();
    // Half a character stands where the character will.
    if (!before.includes('\uFFFD')) assert.equal(start, before.length);
    bytes = [...bytes, ...own];
  }
}
