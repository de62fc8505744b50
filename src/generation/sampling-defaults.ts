import type { Sampling } from './request.ts';

/** The values that a model uses for sampling fields that a request omits. A field without one is neutral. */
export type SamplingDefaults = Partial<Pick<Sampling, (typeof defaultableFields)[DefaultableName]['field']>>;

/** The sampling fields that a model may have a default for, by their API names, with the range that requests may use. */
export const defaultableFields = {
  temperature: { field: 'temperature', minimum: 0, maximum: 2, isWhole: false, example: 0.7 },
  top_p: { field: 'topP', minimum: 0, maximum: 1, isWhole: false, example: 0.9 },
  top_k: { field: 'topK', minimum: 0, maximum: 1_000_000, isWhole: true, example: 40 },
  min_p: { field: 'minP', minimum: 0, maximum: 1, isWhole: false, example: 0.05 },
  repetition_penalty: { field: 'repetitionPenalty', minimum: 0.01, maximum: 10, isWhole: false, example: 1.1 },
} as const;

export type DefaultableName = keyof typeof defaultableFields;

export const defaultableNames = Object.keys(defaultableFields) as readonly DefaultableName[];

/**
 * Reads the defaults in a file, which may have different names for the fields. Values that are not numbers in the field's range are
 * omitted.
 */
export function samplingDefaultsIn(valueOf: (name: DefaultableName) => unknown): SamplingDefaults {
  const stated = defaultableNames.flatMap((name) => {
    const { field, minimum, maximum, isWhole } = defaultableFields[name];
    const value = valueOf(name);
    const isValid =
      typeof value === 'number' && value >= minimum && value <= maximum && (!isWhole || Number.isInteger(value));
    return isValid ? [[field, value]] : [];
  });
  return Object.fromEntries(stated) as SamplingDefaults;
}

/** The request's own values, completed by the model's. */
export const withSamplingDefaults = (sampling: Sampling, defaults: SamplingDefaults): Sampling => ({
  temperature: sampling.temperature ?? defaults.temperature,
  topP: sampling.topP ?? defaults.topP,
  topK: sampling.topK ?? defaults.topK,
  minP: sampling.minP ?? defaults.minP,
  presencePenalty: sampling.presencePenalty,
  frequencyPenalty: sampling.frequencyPenalty,
  repetitionPenalty: sampling.repetitionPenalty ?? defaults.repetitionPenalty,
  seed: sampling.seed,
});
