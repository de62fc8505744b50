/** Well-known models with permissive licences, by size: the argument of `models add`, and what each needs. */
export const betterModels = [
  { source: 'hf:Qwen/Qwen2.5-0.5B-Instruct-GGUF:Q4_K_M', gigabytes: 0.5, about: 'quick on any computer' },
  { source: 'hf:Qwen/Qwen2.5-1.5B-Instruct-GGUF:Q4_K_M', gigabytes: 1.1, about: 'good short answers' },
  { source: 'hf:Qwen/Qwen3-4B-GGUF:Q4_K_M', gigabytes: 2.5, about: 'reasons and calls tools' },
] as const;

/** Lines that offer them, for a service with only the default model. */
export const offerOfBetterModels = (): readonly string[] => [
  'The default model is there to try things out. Better ones, Apache-2.0, taken over while the service runs:',
  '',
  ...betterModels.map(
    ({ source, gigabytes, about }) =>
      `  npx tokenhouse models add ${source.padEnd(Math.max(...betterModels.map((model) => model.source.length)))}  # ${gigabytes} GB, ${about}`,
  ),
];
