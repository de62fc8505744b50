import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Check } from 'typebox/schema';
import { printGbnf } from '../../../../src/inference/constraints/grammar.ts';
import { jsonSchemaGrammar } from '../../../../src/inference/constraints/json-schema.ts';
import { ApiError } from '../../../../src/platform/errors.ts';
import type { Constraint, EngineRequest } from '../../../../src/generation/request.ts';
import { chat, collect, never, openSampling, says, startEngine, tinyModel, words } from './support.ts';

// Constrained decoding on real llama.cpp (§4.2.3, engine.md "Constrained decoding"): models with random weights would say
// anything, scripted ones insist on their script, so whatever fits comes from the grammar.

const bound = (gbnf: string, more: Partial<EngineRequest> = {}): Partial<EngineRequest> => ({
  constraint: { source: { type: 'grammar', text: gbnf }, gbnf },
  ...more,
});
const jsonObject = `root ::= "{" space "\\"name\\"" space ":" space string "," space "\\"tags\\"" ":" list "}"
string ::= "\\"" [a-zé]{0,8} "\\""
list ::= "[" (string ("," string){0,3})? "]"
space ::= " "?`;

test('random weights write what the grammar says, at every temperature and seed, alone and side by side', async (context) => {
  const { engine } = await startEngine(context, tinyModel(context), { slots: 4 });
  const requests = Array.from({ length: 24 }, (_, seed) =>
    chat('Hi', bound(jsonObject, { maxTokens: 200, sampling: { ...openSampling, temperature: seed % 3, seed } })),
  );
  const answers = await Promise.all(requests.map((request) => collect(engine, request, never)));
  for (const { text, finish } of answers) {
    assert.equal(finish?.reason, 'stop', text);
    const value = JSON.parse(text) as { name: unknown; tags: unknown };
    assert.deepEqual([typeof value.name, Array.isArray(value.tags)], ['string', true]);
  }
  assert.ok(new Set(answers.map(({ text }) => text)).size > 4, 'the seeds say different things');
});

test('a scripted model is kept from its script, and its neighbour is not', async (context) => {
  const { engine } = await startEngine(context, tinyModel(context, { script: says(' no', ' json', ' here') }), {
    slots: 2,
  });
  const [kept, free] = await Promise.all(
    [bound('root ::= "yes" | "nope"'), {}].map((more) => collect(engine, chat('Hi', more), never)),
  );
  assert.match(kept?.text ?? '', /^(yes|nope)$/);
  assert.equal(kept?.finish?.reason, 'stop', 'a complete grammar ends the answer');
  assert.equal(free?.text, ' no json here');
});

test('a grammar without end ends at max_tokens with length', async (context) => {
  const { engine } = await startEngine(context, tinyModel(context));
  // The only way on is a byte each, and the only end is banned.
  const request = chat(
    'Hi',
    bound('root ::= ("a" | "b" | "c" | "d")+ "~"', { maxTokens: 9, logitBias: { [idOf('~')]: -100 } }),
  );
  const { text, finish, usage } = await collect(engine, request, never);
  assert.match(text, /^[abcd]+$/);
  assert.deepEqual(finish, { type: 'finish', choice: 0, reason: 'length', cause: 'max-tokens' });
  assert.equal(usage?.completionTokens, 9);
});

test('where no token fits, the answer is cut: length, never an invalid success', async (context) => {
  const { engine } = await startEngine(context, tinyModel(context));
  // The client bans every token that the grammar could go on with.
  const ban = Object.fromEntries(Array.from({ length: 256 }, (_, id) => [String(id), -100]));
  for (const temperature of [0, 1]) {
    const request = chat(
      'Hi',
      bound('root ::= "a" [b-d] "~~"', { logitBias: ban, sampling: { ...openSampling, temperature } }),
    );
    const { finish } = await collect(engine, request, never);
    assert.deepEqual(finish, { type: 'finish', choice: 0, reason: 'length', cause: 'constraint' });
  }
});

test('a complete text ends with stop though its end is banned', async (context) => {
  const path = tinyModel(context, { script: says('a', 'b') });
  const { engine } = await startEngine(context, path);
  const [end] = await endIds(path);
  const request = chat('Hi', bound('root ::= "ab"', { logitBias: { [String(end)]: -100 } }));
  const { text, finish } = await collect(engine, request, never);
  assert.deepEqual([text, finish?.reason], ['ab', 'stop']);
});

test('what llama.cpp cannot read is a 400 that names the field, and never an unbound answer', async (context) => {
  const { engine } = await startEngine(context, tinyModel(context));
  const deep = `root ::= ${'('.repeat(40_000)}"a"${')'.repeat(40_000)}`;
  for (const gbnf of [
    '',
    'root ::= (',
    'x ::= "a"',
    'root ::= root "a" | "b"',
    'root ::= nowhere',
    deep,
    `root ::= "${'a'.repeat(600_000)}"`,
  ]) {
    await assert.rejects(collect(engine, chat('Hi', bound(gbnf)), never), (error: unknown) => {
      assert.ok(error instanceof ApiError);
      assert.deepEqual([error.code, error.param], ['unsupported_value', 'response_format']);
      return true;
    });
  }
  const regex = { constraint: { source: { type: 'regex', pattern: 'a+' }, gbnf: 'root ::= (' } } as const;
  await assert.rejects(collect(engine, chat('Hi', regex), never), { param: 'regex' });
  const { pid } = engine;
  assert.match((await collect(engine, chat('Hi', bound('root ::= "ok"')), never)).text, /^ok$/);
  assert.equal(engine.pid, pid, 'the child lives');
});

test('control tokens are no text of a constrained answer', async (context) => {
  // Their literals are what the grammar asks for, and nobody would see them.
  const { engine } = await startEngine(context, tinyModel(context));
  const { text } = await collect(engine, chat('Hi', bound('root ::= "<|im_start|>" "<|endoftext|>"')), never);
  assert.equal(text, '<|im_start|><|endoftext|>');
});

test('the first blank of a constrained answer stays where SentencePiece would drop it', async (context) => {
  const { engine } = await startEngine(
    context,
    tinyModel(context, { tokenizer: 'spm', chatTemplate: '{{ messages[0].content }}' }),
  );
  const { text } = await collect(engine, chat('the', bound('root ::= " the" [ab] "\\n"')), never);
  assert.match(text, /^ the[ab]\n$/);
});

test('a constraint that branches without end ends its request alone', async (context) => {
  const { engine } = await startEngine(context, tinyModel(context, { script: says(...words(300)) }), {
    slots: 2,
    contextLength: 1024,
  });
  // After n brackets, 2^n ways of closing them are open.
  const wild = 'root ::= a\na ::= "(" a ")" | "(" a "]" | "("';
  const more = bound(wild, { maxTokens: 60, sampling: { ...openSampling, temperature: 0 } });
  const other = collect(engine, chat('Hi', { maxTokens: 200 }), never);
  const { pid } = engine;
  await assert.rejects(collect(engine, chat('Hi', { ...more, logitBias: { [idOf('(')]: 100 } }), never), {
    code: 'unsupported_value',
    param: 'response_format',
  });
  assert.equal((await other).usage?.completionTokens, 200);
  assert.equal(engine.pid, pid, 'the child lives');
});

/** Single bytes are the first tokens of the vocabulary. */
const idOf = (character: string): string => String(character.charCodeAt(0));

async function endIds(path: string): Promise<readonly number[]> {
  const { openModel } = await import('../../../../src/inference/engines/llama/bindings.ts');
  const model = await openModel({
    modelFile: path,
    contextLength: 64,
    slots: 1,
    batchTokens: 64,
    threadsMax: 1,
    gpu: false,
  });
  const ids = Array.from({ length: model.facts.vocabularySize }, (_, id) => id).filter((id) =>
    model.isEndOfGeneration(id),
  );
  await model.dispose();
  return ids;
}

test('what the constraint asks for again and again is no loop, and what the model chooses is', async (context) => {
  const { engine } = await startEngine(context, tinyModel(context), { contextLength: 2048 });
  const ask = (source: Constraint, gbnf: string) =>
    collect(engine, chat('Hi', { constraint: { source, gbnf }, maxTokens: 1500 }), never);
  const row = {
    type: 'object',
    properties: { cell: { const: 'nothing' }, at: { const: 0 } },
    required: ['cell', 'at'],
  };
  for (const schema of [
    { type: 'object', properties: { a: { const: 'ab'.repeat(60) } }, required: ['a'], additionalProperties: false },
    { type: 'array', items: { ...row, additionalProperties: false }, minItems: 8, maxItems: 8 },
  ]) {
    const gbnf = printGbnf(jsonSchemaGrammar(schema, 'schema'));
    const { text, finish } = await ask({ type: 'json-schema', schema } as unknown as Constraint, gbnf);
    assert.equal(finish?.reason, 'stop', text);
    assert.ok(Check(schema, JSON.parse(text)), text);
  }
  for (const [gbnf, written] of [
    ['root ::= ("0,"){60}', '0,'.repeat(60)],
    ['root ::= ("(" "日本" ")" | "(" "日本" "]"){1} ("日本" " "){80}', undefined],
  ] as const) {
    const { text, finish } = await ask({ type: 'grammar', text: gbnf }, gbnf);
    assert.equal(finish?.reason, 'stop', text);
    if (written !== undefined) assert.equal(text, written);
  }
});

test('a loop that its constraint allows and does not ask for is ended', async (context) => {
  // Whatever fits, the script has its way: the same again and again.
  const script = [['assistant\n', ' a', ' b', ' a']];
  const { engine } = await startEngine(context, tinyModel(context, { script }), { contextLength: 2048 });
  for (const [what, gbnf] of [
    ['free text', 'root ::= [ a-z]*'],
    ['rows of which there may be any number', 'root ::= (" a" " b")+'],
    ['words that could end before each', 'root ::= " a" (" b" " a")+ "."'],
    ['a choice inside of a token', 'root ::= " a" (" b" " a" | " bee")* "."'],
    ['blanks beyond all layout', 'root ::= "x" ([ ] | "y")* "z"'],
  ] as const) {
    const blanks = { [32]: 50 };
    const request = chat(
      'Hi',
      bound(gbnf, { maxTokens: 1000, ...(what.startsWith('blanks') ? { logitBias: blanks } : {}) }),
    );
    const { text, finish, usage } = await collect(engine, request, never);
    assert.deepEqual(finish, { type: 'finish', choice: 0, reason: 'length', cause: 'repetition' }, `${what}: ${text}`);
    assert.ok((usage?.completionTokens ?? Infinity) < 200, what);
  }
});
