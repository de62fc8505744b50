/** Kinds of servers that speak the OpenAI API, each with its own fields and behaviors (inference/engines/openai/flavors/). */
export const flavorNames = ['llama-server', 'lm-studio', 'ollama', 'openai', 'sglang', 'tei', 'tgi', 'vllm'] as const;

export type FlavorName = (typeof flavorNames)[number];
