import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { openModel } from '../../../../src/inference/engines/llama/bindings.ts';
import type {
  LlamaModel,
  OpenOptions,
  Sampler,
  SamplerConfig,
} from '../../../../src/inference/engines/llama/llama-model.ts';
import { TokenOrder } from '../../../../src/inference/engines/llama/token-order.ts';
import { writeTinyGguf } from '../../../support/tiny-gguf.ts';

// One test for each thing that the engine expects of node-llama-cpp's internals: another version that differs fails here.

const folder = mkdtempSync(join(tmpdir(), 'tokenhouse-bindings-'));
const scriptedFile = join(folder, 'scripted.gguf');
const randomFile = join(folder, 'random.gguf');
const neutral: SamplerConfig = { temperature: 1, topK: 1000, topP: 1, minP: 0, seed: 7 };

const options = (modelFile: string, overrides: Partial<OpenOptions> = {}): OpenOptions => ({
  modelFile,
  contextLength: 256,
  slots: 3,
  batchTokens: 64,
  threadsMax: 2,
  gpu: false,
  ...overrides,
});

describe('the bindings', () => {
  let scripted: LlamaModel;
  let random: LlamaModel;
  before(async () => {
    writeTinyGguf(scriptedFile, {
      script: [
        ['assistant\n', ' one', ' two', ' three', '<|im_end|>'],
        ['user', ' alpha', ' beta'],
      ],
    });
    writeTinyGguf(randomFile);
    scripted = await openModel(options(scriptedFile));
    random = await openModel(options(randomFile));
  });
  after(async () => {
    await scripted.dispose();
    await random.dispose();
    rmSync(folder, { recursive: true, force: true });
  });

  const id = (model: LlamaModel, text: string): number => {
    const ids = model.tokenize(text, true);
    assert.equal(ids.length, 1, text);
    return ids[0] ?? -1;
  };
  const samplerWith = (model: LlamaModel, config: SamplerConfig): Sampler => {
    const sampler = model.createSampler();
    sampler.configure(config);
    return sampler;
  };
  /** Ids that follow a prompt in a slot. */
  const generate = async (
    model: LlamaModel,
    slot: number,
    prompt: Uint32Array,
    sampler: Sampler,
    count: number,
    before: () => void = () => {},
  ): Promise<number[]> => {
    const made: number[] = [];
    let next = prompt;
    let position = model.cachedTokens(slot);
    while (made.length < count) {
      before();
      model.beginBatch(next.length);
      const logits = model.addToBatch(slot, position, next, true);
      await model.decode(1);
      position += next.length;
      made.push(...(await model.sample([{ logits: logits ?? -1, sampler }])));
      next = Uint32Array.of(made.at(-1) ?? 0);
    }
    return made;
  };

  test('tell the facts of a model', () => {
    const { facts } = scripted;
    assert.equal(facts.slots, 3);
    assert.equal(facts.contextLength, 256);
    assert.equal(facts.batchTokens, 64);
    // 2 layers × 2 key heads × (16 key + 16 value dimensions) × 2 bytes
    assert.ok(facts.chatTemplate?.includes('<|im_start|>'));
    assert.equal(facts.prependBos, false);
    assert.equal(facts.bosText, '<|endoftext|>');
    assert.equal(facts.eosText, '<|im_end|>');
    assert.equal(scripted.tokenText(facts.vocabularySize - 1), '<|im_end|>');
  });

  test('find control tokens only when asked, and user-defined ones always', () => {
    assert.equal(scripted.tokenize('<|im_end|>', true).length, 1);
    assert.ok(scripted.tokenize('<|im_end|>', false).length > 1);
    assert.deepEqual(scripted.tokenize('<think>', false), scripted.tokenize('<think>', true));
    assert.equal(scripted.tokenize('', true).length, 0);
    assert.equal(scripted.tokenTraits(id(scripted, '<|im_end|>')).kind, 'control');
    assert.equal(scripted.tokenTraits(id(scripted, '<think>')).kind, 'user-defined');
    assert.equal(scripted.tokenTraits(0).kind, 'plain');
  });

  test('write text, user-defined tokens, no control tokens, and U+FFFD for half characters', () => {
    const ids = [...scripted.tokenize('a<|im_end|><think>é', true)];
    assert.equal(scripted.detokenize(ids), 'a<think>é');
    assert.equal(scripted.detokenize([...random.tokenize('é', false)].slice(0, 1)), '\uFFFD');
  });

  test('know the end of a generation', () => {
    assert.equal(scripted.isEndOfGeneration(id(scripted, '<|im_end|>')), true);
    assert.equal(scripted.isEndOfGeneration(id(scripted, 'a')), false);
  });

  test('decode several sequences in one batch and sample them at once', async () => {
    const samplers = [0, 1].map(() => samplerWith(scripted, { ...neutral, temperature: 0 }));
    let prompts = [Uint32Array.of(1, id(scripted, 'assistant\n')), Uint32Array.of(id(scripted, 'user'))];
    const positions = [0, 0];
    const said = ['', ''];
    for (let step = 0; step < 2; step++) {
      scripted.beginBatch(prompts.reduce((sum, prompt) => sum + prompt.length, 0));
      const logits = prompts.map((prompt, slot) => scripted.addToBatch(slot, positions[slot] ?? 0, prompt, true) ?? -1);
      await scripted.decode(2);
      const ids = await scripted.sample(
        logits.map((index, slot) => ({ logits: index, sampler: samplers[slot] ?? scripted.createSampler() })),
      );
      for (const [slot, next] of ids.entries()) {
        positions[slot] = (positions[slot] ?? 0) + (prompts[slot]?.length ?? 0);
        said[slot] += scripted.detokenize([next]);
      }
      prompts = ids.map((next) => Uint32Array.of(next));
    }
    assert.deepEqual(said, [' one two', ' alpha beta']);
    assert.deepEqual(
      [0, 1, 2].map((slot) => scripted.cachedTokens(slot)),
      [3, 2, 0],
    );
    for (const slot of [0, 1]) assert.equal(scripted.truncate(slot, 0), 0);
  });

  test('never mix up the answers of a batch, whatever the lengths of its prompts', async () => {
    const triggers = ['user', 'system', 'tool', 'role'];
    const path = join(folder, 'triggers.gguf');
    writeTinyGguf(path, { script: triggers.map((trigger, index) => [trigger, ` answer ${index}`]) });
    const model = await openModel(options(path, { slots: 4, batchTokens: 128, threadsMax: 1 }));
    const samplers = triggers.map(() => samplerWith(model, { ...neutral, temperature: 0 }));
    // Sampled all at once, one round in 400 went wrong.
    for (let round = 0; round < 4000; round++) {
      const prompts = triggers.map((trigger, slot) =>
        Uint32Array.from([...new Array<number>((slot * 7 + round) % 6).fill(40), id(model, trigger)]),
      );
      model.beginBatch(prompts.reduce((sum, prompt) => sum + prompt.length, 0));
      const logits = prompts.map((prompt, slot) => model.addToBatch(slot, 0, prompt, true) ?? -1);
      await model.decode(1);
      const ids = await model.sample(
        logits.map((index, slot) => ({ logits: index, sampler: samplers[slot] ?? model.createSampler() })),
      );
      assert.deepEqual(
        ids.map((next) => model.detokenize([next])),
        [' answer 0', ' answer 1', ' answer 2', ' answer 3'],
        `round ${round}`,
      );
      for (const slot of triggers.keys()) model.truncate(slot, 0);
    }
    await model.dispose();
  });

  test('give no logits for a part of a prompt that does not end it', () => {
    scripted.beginBatch(2);
    assert.equal(scripted.addToBatch(0, 0, Uint32Array.of(1, 2), false), undefined);
  });

  test('refuse batches that are too large', () => {
    assert.throws(() => scripted.beginBatch(65), RangeError);
    assert.throws(() => scripted.beginBatch(0), RangeError);
    scripted.beginBatch(1);
    assert.throws(() => scripted.addToBatch(0, 0, Uint32Array.of(1, 2), false), RangeError);
  });

  test('forget the end of a sequence and go on from there as if it had never been', async () => {
    const prompt = random.tokenize('The quick brown fox jumps over', false);
    const greedy = () => samplerWith(random, { ...neutral, temperature: 0 });
    const first = await generate(random, 0, prompt, greedy(), 6);
    assert.equal(random.truncate(0, prompt.length - 1), prompt.length - 1);
    assert.equal(random.cachedTokens(0), prompt.length - 1);
    assert.deepEqual(await generate(random, 0, prompt.subarray(-1), greedy(), 6), first);
    assert.equal(random.truncate(0, 0), 0);
    assert.equal(random.cachedTokens(0), 0);
  });

  test('keep the random state of a sampler when it is configured again with the same seed', async () => {
    const prompt = random.tokenize('A service takes', false);
    const once = await generate(random, 1, prompt, samplerWith(random, neutral), 12);
    random.truncate(1, 0);
    const sampler = samplerWith(random, neutral);
    const often = await generate(random, 1, prompt, sampler, 12, () => sampler.configure(neutral));
    random.truncate(1, 0);
    assert.deepEqual(often, once);
    const other = await generate(random, 1, prompt, samplerWith(random, { ...neutral, seed: 8 }), 12);
    random.truncate(1, 0);
    assert.notDeepEqual(other, once);
  });

  test('ban and force tokens by bias', async () => {
    const prompt = random.tokenize('A service takes', false);
    const greedy = { ...neutral, temperature: 0 };
    const [usual] = await generate(random, 1, prompt, samplerWith(random, greedy), 1);
    random.truncate(1, 0);
    const banned = samplerWith(random, {
      ...greedy,
      tokenBiasKeys: Uint32Array.of(usual ?? 0),
      tokenBiasValues: Float32Array.of(-Infinity),
    });
    assert.notEqual((await generate(random, 1, prompt, banned, 1))[0], usual);
    random.truncate(1, 0);
    const forced = samplerWith(random, {
      ...greedy,
      tokenBiasKeys: Uint32Array.of(42),
      tokenBiasValues: Float32Array.of(100),
    });
    assert.deepEqual(await generate(random, 1, prompt, forced, 3), [42, 42, 42]);
    random.truncate(1, 0);
  });

  test('tell exact probabilities of the whole vocabulary, whatever the sampler did', async () => {
    const prompt = random.tokenize('A service takes', false);
    random.beginBatch(prompt.length);
    const logits = random.addToBatch(1, 0, prompt, true) ?? -1;
    await random.decode(1);
    await random.sample([{ logits, sampler: samplerWith(random, { ...neutral, temperature: 2, topK: 1 }) }]);
    const size = random.facts.vocabularySize;
    const all = random.createLogprobs(size);
    const { top } = await random.logprobs(logits, all, 0);
    assert.equal(new Set(top.map((token) => token.id)).size, size);
    const sum = top.reduce((total, { logprob }) => total + Math.exp(logprob), 0);
    assert.ok(Math.abs(sum - 1) < 1e-4, String(sum));
    const few = random.createLogprobs(3);
    for (const { id, logprob } of [...top.slice(0, 6), ...top.slice(-6)]) {
      const logprobs = await random.logprobs(logits, few, id);
      assert.ok(Math.abs(logprobs.logprob - logprob) < 1e-3, `${logprobs.logprob} ${logprob}`);
      assert.deepEqual(
        logprobs.top,
        top.slice(0, 3).map((token, index) => ({ ...token, logprob: logprobs.top[index]?.logprob })),
      );
    }
    for (const logprobs of [all, few]) logprobs.dispose();
    random.truncate(1, 0);
  });

  test('follow grammars: what fits, what does not, when a text is complete, and what cannot be read', async () => {
    const state = scripted.createGrammar('root ::= "a" ("b" | "c")').begin();
    const end = scripted.facts.eos ?? -1;
    assert.deepEqual(
      [state.allows(id(scripted, 'a')), state.allows(id(scripted, 'b')), state.allows(end)],
      [true, false, false],
    );
    assert.equal(state.take(end), false, 'and the process lives');
    assert.equal(state.take(id(scripted, 'a')), true);
    assert.equal(state.take(id(scripted, 'c')), true);
    assert.deepEqual([state.allows(id(scripted, 'b')), state.allows(end)], [false, true]);
    for (const bad of ['', 'root ::= (', 'root ::= nowhere']) assert.throws(() => scripted.createGrammar(bad));
    // The script insists on ` one`; an error of one sampler is nothing to the others.
    const prompt = Uint32Array.of(id(scripted, 'assistant\n'));
    scripted.beginBatch(2);
    const logits = [1, 2].map((slot) => scripted.addToBatch(slot, 0, prompt, true) ?? -1);
    await scripted.decode(1);
    const grammar = scripted.createGrammar('root ::= "xyz"').begin();
    const banned = {
      tokenBiasKeys: Uint32Array.from({ length: scripted.facts.vocabularySize }, (_, token) => token),
      tokenBiasValues: new Float32Array(scripted.facts.vocabularySize).fill(-Infinity),
    };
    const ids = await scripted.sample([
      { logits: logits[0] ?? -1, sampler: samplerWith(scripted, { ...neutral, ...banned, grammar }) },
      { logits: logits[1] ?? -1, sampler: samplerWith(scripted, neutral) },
    ]);
    assert.equal(scripted.detokenize([ids[1] ?? -1]), ' one');
    for (const slot of [1, 2]) scripted.truncate(slot, 0);
  });

  test('find all tokens that a grammar allows by asking about few', () => {
    const { vocabularySize: size } = random.facts;
    const order = new TokenOrder({ size, bytesOf: random.tokenBytes, isEnd: random.isEndOfGeneration });
    const grammar = random.createGrammar(
      String.raw`root ::= "{" ws "\"" ("name" | "né") "\":" ws ("null" | [0-9]+ | "\"" [^"]* "\"") ws "}"
ws ::= | "\n" " "*`,
    );
    const state = grammar.begin();
    const counts: (number | undefined)[] = [];
    for (const character of '{\n  "né":\n "long"}') {
      const found = order.allowed((ids) => state.allowsEach(ids));
      const all = Array.from({ length: size }, (_, token) => token).filter((token) => state.allows(token));
      if (found !== undefined)
        assert.deepEqual(
          found.toSorted((one, other) => one - other),
          all,
          character,
        );
      counts.push(found?.length);
      for (const token of random.tokenize(character, false)) assert.ok(state.take(token), character);
    }
    // In the middle of a string nearly everything may come.
    assert.equal(counts.filter((count) => count === undefined).length, 5, counts.join(' '));
    assert.ok(counts.every((count) => count !== 0));
  });

  test('choose among the tokens that a grammar allows as if there were no others', async () => {
    const prompt = random.tokenize('A service takes', false);
    random.truncate(1, 0);
    random.beginBatch(prompt.length);
    const logits = random.addToBatch(1, 0, prompt, true) ?? -1;
    await random.decode(1);
    const grammar = random.createGrammar('root ::= [xyz]');
    const tokens = ['x', 'y', 'z'].map((text) => id(random, text));
    const logprobs = random.createLogprobs(1);
    await random.settle(logits, logprobs);
    const shares: number[] = [];
    for (const token of tokens) shares.push(Math.exp((await random.logprobs(logits, logprobs, token)).logprob));
    logprobs.dispose();
    const whole = shares.reduce((sum, share) => sum + share, 0);
    const draws = 2000;
    const counts = tokens.map(() => 0);
    for (let seed = 0; seed < draws; seed++) {
      const sampler = samplerWith(random, { ...neutral, seed, grammar: grammar.begin() });
      const [token] = await random.sample([{ logits, sampler }]);
      const place = tokens.indexOf(token ?? -1);
      assert.ok(place >= 0);
      counts[place]!++;
      sampler.dispose();
    }
    for (const [place, share] of shares.entries()) {
      const expected = share / whole;
      const deviation = Math.sqrt((expected * (1 - expected)) / draws);
      assert.ok(
        Math.abs(counts[place]! / draws - expected) < 4 * deviation,
        `${counts.join(' ')}, ${shares.join(' ')}`,
      );
    }
    const greedy = samplerWith(random, { ...neutral, temperature: 0, grammar: grammar.begin() });
    const likeliest = shares.indexOf(Math.max(...shares));
    assert.deepEqual(await random.sample([{ logits, sampler: greedy }]), [tokens[likeliest]]);
    greedy.dispose();
    random.truncate(1, 0);
  });

  test('choose among the likeliest where a grammar allows many, as if there were no others', async () => {
    const prompt = random.tokenize('A service takes', false);
    random.truncate(1, 0);
    random.beginBatch(prompt.length);
    const logits = random.addToBatch(1, 0, prompt, true) ?? -1;
    await random.decode(1);
    const { vocabularySize: size } = random.facts;
    const logprobs = random.createLogprobs(size);
    await random.settle(logits, logprobs);
    const { top } = await random.logprobs(logits, logprobs, 0);
    logprobs.dispose();
    // Everything but what begins with the first bytes of the likeliest tokens.
    const grammar = random.createGrammar('root ::= [^a-mA-M ] [^a-mA-M ]*');
    const state = grammar.begin();
    const may = top.filter(({ id }) => state.allows(id));
    assert.ok(may.length > 32 && may.length < top.length - 32, `${may.length}`);
    const whole = may.reduce((sum, { logprob }) => sum + Math.exp(logprob), 0);
    const draws = 2000;
    const counts = new Map<number, number>();
    for (let seed = 0; seed < draws; seed++) {
      const sampler = samplerWith(random, { ...neutral, seed, grammar: grammar.begin() });
      const [token = -1] = await random.sample([{ logits, sampler }]);
      counts.set(token, (counts.get(token) ?? 0) + 1);
      sampler.dispose();
    }
    for (const token of counts.keys()) assert.ok(state.allows(token));
    for (const { id: token, logprob } of may.slice(0, 8)) {
      const expected = Math.exp(logprob) / whole;
      const deviation = Math.sqrt((expected * (1 - expected)) / draws);
      assert.ok(Math.abs((counts.get(token) ?? 0) / draws - expected) < 4 * deviation, `${token}`);
    }
    random.truncate(1, 0);
  });

  test('choose in this thread what the threads of the addon choose', async () => {
    const prompt = random.tokenize('The quick brown fox', false);
    // A penalty that changes nothing: our own library knows none.
    const onThreads = { repeatPenalty: 1, repeatPenaltyMaxTokens: 8, repeatPenaltyTokens: new Uint32Array(0) };
    const biases = (values: readonly number[]) => ({
      tokenBiasKeys: Uint32Array.from(values.keys()),
      tokenBiasValues: Float32Array.from(values),
    });
    const configs: readonly Partial<SamplerConfig>[] = [
      { temperature: 0 },
      { temperature: 0, topK: 1 },
      { temperature: 1, topK: 1 },
      {},
      { topK: 5 },
      { topK: 40, topP: 0.9 },
      { temperature: 0.7, minP: 0.05 },
      { temperature: 2, topK: 150, topP: 0.8, minP: 0.01 },
      biases(Array.from({ length: 90 }, () => -Infinity)),
      { topK: 3, ...biases([1, -2, 30, 0.5, 31]) },
      { temperature: 0, ...biases([1, -2, 30, 31, 0.5]) },
    ];
    for (const config of configs) {
      const made: (readonly number[])[] = [];
      for (const others of [{}, onThreads]) {
        random.truncate(1, 0);
        const sampler = samplerWith(random, { ...neutral, ...config, ...others });
        made.push(await generate(random, 1, prompt, sampler, 24));
        sampler.dispose();
      }
      assert.deepEqual(made[0], made[1], JSON.stringify(config));
    }
    random.truncate(1, 0);
  });

  test('make a step in this thread, or give it up and make it in another', async () => {
    const prompt = random.tokenize('The quick brown fox', false);
    const ids: (readonly number[])[] = [];
    const [elsewhere, here, givenUp] = [0, 60_000, 1e-6];
    for (const hereMs of [elsewhere, here, givenUp]) {
      random.truncate(1, 0);
      const sampler = samplerWith(random, { ...neutral, temperature: 0 });
      const made: number[] = [];
      for (let next = prompt, position = 0; made.length < 12; next = Uint32Array.of(made.at(-1) ?? 0)) {
        random.beginBatch(next.length);
        const logits = random.addToBatch(1, position, next, true) ?? -1;
        position += next.length;
        const decoding = random.decode(1 + (made.length % 2), hereMs);
        assert.equal(decoding === undefined, hereMs === here && process.platform === 'linux');
        await decoding;
        made.push(...(await random.sample([{ logits, sampler }])));
      }
      ids.push(made);
    }
    assert.deepEqual(ids[1], ids[0]);
    assert.deepEqual(ids[2], ids[0]);
    random.truncate(1, 0);
  });

  test('give a step up wherever it is, and make it in another thread as if it had not begun', async () => {
    const [short, long] = [random.tokenize('The quick', false), Uint32Array.from({ length: 60 }, (_, i) => 40 + i)];
    const sampler = samplerWith(random, { ...neutral, temperature: 0 });
    // llama.cpp computes the tokens of two sequences in two parts.
    const step = async (hereMs: number): Promise<{ readonly ids: readonly number[]; readonly isHere: boolean }> => {
      for (const slot of [1, 2]) random.truncate(slot, 0);
      random.beginBatch(short.length);
      random.addToBatch(1, 0, short, false);
      await random.decode(1);
      random.beginBatch(1 + long.length);
      const places = [random.addToBatch(1, short.length, Uint32Array.of(7), true), random.addToBatch(2, 0, long, true)];
      const decoding = random.decode(1, hereMs);
      await decoding;
      const ids = await random.sample(places.map((logits = -1) => ({ logits, sampler })));
      return { ids, isHere: decoding === undefined };
    };
    const expected = await step(0);
    let isHere = false;
    for (let hereMs = 0.005; !isHere && hereMs < 60_000; hereMs *= 1.05) {
      const { ids, ...how } = await step(hereMs);
      assert.deepEqual(ids, expected.ids, `${hereMs}`);
      isHere = how.isHere || process.platform !== 'linux';
    }
    assert.ok(isHere);
    for (const slot of [1, 2]) random.truncate(slot, 0);
    sampler.dispose();
  });

  test('tell the bytes of tokens', () => {
    const bytesOf = (text: string) =>
      [...random.tokenize(text, true)].flatMap((token) => [...random.tokenBytes(token)]);
    for (const text of ['é😀 漢', 'The quick\n', '<think>', '<|im_end|>', '\t"\\'])
      assert.equal(Buffer.from(bytesOf(text)).toString(), text);
  });

  test('penalise repetition over the tokens that are given and those that are sampled', async () => {
    const prompt = random.tokenize('A service takes', false);
    const config = {
      ...neutral,
      temperature: 0,
      repeatPenalty: 1e6,
      repeatPenaltyMaxTokens: 256,
      repeatPenaltyTokens: Uint32Array.from(prompt),
    };
    const made = await generate(random, 1, prompt, samplerWith(random, config), 40);
    random.truncate(1, 0);
    assert.equal(new Set([...prompt, ...made]).size, new Set(prompt).size + made.length, 'no token comes twice');
  });

  test('take no more context than the model was trained for', async () => {
    const path = join(folder, 'short.gguf');
    writeTinyGguf(path, { contextLength: 128 });
    const model = await openModel(options(path, { contextLength: 100_000 }));
    assert.equal(model.facts.contextLength, 128);
    await model.dispose();
  });

  test('say what is wrong with a file', async () => {
    const cut = join(folder, 'cut.gguf');
    writeFileSync(cut, readFileSync(scriptedFile).subarray(0, 200_000));
    const text = join(folder, 'text.gguf');
    writeFileSync(text, 'this is no model');
    for (const file of [cut, text, join(folder, 'missing.gguf')]) await assert.rejects(openModel(options(file)), Error);
  });
});
