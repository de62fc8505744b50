import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import type { Sampler, SamplerConfig } from '../../../../src/inference/engines/llama/llama-model.ts';
import { RepetitionGuard } from '../../../../src/inference/engines/llama/repetition.ts';
import { ChoiceSampler, samplingSettings } from '../../../../src/inference/engines/llama/sampling.ts';
import type { Sampling } from '../../../../src/generation/request.ts';
import { openSampling } from './support.ts';

const settings = (sampling: Partial<Sampling>, index = 0) =>
  samplingSettings({ ...openSampling, ...sampling }, undefined, index, () => 12345);

describe('sampling settings', () => {
  test('are neutral where nobody says anything, and never sort the whole vocabulary', () => {
    assert.deepEqual(settings({}), {
      temperature: 1,
      topK: 1000,
      topP: 1,
      minP: 0,
      seed: 12345,
      repetitionPenalty: 1,
      presencePenalty: 0,
      frequencyPenalty: 0,
      logitBias: new Map(),
    });
    assert.equal(settings({ topK: 0 }).topK, 1000);
    assert.equal(settings({ topK: 100_000 }).topK, 1000);
    assert.equal(settings({ topK: 40 }).topK, 40);
  });

  test('give each choice a seed of its own, and never the one that means any', () => {
    assert.deepEqual(
      [0, 1, 2].map((index) => settings({ seed: 41 }, index).seed),
      [41, 42, 43],
    );
    for (const seed of [-1, 2 ** 32 - 1, 2 ** 53]) {
      const made = settings({ seed }).seed;
      assert.ok(made >= 0 && made < 2 ** 32 - 1, String(made));
    }
  });

  test('are finite and in range for any numbers', () => {
    const numbers = fc.record(
      Object.fromEntries(Object.keys(openSampling).map((name) => [name, fc.option(fc.double(), { nil: undefined })])),
    ) as unknown as fc.Arbitrary<Sampling>;
    fc.assert(
      fc.property(numbers, fc.nat(100), (sampling, index) => {
        const { logitBias: _, ...made } = samplingSettings(sampling, undefined, index, () => 7);
        for (const [name, value] of Object.entries(made)) assert.ok(Number.isFinite(value), name);
        assert.ok(made.topK >= 1 && made.topK <= 1000 && Number.isInteger(made.topK));
        assert.ok(made.temperature >= 0 && made.topP >= 0 && made.topP <= 1);
      }),
    );
  });
});

describe('a choice sampler', () => {
  const record = (sampling: Partial<Sampling>, logitBias?: Record<string, number>) => {
    const configs: SamplerConfig[] = [];
    const sampler: Sampler = { configure: (config) => configs.push(config), dispose: () => {} };
    const made = samplingSettings({ ...openSampling, ...sampling }, logitBias, 0, () => 7);
    return { configs, choice: new ChoiceSampler(sampler, made, [1, 2], 100) };
  };
  const biases = ({ tokenBiasKeys, tokenBiasValues }: SamplerConfig) =>
    [...(tokenBiasKeys ?? [])].map((key, index) => [key, tokenBiasValues?.[index]]);

  test('is configured once when nothing depends on what was said', () => {
    const { configs, choice } = record({ repetitionPenalty: 1.5 }, { 5: -100, 6: 2 });
    choice.accept(3);
    assert.equal(configs.length, 1);
    assert.deepEqual(configs[0]?.repeatPenaltyTokens, Uint32Array.of(1, 2));
    assert.deepEqual(biases(configs[0] as SamplerConfig), [
      [5, -Infinity],
      [6, 2],
    ]);
    assert.ok(
      !Object.values(configs[0] ?? {}).includes(undefined as never),
      'the addon refuses keys that are undefined',
    );
  });

  test('counts presence once, frequency each time, both over the answer alone', () => {
    const { configs, choice } = record({ presencePenalty: 0.5, frequencyPenalty: 0.25 }, { 3: 1 });
    for (const id of [3, 4, 3]) choice.accept(id);
    assert.deepEqual(biases(configs.at(-1) as SamplerConfig), [
      [3, 1 - 0.5 - 0.5],
      [4, -0.75],
    ]);
    assert.equal(configs.at(-1)?.repeatPenaltyTokens, undefined);
  });

  test('penalises repetition over prompt and answer beside the others', () => {
    const { configs, choice } = record({ presencePenalty: 0.5, repetitionPenalty: 2 });
    choice.accept(9);
    assert.deepEqual(configs.at(-1)?.repeatPenaltyTokens, Uint32Array.of(1, 2, 9));
  });
});

describe('the repetition guard', () => {
  const endsAt = (ids: readonly number[]) => {
    const guard = new RepetitionGuard();
    return ids.findIndex((id) => guard.push(id)) + 1;
  };

  test('ends a loop when the same 20 tokens come for the fifth time, and counts once what overlaps', () => {
    for (const [period, end] of [
      [1, 100],
      [2, 100],
      [7, 104],
      [20, 100],
      [33, 152],
    ] as const) {
      const ids = Array.from({ length: 400 }, (_, index) => index % period);
      assert.equal(endsAt(ids), end, `of ${period}`);
    }
  });

  test('lets texts be that repeat less', () => {
    const block = Array.from({ length: 40 }, (_, index) => index);
    assert.equal(endsAt([...block, ...block, ...block, ...block]), 0);
    assert.equal(endsAt(Array.from({ length: 4000 }, (_, index) => (index * index) % 1009)), 0);
  });
});
